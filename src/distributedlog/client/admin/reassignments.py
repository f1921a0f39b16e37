"""Moves of partitions to other brokers: begun, cancelled, listed."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from distributedlog.client.admin.changes import ask_controller, may_pass, outcome
from distributedlog.client.errors import check_response
from distributedlog.client.metadata import Cluster
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from distributedlog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


class Reassignment(NamedTuple):
    """A move under way."""

    replicas: tuple[int, ...]
    """All that hold the partition meanwhile."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, DlogError | None]:
    """Moves each partition to its replicas, or cancels its move where they are None; what became of each."""
    by_topic: dict[str, list[ReassignablePartition]] = {}
    for (topic, partition), replicas in targets.items():
        by_topic.setdefault(topic, []).append(
            ReassignablePartition(
                partition_index=partition, replicas=None if replicas is None else list(replicas)
            )
        )
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.options.request_timeout_ms,
        topics=[ReassignableTopic(name=name, partitions=each) for name, each in by_topic.items()],
    )
    response = await ask_controller(cluster, request, AlterPartitionReassignmentsResponse, _codes)
    check_response(response.error_code, "the reassignment", response.error_message)
    cluster.mark_stale()
    return {
        TopicPartition(topic.name, each.partition_index): outcome(
            each.error_code, f"partition {topic.name}-{each.partition_index}", each.error_message
        )
        for topic in response.responses
        for each in topic.partitions
    }


def _codes(response: AlterPartitionReassignmentsResponse) -> Iterator[int]:
    yield response.error_code
    for topic in response.responses:
        yield from (each.error_code for each in topic.partitions)


async def list_reassignments(cluster: Cluster) -> dict[TopicPartition, Reassignment]:
    """Returns all moves under way."""

    async def attempt() -> ListPartitionReassignmentsResponse:
        connection = await cluster.controller()
        request = ListPartitionReassignmentsRequest(timeout_ms=cluster.options.request_timeout_ms)
        response = await cluster.call(connection, request, ListPartitionReassignmentsResponse)
        check_response(response.error_code, "the list of reassignments", response.error_message)
        return response

    response = await cluster.retrying(attempt, is_worth_waiting=may_pass)
    return {
        TopicPartition(topic.name, each.partition_index): Reassignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in response.topics
        for each in topic.partitions
    }
