"""Which partition of the offsets topic keeps a group: Kafka's rule, so that either finds the other's groups.

The hash is that of Java's strings: over UTF-16 units, h = 31 * h + unit, in 32 bits with a sign.  Those of
the most active groups are remembered: each commit and heartbeat needs one.
"""

from functools import lru_cache
from typing import Final

REMEMBERED_MAX: Final = 8192
REMEMBERED_CHARS_MAX: Final = 255
"""The characters of names that are remembered: nobody fills memory with long ones."""
_INT32 = 0xFFFFFFFF
_SIGN = 0x80000000


def java_hash(text: str) -> int:
    data = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for at in range(0, len(data), 2):
        total = (31 * total + (data[at] << 8 | data[at + 1])) & _INT32
    return total - (1 << 32) if total & _SIGN else total


_remembered_hash = lru_cache(REMEMBERED_MAX)(java_hash)


def partition_of(group_id: str, partition_count: int) -> int:
    hashed = (_remembered_hash if len(group_id) <= REMEMBERED_CHARS_MAX else java_hash)(group_id)
    # The smallest number has no positive counterpart in 32 bits: Kafka takes 0 for it.
    return (0 if hashed == -_SIGN else abs(hashed)) % partition_count
