"""The work of compaction: reads segments, writes cleaned ones beside them, and touches nothing else.

It runs wherever there is CPU to spare: it gets a plan and a disk and gives a result (`plan`).

**First pass**, over the dirty part: key → offset of its latest record (`offset_map`).  Records of aborted
transactions and markers do not count.  If the map is full, the dirty part ends there for this run, at the
*boundary*, and what lies behind it is copied as it is.

**Second pass**, over all segments that begin before the boundary: each batch becomes what `batch_filter`
says.  Neighbouring segments are merged while they fit `segment.bytes` together.

Every new segment ends with the very offset with which its last old segment ended, by a batch without records
if need be.  So each segment ends where the next one begins, compacted or not; recovery sees from a new
segment alone which old ones it stands for; and a hole between segments is always damage.

No new segment has a transaction index: no record of an aborted transaction is left in it.  Checksums are
verified in both passes, since a batch that is rebuilt gets a new one: damage is reported, never laundered.

    {base:020d}.log|.index|.timeindex  .{token}.cleaned      synced here; a start after a crash removes them
"""

from collections.abc import Iterator
from contextlib import suppress

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import CorruptLogError, DlogError, StorageError
from distributedlog.ports.disk import Disk
from distributedlog.records.batch import HEADER_BYTES, BatchHeader, read_header
from distributedlog.records.layout import INT32_MAX
from distributedlog.storage.compaction.batch_filter import (
    BatchFilter,
    Fate,
    open_batch,
    placeholder,
)
from distributedlog.storage.compaction.offset_map import OffsetMap
from distributedlog.storage.compaction.plan import (
    CleanedGroup,
    CompactionCounts,
    CompactionPlan,
    CompactionResult,
    SegmentExtent,
)
from distributedlog.storage.files import Files
from distributedlog.storage.index import RELATIVE_OFFSET_MAX, TIME_ENTRY
from distributedlog.storage.scan import BadBatchError, LocatedBatch, walk
from distributedlog.storage.segment import LOG_SUFFIX, Segment, file_name
from distributedlog.storage.txn_index import AbortedRanges

READ_BYTES = 4 * 1024 * 1024
WRITE_BYTES = 4 * 1024 * 1024


def run_compaction(plan: CompactionPlan, disk: Disk) -> CompactionResult:
    """Writes the cleaned files, synced; on an error none is left."""
    files = Files(disk)
    try:
        return _Run(plan, files).run()
    finally:
        files.close()


def group_segments(plan: CompactionPlan, boundary: int) -> list[tuple[SegmentExtent, ...]]:
    """The segments that begin before `boundary`, those together that fit into one."""
    groups: list[tuple[SegmentExtent, ...]] = []
    for extent in plan.segments:
        if extent.base_offset >= boundary:
            break
        if groups and _fit_together(plan, (*groups[-1], extent)):
            groups[-1] = (*groups[-1], extent)
        else:
            groups.append((extent,))
    return groups


def _fit_together(plan: CompactionPlan, extents: tuple[SegmentExtent, ...]) -> bool:
    size = sum(extent.size for extent in extents)
    index_entries_max = size // max(plan.index_interval_bytes, HEADER_BYTES) + 1
    return (
        size <= plan.segment_bytes
        and index_entries_max * TIME_ENTRY.size <= plan.segment_index_bytes
        and extents[-1].end_offset - extents[0].base_offset <= RELATIVE_OFFSET_MAX
    )


