"""The sparse indexes of a segment, byte for byte as Kafka has them.

    {base}.index      8 bytes an entry:  offset - base (int32)   position in the log file (int32)
    {base}.timeindex 12 bytes an entry:  timestamp (int64)       offset - base (int32)

An offset entry says: the batch at `position` holds `offset` or the offsets just before it.  A time entry
says: of all records up to `offset` none is newer than `timestamp`.  Both columns of both files only rise.

While its segment is active an index is a buffer in memory, whose tail is written to the file when the log
is checkpointed, sealed or closed.  Once sealed it is in its file alone, and of that one block is in memory:
the one that the last search ended in, mostly also the next one's; or all of it once several were read,
within what all indexes together may hold (`IndexBlocks`).  A file is read and never mapped: a mapping of a
file that somebody cuts short, or of a disk that fails, ends the process (SIGBUS), a read is an error.

An index is never trusted: it has no checksum, so whoever follows an entry must find at its end what the
entry promised, and otherwise calls for a rebuild from the log (`Segment`).  A crash may therefore leave
anything here, and so may whoever cuts, replaces or takes away the file.
"""

import struct
from typing import NamedTuple, NoReturn

from distributedlog.model.errors import CorruptLogError, StorageError
from distributedlog.records.layout import NO_TIMESTAMP
from distributedlog.storage.files import Files, ManagedFile, is_out_of_room

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
_NEIGHBOURS = struct.Struct(">iiiiii")  # three entries of an offset index
RELATIVE_OFFSET_MAX = 2**31 - 1
GUESS_SLOTS = 4
BLOCK_ENTRIES = 512
"""How many entries are read at a time: 4 or 6 KiB, those of about 2 MiB of the log."""
BLOCKS_READ_MAX = 8
"""How many blocks are read before all entries are: whoever searches so much does so all over."""


