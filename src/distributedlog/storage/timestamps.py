"""Finding records by time: the first at or after a timestamp, and the one with the highest.

The time index, which the segment checks, says from where on to look.  From there batches are walked, and
those whose newest timestamp is high enough are opened, without an object for any record.  How long that takes
is up to who wrote the batches: they may be compressed well, and the newest timestamp that a header claims
need not be any record's.  So a search is made of steps.  Between them it belongs to the thread that has the
log; a step needs only bytes that the search holds (a region), so any thread can do it, and it ends after
STEP_BYTES:

    steps = log.search_timestamp(...)
    step = next(steps)              # with the log
    step()                          # on any thread; what it raises goes into the search with steps.throw
    step = next(steps)              # with the log; StopIteration has the result

A batch is opened as far as an append would open it (`append.limit_opened`).  One that holds more, as a log
may that was written under other settings, stands for its first record: whoever reads from there misses
nothing.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from distributedlog.model.config import MIB
from distributedlog.model.errors import CorruptLogError, RecordTooLargeError
from distributedlog.model.limits import RecordLimits
from distributedlog.records.record import decompress_records, find_record_by_time
from distributedlog.storage.append import limit_opened
from distributedlog.storage.files import FileRegion
from distributedlog.storage.lookups import check_extent, segment_end_offset
from distributedlog.storage.scan import BadBatchError, LocatedBatch, walk
from distributedlog.storage.segment import Segment

if TYPE_CHECKING:
    from distributedlog.storage.log_reads import ReadableLog

T = TypeVar("T")

STEP_BYTES: Final = 8 * MIB
"""What a step reads, and makes of compressed batches, before the next one's turn: some milliseconds."""


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int


Step = Callable[[], None]
Steps = Generator[Step, None, T]
Found = TimestampOffset | None


def run(steps: Steps[T]) -> T:
    """Does all steps at once, here."""
    try:
        step = next(steps)
        while True:
            try:
                step()
            except Exception as error:
                step = steps.throw(error)
            else:
                step = next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


def find_timestamp(log: "ReadableLog", timestamp_ms: int, up_to: int) -> Steps[Found]:
    """The first record at or after a time, below the offset `up_to`.  As in Kafka, it may be a marker."""
    behind = -1
    while True:
        later = (each for each in log.segments if each.base_offset > behind)
        segment = next((each for each in later if _read_max_timestamp(each) >= timestamp_ms), None)
        if segment is None:
            return None
        behind = segment.base_offset
        start = max(log.start_offset, segment.find_offset_hint(timestamp_ms))
        end = min(up_to, segment_end_offset(log, segment))
        found = yield from _search(log, segment, timestamp_ms, start, end, newest=False)
        if found is not None:
            return found
        log.check_open()


def find_max_timestamp(log: "ReadableLog") -> Steps[Found]:
    """The record with the highest timestamp, the first of them if several have it."""
    newest: Found = None
    searched: set[Segment] = set()
    while True:
        left = [each for each in log.segments if each not in searched]
        segment = max(left, key=_read_max_timestamp, default=None)
        if segment is None or segment.max_timestamp < (newest.timestamp_ms if newest else 0):
            return newest
        searched.add(segment)
        found = yield from _find_max_in(log, segment)
        if found is not None and (newest is None or (-found[0], found[1]) < (-newest[0], newest[1])):
            newest = found
        log.check_open()


def _read_max_timestamp(segment: Segment) -> int:
    segment.load_max_timestamp()
    segment.check_timestamps()
    return segment.max_timestamp


def _find_max_in(log: "ReadableLog", segment: Segment) -> Steps[Found]:
    """Returns what the index names; by looking if that lies before the log's start, or no record has that
    time."""
    newest_ms, end = segment.max_timestamp, segment_end_offset(log, segment)
    start = max(log.start_offset, segment.find_offset_hint(newest_ms))
    found = yield from _search(log, segment, newest_ms, start, end, newest=False)
    log.check_open()
    if found is not None or segment not in log.segments.all():
        return found
    start = max(log.start_offset, segment.base_offset)
    return (yield from _search(log, segment, 0, start, end, newest=True))


def _search(
    log: "ReadableLog", segment: Segment, timestamp_ms: int, start: int, end: int, *, newest: bool
) -> Steps[Found]:
    place = segment.locate(start) if start < end and segment.size else None
    if place is None:
        return None
    limits = limit_opened(log.config, log.limits)
    with segment.region(place.position, segment.size - place.position) as region:
        search = _SegmentSearch(region, segment, timestamp_ms, start, end, newest, limits)
        search.segment_end = segment_end_offset(log, segment)
        while not search.is_done:
            yield search.advance
        region.check_unchanged()
    return search.found


class _SegmentSearch:
    """The search of one segment's bytes.  Of the segment it uses nothing that changes."""

    def __init__(
        self,
        region: FileRegion,
        segment: Segment,
        timestamp_ms: int,
        start: int,
        end: int,
        newest: bool,
        limits: RecordLimits,
    ) -> None:
        self._region = region
        self._segment = segment
        self._least_ms = timestamp_ms
        self._start = start
        self._end = end
        self._newest = newest
        self._limits = limits
        self._batches = walk(region, region.position, region.position + region.length)
        self.segment_end = end
        self.found: Found = None
        self.is_done = False

    def advance(self) -> None:
        work_bytes = 0
        try:
            for batch in self._batches:
                check_extent(self._segment, batch.position, batch.header.next_offset, self.segment_end)
                if batch.header.base_offset >= self._end:
                    break
                work_bytes += batch.header.size
                if batch.header.max_timestamp >= self._least_ms:
                    work_bytes += self._look_into(batch)
                    if self.found is not None and not self._newest:
                        break
                if work_bytes >= STEP_BYTES:
                    return
        except BadBatchError as error:
            self._region.check_unchanged()
            raise CorruptLogError(f"{self._segment.log.path} {error}") from error
        self.is_done = True

    def _look_into(self, batch: LocatedBatch) -> int:
        """Returns how many bytes its records have."""
        header = batch.header
        try:
            records = decompress_records(batch.window, batch.at, header, self._limits)
        except RecordTooLargeError:
            first = max(header.base_offset, self._start)
            if first < min(self._end, header.next_offset):
                self._take(first, header.max_timestamp)
            return STEP_BYTES
        found = find_record_by_time(
            records, header, self._least_ms, start=self._start, end=self._end, newest=self._newest
        )
        if found is not None:
            self._take(*found)
        return len(records)

    def _take(self, offset: int, timestamp_ms: int) -> None:
        self.found = TimestampOffset(timestamp_ms, offset)
        self._least_ms = timestamp_ms + 1
