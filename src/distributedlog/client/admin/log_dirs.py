"""What brokers have on disk: their log directories, the sizes of their partitions, and who writes to them.

A broker is asked for its own directories and answers for nobody else's.  One that is down, or does not serve
sizes, is reported as the reason why it says nothing: the others know their replicas.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from distributedlog.client.admin.changes import may_pass
from distributedlog.client.errors import as_error_code, check_response, error_from, is_retriable
from distributedlog.client.metadata import Cluster
from distributedlog.client.view import TopicView
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, UnsupportedVersionError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    get_unreadable_records,
    is_corrupt,
)
from distributedlog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)

UNKNOWN_BYTES: Final = -1


class ReplicaSize(NamedTuple):
    size_bytes: int
    offset_lag: int
    """How many offsets it is behind the high watermark, or, of a leader, behind itself: none."""
    is_future: bool = False
    """It is being moved here and not yet in use."""
    unreadable_records: int = 0
    """Those of `__consumer_offsets` that its coordinator skipped; a broker of another kind does not say."""
    is_corrupt: bool = False
    """It holds records that cannot be read any more, and could not fetch them again yet."""


@dataclass(frozen=True, slots=True)
class LogDirView:
    path: str
    error: ErrorCode = ErrorCode.NONE
    """KAFKA_STORAGE_ERROR: it is out of use."""
    replicas: Mapping[TopicPartition, ReplicaSize] = field(default_factory=dict)
    total_bytes: int = UNKNOWN_BYTES
    usable_bytes: int = UNKNOWN_BYTES
    is_cordoned: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.replicas.values())


async def describe_log_dirs(
    cluster: Cluster,
    node_ids: Collection[int] | None = None,
    partitions: Collection[TopicPartition] | None = None,
) -> dict[int, tuple[LogDirView, ...] | DlogError]:
    """The directories of each broker (None: of all), with all replicas or only those asked for; or the reason
    why it does not say."""
    brokers = await cluster.retrying(cluster.brokers)
    wanted = [each.node_id for each in brokers] if node_ids is None else sorted(node_ids)
    request = DescribeLogDirsRequest(topics=_topics(partitions))
    responses = await asyncio.gather(*(_log_dirs(cluster, each, request) for each in wanted))
    return dict(zip(wanted, responses, strict=True))


def _topics(partitions: Collection[TopicPartition] | None) -> list[DescribableLogDirTopic] | None:
    if partitions is None:
        return None
    asked: dict[str, list[int]] = {}
    for each in partitions:
        asked.setdefault(each.topic, []).append(each.partition)
    return [DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in asked.items()]


async def _log_dirs(
    cluster: Cluster, node_id: int, request: DescribeLogDirsRequest
) -> tuple[LogDirView, ...] | DlogError:
    try:
        connection = await cluster.connection(node_id)
        response = await cluster.call(connection, request, DescribeLogDirsResponse)
        check_response(response.error_code, f"the log directories of broker {node_id}")
    except DlogError as error:
        return error
    return tuple(map(_view, response.results))


def _view(result: DescribeLogDirsResult) -> LogDirView:
    return LogDirView(
        result.log_dir,
        as_error_code(result.error_code),
        {
            TopicPartition(topic.name, each.partition_index): ReplicaSize(
                each.partition_size,
                each.offset_lag,
                each.is_future_key,
                get_unreadable_records(each),
                is_corrupt(each),
            )
            for topic in result.topics
            for each in topic.partitions
        },
        result.total_bytes,
        result.usable_bytes,
        result.is_cordoned,
    )


async def log_sizes(cluster: Cluster, topics: Sequence[TopicView]) -> dict[TopicPartition, int] | None:
    """The bytes of each partition on its largest replica; None if no broker serves sizes."""
    partitions = [TopicPartition(topic.name, each.index) for topic in topics for each in topic.partitions]
    responses = await describe_log_dirs(cluster, partitions=partitions)
    sizes: dict[TopicPartition, int] = {}
    served = 0
    for response in responses.values():
        if isinstance(response, DlogError):
            if not isinstance(response, UnsupportedVersionError) and not is_retriable(response):
                raise response
            continue
        served += 1
        for directory in response:
            for partition, replica in directory.replicas.items():
                sizes[partition] = max(sizes.get(partition, 0), replica.size_bytes)
    return sizes if served else None


class ProducerView(NamedTuple):
    """A producer with ids that a partition's leader remembers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int
    """Where its open transaction begins in this partition; -1: it has none."""


async def describe_producers(cluster: Cluster, partition: TopicPartition) -> tuple[ProducerView, ...]:
    """Those that the leader of a partition remembers."""
    asked = TopicRequest(name=partition.topic, partition_indexes=[partition.partition])
    request = DescribeProducersRequest(topics=[asked])

    async def attempt() -> tuple[ProducerView, ...]:
        leader = (await cluster.partition(partition)).leader_id
        connection = await cluster.connection(leader)
        response = await cluster.call(connection, request, DescribeProducersResponse)
        found = [each for topic in response.topics for each in topic.partitions]
        if len(found) != 1:
            raise error_from(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producers of {partition}")
        result = found[0]
        check_response(result.error_code, f"the producers of {partition}", result.error_message)
        return tuple(
            ProducerView(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for each in result.active_producers
        )

    return await cluster.retrying(attempt, is_worth_waiting=may_pass)
