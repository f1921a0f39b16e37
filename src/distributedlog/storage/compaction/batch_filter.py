"""What becomes of one batch in compaction.  Pure: batches in, batches out.

| batch                                              | becomes                                               |
|----------------------------------------------------|-------------------------------------------------------|
| data of an aborted transaction                     | nothing                                               |
| data, all records are the latest of their keys     | itself, byte for byte                                 |
| data, some are                                     | a batch of those, with the same offsets and sequences |
| data with a tombstone, seen for the first time     | a batch with a delete horizon (below)                 |
| data with a tombstone, clean, horizon passed       | a batch without it                                    |
| marker, after batches of its transaction           | itself                                                |
| marker, after none, seen for the first time        | a batch with a delete horizon                         |
| marker, after none, and the horizon has passed     | nothing                                               |

and where that leaves nothing:

| it is                                              | then instead                                          |
|----------------------------------------------------|-------------------------------------------------------|
| one of an active producer's latest batches         | the batch without records: its sequences are needed   |
| the marker by which a producer's epoch is known    | itself                                                |
| the last batch of the new segment (`placeholder`)  | a batch without records or producer; a marker whole   |

A delete horizon is the time of this run + `delete.retention.ms`; so long a tombstone or a marker stays for
readers that have yet to see it.  It is set only once everything the tombstone deletes is gone.

Whether batches of a transaction stand before its marker is judged by what is *read*, not by what is kept: a
marker outlives them by at least one whole run.  So there is never a transaction without its marker, whose
batches would hold back the last stable offset for good, whatever a crash left undone.
"""

from enum import Enum

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import CorruptLogError, DlogError
from distributedlog.model.limits import RecordLimits
from distributedlog.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
)
from distributedlog.records.layout import INT64_MAX
from distributedlog.records.record import RecordSpan, decompress_records, find_record_spans, rebuild_batch
from distributedlog.storage.compaction.offset_map import Kept, OffsetMap
from distributedlog.storage.compaction.plan import CompactionCounts, CompactionPlan
from distributedlog.storage.scan import LocatedBatch
from distributedlog.storage.txn_index import AbortedRanges

_NOTHING = Kept(0, [], False, 0)


class Fate(Enum):
    """What became of a batch that no other replaces."""

    SAME = "same"
    GONE = "gone"


def open_batch(batch: LocatedBatch, limits: RecordLimits) -> tuple[Buffer, list[RecordSpan]]:
    """The records section and where each record lies in it."""
    header = batch.header
    try:
        section = decompress_records(batch.window, batch.at, header, limits)
        return section, find_record_spans(section, header, limits)
    except DlogError as error:
        raise CorruptLogError.at(
            header.base_offset, f"the batch at offset {header.base_offset} cannot be opened: {error}"
        ) from error


def placeholder(batch: LocatedBatch) -> Buffer:
    """Returns what stays of a batch when only its offsets matter."""
    header = batch.header
    if header.is_control:  # a control batch without a record is more than clients expect
        return batch.data
    return rebuild_batch(
        header._replace(
            attributes=0,
            max_timestamp=NO_TIMESTAMP,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
        ),
        b"",
        0,
    )


class BatchFilter:
    """Must see every batch of the log in order, from the first: it remembers which transactions have any."""

    def __init__(
        self,
        plan: CompactionPlan,
        aborted: AbortedRanges,
        newest: OffsetMap,
        boundary: int,
        counts: CompactionCounts,
    ) -> None:
        self._plan = plan
        self._aborted = aborted
        self._newest = newest
        self._boundary = boundary
        self._counts = counts
        self._with_batches: set[int] = set()
        self._new_horizon_ms = min(plan.now_ms + plan.delete_retention_ms, INT64_MAX)

    def clean(self, batch: LocatedBatch, room_bytes: int) -> Buffer | Fate:
        """The bytes that stand in the batch's place, if it neither stays nor goes.

        A new delete horizon makes a batch larger; it is not set if more than `room_bytes` would come of it.
        """
        header = batch.header
        if header.is_control:
            return self._clean_marker(batch, room_bytes)
        if header.is_transactional:
            self._with_batches.add(header.producer_id)
        section: Buffer = b""
        kept = _NOTHING
        if not self._aborted.holds(header):
            if header.base_offset >= self._boundary:  # not all of its keys are in the map
                return Fate.SAME
            if header.record_count > 0:
                section, spans = open_batch(batch, self._plan.limits)
                kept = self._newest.keep(spans, header.base_offset, self._drops_tombstones(header))
                self._counts.tombstones_dropped += kept.tombstones_dropped
        if kept.record_count == 0:
            return self._without_records(batch)
        needs_horizon = kept.has_tombstone and not header.has_delete_horizon
        if kept.record_count == header.record_count and not needs_horizon:
            return Fate.SAME
        records = b"".join([section[start:end] for start, end in kept.runs])
        return self._rebuild(batch, records, kept.record_count, needs_horizon, room_bytes)

    def _clean_marker(self, batch: LocatedBatch, room_bytes: int) -> Buffer | Fate:
        header = batch.header
        has_batches = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        if (
            has_batches
            or not header.has_producer_id
            or header.base_offset >= self._boundary
            or self._keeps_epoch(header)
        ):
            return Fate.SAME
        if header.record_count == 0 or self._is_past_horizon(header):
            self._counts.markers_dropped += 1
            return Fate.GONE
        if header.has_delete_horizon:
            return Fate.SAME
        section, _ = open_batch(batch, self._plan.limits)
        return self._rebuild(batch, section, header.record_count, True, room_bytes)

    def _rebuild(
        self, batch: LocatedBatch, records: Buffer, count: int, needs_horizon: bool, room_bytes: int
    ) -> Buffer | Fate:
        header = batch.header
        if needs_horizon:
            rebuilt = rebuild_batch(header, records, count, delete_horizon_ms=self._new_horizon_ms)
            if len(rebuilt) <= room_bytes:
                return rebuilt
        return Fate.SAME if count == header.record_count else rebuild_batch(header, records, count)

    def _without_records(self, batch: LocatedBatch) -> Buffer | Fate:
        header = batch.header
        tail = self._plan.producers.get(header.producer_id)
        if tail is None or header.last_offset not in tail.last_offsets:
            return Fate.GONE
        return Fate.SAME if header.record_count == 0 else rebuild_batch(header, b"", 0)

    def _keeps_epoch(self, header: BatchHeader) -> bool:
        tail = self._plan.producers.get(header.producer_id)
        return tail is not None and not tail.last_offsets and tail.epoch == header.producer_epoch

    def _drops_tombstones(self, header: BatchHeader) -> bool:
        """Returns whether tombstones go: never in the run that removes what they deleted, as a reader may
        just have read that.

        A replica gets batches with a horizon that another set, perhaps before it has compacted anything.
        """
        return header.base_offset < self._plan.first_dirty_offset and self._is_past_horizon(header)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is not None and horizon_ms <= self._plan.now_ms
