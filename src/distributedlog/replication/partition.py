"""One partition on this broker: what clients, and followers of its leader, ask of it.

| where       | what                                                                                      |
|-------------|-------------------------------------------------------------------------------------------|
| `replica`   | the role and its epochs, syncing, the high watermark                                      |
| `following` | appending what the leader has, truncating what it has not                                 |
| here        | appending as the leader, reads, offsets by timestamp and epoch, deleting records          |

An append checks leadership, for acks=all that enough replicas are in sync, and that a transaction it would
begin is one that the coordinator has confirmed (`verifications`); then the log checks the batches and writes
them.  Consumers read up to the high watermark, or the last stable offset; followers to the
log's end.

A leader that is isolated (`set_heard`) refuses what it cannot do: clients' appends with acks=all, before
and after they are written, reads at the end of what is committed, where that end is and that no record is
newer, and what became of a later epoch than its own.  It serves what it has.
"""

from collections.abc import Sequence
from typing import Final

from distributedlog.model.buffers import Buffer, MutableBuffer
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DiskFullError,
    InvalidTransactionStateError,
    LogDirectoryFailedError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    StorageError,
    UnknownLeaderEpochError,
)
from distributedlog.records.batch import read_header
from distributedlog.records.layout import ATTRIBUTES_AT, CONTROL_BIT, HEADER_BYTES, TRANSACTIONAL_BIT
from distributedlog.replication.contract import (
    ACKS_ALL,
    HIGH_WATERMARK,
    NO_FOLLOWER,
    UNCHECKED,
    Isolation,
    ListedOffset,
    PartitionRead,
)
from distributedlog.replication.following import FollowerReplica
from distributedlog.replication.isr import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from distributedlog.replication.offsets import list_offset, search, tells_of_end
from distributedlog.storage.append import AppendResult, Origin
from distributedlog.storage.epochs import NO_EPOCH, UNKNOWN_END, EpochEnd
from distributedlog.storage.files import FileRegion
from distributedlog.storage.timestamps import Steps, run
from distributedlog.storage.txn_index import AbortedTransaction

_FLAGS_AT: Final = ATTRIBUTES_AT + 1
_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT


