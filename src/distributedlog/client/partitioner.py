"""Which partition a record goes to.  Pure.

A key's partition is murmur2 of its bytes, its sign bit cleared, modulo the number of partitions: what Kafka's
Java clients do, so that producers of both kinds put a key in the same place.  Records without a key stay with
one partition until its batch is full, then move to the next: larger batches at no loss of balance.
"""

from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
ROTATION: Final = 24
UINT32: Final = 0xFFFF_FFFF
INT32_MAX: Final = 0x7FFF_FFFF


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
