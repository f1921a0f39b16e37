"""Partitions that readers with fetch sessions have read to their end: they cost a fetch nothing.

    a fetch found nothing new, and all is sent ──► idle, here ──► a signal of the partition ──► woken
                                                                                                 │
    read by the session's next fetch, or by the one that is delayed now ◄────────────────────────┘

A reader is at a partition's end, of which everything is committed (`Partition.is_idle_at`): only what the
partition signals can give it something to say.  So whoever walks all partitions of a session finds the same
as who looks at those that are not idle.  Soft state, of the data loop.
"""

from typing import NamedTuple, Protocol

from distributedlog.model.ids import Uuid
from distributedlog.replication.partition import Partition

PartitionKey = tuple[str | Uuid, int]
"""A topic's name or id, as the request has it, and a partition."""


class IdlePartition(NamedTuple):
    """A partition that was read to its end, and how far that was: in bytes, as `delayed` counts them, and in
    offsets."""

    partition: Partition
    seen_bytes: int
    seen_offset: int


class IdleReader(Protocol):
    """Who has read a partition to its end: a fetch session."""

    def wake(self, key: PartitionKey) -> None:
        """The partition may have something to say."""


class IdlePartitions:
    """Who has read which partition to its end, for all sessions of a broker."""

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        self._readers: dict[Partition, dict[IdleReader, PartitionKey]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._readers.values()))

    def add(self, partition: Partition, reader: IdleReader, key: PartitionKey) -> None:
        self._readers.setdefault(partition, {})[reader] = key

    def remove(self, partition: Partition, reader: IdleReader) -> None:
        readers = self._readers.get(partition)
        if readers is not None:
            readers.pop(reader, None)
            if not readers:
                del self._readers[partition]

    def wake(self, partition: Partition) -> None:
        """Wakes all who have read this partition to its end."""
        readers = self._readers.pop(partition, None)
        if readers is not None:
            for reader, key in readers.items():
                reader.wake(key)
