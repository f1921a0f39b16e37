"""What partitions weigh, and what that makes of each broker: four dimensions, each balanced for itself.

| dimension   | of every replica      | of the leader, beside that                              |
|-------------|-----------------------|---------------------------------------------------------|
| `disk`      | bytes of its log      |                                                         |
| `bytes_in`  | bytes written a second |                                                        |
| `bytes_out` |                       | bytes read a second: by followers and by consumers      |
| `leaders`   |                       | 1                                                       |

The leader is the preferred one, `replicas[0]`, as it is after an election: who leads today may be chance.

A broker is *within* when in every dimension it is no further from the mean than the tolerance, a part of the
mean.  Leaders are whole: the next whole number on either side of the mean is within, too.  A dimension whose
mean is negligible does not count: next to nothing cannot be shared out, nor need it be.  Brokers that take no
part (dead, or excluded) are left out of the mean, and keep what they have.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from distributedlog.model.ids import TopicPartition


class Load(NamedTuple):
    """What a broker carries, or a replica adds to it."""

    disk: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    leaders: float = 0.0


DIMENSIONS: Final = Load._fields
BYTES_OUT: Final = DIMENSIONS.index("bytes_out")
LEADERS: Final = DIMENSIONS.index("leaders")
NEGLIGIBLE: Final = Load(disk=1024 * 1024, bytes_in=16 * 1024, bytes_out=16 * 1024, leaders=0.0)
"""Means of a broker below which a dimension does not count."""
TOLERANCE_DEFAULT: Final = 0.1
NO_LOAD: Final = Load()


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    replicas: tuple[int, ...]
    """The first one is to lead."""
    size_bytes: float = 0.0
    bytes_in: float = 0.0
    """Bytes in a second that are written."""
    consumed: float = 0.0
    """Bytes in a second that consumers read."""
    is_pinned: bool = False
    """It is left as it is: it is being moved, lacks replicas, or has some on brokers that are not alive."""

    @property
    def of_replica(self) -> Load:
        return Load(self.size_bytes, self.bytes_in)

    @property
    def of_leadership(self) -> Load:
        return Load(0.0, 0.0, self.consumed + self.bytes_in * (len(self.replicas) - 1), 1.0)


class Site(NamedTuple):
    """Where a broker stands."""

    rack: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    brokers: Mapping[int, Site]
    """Those that share the load."""
    partitions: Mapping[TopicPartition, PartitionLoad]

    def by_broker(self) -> dict[int, Load]:
        sums = {each: [0.0] * len(DIMENSIONS) for each in self.brokers}
        for partition in self.partitions.values():
            for at, replica in enumerate(partition.replicas):
                if replica in sums:
                    _add(sums[replica], partition.of_replica)
                    if at == 0:
                        _add(sums[replica], partition.of_leadership)
        return {broker: Load(*total) for broker, total in sums.items()}

    def with_replicas(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> "ClusterLoad":
        changed = {
            name: PartitionLoad(replicas, old.size_bytes, old.bytes_in, old.consumed, old.is_pinned)
            for name, replicas in targets.items()
            for old in (self.partitions[name],)
        }
        return ClusterLoad(self.brokers, {**self.partitions, **changed})


def _add(total: list[float], load: Load) -> None:
    for at, each in enumerate(load):
        total[at] += each


class Band(NamedTuple):
    """What is within, in one dimension."""

    low: float
    high: float
    mean: float

    def excess(self, amount: float) -> float:
        """Returns by how much of the mean an amount is outside."""
        if amount > self.high:
            return (amount - self.high) / self.mean
        return (self.low - amount) / self.mean if amount < self.low else 0.0

    def deviation(self, amount: float) -> float:
        return amount / self.mean - 1.0


def find_bands(loads: Collection[Load], tolerance: float) -> dict[int, Band]:
    """Returns the band of each dimension that counts, by its place."""
    bands = {}
    for at in range(len(DIMENSIONS)):
        mean = sum(each[at] for each in loads) / len(loads) if loads else 0.0
        if mean <= NEGLIGIBLE[at]:
            continue
        low, high = mean * (1 - tolerance), mean * (1 + tolerance)
        if at == LEADERS:
            low, high = min(low, math.floor(mean)), max(high, math.ceil(mean))
        bands[at] = Band(low - mean * 1e-9, high + mean * 1e-9, mean)
    return bands


def total_excess(loads: Collection[Load], tolerance: float) -> float:
    """Returns how far outside all brokers are together; 0.0: every one is within."""
    bands = find_bands(loads, tolerance)
    return sum(band.excess(load[at]) for load in loads for at, band in bands.items())
