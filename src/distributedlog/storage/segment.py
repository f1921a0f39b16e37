"""A segment: one log file and its indexes.

    {base:020d}.log  .index  .timeindex  .txnindex       in the partition's directory

The log file is a sequence of record batches and alone is the truth; all else can be made from it.  The
last segment of a log is active and grows; the others are sealed and never change again, but for being
replaced whole (compaction) or renamed and removed (retention).

The last batches that were appended are found in memory (`_tail`); everything else by the indexes.

An index entry is checked where it leads.  `locate` starts at the position an entry gives and must find
there a batch whose base offset lies between that entry and the one before it; otherwise the index is
rebuilt from the log and asked again.  So a wrong index costs time, never a wrong answer.

A batch's base offset is not under its checksum.  A batch that is found must therefore end before the next
one begins, or end where its index entry says; offsets that were moved up by damage do neither.  If the log
itself is damaged the indexes stay as they are, and lead to what is sound on both sides of the damage.
"""

import contextlib
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from distributedlog.model.errors import CorruptLogError, DiskFullError, LogDirectoryFailedError, StorageError
from distributedlog.ports.disk import File
from distributedlog.records.batch import HEADER_BYTES, LOG_OVERHEAD, MAGIC, BatchHeader
from distributedlog.records.layout import MAX_TIMESTAMP_AT
from distributedlog.storage.files import FileRegion, Files, ManagedFile
from distributedlog.storage.index import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY, OffsetIndex, TimeIndex
from distributedlog.storage.scan import BadBatchError, walk
from distributedlog.storage.txn_index import TransactionIndex

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

LOOKUP_WINDOW_BYTES = 8 * 1024
TAIL_BATCHES = 8
"""How many of the last batches that were appended are found without a search; up to twice as many."""
_WALK = struct.Struct(">qi4xb6xi")  # base offset, batch length, magic, last offset delta
_INT64 = struct.Struct(">q")


class BatchPlace(NamedTuple):
    """Where a batch stands and what offsets it holds."""

    position: int
    size: int
    base_offset: int
    next_offset: int


