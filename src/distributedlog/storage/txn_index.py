"""The aborted transactions of a segment, byte for byte as Kafka has them.

    {base}.txnindex  34 bytes an entry:  version (int16, 0)  producer id (int64)  first offset (int64)
                                         last offset (int64)  last stable offset (int64)

An entry belongs to the segment that holds the abort marker (its last offset).  A read_committed reader is
told the entries that overlap what it fetches and drops those producers' records.  The file exists only if
there is an entry.  Entries are few and kept in memory once read.  Like every index this one is not
trusted: entries read from a file are compared with the markers in the log before they are believed
(`PartitionLog.aborted_transactions`).
"""

import struct
from typing import NamedTuple

from distributedlog.model.errors import CorruptLogError
from distributedlog.storage.files import Files, ManagedFile

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self._file: ManagedFile = files.manage(path)
        self._entries: list[AbortedTransaction] | None = None
        self._written_count = 0
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
        data = self._files.read_small(self.path) or b""
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
        """For a segment that is new, or walked anew: what is appended from here on comes from the log."""
        self._entries = []
        self._written_count = 0
        self.is_verified = True

    def truncate_to_offset(self, offset: int) -> None:
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        self._entries = kept
        self._written_count = min(self._written_count, len(kept))

    def write_out(self) -> None:
        """Brings the file in line with memory; an empty index has no file."""
        entries = self.entries()
        if not entries:
            if self._files.exists(self.path):
                self._file.close()
                self._files.remove(self.path)
            return
        if not self._files.exists(self.path):
            self._file = self._files.create(self.path)
            self._written_count = 0
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
