"""One partition on this broker: a log with a role.  Lives on the data loop; nothing here waits.

    none ──► leader ◄──► follower        by `become_leader` and `become_follower`, with each new leader epoch
      any of them ──► stopped            the broker holds no replica of it any more
      any of them ──► failed             its disk is out of use: every call says KAFKA_STORAGE_ERROR

    log start ≤ last stable offset ≤ high watermark ≤ position ≤ log end

An append checks leadership and, for acks=all, that enough replicas are in sync; then the log checks the
batches and writes them.  With `flush.on.commit` (the default) the replica's *position* is its flushed end:
each append asks for a sync, which all appends before it share, and the high watermark (`isr`) follows when
the sync is done; syncs that nobody waits for rest a few milliseconds in between.  Without, the position is
the log's end, and `flush.messages` and `flush.ms` decide about syncs.  Consumers read up to the high
watermark, or the last stable offset; followers to the log's end.

Whoever waits for something subscribes to `PartitionSignals`, which all partitions of a broker share: parked
requests are released by them, and nobody polls.  Signals are sent last in a call, when all is settled, and
from within a call into the partition or from the end of a sync.

What a crash does: recovery keeps of the log what is on the disk, all of it synced, so a leader that alone
is the ISR may count all of it.  Where others are in the ISR, the high watermark begins at its checkpoint, or
at the log's start, and rises when they have fetched.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NoReturn

from distributedlog.model.buffers import Buffer, MutableBuffer
from distributedlog.model.config import LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DiskFullError,
    FencedLeaderEpochError,
    LogClosedError,
    LogDirectoryFailedError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    StorageError,
    UnknownLeaderEpochError,
)
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.ports.executor import Executor
from distributedlog.replication.contract import (
    ACKS_ALL,
    HIGH_WATERMARK,
    NO_LEADER,
    UNCHECKED,
    Isolation,
    ListedOffset,
    Listener,
    PartitionRead,
    PartitionSignals,
)
from distributedlog.replication.histories import truncation_point
from distributedlog.replication.isr import UNKNOWN_EPOCH, LeaderView
from distributedlog.replication.offsets import list_offset
from distributedlog.storage.append import AppendResult, Origin
from distributedlog.storage.epochs import NO_EPOCH, UNKNOWN_END, EpochEnd
from distributedlog.storage.files import FileRegion
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.sync import GroupSync, Rest
from distributedlog.storage.txn_index import AbortedTransaction


def no_room() -> bool:
    """What a partition does about a full disk when nobody told it how to make room."""
    return False


class Partition:
    __slots__ = (
        "_make_room",
        "_min_insync_replicas",
        "_signals",
        "_sync",
        "_sync_armed",
        "_uncommitted",
        "_view",
        "appended_bytes",
        "broker_id",
        "committed_bytes",
        "failure",
        "is_stopped",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "partition_id",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: Uuid,
        partition_id: int,
        log: PartitionLog,
        *,
        broker_id: int,
        executor: Executor,
        signals: PartitionSignals,
        min_insync_replicas: int = 1,
        make_room: Callable[[], bool] = no_room,
        rest: Rest | None = None,
    ) -> None:
        """`executor` calls back on the data loop.  `make_room` is asked when the disk is full."""
        self.topic = topic
        self.topic_id = topic_id
        self.partition_id = partition_id
        self.log = log
        self.broker_id = broker_id
        self.leader_id = NO_LEADER
        self.leader_epoch = UNKNOWN_EPOCH
        self.partition_epoch = UNKNOWN_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.failure: StorageError | None = None
        self.is_stopped = False
        self.appended_bytes = 0
        """Since this object was made.  Like `committed_bytes`, for who waits until there is much to read."""
        self.committed_bytes = 0
        self._signals = signals
        self._make_room = make_room
        self._min_insync_replicas = min_insync_replicas
        self._view: LeaderView | None = None
        self._sync = GroupSync(log, executor, rest)
        self._sync_armed = False
        self._uncommitted: deque[tuple[int, int]] = deque()

    def __repr__(self) -> str:
        return f"<{self.key} {'leads' if self.is_leader else 'does not lead'} in epoch {self.leader_epoch}>"

    # --- what it is ----------------------------------------------------------------------------

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition_id)

    @property
    def is_leader(self) -> bool:
        return self._view is not None

    @property
    def view(self) -> LeaderView | None:
        """What the leader knows of its followers; None if this broker does not lead."""
        return self._view

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.end_offset

    @property
    def position(self) -> int:
        """Up to where this replica has stored the log as the topic wants it stored."""
        log = self.log
        return log.flushed_end_offset if log.config.flush_on_commit else log.end_offset

    # --- roles ---------------------------------------------------------------------------------

    def become_leader(
        self,
        leader_epoch: int,
        *,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        now_ms: int,
    ) -> None:
        """Also when only the replicas or the ISR have changed: the epoch is then the one it had.

        `now_ms` is of the monotonic clock, as in `read_as_follower`; everywhere else it is the wall clock's.
        """
        if self.failure is not None or self.is_stopped:
            return
        log, view = self.log, self._view
        if view is None or leader_epoch != self.leader_epoch:
            if leader_epoch > log.epochs.latest_epoch:
                # Written with the next sync; without records it may go.
                log.epochs.assign(leader_epoch, log.end_offset)
            self._view = LeaderView(
                self.broker_id,
                replicas=replicas,
                isr=isr,
                min_insync_replicas=self._min_insync_replicas,
                high_watermark=log.high_watermark,
                epoch_start_offset=log.end_offset,
                now_ms=now_ms,
            )
        else:
            view.replicas_are(replicas, isr, now_ms)
        self._take(leader_epoch, partition_epoch, self.broker_id, replicas, isr)
        if self.position < log.end_offset:
            self._want_sync()
        self._advance()
        self._tell(self._signals.state_changed)

    def become_follower(
        self,
        leader_epoch: int,
        *,
        partition_epoch: int,
        leader_id: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
    ) -> None:
        """`leader_id` may be NO_LEADER: it then follows nobody until there is one."""
        if self.failure is not None or self.is_stopped:
            return
        self._view = None
        self._take(leader_epoch, partition_epoch, leader_id, replicas, isr)
        self._tell(self._signals.state_changed)

    def _take(
        self,
        leader_epoch: int,
        partition_epoch: int,
        leader_id: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
    ) -> None:
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.leader_id = leader_id
        self.replicas = replicas
        self.isr = isr

    def stop(self) -> None:
        """For good.  Its log is no longer this object's to touch."""
        if not self.is_stopped:
            self.is_stopped = True
            self._view = None
            self._tell(self._signals.state_changed)

    def fail(self, failure: StorageError) -> None:
        """For good: the disk is out of use."""
        if self.failure is None and not self.is_stopped:
            self.failure = failure
            self._view = None
            self._tell(self._signals.state_changed)

    def reconfigure(self, config: LogConfig, min_insync_replicas: int) -> None:
        """From now on; nothing that was committed is taken back."""
        self._min_insync_replicas = min_insync_replicas
        view, was_short = self._view, self._view is not None and self._view.is_short
        if view is not None:
            view.set_min_insync_replicas(min_insync_replicas)
        if config != self.log.config:
            self.log.reconfigure(config)
            if self.position < self.log.end_offset and self._is_usable:
                self._want_sync()
        self._advance()
        if view is not None and view.is_short != was_short:
            self._tell(self._signals.state_changed)

    def _tell(self, listeners: list[Listener]) -> None:
        for listener in listeners:
            listener(self)

    @property
    def _is_usable(self) -> bool:
        return self.failure is None and not self.is_stopped

    # --- refusing ------------------------------------------------------------------------------

    def check_leader(self, current_leader_epoch: int = UNCHECKED) -> LeaderView:
        """Raises unless this broker leads, in the epoch that the asker knows."""
        view = self._view
        if view is None or UNCHECKED != current_leader_epoch != self.leader_epoch:
            self._check_epoch(current_leader_epoch)
            self._refuse()
        return view

    def check_replica(self, current_leader_epoch: int = UNCHECKED) -> None:
        """Raises unless this broker has a replica, of the epoch that the asker knows."""
        if not self._is_usable or self.leader_id == NO_LEADER:
            self._refuse()
        self._check_epoch(current_leader_epoch)

    def _check_epoch(self, current_leader_epoch: int) -> None:
        if self.failure is not None:
            self._refuse()
        if current_leader_epoch == UNCHECKED or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(
                f"{self.key} has a leader of epoch {self.leader_epoch}; {current_leader_epoch} is over"
            )
        raise UnknownLeaderEpochError(
            f"{self.key} has a leader of epoch {self.leader_epoch} here; {current_leader_epoch} is not known"
        )

    def _refuse(self) -> NoReturn:
        if self.failure is not None:
            raise LogDirectoryFailedError(str(self.failure)) from self.failure
        raise NotLeaderOrFollowerError(f"broker {self.broker_id} does not lead {self.key}")

    # --- appending -----------------------------------------------------------------------------

    def append(
        self, data: MutableBuffer, required_acks: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendResult:
        """Writes the batches in `data`, which get their offsets in place.

        With acks=all, park until `acknowledged(result.last_offset + 1)` says something (`broker/delayed`).
        """
        view = self._view
        if view is None:
            self._refuse()
        if required_acks == ACKS_ALL and view.is_short:
            raise NotEnoughReplicasError(
                f"{self.key} has {len(view.isr)} replicas in sync, fewer than min.insync.replicas"
            )
        log = self.log
        try:
            result = log.append_as_leader(data, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin)
        except StorageError as error:
            result = self._append_again(data, now_ms, origin, error)
        if result.is_duplicate:
            return result
        self._appended(len(data), now_ms, required_acks == ACKS_ALL)
        return result

    def _append_again(
        self, data: MutableBuffer, now_ms: int, origin: Origin, error: StorageError
    ) -> AppendResult:
        """On a full disk, once, if room can be made.  Anything else that went wrong is final."""
        if isinstance(error, LogDirectoryFailedError):
            self.fail(error)
        if not isinstance(error, DiskFullError) or not self._make_room():
            raise error
        return self.log.append_as_leader(data, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin)

    def _appended(self, length: int, now_ms: int, is_awaited: bool) -> None:
        log, config = self.log, self.log.config
        total_bytes = self.appended_bytes = self.appended_bytes + length
        self._uncommitted.append((log.end_offset, total_bytes))
        if config.flush_on_commit:
            self._want_sync(urgent=is_awaited)
        else:
            if log.is_sync_due(now_ms):
                self._want_sync()
            self._advance()
        for listener in self._signals.end_advanced:
            listener(self)

    def acknowledged(self, end_offset: int) -> ErrorCode | None:
        """Whether all below `end_offset`, appended with acks=all, is committed; None: that is to be seen."""
        view = self._view
        if view is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if self.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
        if self.log.high_watermark >= end_offset:
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if view.is_short else None

    # --- syncing -------------------------------------------------------------------------------

    def _want_sync(self, *, urgent: bool = True) -> None:
        """One waiter stands for all: it is told at the end of each sync, and asks for the next."""
        if self._sync_armed:
            self._sync.request(urgent=urgent)
        else:
            self._sync_armed = True
            self._sync.wait_for(self.log.end_offset, self._synced, urgent=urgent)

    def hurry(self) -> None:
        """Someone waits for what was appended to be committed: its sync must not rest."""
        if self.position < self.log.end_offset and self._is_usable:
            self._want_sync()

    def _synced(self, error: BaseException | None) -> None:
        self._sync_armed = False
        if not self._is_usable or self.log.is_closed or isinstance(error, LogClosedError):
            return
        if error is not None and self.log.files.failure is not None:
            self.fail(self.log.files.failure)
            return
        self._advance()
        # Without room nothing was done, and `keep_up` asks again: at once would be for ever.
        if error is None and self.position < self.log.end_offset:
            self._want_sync(urgent=False)

    def keep_up(self, now_ms: int) -> None:
        """From time to time: syncs that are due by `flush.ms`, or that a full disk held up."""
        is_due = self.position < self.log.end_offset or self.log.is_sync_due(now_ms)
        if is_due and not self._sync_armed and self._is_usable:
            self._want_sync()

    def _advance(self) -> None:
        view, log = self._view, self.log
        if view is None:
            return
        if view.advance(log.flushed_end_offset if log.config.flush_on_commit else log.end_offset):
            self._committed_to(view.high_watermark)

    def _committed_to(self, high_watermark: int) -> None:
        self.log.advance_high_watermark(high_watermark)
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= high_watermark:
            self.committed_bytes = uncommitted.popleft()[1]
        for listener in self._signals.commit_advanced:
            listener(self)

    # --- reading -------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: int = Isolation.READ_UNCOMMITTED,
        current_leader_epoch: int = UNCHECKED,
        last_fetched_epoch: int = NO_EPOCH,
        at_least_one: bool = True,
        from_follower: bool = False,
    ) -> PartitionRead:
        """What is committed, from the batch that holds `offset`; a first batch larger than `max_bytes` is
        returned whole if `at_least_one`.  `from_follower`: the asker takes it from any replica."""
        if from_follower:
            self.check_replica(current_leader_epoch)
        else:
            self.check_leader(current_leader_epoch)
        log = self.log
        if last_fetched_epoch != NO_EPOCH and (diverging := self._diverging(offset, last_fetched_epoch)):
            return self._answer(None, None, diverging)
        committed_only = isolation == Isolation.READ_COMMITTED
        bound = log.last_stable_offset if committed_only else log.high_watermark
        region, base_offset = log.read(offset, max_bytes, up_to=bound, at_least_one=at_least_one)
        aborted: Sequence[AbortedTransaction] | None = () if committed_only else None
        if committed_only and region is not None:
            aborted = log.aborted_transactions(offset, min(bound, self._segment_end(base_offset)))
        return self._answer(region, aborted)

    def _segment_end(self, offset: int) -> int:
        """One read returns bytes of one segment."""
        segments = self.log.segments
        return segments.next_base(segments.from_offset(offset)[0]) or self.log.end_offset

    def _answer(
        self,
        region: FileRegion | None,
        aborted: Sequence[AbortedTransaction] | None,
        diverging: EpochEnd | None = None,
    ) -> PartitionRead:
        log = self.log
        return PartitionRead(
            region, log.high_watermark, log.last_stable_offset, log.start_offset, aborted, diverging
        )

    def read_as_follower(
        self,
        follower_id: int,
        offset: int,
        max_bytes: int,
        now_ms: int,
        *,
        follower_epoch: int = UNKNOWN_EPOCH,
        current_leader_epoch: int = UNCHECKED,
        last_fetched_epoch: int = NO_EPOCH,
        at_least_one: bool = True,
    ) -> PartitionRead:
        """What another replica asks for, up to the log's end.  That it asks from `offset` says that it has
        stored all before, which may commit something.  `follower_epoch` is its broker epoch."""
        view = self.check_leader(current_leader_epoch)
        if last_fetched_epoch != NO_EPOCH and (diverging := self._diverging(offset, last_fetched_epoch)):
            return self._answer(None, None, diverging)
        log = self.log
        read = log.read(offset, max_bytes, at_least_one=at_least_one)
        is_replica = view.fetched(
            follower_id,
            offset,
            leader_end_offset=log.end_offset,
            now_ms=now_ms,
            broker_epoch=follower_epoch,
        )
        if not is_replica:
            if read.region is not None:
                read.region.close()
            raise NotLeaderOrFollowerError(f"broker {follower_id} has no replica of {self.key}")
        self._advance()
        return self._answer(read.region, None)

    def _diverging(self, offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Where the asker's log and ours part, if that is before `offset`."""
        log = self.log
        end = log.epochs.end_offset_for(last_fetched_epoch, log.end_offset)
        if end == UNKNOWN_END:
            raise OffsetOutOfRangeError(
                f"{self.key}: nothing is known of epoch {last_fetched_epoch}, from which offset "
                f"{offset} would follow"
            )
        return end if end.epoch < last_fetched_epoch or end.end_offset < offset else None

    # --- asking for offsets --------------------------------------------------------------------

    def list_offset(
        self,
        timestamp_ms: int,
        *,
        isolation: int | None = Isolation.READ_UNCOMMITTED,
        current_leader_epoch: int = UNCHECKED,
    ) -> ListedOffset:
        """By time, or by an `OffsetSpec`.  Without isolation, as replicas ask, all of the log counts."""
        view = self.check_leader(current_leader_epoch)
        return list_offset(self.log, timestamp_ms, isolation, self.leader_epoch, view.epoch_start_offset)

    def offset_for_leader_epoch(
        self, requested_epoch: int, *, current_leader_epoch: int = UNCHECKED
    ) -> EpochEnd:
        """The largest epoch not above the one asked for, and where it ends in this log."""
        self.check_leader(current_leader_epoch)
        return self.log.epochs.end_offset_for(requested_epoch, self.log.end_offset)

    # --- deleting ------------------------------------------------------------------------------

    def delete_records(self, offset: int, now_ms: int) -> int:
        """Moves the log's start up to `offset`, or to the high watermark; the start then.

        It is durable once the set has checkpointed its starts (`PartitionSet.checkpoint_starts`).
        """
        self.check_leader()
        log = self.log
        if not log.config.deletes:
            raise PolicyViolationError(f"{self.key} is only compacted: its records are not deleted by offset")
        offset = log.high_watermark if offset == HIGH_WATERMARK else offset
        if offset < 0:
            raise OffsetOutOfRangeError(f"{offset} is no offset")
        log.advance_start_offset(offset, now_ms)
        return log.start_offset

    # --- following -----------------------------------------------------------------------------

    def append_as_follower(
        self,
        data: Buffer,
        *,
        leader_epoch: int,
        leader_high_watermark: int,
        now_ms: int,
    ) -> AppendResult | None:
        """Whole batches from the leader, perhaps none, and what it says is committed.  Fetch on from
        `position` once a sync has made that the log's end."""
        self._check_follows(leader_epoch)
        result = None
        if data:
            try:
                result = self.log.append_as_follower(data, now_ms=now_ms)
            except LogDirectoryFailedError as error:
                self.fail(error)
                raise
            self._appended(len(data), now_ms, is_awaited=True)
        self.follow_high_watermark(leader_high_watermark)
        return result

    def follow_high_watermark(self, leader_high_watermark: int) -> None:
        mark = min(leader_high_watermark, self.log.end_offset)
        if mark > self.log.high_watermark:
            self._committed_to(mark)

    def truncate_by_epoch(self, leader_end: EpochEnd, *, leader_epoch: int, now_ms: int) -> bool:
        """Removes what the leader does not have, given where it says an epoch ends (`diverging`, or its
        answer for our latest epoch).  False if it has to be asked again, for the epoch that is now our last.
        """
        self._check_follows(leader_epoch)
        target, is_done = truncation_point(self.log, leader_end)
        if target < self.log.end_offset:
            self.log.truncate_to(target, now_ms)
            while self._uncommitted and self._uncommitted[-1][0] > self.log.end_offset:
                self._uncommitted.pop()
        # An epoch in which this replica led and appended nothing would be told the leader for ever.
        self.log.epochs.truncate_from_end(self.log.end_offset)
        return is_done

    def restart_at(self, offset: int, *, leader_epoch: int, now_ms: int) -> None:
        """The leader's log begins behind the end of ours: everything goes, and we go on at `offset`."""
        self._check_follows(leader_epoch)
        self._uncommitted.clear()
        self.log.restart_at(offset, now_ms)

    def _check_follows(self, leader_epoch: int) -> None:
        self._check_epoch(leader_epoch)
        if self._view is not None or self.is_stopped or self.failure is not None:
            self._refuse()