class _Run:
    def __init__(self, plan: CompactionPlan, files: Files) -> None:
        self._plan = plan
        self._files = files
        self._aborted = AbortedRanges(plan.aborted)
        self._newest = OffsetMap(plan.keys_max)
        self._counts = CompactionCounts()

    def run(self) -> CompactionResult:
        plan = self._plan
        boundary = self._map_dirty()
        self._counts.keys = len(self._newest)
        batches = BatchFilter(plan, self._aborted, self._newest, boundary, self._counts)
        groups = group_segments(plan, boundary)
        try:
            cleaned = [self._clean_group(group, batches) for group in groups]
        except DlogError:
            self._remove_cleaned(groups)
            raise
        return CompactionResult(
            directory=plan.directory,
            cleaned_suffix=plan.cleaned_suffix,
            truncations=plan.truncations,
            segments=tuple(extent for group in groups for extent in group),
            groups=tuple(group for group in cleaned if group is not None),
            first_dirty_offset=boundary,
            counts=self._counts,
        )

    def _walk(self, extent: SegmentExtent) -> Iterator[LocatedBatch]:
        path = f"{self._plan.directory}/{file_name(extent.base_offset, LOG_SUFFIX)}"
        if not self._files.exists(path):
            raise StorageError(f"{path} is gone: the log has changed since its compaction was planned")
        managed = self._files.manage(path, writable=False)
        try:
            yield from walk(managed, 0, extent.size, window_bytes=READ_BYTES)
        except BadBatchError as error:
            raise CorruptLogError.at(extent.base_offset, f"{path} {error}") from error
        finally:
            managed.close()

    # --- first pass ----------------------------------------------------------------------------

    def _map_dirty(self) -> int:
        """Fills the map; the offset up to which it speaks for the log."""
        plan = self._plan
        for extent in plan.segments:
            if extent.end_offset <= plan.first_dirty_offset:
                continue
            for batch in self._walk(extent):
                header = batch.header
                if (
                    header.next_offset <= plan.first_dirty_offset
                    or header.record_count == 0
                    or header.is_control
                    or self._aborted.holds(header)
                ):
                    continue
                if not self._newest.has_room_for(header.record_count):
                    return header.base_offset
                self._newest.note(open_batch(batch, plan.limits)[1], header.base_offset)
        return plan.end_offset

    # --- second pass ---------------------------------------------------------------------------

    def _clean_group(self, group: tuple[SegmentExtent, ...], batches: BatchFilter) -> CleanedGroup | None:
        """The new segment, or None if it would be the old one again."""
        counts = self._counts
        bytes_read = 0
        last_gone: LocatedBatch | None = None
        output = _Output(self._files, self._plan, group[0].base_offset)
        for extent in group:
            for batch in self._walk(extent):
                bytes_read += batch.header.size
                counts.records_before += batch.header.record_count
                room_bytes = max(bytes_read, self._plan.segment_bytes) - output.size
                became = batches.clean(batch, room_bytes)
                last_gone = batch if became is Fate.GONE else None
                if became is Fate.SAME:
                    output.copy(batch)
                elif became is not Fate.GONE:
                    output.write(became)
        if last_gone is not None:
            counts.markers_dropped -= last_gone.header.is_control
            stays = placeholder(last_gone)
            if stays == bytes(last_gone.data):
                output.copy(last_gone)
            else:
                output.write(stays)
        counts.bytes_before += bytes_read
        counts.bytes_after += output.size
        counts.records_after += output.record_count
        if len(group) == 1 and not output.has_changes and output.size == bytes_read:
            output.discard()
            return None
        return output.finish(group)

    def _remove_cleaned(self, groups: list[tuple[SegmentExtent, ...]]) -> None:
        """Removes what it can: what stays is removed when the log is opened next."""
        for group in groups:
            segment = Segment(
                self._files, self._plan.directory, group[0].base_offset, 0, self._plan.cleaned_suffix
            )
            for path in segment.paths():
                with suppress(StorageError):
                    self._files.remove(path)


class _Output:
    """A new segment, written in large pieces."""

    def __init__(self, files: Files, plan: CompactionPlan, base_offset: int) -> None:
        self._files = files
        self._pending = bytearray()
        self._headers: list[BatchHeader] = []
        self._segment = Segment(
            files, plan.directory, base_offset, plan.index_interval_bytes, plan.cleaned_suffix
        )
        for path in self._segment.paths():
            files.remove(path)
        self._segment = Segment.create(
            files, plan.directory, base_offset, plan.index_interval_bytes, plan.cleaned_suffix
        )
        self.size = 0
        self.record_count = 0
        self.has_changes = False

    def copy(self, batch: LocatedBatch) -> None:
        self._add(batch.header, batch.data)

    def write(self, data: Buffer) -> None:
        """A batch that stands in the place of an old one."""
        self.has_changes = True
        self._add(read_header(data), data)

    def _add(self, header: BatchHeader, data: Buffer) -> None:
        self.size += header.size
        if self.size > INT32_MAX:
            raise StorageError(f"{self._segment.log.path} would be larger than an index can tell")
        self.record_count += header.record_count
        self._pending += data
        self._headers.append(header)
        if len(self._pending) >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._segment.append(self._pending, self._headers)
        self._pending, self._headers = bytearray(), []

    def finish(self, group: tuple[SegmentExtent, ...]) -> CleanedGroup:
        segment = self._segment
        if self._pending:
            self._flush()
        segment.finish_indexes()
        for managed in (segment.log, segment.offset_index.file, segment.time_index.file):
            managed.sync()
        segment.mark_synced()
        segment.close()
        return CleanedGroup(
            group, self.size, segment.first_timestamp, segment.max_timestamp, segment.max_timestamp_offset
        )

    def discard(self) -> None:
        self._segment.mark_synced()
        self._segment.close()
        for path in self._segment.paths():
            self._files.remove(path)
