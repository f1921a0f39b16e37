"""DescribeLogDirs: what this broker has on disk, partition by partition, and how much room there is.

    topics null      every replica of this broker
    topics given     those of them that are here; others are left out, as nothing is known of them
    a directory that failed   KAFKA_STORAGE_ERROR for it, with nothing in it

There is one directory.  The size of a replica is that of its log files, without indexes, as in Kafka.  The
lag is what it misses of the high watermark that it knows: none for a leader.  Replicas are counted in slices,
so that thousands of them do not hold up everyone else.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    set_corrupt,
    set_unreadable_records,
)
from distributedlog.replication.partition import Partition

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

SLICE_REPLICAS: Final = 500
UNKNOWN_BYTES: Final = -1


def _make_error_response(
    request: DescribeLogDirsRequest, context: RequestContext, code: ErrorCode, text: str
) -> DescribeLogDirsResponse:
    """Makes an error of one nameless directory before version 3, which has no code for the whole."""
    failed = DescribeLogDirsResult(error_code=code, log_dir="", topics=[])
    return DescribeLogDirsResponse(error_code=code, results=[failed] if context.api_version < 3 else [])


@handles(DescribeLogDirsRequest, versions=(1, 4), error_response=_make_error_response)
async def describe_log_dirs(
    services: "Services", request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    store = services.partitions.store
    result = DescribeLogDirsResult(log_dir=store.directory, topics=[])
    if store.files.failure is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return DescribeLogDirsResponse(results=[result])
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    unreadable = services.groups.unreadable_counts()
    for number, partition in enumerate(list(_iterate_partitions(services, request)), 1):
        described = _describe_partition(partition)
        if unreadable and partition.topic == OFFSETS_TOPIC:
            set_unreadable_records(described, unreadable.get(partition.partition_id, 0))
        if partition.corruption is not None:
            set_corrupt(described)
        by_topic.setdefault(partition.topic, []).append(described)
        if number % SLICE_REPLICAS == 0:
            await asyncio.sleep(0)
    result.topics = [
        DescribeLogDirsTopic(name=topic, partitions=sorted(found, key=lambda each: each.partition_index))
        for topic, found in sorted(by_topic.items())
    ]
    result.total_bytes, result.usable_bytes = _measure_disk(services)
    return DescribeLogDirsResponse(results=[result])


def _iterate_partitions(services: "Services", request: DescribeLogDirsRequest) -> Iterator[Partition]:
    if request.topics is None:
        yield from services.partitions
        return
    asked = dict.fromkeys((topic.topic, index) for topic in request.topics for index in topic.partitions)
    for topic, index in asked:
        partition = services.partitions.get(topic, index)
        if partition is not None:
            yield partition


def _describe_partition(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.partition_id,
        partition_size=partition.log.size_bytes,
        offset_lag=max(0, partition.high_watermark - partition.log_end_offset),
        is_future_key=False,
    )


def _measure_disk(services: "Services") -> tuple[int, int]:
    """All there is, and what may still be used."""
    store = services.partitions.store
    try:
        return store.files.total_bytes(store.directory), store.files.free_bytes(store.directory)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
