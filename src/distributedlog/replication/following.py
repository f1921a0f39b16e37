"""Following: a replica takes the leader's batches as they are, and removes what the leader does not have.

Two logs of one partition are compared by their leader epochs, never by the high watermark alone: it may lag
behind what is committed, and truncating there loses records that were acknowledged, or leaves some that the
leader does not have.
"""

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import DiskFullError, LogDirectoryFailedError
from distributedlog.replication.contract import Corruption
from distributedlog.replication.fetch_planner import FetchPosition
from distributedlog.replication.replica import Replica
from distributedlog.storage.append import AppendResult
from distributedlog.storage.epochs import NO_EPOCH, UNKNOWN_END, EpochEnd
from distributedlog.storage.log import PartitionLog


class FollowerReplica(Replica):
    """A replica as far as it follows a leader."""

    __slots__ = ()

    def append_as_follower(
        self,
        data: Buffer,
        *,
        leader_epoch: int,
        leader_high_watermark: int,
        leader_log_start: int = 0,
        now_ms: int,
    ) -> AppendResult | None:
        """Appends whole batches from the leader, perhaps none, and follows its high watermark and log start.
        Fetch on from `committable_end_offset` once a sync has made that the log's end."""
        self._check_follows(leader_epoch)
        result = None
        if data:
            result = self._append_or_free_space(data, leader_epoch, now_ms)
            self._finish_append(len(data), now_ms, is_awaited=True)
            self._store_start()
        self.follow_watermarks(leader_high_watermark, leader_log_start, now_ms)
        return result

    def _append_or_free_space(self, data: Buffer, leader_epoch: int, now_ms: int) -> AppendResult:
        """Appends, once more after a full disk if space can be freed."""
        try:
            return self.log.append_as_follower(data, leader_epoch=leader_epoch, now_ms=now_ms)
        except LogDirectoryFailedError as error:
            self.fail(error)
            raise
        except DiskFullError:
            if not self._free_space():
                raise
            return self.log.append_as_follower(data, leader_epoch=leader_epoch, now_ms=now_ms)

    @property
    def fetch_position(self) -> FetchPosition | None:
        """From where on to fetch; None while something is appended or cut that is not stored yet."""
        log = self.log
        if not self.is_stored:
            return None
        last_epoch = log.epochs.epoch_for_offset(log.end_offset - 1)
        return FetchPosition(
            self.leader_epoch,
            log.end_offset,
            NO_EPOCH if last_epoch is None else last_epoch,
            self.stored_start_offset,
            log.high_watermark,
        )

    def follow_watermarks(self, leader_high_watermark: int, leader_log_start: int, now_ms: int) -> None:
        """Deletes what the leader has deleted, as far as it is committed, and takes its high watermark.

        In this order: before its log start the leader cannot tell whether our records are those that were
        committed there, and others must not count as committed here."""
        log = self.log
        high_watermark = max(log.high_watermark, min(leader_high_watermark, log.end_offset))
        start = min(leader_log_start, high_watermark)
        if start > log.start_offset:
            log.advance_start_offset(start, now_ms, high_watermark=high_watermark)
            self._store_start()
        if high_watermark > log.high_watermark:
            self._set_high_watermark(high_watermark)

    @property
    def stored_start_offset(self) -> int:
        """The log start that a crash cannot take back: checkpointed, or the first segment's own.  No other is
        told the leader, which answers for deleted records by it."""
        return max(self.log.segments.first.base_offset, min(self._stored_start, self.log.start_offset))

    def _store_start(self) -> None:
        if self.stored_start_offset < self.log.start_offset:
            self._notify(self._signals.start_followed)

    def note_start_stored(self, offset: int) -> None:
        """Notes that this log start is checkpointed.  Writes may be told of out of order: what the leader was
        told is not taken back."""
        before = self.stored_start_offset
        self._stored_start = max(self._stored_start, min(offset, self.log.start_offset))
        if self._view is None and self._is_usable and self.stored_start_offset > before:
            self._notify(self._signals.end_stored)

    def truncate_to(self, offset: int, *, leader_epoch: int, now_ms: int) -> None:
        """Removes what is behind the end of the leader's log: it was elected uncleanly."""
        self._check_follows(leader_epoch)
        self._truncate(offset, now_ms)

    def _truncate(self, offset: int, now_ms: int) -> None:
        """Synced beside the loop; nothing is fetched or appended before that is done."""
        if offset < self.log.end_offset:
            self.log.truncate_to(offset, now_ms, sync=False)
            self._forget_truncated()
            self._await_sync()

    def _forget_truncated(self) -> None:
        """A log that starts earlier than before has its start checkpointed anew."""
        self._stored_start = min(self._stored_start, self.log.start_offset)
        while self._uncommitted and self._uncommitted[-1][0] > self.log.end_offset:
            self._uncommitted.pop()

    def truncate_by_epoch(self, leader_end: EpochEnd, *, leader_epoch: int, now_ms: int) -> bool:
        """Removes what the leader does not have, given where an epoch ends there (`diverging`, or the
        response for our latest epoch).  False if the leader must be asked for the epoch that is now our last.
        """
        self._check_follows(leader_epoch)
        target, is_done = find_truncation_offset(self.log, leader_end)
        self._truncate(target, now_ms)
        # An epoch in which this replica led and appended nothing would be sent to the leader for ever.
        self.log.epochs.truncate_from_end(self.log.end_offset)
        return is_done

    def restart_at(self, offset: int, *, leader_epoch: int, now_ms: int) -> None:
        """Removes everything and goes on at `offset`: the leader's log starts behind the end of ours."""
        self._check_follows(leader_epoch)
        self._uncommitted.clear()
        self.log.restart_at(offset, now_ms)
        self._forget_truncated()

    def note_corruption(self, base_offset: int, reason: str) -> None:
        """Notes that the segment that begins at `base_offset` is corrupt: nothing is fetched until it is set
        aside.  Of several the first counts, and the leader epoch in which the last was found."""
        before = self.corruption
        if before is not None and before.base_offset < base_offset:
            base_offset, reason = before.base_offset, before.reason
        self.corruption = Corruption(base_offset, self.leader_epoch, reason)
        self._notify(self._signals.state_changed)

    def set_aside_corruption(self, now_ms: int) -> str:
        """Ends the log before what is corrupt, and fetches on from there; returns where that is kept.

        Committed records go.  So this replica must be out of the ISR and the ELR, in a leader epoch in which
        it has not fetched yet (decision 28).
        """
        corruption = self.corruption
        assert corruption is not None
        assert self.leader_epoch > corruption.leader_epoch, "an old fetch may count for the ISR"
        self._check_follows(self.leader_epoch)
        kept = self.log.set_aside_from(corruption.base_offset, now_ms)
        self._forget_truncated()
        self.corruption = None
        self._notify(self._signals.state_changed)
        return kept

    def _check_follows(self, leader_epoch: int) -> None:
        self._check_epoch(leader_epoch)
        if self._view is not None or self.is_stopped or self.failure is not None:
            self._raise_unavailable()


def find_truncation_offset(log: PartitionLog, leader_end: EpochEnd) -> tuple[int, bool]:
    """Returns the offset to truncate a follower's log to, and whether the rest is all in the leader's.

    `leader_end` is where the requested epoch, or the one before it, ends in the leader's log.

    | the leader knows                | keep up to                                    | done               |
    |---------------------------------|-----------------------------------------------|--------------------|
    | no epoch at all up to that one  | the high watermark: what is committed it has  | yes                |
    | an epoch that we have too       | the lower one of where it ends there and here | yes                |
    | an epoch that we do not have    | where the largest of ours before it ends      | ask again for that |
    | an epoch, and we have none      | where it ends there                           | yes                |
    """
    if leader_end == UNKNOWN_END:
        return log.high_watermark, True
    own = log.epochs.end_offset_for(leader_end.epoch, log.end_offset)
    if own != UNKNOWN_END and own.epoch == leader_end.epoch:
        return min(own.end_offset, leader_end.end_offset), True
    if not log.epochs.entries:
        return min(log.end_offset, leader_end.end_offset), True
    return (log.end_offset if own == UNKNOWN_END else own.end_offset), False
