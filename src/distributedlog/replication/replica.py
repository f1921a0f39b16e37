"""A replica of a partition on this broker: a log with a role.  Lives on the data loop; nothing here waits.

    none ──► leader ◄──► follower        by `become_leader` and `become_follower`, with each new leader epoch
      any of them ──► stopped            the broker holds no replica of it any more
      any of them ──► failed             its disk is out of use: every call says KAFKA_STORAGE_ERROR

    of a leader      log start ≤ last stable offset ≤ high watermark ≤ committable end ≤ log end
    of a follower    log start ≤ last stable offset ≤ high watermark ≤ log end

With `flush.on.commit` (the default) the *committable end* is the flushed end: each append requests a sync,
which all appends before it share, and the high watermark (`isr`) follows when the sync is done; between syncs
that nobody waits for there is a pause of some milliseconds.  Without, it is the log end, and
`flush.messages` and `flush.ms` decide about syncs.

Whoever waits for something subscribes to `PartitionSignals`, which all partitions of a broker share: delayed
operations are completed by them, and nobody polls.  Signals are sent last in a call, when all is settled, and
from within a call into the replica or from the end of a sync.

What a crash does: recovery keeps of the log what is on the disk, all of it synced, so a leader that alone
is the ISR may count all of it.  Where others are in the ISR, the high watermark begins at its checkpoint, or
at the log's start, and rises when they have fetched.
"""

from collections import deque
from collections.abc import Callable, Collection
from itertools import islice
from typing import Final, NoReturn

from distributedlog.model.config import LogConfig
from distributedlog.model.errors import (
    DiskFullError,
    FencedLeaderEpochError,
    LogClosedError,
    LogDirectoryFailedError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownLeaderEpochError,
)
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.replication.contract import NO_LEADER, UNCHECKED, Corruption, Listener, PartitionSignals
from distributedlog.replication.isr import UNKNOWN_EPOCH, LeaderView
from distributedlog.replication.verifications import Verifications
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.syncs.rounds import LogSync, SyncRounds

UNCOMMITTED_MAX: Final = 2_000
"""The number of uncommitted appends of which a replica knows how many bytes there are up to their ends.  Of
more it knows fewer of the older ones: what `committed_bytes` counts then lags a little behind."""


def free_no_space() -> bool:
    """Frees no space: what a partition does on a full disk by default."""
    return False


