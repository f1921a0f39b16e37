"""Which partition a record goes to.  Pure.

| name                | a key                            | no key                                            |
|---------------------|----------------------------------|---------------------------------------------------|
| `murmur2` (default) | murmur2, as Kafka's Java clients | sticky: one partition for a batch, then the next  |
| `murmur2_random`    | the same                         | any partition                                     |
| `consistent_random` | CRC-32, as librdkafka by default | any partition; an empty key counts as none        |
| `consistent`        | CRC-32                           | that of an empty key                              |
| `round_robin`       | not looked at: one partition after the other                                         |
| `sticky`            | not looked at: one partition for a batch, then the next                              |
| a callable          | `(topic, key, partition_count) -> partition` decides                                 |

Producers of all kinds that are to put a key in the same place must have the same one.  murmur2 has its
sign bit cleared before the remainder is taken.  Sticky choices make larger batches at no loss of balance.
"""

import operator
import zlib
from collections.abc import Callable
from typing import Final, Literal, Protocol

from distributedlog.model.errors import ConfigError

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
ROTATION: Final = 24
UINT32: Final = 0xFFFF_FFFF
INT32_MAX: Final = 0x7FFF_FFFF
KNOWN_HASHES_MAX: Final = 8192
KNOWN_KEY_BYTES_MAX: Final = 64

PartitionerName = Literal[
    "murmur2", "murmur2_random", "consistent_random", "consistent", "round_robin", "sticky"
]
ChoosePartition = Callable[[str, bytes | None, int], int]
Draw = Callable[[int], int]
"""One of 0 to n - 1, by chance."""


def murmur2(data: bytes) -> int:
    """The 32-bit hash, as an unsigned number."""
    length = len(data)
    state = (SEED ^ length) & UINT32
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & UINT32
        word ^= word >> ROTATION
        word = word * MULTIPLIER & UINT32
        state = (state * MULTIPLIER & UINT32) ^ word
    if whole < length:
        state ^= int.from_bytes(data[whole:], "little")
        state = state * MULTIPLIER & UINT32
    state ^= state >> 13
    state = state * MULTIPLIER & UINT32
    return state ^ state >> 15


def partition_of(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & INT32_MAX) % partition_count


class StickyChoice:
    """The partition of records without a key: one for about `bytes_each` bytes, then the next.

    `first` is where it begins; producers that begin at different ones share the load.
    """

    def __init__(self, first: int, bytes_each: int) -> None:
        self._partition = first
        self._bytes_each = bytes_each
        self._bytes = 0

    def choose(self, partition_count: int, record_bytes: int) -> int:
        if self._bytes >= self._bytes_each:
            self._partition += 1
            self._bytes = 0
        self._bytes += record_bytes
        return self._partition % partition_count


class Partitioner(Protocol):
    def choose(self, topic: str, key: bytes | None, partition_count: int, record_bytes: int) -> int:
        """The partition, from 0 to `partition_count` - 1, of a record of about so many bytes."""
        ...


class StickyPartitioner:
    def __init__(self, draw: Draw, bytes_each: int) -> None:
        self._draw = draw
        self._bytes_each = bytes_each
        self._choices: dict[str, StickyChoice] = {}

    def choose(self, topic: str, key: bytes | None, partition_count: int, record_bytes: int) -> int:
        choice = self._choices.get(topic)
        if choice is None:
            choice = self._choices[topic] = StickyChoice(self._draw(partition_count), self._bytes_each)
        return choice.choose(partition_count, record_bytes)


class RandomPartitioner:
    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def choose(self, topic: str, key: bytes | None, partition_count: int, record_bytes: int) -> int:
        return self._draw(partition_count)


class Murmur2Partitioner:
    """Hashes of short keys are remembered, a bounded number of them: keys repeat."""

    def __init__(self, keyless: Partitioner) -> None:
        self._keyless = keyless
        self._hashes: dict[bytes, int] = {}

    def choose(self, topic: str, key: bytes | None, partition_count: int, record_bytes: int) -> int:
        if key is None:
            return self._keyless.choose(topic, key, partition_count, record_bytes)
        known = self._hashes.get(key)
        if known is None:
            known = murmur2(key) & INT32_MAX
            if len(key) <= KNOWN_KEY_BYTES_MAX:
                if len(self._hashes) >= KNOWN_HASHES_MAX:
                    self._hashes.clear()
                self._hashes[key] = known
        return known % partition_count


class Crc32Partitioner:
    def __init__(self, keyless: Partitioner | None) -> None:
        self._keyless = keyless

    def choose(self, topic: str, key: bytes | None, partition_count: int, record_bytes: int) -> int:
        if not key and self._keyless is not None:
            return self._keyless.choose(topic, key, partition_count, record_bytes)
        return zlib.crc32(key or b"") % partition_count


class RoundRobinPartitioner:
    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._next: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, partition_count: int, record_bytes: int) -> int:
        at = self._next.get(topic)
        at = self._draw(partition_count) if at is None else at % partition_count
        self._next[topic] = at + 1
        return at


class CalledPartitioner:
    def __init__(self, choose: ChoosePartition) -> None:
        self._choose = choose

    def choose(self, topic: str, key: bytes | None, partition_count: int, record_bytes: int) -> int:
        chosen = self._choose(topic, key, partition_count)
        try:
            partition = operator.index(chosen)
        except TypeError:
            partition = -1
        if not 0 <= partition < partition_count:
            raise ConfigError(
                f"the partitioner chose {chosen!r} for topic {topic!r}, "
                f"which has partitions 0 to {partition_count - 1}"
            )
        return partition


_BY_NAME: Final[dict[str, Callable[[Draw, int], Partitioner]]] = {
    "murmur2": lambda draw, size: Murmur2Partitioner(StickyPartitioner(draw, size)),
    "murmur2_random": lambda draw, _: Murmur2Partitioner(RandomPartitioner(draw)),
    "consistent_random": lambda draw, _: Crc32Partitioner(RandomPartitioner(draw)),
    "consistent": lambda _, __: Crc32Partitioner(None),
    "round_robin": lambda draw, _: RoundRobinPartitioner(draw),
    "sticky": StickyPartitioner,
}


def check_partitioner(wanted: str | ChoosePartition) -> None:
    if isinstance(wanted, str) and wanted not in _BY_NAME:
        raise ConfigError(f"there is no partitioner {wanted!r}: there are {', '.join(_BY_NAME)}")


def make_partitioner(wanted: str | ChoosePartition, draw: Draw, bytes_each: int) -> Partitioner:
    check_partitioner(wanted)
    return _BY_NAME[wanted](draw, bytes_each) if isinstance(wanted, str) else CalledPartitioner(wanted)
