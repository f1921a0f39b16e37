"""The sparse indexes of a segment, byte for byte as Kafka has them.

    {base}.index      8 bytes an entry:  offset - base (int32)   position in the log file (int32)
    {base}.timeindex 12 bytes an entry:  timestamp (int64)       offset - base (int32)

An offset entry says: the batch at `position` holds `offset` or the offsets just before it.  A time entry
says: of all records up to `offset` none is newer than `timestamp`.  Both columns of both files only rise.

While its segment is active an index is a buffer in memory, whose tail is written to the file when the log
is checkpointed, sealed or closed.  Once sealed it is mapped, on first use.  An index is never trusted: it
has no checksum, so whoever follows an entry must find at its end what the entry promised, and otherwise
calls for a rebuild from the log (`Segment`).  A crash may therefore leave anything here.
"""

import struct
from typing import NamedTuple, NoReturn

from distributedlog.model.errors import CorruptLogError
from distributedlog.records.layout import NO_TIMESTAMP
from distributedlog.storage.files import Files, ManagedFile

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
RELATIVE_OFFSET_MAX = 2**31 - 1
GUESS_SLOTS = 4


class SparseIndex:
    """What the two have in common: entries of one size in a file, the newest perhaps only in memory."""

    entry: struct.Struct

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self._entries: bytearray | memoryview | None = None
        self._written_bytes = 0
        self._file: ManagedFile = files.manage(path)
        self.base_offset = base_offset

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def file(self) -> ManagedFile:
        return self._file

    def __len__(self) -> int:
        return len(self._loaded()) // self.entry.size

    @property
    def bytes_used(self) -> int:
        return len(self._loaded())

    def _loaded(self) -> bytearray | memoryview:
        entries = self._entries
        if entries is None:
            entries = self._file.map()
            if len(entries) % self.entry.size:
                raise CorruptLogError(f"{self.path} has {len(entries)} bytes, not a whole number of entries")
            self._entries = entries
            self._written_bytes = len(entries)
            self._file.close()  # the mapping has a descriptor of its own
            self._files.mappings.use(self)
        elif type(entries) is memoryview:
            self._files.mappings.use(self)
        return entries

    def _growing(self) -> bytearray:
        entries = self._loaded()
        if isinstance(entries, memoryview):
            entries = bytearray(entries)
            self._entries = entries
            self._files.mappings.forget(self)
        return entries

    # --- the active segment's form -------------------------------------------------------------

    def start_empty(self) -> None:
        """Forgets all entries; the file is brought in line by the next `write_out`."""
        self._files.mappings.forget(self)
        self._entries = bytearray()
        self._written_bytes = 0

    def take_entries_of(self, other: "SparseIndex") -> None:
        """The same entries from now on, also in the file once they are written out."""
        self._files.mappings.forget(self)
        self._entries = bytearray(other._loaded())
        self._written_bytes = 0

    def write_out(self) -> None:
        """Brings the file up to what is in memory.  Not synced: a lost index is rebuilt."""
        entries = self._growing()
        if not self._files.exists(self.path):
            self._file = self._files.create(self.path)
        if self._written_bytes < len(entries):
            self._file.append_at(self._written_bytes, bytes(entries[self._written_bytes :]))
            self._written_bytes = len(entries)
        if self._file.size() > len(entries):
            self._file.truncate(len(entries))

    def seal(self) -> None:
        """Written out and from now on mapped."""
        self.write_out()
        self.release()

    def release(self) -> None:
        """Gives memory and descriptor back; the next use maps the file."""
        self._files.mappings.forget(self)
        if self._entries is not None and self._written_bytes == len(self._entries):
            self._entries = None
        self._file.close()

    def truncate_entries(self, count: int) -> None:
        entries = self._growing()
        del entries[count * self.entry.size :]
        self._written_bytes = min(self._written_bytes, len(entries))

    def close(self) -> None:
        self._files.mappings.forget(self)
        self._entries = None
        self._file.close()

    def _refuse(self, offset: int) -> NoReturn:
        raise CorruptLogError(f"offset {offset} does not fit the index {self.path}")

    def _slot_at_or_before(self, key: int) -> int:
        """The last entry whose first column is at most `key`, or -1.

        Columns rise nearly evenly, so a guess by proportion mostly leaves a few slots to search.
        """
        entries = self._loaded()
        unpack_from, size = self.entry.unpack_from, self.entry.size
        low, high = 0, len(entries) // size
        if high > 4 * GUESS_SLOTS:
            first, last = unpack_from(entries, 0)[0], unpack_from(entries, (high - 1) * size)[0]
            if first < key < last:
                guess = (key - first) * (high - 1) // (last - first)
                below, above = max(0, guess - GUESS_SLOTS), min(high - 1, guess + GUESS_SLOTS)
                if unpack_from(entries, below * size)[0] > key:
                    high = below
                elif unpack_from(entries, above * size)[0] > key:
                    low, high = below + 1, above
                else:
                    low = above + 1
        while low < high:
            middle = (low + high) >> 1
            if unpack_from(entries, middle * size)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1