class _MistrustedIndexError(Exception):
    """The index led somewhere it should not."""


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class Segment:
    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        index_interval_bytes: int,
        suffix: str = "",
    ) -> None:
        stem = f"{directory}/{base_offset:020d}"
        self._files = files
        self._index_interval_bytes = index_interval_bytes
        self._bytes_since_entry = 0
        self._has_no_timestamps = False
        self.directory = directory
        self.base_offset = base_offset
        self.log: ManagedFile = files.manage(stem + LOG_SUFFIX + suffix)
        self.offset_index = OffsetIndex(files, stem + OFFSET_INDEX_SUFFIX + suffix, base_offset)
        self.time_index = TimeIndex(files, stem + TIME_INDEX_SUFFIX + suffix, base_offset)
        self.txn_index = TransactionIndex(files, stem + TXN_INDEX_SUFFIX + suffix, base_offset)
        self.size = 0
        self.first_timestamp = -1
        """The newest timestamp of the first batch: the age of a segment counts from it."""
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.index_bytes_wanted = 0
        """What the larger index needs for the next batch, and the time index for being sealed."""
        self.damage: str | None = None
        """What is wrong with the log file, as far as rebuilding the indexes has shown it."""
        self._unwalkable_bytes: int | None = None
        """How large the log file was when its batches could not be walked for the indexes."""
        self._writer: File | None = None
        self._tail: list[BatchPlace] = []
        """The last batches that were appended, without a gap: followers and most consumers read these."""

    # --- making one ----------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        index_interval_bytes: int,
        suffix: str = "",
    ) -> "Segment":
        """A new one; a `suffix` behind the files' names keeps it aside, for what compaction makes."""
        segment = cls(files, directory, base_offset, index_interval_bytes, suffix)
        segment.log = files.create(segment.log.path)
        segment.reset_indexes()
        segment.txn_index.start_empty()
        return segment

    @classmethod
    def open(cls, files: Files, directory: str, base_offset: int, index_interval_bytes: int) -> "Segment":
        """One that is there already; its indexes are looked at when they are needed."""
        segment = cls(files, directory, base_offset, index_interval_bytes)
        files.refuse_link(segment.log.path)
        try:
            segment.size = files.size(segment.log.path)
        except FileNotFoundError as error:  # its name was listed: a link to nothing
            raise StorageError(f"cannot see the size of {segment.log.path}: {error.strerror}") from error
        return segment

    def reset_indexes(self) -> None:
        """The offset and time index begin anew; the transaction index needs producers and is the log's."""
        self.offset_index.start_empty()
        self.time_index.start_empty()
        self.index_bytes_wanted = 0
        self._bytes_since_entry = 0
        self.max_timestamp, self.max_timestamp_offset = -1, self.base_offset

    def load_max_timestamp(self) -> None:
        """Reads a sealed segment's max timestamp from its time index; a damaged one may have none."""
        if self.max_timestamp < 0 < self.size and not self._has_no_timestamps:
            try:
                self._settle_time_index()
                if self._newest_behind_index(self.size)[0] > self.time_index.last()[0]:
                    self.rebuild_indexes()
                self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
            except CorruptLogError as error:
                self.damage = self.damage or str(error)
            self._has_no_timestamps = self.max_timestamp < 0  # `note` knows better if one comes

    def check_timestamps(self) -> None:
        """Raises if the newest timestamp that is known may be too low, because of damage."""
        if self.damage is not None:
            raise CorruptLogError(f"{self.log.path} {self.damage}")

    def _settle_time_index(self) -> None:
        """Makes sure that its last entry, which stands for all before it, is right."""
        try:
            self._check_time_entry(self.time_index.last())
        except (CorruptLogError, _MistrustedIndexError):
            self.rebuild_indexes()

    def _newest_behind_index(self, end: int) -> tuple[int, int]:
        """Finds, among the batches behind the time index's last entry and before `end`, which may be newer if
        the index is cut short, the newest timestamp and its batch's last offset.  Mostly there are few or
        none."""
        place = self.locate(self.time_index.last()[1]) if len(self.time_index) else None
        position = 0 if place is None else place.position + place.size
        newest = -1, self.base_offset
        while position < end:
            window = self.log.read_at(position, min(LOOKUP_WINDOW_BYTES, end - position))
            at = 0
            while at + HEADER_BYTES <= len(window):
                base_offset, length, _, delta = _WALK.unpack_from(window, at)
                if length < HEADER_BYTES - LOG_OVERHEAD:
                    raise CorruptLogError(f"{self.log.path} at position {position + at}: no batch")
                (timestamp,) = _INT64.unpack_from(window, at + MAX_TIMESTAMP_AT)
                if timestamp > newest[0]:
                    newest = timestamp, base_offset + delta
                at += LOG_OVERHEAD + length
            if at == 0:
                raise CorruptLogError(f"{self.log.path} at position {position}: no batch")
            position += at
        return newest

    def read_timestamp_at(self, position: int) -> int:
        """The newest timestamp of the batch there."""
        return int.from_bytes(
            self.log.read_at(position + MAX_TIMESTAMP_AT, 8).rjust(8, b"\xff"), "big", signed=True
        )

    # --- growing -------------------------------------------------------------------------------

    def append(self, data: bytes | bytearray | memoryview, headers: list[BatchHeader]) -> None:
        """Appends `data`, exactly the batches of `headers`, stamped.  On DiskFullError nothing has
        changed."""
        position = self.size
        writer = self._writer
        if writer is None:
            writer = self._writer = self.log.pin()
        if self._files.failure is not None:
            self._files.check_usable()
        try:
            writer.write_at(position, data)
        except OSError as error:
            self.log.undo_append(position, error)
        self._note_batches(headers, position)
        self.size = position + len(data)
        self._note_tail(headers)

    def note(self, header: BatchHeader, position: int) -> None:
        """Takes a batch that stands at `position` into the indexes, one entry for about every interval."""
        self._note_batches((header,), position)

    def _note_batches(self, headers: Sequence[BatchHeader], position: int) -> None:
        """Takes batches that stand one behind the other into the indexes."""
        since_entry, interval = self._bytes_since_entry, self._index_interval_bytes
        # Unpacked at once: this runs for every batch.
        for base_offset, length, _, _, _, _, last_delta, _, timestamp, _, _, _, _ in headers:
            if position == 0:
                self.first_timestamp = timestamp
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
                self.max_timestamp_offset = base_offset + last_delta
            if since_entry > interval:
                offset_bytes = self.offset_index.append(base_offset + last_delta, position)
                time_bytes = self.time_index.append_if_newer(self.max_timestamp, self.max_timestamp_offset)
                self._want_index_bytes(offset_bytes, time_bytes)
                since_entry = 0
            since_entry += LOG_OVERHEAD + length
            position += LOG_OVERHEAD + length
        self._bytes_since_entry = since_entry

    def _note_tail(self, headers: list[BatchHeader]) -> None:
        """Remembers where the last of these batches stand, the last of all."""
        tail = self._tail
        if len(headers) > TAIL_BATCHES:
            tail.clear()  # what was there does not join on to the last of these
            headers = headers[-TAIL_BATCHES:]
        elif len(tail) > TAIL_BATCHES:
            del tail[:-TAIL_BATCHES]
        position = self.size
        for header in headers:
            position -= LOG_OVERHEAD + header[1]
        for base_offset, length, _, _, _, _, last_delta, _, _, _, _, _, _ in headers:
            size = LOG_OVERHEAD + length
            # Past the constructor, which costs several times as much.
            tail.append(
                tuple.__new__(BatchPlace, (position, size, base_offset, base_offset + last_delta + 1))
            )
            position += size

    def _want_index_bytes(self, offset_bytes: int, time_bytes: int) -> None:
        self.index_bytes_wanted = max(offset_bytes + OFFSET_ENTRY.size, time_bytes + 2 * TIME_ENTRY.size)

    @property
    def is_dirty(self) -> bool:
        """Holds bytes that were not synced yet; its descriptor is pinned so long."""
        return self._writer is not None

    def mark_synced(self) -> None:
        if self._writer is not None:
            self._writer = None
            self.log.unpin()

    def hand_over(self) -> File:
        """Returns the open file of a dirty segment, with its pin: the caller syncs it, and unpins it then."""
        writer, self._writer = self._writer, None
        assert writer is not None, "nothing is to be synced"
        return writer

    def write_out_indexes(self) -> None:
        self.offset_index.write_out()
        self.time_index.write_out()
        self.txn_index.write_out()

    def finish_indexes(self) -> None:
        """The form in which a sealed or closed segment is left: the time index ends with the newest."""
        if self.max_timestamp >= 0:
            self.time_index.append_if_newer(self.max_timestamp, self.max_timestamp_offset)
        self.write_out_indexes()

    def seal(self) -> None:
        self._tail.clear()
        self.finish_indexes()
        self.offset_index.release()
        self.time_index.release()

    # --- finding -------------------------------------------------------------------------------

    def locate(self, offset: int) -> BatchPlace | None:
        """Returns the first batch that ends at `offset` or after, or None if the segment has none.  Indexes
        that contradict the log are rebuilt first."""
        tail = self._tail
        if tail and offset >= tail[0][2]:
            return self._find_in_tail(offset)
        try:
            return self._locate(offset)
        except (_MistrustedIndexError, CorruptLogError):
            self.rebuild_indexes()
        try:
            return self._locate(offset)
        except _MistrustedIndexError as error:
            raise CorruptLogError(f"{self.log.path}: {error}") from error

    def _find_in_tail(self, offset: int) -> BatchPlace | None:
        """Finds what `locate` does, for an offset at or behind the first one of the tail."""
        found = None
        for place in reversed(self._tail):
            if place[3] <= offset:
                break
            found = place
        return found

    def _locate(self, offset: int) -> BatchPlace | None:
        lowest, highest, position, next_offset, next_position = self.offset_index.lookup(offset)
        if next_position - position > LOOKUP_WINDOW_BYTES:
            place = self._probe(offset, highest, next_offset, next_position)
            if place is not None:
                return place
        size = self.size
        promised = highest if position > 0 else -1  # the entry's offset, which stands there or soon after
        if not 0 <= position < max(size, 1):
            raise _MistrustedIndexError(f"position {position} does not lie in the file of {size} bytes")
        while position < size:
            window = self.log.read_at(position, min(LOOKUP_WINDOW_BYTES, size - position))
            at, end = 0, len(window) - HEADER_BYTES
            while at <= end:
                base_offset, length, magic, delta = _WALK.unpack_from(window, at)
                batch_size = LOG_OVERHEAD + length
                if (
                    magic != MAGIC
                    or batch_size < HEADER_BYTES
                    or not lowest <= base_offset <= highest
                    or lowest <= promised < base_offset
                    or delta < 0
                    or position + at + batch_size > size
                ):
                    raise _MistrustedIndexError(
                        f"at position {position + at} stands no batch with offset {lowest} or the next"
                    )
                if base_offset + delta >= offset:
                    self._check_next(window, at + batch_size, position, base_offset + delta + 1)
                    return BatchPlace(position + at, batch_size, base_offset, base_offset + delta + 1)
                lowest, highest = base_offset + delta + 1, self.base_offset + RELATIVE_OFFSET_MAX
                at += batch_size
            if at == 0:
                raise _MistrustedIndexError(
                    f"{size - position} bytes are left at {position}, less than a batch"
                )
            position += at
        return None

    def _check_next(self, window: bytes, at: int, position: int, next_offset: int) -> None:
        """The batch that follows one in `window`, at `at`, begins at `next_offset` or after."""
        if at + 8 <= len(window):
            (base_offset,) = _INT64.unpack_from(window, at)
        elif position + at < self.size:
            base_offset = int.from_bytes(self.log.read_at(position + at, 8), "big", signed=True)
        else:
            return
        if base_offset < next_offset:
            raise _MistrustedIndexError(
                f"at position {position + at} stands offset {base_offset}, after offset {next_offset - 1}"
            )

    def _probe(self, offset: int, after: int, until: int, position: int) -> BatchPlace | None:
        """Looks at the next entry's batch: large batches are indexed one by one, and it is mostly the one
        that is looked for."""
        if not 0 <= position <= self.size - HEADER_BYTES:
            raise _MistrustedIndexError(f"position {position} does not lie in the file of {self.size} bytes")
        header = self.log.read_at(position, HEADER_BYTES)
        base_offset, length, magic, delta = _WALK.unpack_from(header)
        size = LOG_OVERHEAD + length
        if magic != MAGIC or size < HEADER_BYTES or position + size > self.size or delta < 0:
            raise _MistrustedIndexError(f"at position {position} stands no batch")
        if not after < base_offset <= until == base_offset + delta:
            return None  # an entry of several batches, as Kafka makes them for one append
        if base_offset > offset:
            return None
        return BatchPlace(position, size, base_offset, base_offset + delta + 1)

    def region(self, position: int, length: int) -> FileRegion:
        """Returns bytes of the log file to read or to send; CorruptLogError if somebody cut the file short.

        Whoever finds that out in the middle of a response can only hang up.
        """
        region = FileRegion(self.log, position, length)
        try:
            region.check_whole()
        except StorageError:
            region.close()
            raise
        return region

    def find_offset_hint(self, timestamp: int) -> int:
        """An offset at or after which the first record with at least `timestamp` stands, if it is here."""
        try:
            return self._time_lookup(timestamp)
        except (_MistrustedIndexError, CorruptLogError):
            self.rebuild_indexes()
        try:
            return self._time_lookup(timestamp)
        except _MistrustedIndexError as error:
            raise CorruptLogError(f"{self.log.path}: {error}") from error

    def _time_lookup(self, timestamp: int) -> int:
        entry = self.time_index.lookup(timestamp)
        if entry is None:
            return self.base_offset
        self._check_time_entry(entry)
        return entry[1]

    def _check_time_entry(self, entry: tuple[int, int]) -> None:
        """The batch that an entry names must have that very timestamp as its newest."""
        timestamp, offset = entry
        if timestamp < 0 and offset == self.base_offset:
            return
        place = self.locate(offset)
        if place is None or place.next_offset - 1 != offset:
            raise _MistrustedIndexError(f"the time index names offset {offset}, which ends no batch")
        max_timestamp = self.read_timestamp_at(place.position)
        if max_timestamp != timestamp:
            raise _MistrustedIndexError(
                f"the time index says {timestamp} for {offset}; the log {max_timestamp}"
            )

    def rebuild_indexes(self) -> None:
        """Makes the indexes from the log file.  If that cannot be walked they stay as they are.

        A reader may have asked for it: where the files cannot be written it goes on with what is in memory.
        What could not be walked once is not walked again for every reader that comes, while it is as long.
        """
        if self._unwalkable_bytes is not None and self._unwalkable_bytes == self.log.size():
            raise CorruptLogError(f"{self.log.path} {self.damage}")
        self._unwalkable_bytes = None
        made = self._index_anew()
        self.offset_index.take_entries_of(made.offset_index)
        self.time_index.take_entries_of(made.time_index)
        self.index_bytes_wanted, self._bytes_since_entry = made.index_bytes_wanted, made._bytes_since_entry
        self.first_timestamp = made.first_timestamp
        self.max_timestamp, self.max_timestamp_offset = made.max_timestamp, made.max_timestamp_offset
        with contextlib.suppress(DiskFullError, LogDirectoryFailedError):
            for index in (self.offset_index, self.time_index):
                index.write_out()
                index.file.sync()  # a part of a time index would not be told from the whole

    def _index_anew(self) -> "Segment":
        """A segment that has the indexes this one should have.  Without checksums if they are not right:
        offsets and positions can be followed then, timestamps cannot be believed (`damage`)."""
        self.damage = None
        for check_crc in (True, False):
            made = Segment(self._files, self.directory, self.base_offset, self._index_interval_bytes)
            made.reset_indexes()
            try:
                for batch in walk(self.log, 0, self.size, check_crc=check_crc):
                    made.note(batch.header, batch.position)
                break
            except BadBatchError as error:
                self.damage = str(error)
                if not check_crc:
                    self._unwalkable_bytes = self.log.size()
                    raise CorruptLogError(f"{self.log.path} {error}") from error
        if made.max_timestamp >= 0:
            made.time_index.append_if_newer(made.max_timestamp, made.max_timestamp_offset)
        return made

    # --- shrinking -----------------------------------------------------------------------------

    def find_end_before(self, offset: int) -> int:
        """Returns where the log ends if the batch that holds `offset`, and all after it, go."""
        place = self.locate(offset)
        position = self.size if place is None else place.position
        start = max((at for _, at in self.offset_index.entries() if 0 <= at < position), default=0)
        for begin in (start, 0):
            end_offset = self.base_offset
            try:
                for batch in walk(self.log, begin, position, check_crc=False):
                    end_offset = batch.header.next_offset
                return end_offset
            except BadBatchError as error:
                bad = error
        raise CorruptLogError(f"{self.log.path} {bad}") from bad

    def truncate_to(self, offset: int, *, sync: bool = True) -> int:
        """Removes the batch that holds `offset` and all after it; where the last one left ends.

        To be synced before anything is appended anew: else a crash could leave old batches behind the new.
        """
        place = self.locate(offset)
        if place is None:
            return self.recount_tail()
        self._tail.clear()
        self._settle_time_index()
        self.offset_index.truncate_to_position(place.position)
        self.time_index.truncate_to_offset(place.base_offset)
        self.txn_index.truncate_to_offset(place.base_offset)
        self.size = place.position
        self.log.truncate(place.position)
        if sync:
            self.log.sync()
        self.damage = self._unwalkable_bytes = None
        return self.recount_tail()

    def recount_tail(self) -> int:
        """Counts anew from the last index entry on, after opening or truncating; returns the end offset."""
        self._settle_time_index()
        try:
            return self._count_from_last_entry()
        except (CorruptLogError, BadBatchError):
            self.rebuild_indexes()
        try:
            return self._count_from_last_entry()
        except BadBatchError as error:
            raise CorruptLogError(f"{self.log.path} {error}") from error

    def _count_from_last_entry(self) -> int:
        entries = self.offset_index.entries()
        position = entries[-1][1] if entries else 0
        if not 0 <= position < max(self.size, 1):
            raise CorruptLogError(f"{self.offset_index.path} leads out of the log, to {position}")
        newest = max(self.time_index.last(), self._newest_behind_index(position), key=lambda each: each[0])
        self.max_timestamp, self.max_timestamp_offset = newest
        self._want_index_bytes(self.offset_index.bytes_used, self.time_index.bytes_used)
        self._bytes_since_entry = 0
        end_offset = self.base_offset
        for batch in walk(self.log, position, self.size, check_crc=False):
            header = batch.header
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
            self._bytes_since_entry += header.size
            end_offset = header.next_offset
        return end_offset

    # --- leaving -------------------------------------------------------------------------------

    def paths(self) -> list[str]:
        return [self.log.path, self.offset_index.path, self.time_index.path, self.txn_index.path]

    def close(self) -> None:
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.close()
        self.log.close()


class SegmentList:
    """The segments of a log, in order of their base offsets.

    Every change makes new lists, so a reader that took `all()` keeps walking what was there when it began.
    """

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments: tuple[Segment, ...] = ()
        self._bases: list[int] = []
        self._set(segments)

    def _set(self, segments: Iterable[Segment]) -> None:
        ordered = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._segments, self._bases = ordered, [segment.base_offset for segment in ordered]

    def all(self) -> tuple[Segment, ...]:
        return self._segments

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def sealed(self) -> tuple[Segment, ...]:
        return self._segments[:-1]

    def from_offset(self, offset: int) -> tuple[Segment, ...]:
        """The segment that holds `offset`, or would, and those after it."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def next_base(self, segment: Segment) -> int | None:
        """Returns where the segment after this one begins; None after the last."""
        slot = bisect_right(self._bases, segment.base_offset)
        return self._bases[slot] if slot < len(self._bases) else None

    def add(self, segment: Segment) -> None:
        self._set((*self._segments, segment))

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        gone = set(map(id, old))
        self._set([*(segment for segment in self._segments if id(segment) not in gone), *new])
