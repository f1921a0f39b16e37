"""AlterPartitionReassignments and ListPartitionReassignments."""

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from distributedlog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

EVERY = versions_of(AlterPartitionReassignmentsRequest)
Moves = dict[tuple[str, int], list[int] | None]


def alter(
    broker: Broker, moves: Moves, version: int = EVERY[-1], **changes: object
) -> tuple[ErrorCode, dict[tuple[str, int], ErrorCode]]:
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=2_000,
        topics=[
            ReassignableTopic(
                name=topic, partitions=[ReassignablePartition(partition_index=number, replicas=replicas)]
            )
            for (topic, number), replicas in moves.items()
        ],
        **changes,  # type: ignore[arg-type]
    )
    response = broker.ask(request, version, AlterPartitionReassignmentsResponse)
    return ErrorCode(response.error_code), {
        (topic.name, each.partition_index): ErrorCode(each.error_code)
        for topic in response.responses
        for each in topic.partitions
    }


def list_moves(broker: Broker, *named: tuple[str, int]) -> dict[tuple[str, int], tuple[list[int], ...]]:
    topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[each]) for name, each in named]
    request = ListPartitionReassignmentsRequest(topics=topics or None)
    response = broker.ask(request, 0, ListPartitionReassignmentsResponse)
    return {
        (topic.name, each.partition_index): (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in response.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", EVERY)
def test_a_move_is_begun_listed_and_cancelled(version: int) -> None:
    broker = Broker(1, 2, 3)
    broker.create("a", (1, 2))
    broker.create("b", (1,))
    assert list_moves(broker) == {}
    outcome = alter(broker, {("a", 0): [3, 1], ("b", 0): [9]}, version)
    assert outcome == (
        ErrorCode.NONE,
        {("a", 0): ErrorCode.NONE, ("b", 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT},
    )
    assert list_moves(broker) == {("a", 0): ([3, 1, 2], [3], [2])}
    assert list_moves(broker, ("a", 0), ("b", 0)) == list_moves(broker)
    assert list_moves(broker, ("b", 0), ("a", 1)) == {}
    assert alter(broker, {("a", 0): None}, version)[1] == {("a", 0): ErrorCode.NONE}
    assert alter(broker, {("a", 0): None}, version)[1] == {("a", 0): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    assert list_moves(broker) == {}


def test_a_change_of_the_number_of_replicas_can_be_forbidden() -> None:
    broker = Broker(1, 2)
    broker.create("a", (1,))
    _, outcomes = alter(broker, {("a", 0): [1, 2]}, allow_replication_factor_change=False)
    assert outcomes == {("a", 0): ErrorCode.INVALID_REPLICATION_FACTOR}


def test_without_a_controller_the_whole_is_an_error() -> None:
    broker = Broker(1, 2)
    broker.create("a", (1,))
    broker.controller.failure = RequestTimedOutError("late")
    assert alter(broker, {("a", 0): [2]}) == (ErrorCode.REQUEST_TIMED_OUT, {})