class Partition(FollowerReplica):
    """A partition of which this broker has a replica."""

    __slots__ = ()

    # --- appending -----------------------------------------------------------------------------

    def append(
        self,
        data: MutableBuffer,
        required_acks: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        is_validated: bool = False,
    ) -> AppendResult:
        """Appends the batches in `data`, which get their offsets in place.

        With acks=all, the response waits until `check_acknowledged(result.last_offset + 1)` is not None.
        """
        view = self._view
        if view is None:
            self._raise_unavailable()
        if self.is_isolated and required_acks == ACKS_ALL and origin is Origin.CLIENT:
            self._raise_isolated()
        if required_acks == ACKS_ALL and view.is_under_min_isr:
            raise NotEnoughReplicasError(
                f"{self.key} has {len(view.isr)} replicas in sync, fewer than min.insync.replicas"
            )
        if len(data) >= HEADER_BYTES and data[_FLAGS_AT] & _TRANSACTION_BITS == TRANSACTIONAL_BIT:
            self._check_transaction(data, origin)
        try:
            result = self.log.append_as_leader(
                data, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin, is_validated=is_validated
            )
        except StorageError as error:
            result = self._retry_append(data, now_ms, origin, is_validated, error)
        if result.is_duplicate:
            return result
        self._finish_append(len(data), now_ms, required_acks == ACKS_ALL)
        return result

    def _check_transaction(self, data: MutableBuffer, origin: Origin) -> None:
        """Raises InvalidTransactionStateError if a batch would begin a transaction that nobody has confirmed
        (`verifications`)."""
        header = read_header(data)
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        is_known = self.has_open_transaction(producer_id, producer_epoch) or self.verifications.is_confirmed(
            producer_id, producer_epoch
        )
        # A fenced producer hears that it is; a repeated batch gets the offset that it has.
        if not is_known and self.log.producers.check(header, origin=origin) is None:
            raise InvalidTransactionStateError(
                f"{self.key} is not known to be part of a transaction of producer {producer_id} "
                f"in epoch {producer_epoch}"
            )
        if self.log.producers.get(producer_id) is None and self.verifications.overtakes(
            producer_id, producer_epoch, header.base_sequence
        ):
            raise OutOfOrderSequenceError(
                f"sequence {header.base_sequence} of producer {producer_id} comes to {self.key} before one "
                "that was refused, and is to be sent again"
            )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Returns whether a transaction of this producer and epoch has records here and no marker yet."""
        state = self.log.producers.get(producer_id)
        return state is not None and state.has_open_transaction and state.epoch == producer_epoch

    def is_marker_written(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, has_bumped_epoch: bool
    ) -> bool:
        """Returns whether this marker needs no append: it stands in the log, and nothing was begun since.

        `has_bumped_epoch`: it carries a higher epoch than the records of its transaction.  Raises if it is
        late (`storage.producers`).
        """
        self.check_leader()
        return self.log.producers.has_marker(
            producer_id, producer_epoch, coordinator_epoch, has_bumped_epoch=has_bumped_epoch
        )

    def append_marker(self, batch: Buffer, now_ms: int) -> int:
        """Ends a transaction by a copy of the marker in `batch`; returns the offset behind it."""
        return self.append(bytearray(batch), ACKS_ALL, now_ms, Origin.COORDINATOR).last_offset + 1

    def _retry_append(
        self, data: MutableBuffer, now_ms: int, origin: Origin, is_validated: bool, error: StorageError
    ) -> AppendResult:
        """Appends once more after a full disk, if space can be freed.  Any other error is final."""
        if isinstance(error, LogDirectoryFailedError):
            self.fail(error)
        if not isinstance(error, DiskFullError) or not self._free_space():
            raise error
        return self.log.append_as_leader(
            data, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin, is_validated=is_validated
        )

    def check_acknowledged(self, end_offset: int) -> ErrorCode | None:
        """Returns NONE once all below `end_offset` is committed, an error if it cannot be, else None."""
        view = self._view
        if view is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if self.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
        if self.log.high_watermark >= end_offset:
            return ErrorCode.NONE
        if self.is_isolated:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if view.is_under_min_isr else None

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
        any_replica: bool = False,
    ) -> PartitionRead:
        """Reads what is committed, from the batch that holds `offset`; a first one larger than `max_bytes` is
        returned whole if `at_least_one`.  With `any_replica` a follower serves it too."""
        if any_replica:
            self.check_replica(current_leader_epoch)
        else:
            self.check_leader(current_leader_epoch)
        log = self.log
        if last_fetched_epoch != NO_EPOCH and (diverging := self._diverging(offset, last_fetched_epoch)):
            return self._make_read(None, None, diverging)
        committed_only = isolation == Isolation.READ_COMMITTED
        bound = log.last_stable_offset if committed_only else log.high_watermark
        region, base_offset = log.read(offset, max_bytes, up_to=bound, at_least_one=at_least_one)
        if region is None and self.is_isolated:
            self._raise_isolated()
        aborted: Sequence[AbortedTransaction] | None = () if committed_only else None
        if committed_only and region is not None:
            aborted = log.find_aborted_transactions(offset, min(bound, self._segment_end(base_offset)))
        return self._make_read(region, aborted)

    def _segment_end(self, offset: int) -> int:
        """One read returns bytes of one segment."""
        segments = self.log.segments
        return segments.next_base(segments.from_offset(offset)[0]) or self.log.end_offset

    def _make_read(
        self,
        region: FileRegion | None,
        aborted: Sequence[AbortedTransaction] | None,
        diverging: EpochEnd | None = None,
    ) -> PartitionRead:
        log = self.log
        return PartitionRead(
            region, log.high_watermark, log.last_stable_offset, log.start_offset, aborted, diverging
        )

    def read_elsewhere(self, replica_id: int, current_leader_epoch: int = UNCHECKED) -> PartitionRead:
        """Reads nothing: the reader is to ask that replica."""
        self.check_leader(current_leader_epoch)
        return self._make_read(None, None)._replace(preferred_read_replica=replica_id)

    def read_for_replica(
        self,
        follower_id: int,
        offset: int,
        max_bytes: int,
        now_ms: int,
        *,
        follower_epoch: int = UNKNOWN_EPOCH,
        current_leader_epoch: int = UNCHECKED,
        last_fetched_epoch: int = NO_EPOCH,
        follower_log_start: int = UNKNOWN_OFFSET,
        at_least_one: bool = True,
    ) -> PartitionRead:
        """Serves a replica fetch, up to the log's end.  A fetch from `offset` says that the follower has
        stored all before, which may commit something.  `follower_epoch` is its broker epoch."""
        view = self.check_leader(current_leader_epoch)
        if last_fetched_epoch != NO_EPOCH and (diverging := self._diverging(offset, last_fetched_epoch)):
            return self._make_read(None, None, diverging)
        log = self.log
        read = log.read(offset, max_bytes, at_least_one=at_least_one)
        low_watermark = view.find_low_watermark(log.start_offset)
        is_accepted = view.note_fetch(
            follower_id,
            offset,
            leader_end_offset=log.end_offset,
            now_ms=now_ms,
            broker_epoch=follower_epoch,
            log_start_offset=follower_log_start,
        )
        if not is_accepted:
            if read.region is not None:
                read.region.close()
            if follower_id not in view.followers:
                # The move that gives it one may not have reached this leader: it tries again.
                raise UnknownLeaderEpochError(f"broker {follower_id} has no replica of {self.key} yet")
            raise NotLeaderOrFollowerError(
                f"broker {follower_id} fetches {self.key} in an old broker epoch ({follower_epoch})"
            )
        self._advance_high_watermark()
        if view.find_low_watermark(log.start_offset) > low_watermark:
            self._notify(self._signals.start_advanced)
        if follower_id not in view.isr:
            self._notify(self._signals.out_of_sync_follower_fetched)
        return self._make_read(read.region, None)

    def withdraw_proposal(self) -> None:
        """Drops the open proposal of an ISR: who was to join holds nothing back any more."""
        if self._view is not None:
            self._view.withdraw()
            self._advance_high_watermark()
            self._notify(self._signals.start_advanced)

    def is_idle_at(self, offset: int, follower_id: int = NO_FOLLOWER) -> bool:
        """Returns whether a reader from `offset` on learns nothing more before a signal: it is at the end,
        and all is committed; or it is a follower in sync."""
        log, view = self.log, self._view
        if offset != log.end_offset:
            return False
        if follower_id != NO_FOLLOWER:
            return view is not None and follower_id in view.isr
        return log.high_watermark == offset == log.last_stable_offset

    def note_idle_fetch(self, follower_id: int, now_ms: int) -> None:
        """A follower that `is_idle_at` the end has fetched from there, without being read for."""
        if self._view is not None:
            self._view.note_idle_fetch(follower_id, now_ms)

    def _diverging(self, offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Returns where the follower's log and ours diverge, if that is before `offset`."""
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
        """Finds an offset by timestamp or `OffsetSpec`.  Without isolation all of the log counts."""
        return run(self.search_offset(timestamp_ms, isolation, current_leader_epoch))

    def search_offset(
        self, timestamp_ms: int, isolation: int | None, current_leader_epoch: int = UNCHECKED
    ) -> Steps[ListedOffset]:
        """Does what `list_offset` does, in steps that any thread can do."""
        self.check_leader(current_leader_epoch)
        log = self.log
        found = yield from search(log, timestamp_ms)
        view = self.check_leader(current_leader_epoch)  # it may have changed between the steps
        if self.is_isolated and isolation is not None and tells_of_end(log, timestamp_ms, found, isolation):
            self._raise_isolated()
        return list_offset(log, timestamp_ms, found, isolation, self.leader_epoch, view.epoch_start_offset)

    def offset_for_leader_epoch(
        self, requested_epoch: int, *, current_leader_epoch: int = UNCHECKED
    ) -> EpochEnd:
        """Returns the largest epoch not above the requested one, and where it ends in this log."""
        self.check_leader(current_leader_epoch)
        if self.is_isolated and requested_epoch > self.leader_epoch:
            self._raise_isolated()
        return self.log.epochs.end_offset_for(requested_epoch, self.log.end_offset)

    # --- deleting ------------------------------------------------------------------------------

    def delete_records(self, offset: int, now_ms: int) -> int:
        """Advances the log start offset to `offset`, or to the high watermark, and returns it.

        It is durable once the set has checkpointed its starts (`PartitionSet.checkpoint_starts`).
        """
        self.check_leader()
        log = self.log
        if log.config.compacts and not log.config.deletes:
            raise PolicyViolationError(f"{self.key} is only compacted: its records are not deleted by offset")
        offset = log.high_watermark if offset == HIGH_WATERMARK else offset
        if offset < 0:
            raise OffsetOutOfRangeError(f"{offset} is no offset")
        before = log.start_offset
        log.advance_start_offset(offset, now_ms)
        if log.start_offset > before:
            self._notify(self._signals.start_advanced)
        return log.start_offset

    def check_deleted(self, offset: int) -> ErrorCode | None:
        """Returns NONE once every replica that may lead has deleted all below `offset`, an error if nobody
        knows, else None."""
        view = self._view
        if view is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if self.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE if view.find_low_watermark(self.log.start_offset) >= offset else None
