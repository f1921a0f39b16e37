"""Which partition of the offsets topic keeps a group: Kafka's rule, so that either finds the other's groups.

The hash is that of Java's strings: over UTF-16 units, h = 31 * h + unit, in 32 bits with a sign.
"""

_INT32 = 0xFFFFFFFF
_SIGN = 0x80000000


def java_hash(text: str) -> int:
    data = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for at in range(0, len(data), 2):
        total = (31 * total + (data[at] << 8 | data[at + 1])) & _INT32
    return total - (1 << 32) if total & _SIGN else total


def partition_of(group_id: str, partition_count: int) -> int:
    # The smallest number has no positive counterpart in 32 bits: Kafka takes 0 for it.
    hashed = java_hash(group_id)
    return (0 if hashed == -_SIGN else abs(hashed)) % partition_count