class Replica:
    """The log of a partition, its role, and what of it is synced and committed."""

    __slots__ = (
        "_free_space",
        "_is_sync_awaited",
        "_min_insync_replicas",
        "_signals",
        "_stored_start",
        "_sync",
        "_uncommitted",
        "_view",
        "appended_bytes",
        "awaited_end_offset",
        "broker_id",
        "committed_bytes",
        "corruption",
        "failure",
        "is_isolated",
        "is_stopped",
        "isr",
        "key",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "partition_id",
        "replicas",
        "topic",
        "topic_id",
        "verifications",
    )

    def __init__(
        self,
        topic: str,
        topic_id: Uuid,
        partition_id: int,
        log: PartitionLog,
        *,
        broker_id: int,
        rounds: SyncRounds,
        signals: PartitionSignals,
        min_insync_replicas: int = 1,
        free_space: Callable[[], bool] = free_no_space,
    ) -> None:
        """`free_space` is asked when the disk is full."""
        self.topic = topic
        self.topic_id = topic_id
        self.partition_id = partition_id
        self.key = TopicPartition(topic, partition_id)
        self.log = log
        self.broker_id = broker_id
        self.leader_id = NO_LEADER
        self.leader_epoch = UNKNOWN_EPOCH
        self.partition_epoch = UNKNOWN_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.failure: StorageError | None = None
        self.corruption: Corruption | None = None
        """What is known to be corrupt of its log.  Nothing is fetched so long (`set_aside_corruption`)."""
        self.is_stopped = False
        self.is_isolated = False
        """Leads, as far as it knows, and may have been replaced (`set_heard`)."""
        self.appended_bytes = 0
        """The bytes appended since this object was made.  Like `committed_bytes`, for who waits until there
        is much to read."""
        self.committed_bytes = 0
        self.awaited_end_offset = 0
        """The end up to which somebody waits, or has waited, until a leader's records are committed."""
        self._signals = signals
        self._stored_start = log.start_offset
        self._free_space = free_space
        self._min_insync_replicas = min_insync_replicas
        self._view: LeaderView | None = None
        self.verifications = Verifications()
        self._sync = LogSync(log, rounds)
        self._is_sync_awaited = False
        self._uncommitted: deque[tuple[int, int]] = deque()
        log.after_change = self._log_changed

    def __repr__(self) -> str:
        return f"<{self.key} {'leads' if self.is_leader else 'does not lead'} in epoch {self.leader_epoch}>"

    # --- what it is ----------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self._view is not None

    @property
    def view(self) -> LeaderView | None:
        """What the leader knows of its followers; None if this broker does not lead."""
        return self._view

    @property
    def is_commit_awaited(self) -> bool:
        """Somebody waits until records that the leader has are committed."""
        return self.log.high_watermark < self.awaited_end_offset

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
    def committable_end_offset(self) -> int:
        """The end offset that counts for the high watermark: stored as the topic wants it stored."""
        log = self.log
        return log.flushed_end_offset if log.config.flush_on_commit else log.end_offset

    @property
    def is_stored(self) -> bool:
        """Whether all of the log is stored, and nothing of what was truncated can come back."""
        return self.committable_end_offset >= self.log.end_offset and not self.log.has_unsynced_cut

    @property
    def is_only_sync_missing(self) -> bool:
        """Whether records are not committed for one reason: this leader, alone in the ISR, has not synced
        them."""
        return (
            self._view is not None
            and len(self.isr) == 1
            and self.committable_end_offset < self.log_end_offset
        )

    # --- roles ---------------------------------------------------------------------------------

    def become_leader(
        self,
        leader_epoch: int,
        *,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        now_ms: int,
        adding: tuple[int, ...] = (),
        elr: tuple[int, ...] = (),
    ) -> None:
        """Takes the leadership, or another ISR: then the epoch is the one it had.

        `now_ms` is of the monotonic clock, as in `read_for_replica`; everywhere else it is the wall clock's.
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
                adding=adding,
                elr=elr,
            )
            self.awaited_end_offset = log.end_offset
            self.is_isolated = False
            if view is None:
                self.verifications.clear()
            else:
                self.verifications.forget_confirmed()
        else:
            view.set_replicas(replicas, isr, now_ms, adding, elr)
        self._set_role(leader_epoch, partition_epoch, self.broker_id, replicas, isr)
        if not self.is_stored:
            self._await_sync()
        self._advance_high_watermark()
        self._notify(self._signals.state_changed)

    def become_follower(
        self,
        leader_epoch: int,
        *,
        partition_epoch: int,
        leader_id: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
    ) -> None:
        """Follows a leader.  `leader_id` may be NO_LEADER: it then follows nobody until there is one."""
        if self.failure is not None or self.is_stopped:
            return
        self._view = None
        self.is_isolated = False
        self.verifications.clear()
        # An epoch in which this replica led and appended nothing is none of its log's.
        self.log.epochs.truncate_from_end(self.log.end_offset)
        self._set_role(leader_epoch, partition_epoch, leader_id, replicas, isr)
        if not self.is_stored:
            self._await_sync()
        self._notify(self._signals.state_changed)

    def _set_role(
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

    def set_heard(self, heard: Collection[int] | None) -> None:
        """Takes which other brokers are heard where no controller is; None: a controller is.

        Who leads without a controller is isolated while one of those in sync, or eligible beside them, is
        silent: that one may lead by now, and nothing is committed here meanwhile.  Who is in sync alone, and
        nobody is eligible beside it, has nobody who could replace it.
        """
        view = self._view
        is_isolated = view is not None and heard is not None and view.may_lose_to_others_than(heard)
        if is_isolated != self.is_isolated:
            self.is_isolated = is_isolated
            self._notify(self._signals.state_changed)

    def stop(self) -> None:
        """Ends this replica for good.  Its log is no longer this object's to touch."""
        if not self.is_stopped:
            self.is_stopped = True
            self._view = None
            self._notify(self._signals.state_changed)

    def fail(self, failure: StorageError) -> None:
        """Fails this replica for good: the disk is out of use."""
        if self.failure is None and not self.is_stopped:
            self.failure = failure
            self._view = None
            self._notify(self._signals.state_changed)

    def reconfigure(self, config: LogConfig, min_insync_replicas: int) -> None:
        """Applies other settings from now on; nothing that was committed is taken back."""
        self._min_insync_replicas = min_insync_replicas
        view, was_under_min_isr = self._view, self._view is not None and self._view.is_under_min_isr
        if view is not None:
            view.set_min_insync_replicas(min_insync_replicas)
        if config != self.log.config:
            self.log.reconfigure(config)
            if self.committable_end_offset < self.log.end_offset and self._is_usable:
                self._await_sync()
        self._advance_high_watermark()
        if view is not None and view.is_under_min_isr != was_under_min_isr:
            self._notify(self._signals.state_changed)

    def _notify(self, listeners: list[Listener]) -> None:
        for listener in listeners:
            listener(self)

    def _log_changed(self) -> None:
        self._notify(self._signals.log_changed)

    @property
    def _is_usable(self) -> bool:
        return self.failure is None and not self.is_stopped

    # --- refusing ------------------------------------------------------------------------------

    def check_leader(self, current_leader_epoch: int = UNCHECKED) -> LeaderView:
        """Raises unless this broker leads, in the leader epoch of the request."""
        view = self._view
        if view is None or UNCHECKED != current_leader_epoch != self.leader_epoch:
            self._check_epoch(current_leader_epoch)
            self._raise_unavailable()
        return view

    def check_replica(self, current_leader_epoch: int = UNCHECKED) -> None:
        """Raises unless this broker has a replica, of the leader epoch of the request."""
        if not self._is_usable or self.leader_id == NO_LEADER:
            self._raise_unavailable()
        self._check_epoch(current_leader_epoch)

    def _check_epoch(self, current_leader_epoch: int) -> None:
        if self.failure is not None:
            self._raise_unavailable()
        if current_leader_epoch == UNCHECKED or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(
                f"{self.key} has a leader of epoch {self.leader_epoch}; {current_leader_epoch} is over"
            )
        raise UnknownLeaderEpochError(
            f"{self.key} has a leader of epoch {self.leader_epoch} here; {current_leader_epoch} is not known"
        )

    def _raise_unavailable(self) -> NoReturn:
        if self.failure is not None:
            raise LogDirectoryFailedError(str(self.failure)) from self.failure
        raise NotLeaderOrFollowerError(f"broker {self.broker_id} does not lead {self.key}")

    def _raise_isolated(self) -> NoReturn:
        raise NotLeaderOrFollowerError(
            f"broker {self.broker_id} hears neither a controller nor all in sync, and may not lead {self.key}"
        )

    # --- syncing and committing ----------------------------------------------------------------

    def _finish_append(self, length: int, now_ms: int, is_awaited: bool) -> None:
        log, config = self.log, self.log.config
        total_bytes = self.appended_bytes = self.appended_bytes + length
        uncommitted = self._uncommitted
        if len(uncommitted) >= UNCOMMITTED_MAX:  # every other one goes, the last one stays
            uncommitted = self._uncommitted = deque(islice(uncommitted, 1, None, 2))
        uncommitted.append((log.end_offset, total_bytes))
        if is_awaited:
            self.awaited_end_offset = log.end_offset
        if config.flush_on_commit:
            self._await_sync(urgent=is_awaited)
        else:
            if log.is_sync_due(now_ms):
                self._await_sync()
            self._advance_high_watermark()
        for listener in self._signals.end_advanced:
            listener(self)

    def _await_sync(self, *, urgent: bool = True) -> None:
        """Requests a sync.  One waiter serves all appends; after each sync it requests the next."""
        if self._is_sync_awaited:
            self._sync.request(urgent=urgent)
        else:
            self._is_sync_awaited = True
            self._sync.wait_for(self.log.end_offset, self._finish_sync, urgent=urgent)

    def request_sync(self) -> None:
        """Syncs what was appended without a pause, because someone waits until it is committed; followers
        that pause are sent it."""
        if self.committable_end_offset < self.log.end_offset and self._is_usable:
            self._await_sync()
        if self._view is not None and self.awaited_end_offset < self.log.end_offset:
            self.awaited_end_offset = self.log.end_offset
            if self.log.high_watermark < self.log.end_offset:
                self._notify(self._signals.commit_awaited)

    def _finish_sync(self, error: BaseException | None) -> None:
        self._is_sync_awaited = False
        if not self._is_usable or self.log.is_closed or isinstance(error, LogClosedError):
            return
        if error is not None and self.log.files.failure is not None:
            self.fail(self.log.files.failure)
            return
        self._advance_high_watermark()
        if isinstance(error, DiskFullError):
            return  # nothing was done, and `sync_if_due` asks again: at once would be for ever
        # An error is of what a truncation has removed; what came after it waits for its sync, too.
        if not self.is_stored:
            self._await_sync(urgent=self._view is None)
        elif self._view is None:
            self._notify(self._signals.end_stored)

    def sync_if_due(self, now_ms: int) -> None:
        """Syncs what is due by `flush.ms`, or what a full disk held up.  Called from time to time."""
        is_due = not self.is_stored or self.log.is_sync_due(now_ms)
        if is_due and not self._is_sync_awaited and self._is_usable:
            self._await_sync()

    def _advance_high_watermark(self) -> None:
        view, log = self._view, self.log
        if view is None:
            return
        if view.advance(log.flushed_end_offset if log.config.flush_on_commit else log.end_offset):
            self._set_high_watermark(view.high_watermark)

    def _set_high_watermark(self, high_watermark: int) -> None:
        self.log.advance_high_watermark(high_watermark)
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= high_watermark:
            self.committed_bytes = uncommitted.popleft()[1]
        for listener in self._signals.commit_advanced:
            listener(self)
