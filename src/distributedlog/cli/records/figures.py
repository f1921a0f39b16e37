"""What is counted about the records of a topic.  Pure: records come in, figures go out.

Records of one partition must come in their order; the partitions may be mixed.  Memory is bounded, whatever
comes (`sketches`).  A record's size is that of its key, value and headers, without Kafka's few bytes around.
"""

import heapq
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from distributedlog.cli.records.sketches import HeavyKeys, KeySketch, Quantiles, Timeline, hash_of
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record

LARGEST_MAX: Final = 5


class Large(NamedTuple):
    size_bytes: int
    partition: int
    offset: int


def size_of(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    for header in record.headers:
        size += len(header.key.encode()) + len(header.value or b"")
    return size


@dataclass(slots=True)
class PartitionFigures:
    records: int = 0
    size_bytes: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    late_records: int = 0
    """Older than one before them."""
    lateness_ms_max: int = 0

    def add(self, timestamp_ms: int, size_bytes: int) -> None:
        self.records += 1
        self.size_bytes += size_bytes
        if timestamp_ms < 0:
            return
        if self.newest_ms is None or self.oldest_ms is None:
            self.oldest_ms = self.newest_ms = timestamp_ms
            return
        if timestamp_ms < self.newest_ms:
            self.late_records += 1
            self.lateness_ms_max = max(self.lateness_ms_max, self.newest_ms - timestamp_ms)
        self.oldest_ms = min(self.oldest_ms, timestamp_ms)
        self.newest_ms = max(self.newest_ms, timestamp_ms)


@dataclass(slots=True)
class Figures:
    partitions: dict[int, PartitionFigures] = field(default_factory=dict)
    records: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    header_bytes: int = 0
    keyless: int = 0
    tombstones: int = 0
    with_headers: int = 0
    sizes: Quantiles = field(default_factory=Quantiles)
    keys: KeySketch = field(default_factory=KeySketch)
    heavy: HeavyKeys = field(default_factory=HeavyKeys)
    timeline: Timeline = field(default_factory=Timeline)
    _largest: list[Large] = field(default_factory=list)

    def add(self, place: TopicPartition, record: Record) -> None:
        size = size_of(record)
        self.records += 1
        key_bytes, value_bytes = len(record.key or b""), len(record.value or b"")
        self.key_bytes += key_bytes
        self.value_bytes += value_bytes
        self.header_bytes += size - key_bytes - value_bytes
        self.with_headers += bool(record.headers)
        self.tombstones += record.value is None
        self.partitions.setdefault(place.partition, PartitionFigures()).add(record.timestamp_ms, size)
        self.sizes.add(size)
        self.timeline.add(record.timestamp_ms)
        if record.key is None:
            self.keyless += 1
        else:
            self.keys.add(hash_of(record.key + b"/%d" % place.partition), size)
            self.heavy.add(record.key)
        large = Large(size, place.partition, record.offset)
        if len(self._largest) < LARGEST_MAX:
            heapq.heappush(self._largest, large)
        elif large > self._largest[0]:
            heapq.heapreplace(self._largest, large)

    @property
    def size_bytes(self) -> int:
        return self.key_bytes + self.value_bytes + self.header_bytes

    @property
    def largest(self) -> list[Large]:
        return sorted(self._largest, reverse=True)

    @property
    def oldest_ms(self) -> int | None:
        return min(
            (each.oldest_ms for each in self.partitions.values() if each.oldest_ms is not None), default=None
        )

    @property
    def newest_ms(self) -> int | None:
        return max(
            (each.newest_ms for each in self.partitions.values() if each.newest_ms is not None), default=None
        )

    @property
    def seconds(self) -> float:
        """The time between the oldest record and the newest."""
        if self.oldest_ms is None or self.newest_ms is None:
            return 0.0
        return (self.newest_ms - self.oldest_ms) / 1000

    def skew(self, partition_count: int) -> float:
        """Returns how many times the average the fullest partition has; 1 is even."""
        if not self.records:
            return 1.0
        return max(each.records for each in self.partitions.values()) * partition_count / self.records