class SparseIndex:
    """What the two have in common: entries of one size, in memory or in a file."""

    entry: struct.Struct

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self._entries: bytearray | None = None
        """All of them while the segment is active; None if they are in the file."""
        self._written_bytes = 0
        self._is_replaced = False
        """Whether the file that stands there is another's or unsound, and makes way for a new one."""
        self._count = -1
        """How many the file has, with the first and last of their keys; -1 before it was looked at."""
        self._first_key = self._last_key = 0
        self._block, self._block_slot = b"", 0  # as it stays while all entries are in memory
        self._blocks_read = 0
        self._file: ManagedFile = files.manage(path)
        self.base_offset = base_offset

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def file(self) -> ManagedFile:
        return self._file

    def __len__(self) -> int:
        entries = self._entries
        return self._look_at_file() if entries is None else len(entries) // self.entry.size

    @property
    def bytes_used(self) -> int:
        return len(self) * self.entry.size

    # --- the sealed segment's form -------------------------------------------------------------

    def _look_at_file(self) -> int:
        """How many entries the file has; the first and the last of them are known then."""
        self._files.index_blocks.use(self)
        if self._count < 0:
            size = self._file_size()
            if size % self.entry.size:
                raise CorruptLogError(f"{self.path} has {size} bytes, not a whole number of entries")
            count = size // self.entry.size
            if count:
                self._read_block(max(0, count - BLOCK_ENTRIES), count)
                self._last_key = self._unpack(count - 1)[0]
                self._first_key = self._unpack(0)[0]
            self._count = count
        return self._count

    def _file_size(self) -> int:
        try:
            return self._file.size()
        except StorageError as error:
            if is_out_of_room(error):
                raise
            raise CorruptLogError(str(error)) from error

    def _read(self, slot: int, count: int) -> bytes:
        size = self.entry.size
        try:
            data = self._file.read_at(slot * size, count * size)
        except StorageError as error:
            if is_out_of_room(error):
                raise
            raise CorruptLogError(str(error)) from error
        if len(data) != count * size:
            raise CorruptLogError(f"{self.path} ends at {slot * size + len(data)}, inside its entries")
        return data

    def _read_block(self, slot: int, end: int) -> bytes:
        """Reads the entries from `slot` on, as many as a block has, and none from `end` on."""
        wanted = min(BLOCK_ENTRIES, end - slot)
        self._blocks_read += 1
        if self._blocks_read > BLOCKS_READ_MAX and self._files.index_blocks.may_hold(end * self.entry.size):
            slot, wanted = 0, end
        self._block, self._block_slot = self._read(slot, wanted), slot
        self._files.index_blocks.hold(self, len(self._block))
        return self._block

    def _unpack(self, slot: int) -> tuple[int, int]:
        """The entry there, from memory if it can be."""
        size = self.entry.size
        entries: bytearray | bytes = self._block if self._entries is None else self._entries
        at = (slot - self._block_slot) * size
        if not 0 <= at < len(entries):
            entries, at = self._read(slot, 1), 0
        first, second = self.entry.unpack_from(entries, at)
        return first, second

    def _find_block(self, key: int) -> None:
        """Reads the block whose first entry is at or before `key` and whose last is after it, or the first
        or the last of all.  Keys rise nearly evenly, so that a guess by proportion is mostly right."""
        unpack_from, size, count = self.entry.unpack_from, self.entry.size, self._count
        block, slot = self._block, self._block_slot
        if len(block) == count * size:
            return
        is_first, is_last = key < self._first_key, key >= self._last_key
        if is_first or is_last:
            wanted = 0 if is_first else max(0, count - BLOCK_ENTRIES)
            if slot != wanted or not block:
                self._read_block(wanted, count)
            return
        if unpack_from(block, 0)[0] <= key < unpack_from(block, len(block) - size)[0]:
            return
        low, high = 0, count - 1  # the entry at `low` is at or before the key, that at `high` after it
        guess = (key - self._first_key) * high // (self._last_key - self._first_key)
        while low < high:
            slot = max(low, min(guess - BLOCK_ENTRIES // 2, high + 1 - BLOCK_ENTRIES))
            block = self._read_block(slot, count)
            if len(block) == count * size:
                return
            if unpack_from(block, 0)[0] > key:
                high = slot
            elif unpack_from(block, len(block) - size)[0] <= key:
                low = slot + len(block) // size - 1
            else:
                return
            guess = (low + high) >> 1
        raise CorruptLogError(f"{self.path} has entries that do not rise")

    def _all(self) -> bytearray | bytes:
        entries = self._entries
        return self._read(0, self._look_at_file()) if entries is None else entries

    def _growing(self) -> bytearray:
        entries = self._entries
        if entries is None:
            entries = bytearray(self._all())
            self._keep(entries, written_bytes=len(entries))
        return entries

    def _keep(self, entries: bytearray | None, *, written_bytes: int) -> None:
        """From now on these are the entries, in memory; or those of the file, if None."""
        self._files.index_blocks.forget(self)
        self._entries, self._written_bytes = entries, written_bytes
        self._block, self._block_slot, self._blocks_read, self._count = b"", 0, 0, -1

    # --- the active segment's form -------------------------------------------------------------

    def start_empty(self) -> None:
        """Forgets all entries; the file is replaced by the next `write_out`."""
        self._keep(bytearray(), written_bytes=0)
        self._is_replaced = True

    def take_entries_of(self, other: "SparseIndex") -> None:
        """The same entries from now on, also in a new file once they are written out."""
        self._keep(bytearray(other._all()), written_bytes=0)
        self._is_replaced = True

    def write_out(self) -> None:
        """Brings the file up to what is in memory.  Not synced: a lost index is rebuilt."""
        entries = self._growing()
        if self._is_replaced and self._files.exists(self.path):
            self._file.close()
            self._files.remove(self.path)
        if not self._files.exists(self.path):
            self._file = self._files.create(self.path)
            self._written_bytes = 0
        self._is_replaced = False
        size = self._file.size()
        written = min(self._written_bytes, size)  # less, if somebody cut it
        if written < len(entries):
            self._file.append_at(written, bytes(entries[written:]))
        self._written_bytes = len(entries)
        if size > len(entries):
            self._file.truncate(len(entries))

    def seal(self) -> None:
        """Writes the index out and keeps it in its file alone from now on."""
        self.write_out()
        self.release()

    def release(self) -> None:
        """Gives memory and descriptor back; the next use reads the file."""
        entries = self._entries
        if entries is None or (self._written_bytes == len(entries) and not self._is_replaced):
            self._keep(None, written_bytes=self._written_bytes)
        self._file.close()

    def truncate_entries(self, count: int) -> None:
        entries = self._growing()
        del entries[count * self.entry.size :]
        self._written_bytes = min(self._written_bytes, len(entries))

    def close(self) -> None:
        self._keep(None, written_bytes=0)
        self._file.close()

    def _refuse(self, offset: int) -> NoReturn:
        raise CorruptLogError(f"offset {offset} does not fit the index {self.path}")

    def _slot_at_or_before(self, key: int) -> int:
        """The last entry whose first column is at most `key`, or -1."""
        entries: bytearray | bytes | None = self._entries
        first_slot = 0
        if entries is None:
            if self._look_at_file() == 0:
                return -1
            self._find_block(key)
            entries, first_slot = self._block, self._block_slot
        unpack_from, size = self.entry.unpack_from, self.entry.size
        low, high = 0, len(entries) // size
        if high > 4 * GUESS_SLOTS:  # keys rise nearly evenly: a guess mostly leaves a few slots to search
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
            elif key >= last:
                low = high
        while low < high:
            middle = (low + high) >> 1
            if unpack_from(entries, middle * size)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return first_slot + low - 1


class Lookup(NamedTuple):
    """Where to start looking for an offset, and what must be found there."""

    lowest: int
    highest: int
    """The highest base offset that a batch at `position` can have; `lowest` is the other bound."""
    position: int
    """The position at which, or after which, the batch stands that is looked for."""
    next_offset: int
    next_position: int
    """The position of the batch that holds `next_offset`: the one that is looked for stands there or before.
    -1 if there is no such entry."""


class OffsetIndex(SparseIndex):
    entry = OFFSET_ENTRY

    def append(self, offset: int, position: int) -> int:
        """The index's size in bytes with it."""
        entries = self._entries
        if entries is None:
            entries = self._growing()
        relative = offset - self.base_offset
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            self._refuse(offset)
        entries += OFFSET_ENTRY.pack(relative, position)
        return len(entries)

    def lookup(self, offset: int) -> "Lookup":
        slot = self._slot_at_or_before(offset - self.base_offset)
        base = self.base_offset
        entries, at = self._entries or self._block, (slot - self._block_slot) * 8 - 8
        if 0 <= at <= len(entries) - 24:  # as nearly always, both neighbours are in memory
            before, _, relative, position, next_relative, next_position = _NEIGHBOURS.unpack_from(entries, at)
            return Lookup(base + before + 1, base + relative, position, base + next_relative, next_position)
        lowest, highest, position = base, base + RELATIVE_OFFSET_MAX, 0
        if slot >= 0:
            relative, position = self._unpack(slot)
            highest = base + relative
            if slot > 0:
                lowest = base + self._unpack(slot - 1)[0] + 1
        if slot + 1 >= (self._count if self._entries is None else len(self._entries) // 8):
            return Lookup(lowest, highest, position, -1, -1)
        relative, next_position = self._unpack(slot + 1)
        return Lookup(lowest, highest, position, base + relative, next_position)

    def entries(self) -> list[tuple[int, int]]:
        return [
            (self.base_offset + relative, position)
            for relative, position in OFFSET_ENTRY.iter_unpack(self._all())
        ]

    def truncate_to_position(self, position: int) -> None:
        """Drops the entries of batches at `position` and after."""
        entries = self._growing()
        count = len(entries) // 8
        while count and OFFSET_ENTRY.unpack_from(entries, (count - 1) * 8)[1] >= position:
            count -= 1
        self.truncate_entries(count)


class TimeIndex(SparseIndex):
    entry = TIME_ENTRY

    def last(self) -> tuple[int, int]:
        """The newest entry as (timestamp, offset), or (-1, base offset)."""
        count = len(self)
        if not count:
            return -1, self.base_offset
        timestamp, relative = self._unpack(count - 1)
        return timestamp, self.base_offset + relative

    def append_if_newer(self, timestamp: int, offset: int) -> int:
        """Both columns must rise; what does not, says nothing new.  The index's size in bytes after it."""
        entries = self._entries
        if entries is None:
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
        found, relative = self._unpack(slot)
        return found, self.base_offset + relative

    def entries(self) -> list[tuple[int, int]]:
        return [
            (timestamp, self.base_offset + relative)
            for timestamp, relative in TIME_ENTRY.iter_unpack(self._all())
        ]

    def truncate_to_offset(self, offset: int) -> None:
        """Drops the entries that speak of `offset` and after."""
        entries = self._growing()
        count = len(entries) // 12
        relative = offset - self.base_offset
        while count and TIME_ENTRY.unpack_from(entries, (count - 1) * 12)[1] >= relative:
            count -= 1
        self.truncate_entries(count)
