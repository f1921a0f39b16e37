"""Reading a partition's log: by offset, by timestamp, and what is committed.

A read is a region of one segment's file, found by the offset index; no batch is opened for it.  Readers take
regions (see `files`), which outlive deletion and notice truncation.
"""

from collections.abc import Iterator
from typing import NamedTuple

from distributedlog.model.errors import CorruptLogError, OffsetOutOfRangeError
from distributedlog.storage import lookups, timestamps
from distributedlog.storage.files import FileRegion
from distributedlog.storage.log_files import LogFiles
from distributedlog.storage.producers import ProducerStates
from distributedlog.storage.scan import BadBatchError, LocatedBatch, walk
from distributedlog.storage.segment import Segment
from distributedlog.storage.timestamps import Steps, TimestampOffset
from distributedlog.storage.txn_index import AbortedTransaction


class ReadResult(NamedTuple):
    """Batches from the one that holds the requested offset.  The last may be cut off by the byte limit."""

    region: FileRegion | None
    """None when there is nothing to read yet.  Close it when done."""
    base_offset: int
    """The base offset of the first batch, which may begin before the requested offset."""

    @property
    def length(self) -> int:
        return 0 if self.region is None else self.region.length


class ReadableLog(LogFiles):
    """A log as far as it is read."""

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided, and its marker committed."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return max(min(unstable, self.high_watermark), self.start_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed.  It never goes back, but with a truncation."""
        if offset > self.high_watermark:
            self.high_watermark = min(offset, self.end_offset)
            self.producers.advance_high_watermark(self.high_watermark)

    def read(
        self, offset: int, max_bytes: int, *, up_to: int | None = None, at_least_one: bool = True
    ) -> ReadResult:
        """Reads batches from the one that holds `offset`, none with records at `up_to` or after.

        At most `max_bytes`, which may cut off the last batch; a first one that is larger is returned whole if
        `at_least_one`, else nothing.
        """
        self.check_open()
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not in the log, which holds {self.start_offset} to {self.end_offset - 1}"
            )
        bound = self.end_offset if up_to is None else min(up_to, self.end_offset)
        if offset >= bound or (max_bytes <= 0 and not at_least_one):
            return ReadResult(None, offset)
        for segment in self.segments.from_offset(offset):
            place = segment.locate(offset)
            if place is None:
                continue
            segment_end = lookups.segment_end_offset(self, segment)
            lookups.check_extent(segment, place.position, place.next_offset, segment_end)
            if place.base_offset >= bound:
                break
            end = segment.size if bound >= segment_end else self._end_position(segment, bound)
            length = min(max(max_bytes, place.size), end - place.position)
            if length <= 0 or (max_bytes < place.size and not at_least_one):
                break
            return ReadResult(segment.region(place.position, length), place.base_offset)
        return ReadResult(None, offset)

    def _end_position(self, segment: Segment, bound: int) -> int:
        place = segment.locate(bound)
        return segment.size if place is None else place.position

    def walk(self, start: int, end: int, *, check_crc: bool = True) -> Iterator[LocatedBatch]:
        """The batches that hold offsets from `start` up to, not including, `end`."""
        for segment in self.segments.from_offset(start):
            if segment.base_offset >= end:
                return
            place = segment.locate(start)
            if place is None:
                continue
            try:
                segment_end = lookups.segment_end_offset(self, segment)
                for batch in walk(segment.log, place.position, segment.size, check_crc=check_crc):
                    lookups.check_extent(segment, batch.position, batch.header.next_offset, segment_end)
                    if batch.header.base_offset >= end:
                        return
                    yield batch
            except BadBatchError as error:
                raise CorruptLogError(f"{segment.log.path} {error}") from error

    def find_timestamp(self, timestamp_ms: int, *, up_to: int | None = None) -> TimestampOffset | None:
        """The first record at or after a time."""
        return timestamps.run(self.search_timestamp(timestamp_ms, up_to=up_to))

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The record with the highest timestamp, the first of them if several have it."""
        return timestamps.run(self.search_max_timestamp())

    def search_timestamp(
        self, timestamp_ms: int, *, up_to: int | None = None
    ) -> Steps[TimestampOffset | None]:
        """Finds the first record at or after a time, in steps that any thread can do."""
        self.check_open()
        return timestamps.find_timestamp(self, timestamp_ms, self.end_offset if up_to is None else up_to)

    def search_max_timestamp(self) -> Steps[TimestampOffset | None]:
        """Finds the record with the highest timestamp, in steps that any thread can do."""
        self.check_open()
        return timestamps.find_max_timestamp(self)

    def find_aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Returns those with records from `start` up to `end`: a read_committed reader drops them."""
        self.check_open()
        return lookups.find_aborted_transactions(self, start, end)

    def restore_producers_at(self, offset: int) -> ProducerStates:
        """Returns what was known of producers when the log ended at `offset`."""
        return self.snapshots.restore_states_at(offset, self.segments.first.base_offset, self.walk)
