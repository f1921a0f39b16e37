"""The operations a client may do, as Kafka numbers them: in responses where a client asks for them."""

from typing import Final

NOT_ASKED_FOR: Final = -(2**31)
"""Stands instead of the set of allowed operations."""


def _combine_bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


# As Kafka numbers operations: 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 act for the
# cluster, 10 describe settings, 11 alter settings, 12 write idempotently.  Without access control all are
# allowed.
TOPIC_OPERATIONS: Final = _combine_bits(3, 4, 5, 6, 7, 8, 10, 11)
CLUSTER_OPERATIONS: Final = _combine_bits(5, 7, 8, 9, 10, 11, 12)
