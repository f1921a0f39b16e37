"""DescribeLogDirs (35): the log directories of a broker and the sizes of their partitions.

Versions 1 to 5, flexible from 2.  3 adds an error for the whole answer, 4 the volume's size, 5 whether it
is cordoned.

A replica of ours may say how many of its records its coordinator could not read: in a tagged field that
Kafka's schema does not have, which everybody else passes over (KIP-482), and only if there are any.
"""

from typing import Final

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT16, INT32, INT64, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class DescribableLogDirTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribeLogDirsRequest(Message, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), flexible_since=2):
    topics: list[DescribableLogDirTopic] | None = field(nullable(array(DescribableLogDirTopic)))


class DescribeLogDirsPartition(Struct):
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOL)


UNREADABLE_RECORDS_TAG: Final = 10_000
_UNREADABLE_BYTES: Final = 8
CORRUPT_REPLICA_TAG: Final = 10_001
"""A tagged field of ours, without content: the replica holds records that cannot be read any more."""


def set_unreadable_records(partition: DescribeLogDirsPartition, count: int) -> None:
    if count:
        partition.unknown_tags = ((UNREADABLE_RECORDS_TAG, count.to_bytes(_UNREADABLE_BYTES, "big")),)


def get_unreadable_records(partition: DescribeLogDirsPartition) -> int:
    for tag, value in partition.unknown_tags:
        if tag == UNREADABLE_RECORDS_TAG and len(value) == _UNREADABLE_BYTES:
            return int.from_bytes(value, "big")
    return 0


def set_corrupt(partition: DescribeLogDirsPartition) -> None:
    partition.unknown_tags = (*partition.unknown_tags, (CORRUPT_REPLICA_TAG, b""))


def is_corrupt(partition: DescribeLogDirsPartition) -> bool:
    return any(tag == CORRUPT_REPLICA_TAG for tag, _ in partition.unknown_tags)


class DescribeLogDirsTopic(Struct):
    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Struct):
    error_code: int = field(INT16, default=0)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, since=4, default=-1)
    usable_bytes: int = field(INT64, since=4, default=-1)
    is_cordoned: bool = field(BOOL, since=5, default=False)


class DescribeLogDirsResponse(Message, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), flexible_since=2):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, since=3, default=0)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))