class Lookup(NamedTuple):
    """Where to start looking for an offset, and what must be found there."""

    lowest: int
    highest: int
    """At `position` stands a batch whose base offset lies between these two..."""
    position: int
    """...and the batch that is looked for stands there or after..."""
    next_offset: int
    next_position: int
    """...but not after the batch here, which holds `next_offset`; -1 if there is no such entry."""


class OffsetIndex(SparseIndex):
    entry = OFFSET_ENTRY

    def append(self, offset: int, position: int) -> int:
        """The index's size in bytes with it."""
        entries = self._entries
        if type(entries) is not bytearray:
            entries = self._growing()
        relative = offset - self.base_offset
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            self._refuse(offset)
        entries += OFFSET_ENTRY.pack(relative, position)
        return len(entries)

    def lookup(self, offset: int) -> "Lookup":
        slot = self._slot_at_or_before(offset - self.base_offset)
        entries, base = self._entries, self.base_offset
        assert entries is not None
        lowest, highest, position = base, base + RELATIVE_OFFSET_MAX, 0
        if slot >= 0:
            relative, position = OFFSET_ENTRY.unpack_from(entries, slot * 8)
            highest = base + relative
            if slot > 0:
                lowest = base + OFFSET_ENTRY.unpack_from(entries, slot * 8 - 8)[0] + 1
        if slot * 8 + 16 > len(entries):
            return Lookup(lowest, highest, position, -1, -1)
        relative, next_position = OFFSET_ENTRY.unpack_from(entries, slot * 8 + 8)
        return Lookup(lowest, highest, position, base + relative, next_position)

    def entries(self) -> list[tuple[int, int]]:
        return [
            (self.base_offset + relative, position)
            for relative, position in OFFSET_ENTRY.iter_unpack(bytes(self._loaded()))
        ]

    def truncate_to_position(self, position: int) -> None:
        """Drops the entries of batches at `position` and after."""
        entries, count = self._loaded(), len(self)
        while count and OFFSET_ENTRY.unpack_from(entries, (count - 1) * 8)[1] >= position:
            count -= 1
        self.truncate_entries(count)


class TimeIndex(SparseIndex):
    entry = TIME_ENTRY

    def last(self) -> tuple[int, int]:
        """The newest entry as (timestamp, offset), or (-1, base offset)."""
        entries = self._loaded()
        if not entries:
            return -1, self.base_offset
        timestamp, relative = TIME_ENTRY.unpack_from(entries, len(entries) - 12)
        return timestamp, self.base_offset + relative

    def append_if_newer(self, timestamp: int, offset: int) -> int:
        """Both columns must rise; what does not, says nothing new.  The index's size in bytes after it."""
        entries = self._entries
        if type(entries) is not bytearray:
            entries = self._growing()
        relative = offset - self.base_offset
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            self._refuse(offset)
        last_timestamp, last_relative = NO_TIMESTAMP, -1
        if entries:
            last_timestamp, last_relative = TIME_ENTRY.unpack_from(entries, len(entries) - 12)
        if timestamp > last_timestamp and relative > last_relative:
            entries += TIME_ENTRY.pack(timestamp, relative)
        return len(entries)

    def lookup(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry older than `timestamp`: nothing up to its offset can be what is looked for."""
        slot = self._slot_at_or_before(timestamp - 1)
        if slot < 0:
            return None
        found, relative = TIME_ENTRY.unpack_from(self._loaded(), slot * 12)
        return found, self.base_offset + relative

    def entries(self) -> list[tuple[int, int]]:
        return [
            (timestamp, self.base_offset + relative)
            for timestamp, relative in TIME_ENTRY.iter_unpack(bytes(self._loaded()))
        ]

    def truncate_to_offset(self, offset: int) -> None:
        """Drops the entries that speak of `offset` and after."""
        entries, count = self._loaded(), len(self)
        relative = offset - self.base_offset
        while count and TIME_ENTRY.unpack_from(entries, (count - 1) * 12)[1] >= relative:
            count -= 1
        self.truncate_entries(count)
