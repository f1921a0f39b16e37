"""The aborted transactions of a segment, byte for byte as Kafka has them.

    {base}.txnindex  34 bytes an entry:  version (int16, 0)  producer id (int64)  first offset (int64)
                                         last offset (int64)  last stable offset (int64)

An entry belongs to the segment that holds the abort marker (its last offset).  A read_committed reader gets
the entries that overlap what it fetches and drops those producers' records.  The file exists only if
there is an entry.  Entries are few and kept in memory once read.  Like every index this one is not
trusted: entries read from a file are compared with the markers in the log before they are believed
(`PartitionLog.find_aborted_transactions`).
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from distributedlog.model.errors import CorruptLogError, StorageError
from distributedlog.records.batch import BatchHeader
from distributedlog.storage.files import Files, ManagedFile, is_out_of_room

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class _AbortedRange(Protocol):
    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...


class AbortedRanges:
    """Which batches belong to aborted transactions, where those are known with first and last offset.

    Whoever reads files goes by this; a client, which is sent first offsets only, by abort markers.
    """

    def __init__(self, aborted: Iterable[_AbortedRange]) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for entry in sorted(aborted, key=lambda entry: entry.first_offset):
            ranges = self._ranges.setdefault(entry.producer_id, [])
            ranges.append((entry.first_offset, entry.last_offset))

    def holds(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        ranges = self._ranges.get(header.producer_id)
        if ranges is None:
            return False
        slot = bisect_right(ranges, header.base_offset, key=lambda entry: entry[0]) - 1
        return slot >= 0 and header.base_offset <= ranges[slot][1]


class TransactionIndex:
    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self._file: ManagedFile = files.manage(path)
        self._entries: list[AbortedTransaction] | None = None
        self._written_count = 0
        self._is_replaced = False
        """Whether the file that stands there is another's or unsound, and makes way for a new one."""
        self.base_offset = base_offset
        self.is_verified = False
        """Whether the entries are known to agree with the log: made from it, or compared with it."""

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def file(self) -> ManagedFile:
        return self._file

    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self._entries = self._read()
            self._written_count = len(self._entries)
        return self._entries

    def _read(self) -> list[AbortedTransaction]:
        try:
            data = self._files.read_small(self.path) or b""
        except StorageError as error:
            if is_out_of_room(error):
                raise
            raise CorruptLogError(str(error)) from error
        if len(data) % ENTRY.size:
            raise CorruptLogError(f"{self.path} has {len(data)} bytes, not a whole number of entries")
        entries = []
        for version, *columns in ENTRY.iter_unpack(data):
            if version != VERSION:
                raise CorruptLogError(f"{self.path} has an entry of version {version}")
            entry = AbortedTransaction(*columns)
            if not entry.first_offset <= entry.last_offset or entry.last_offset < self.base_offset:
                raise CorruptLogError(f"{self.path} has the impossible entry {entry}")
            entries.append(entry)
        return entries

    def append(self, aborted: AbortedTransaction) -> None:
        self.entries().append(aborted)

    def start_empty(self) -> None:
        """Empties the index of a segment that is new or walked anew: what is appended comes from the log."""
        self._entries = []
        self._written_count = 0
        self._is_replaced = True
        self.is_verified = True

    def truncate_to_offset(self, offset: int) -> None:
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        self._entries = kept
        self._written_count = min(self._written_count, len(kept))

    def write_out(self) -> None:
        """Brings the file in line with memory; an empty index has no file."""
        entries = self.entries()
        if (not entries or self._is_replaced) and self._files.exists(self.path):
            self._file.close()
            self._files.remove(self.path)
        if not entries:
            return
        if not self._files.exists(self.path):
            self._file = self._files.create(self.path)
            self._written_count = 0
        self._is_replaced = False
        fresh = b"".join(ENTRY.pack(VERSION, *entry) for entry in entries[self._written_count :])
        if fresh:
            self._file.append_at(self._written_count * ENTRY.size, fresh)
            self._written_count = len(entries)
        if self._file.size() > len(entries) * ENTRY.size:
            self._file.truncate(len(entries) * ENTRY.size)

    def close(self) -> None:
        self._entries = None
        self.is_verified = False
        self._file.close()
