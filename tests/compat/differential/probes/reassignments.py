"""AlterPartitionReassignments and ListPartitionReassignments, as far as one broker goes."""

from typing import Any

from distributedlog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from distributedlog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.compat.differential.asking import Conversation
from tests.compat.differential.building import metadata
from tests.compat.differential.registry import probe


def moves(topic: str, *wanted: tuple[int, list[int] | None]) -> ReassignableTopic:
    partitions = [ReassignablePartition(partition_index=at, replicas=replicas) for at, replicas in wanted]
    return ReassignableTopic(name=topic, partitions=partitions)


@probe(AlterPartitionReassignmentsRequest)
def moved(of: Conversation, version: int) -> None:
    topic, gone = of.topic(2).name, of.name("gone")

    def ask(label: str, *topics: ReassignableTopic, **more: Any) -> None:
        of.ask(label, AlterPartitionReassignmentsRequest(topics=list(topics), **more), version)

    ask("nothing")
    ask("a topic without partitions", moves(topic))
    ask("to where it is", moves(topic, (0, [1])))
    ask("to no broker", moves(topic, (0, [])))
    ask("to a broker that is not there", moves(topic, (0, [7])))
    ask("also to a broker that is not there", moves(topic, (0, [1, 7])))
    ask("to a broker twice", moves(topic, (0, [1, 1])))
    ask("to a negative broker", moves(topic, (0, [-1])))
    ask("none to cancel", moves(topic, (0, None)))
    ask("a topic that is not there", moves(gone, (0, [1])))
    ask("none to cancel of a topic that is not there", moves(gone, (0, None)))
    ask("a partition that is not there", moves(topic, (9, [1])), moves(gone, (0, [1])))
    ask("a negative partition", moves(topic, (-1, [1])))
    ask("one good, one bad", moves(topic, (0, [1]), (1, [7])))
    ask("a partition twice", moves(topic, (0, [1]), (0, [1])))
    ask("a topic twice", moves(topic, (0, [1])), moves(topic, (1, [1])))
    ask("no time", moves(topic, (0, [1])), timeout_ms=0)
    ask("a negative time", moves(topic, (0, [1])), timeout_ms=-1)
    of.ask("then", metadata(topic), 9)


@probe(AlterPartitionReassignmentsRequest, since=1)
def moved_with_as_many_replicas(of: Conversation, version: int) -> None:
    topic = of.topic().name
    for label, wanted in (("the same", [1]), ("more", [1, 7]), ("none", [])):
        request = AlterPartitionReassignmentsRequest(
            topics=[moves(topic, (0, wanted))], allow_replication_factor_change=False
        )
        of.ask(label, request, version)


@probe(ListPartitionReassignmentsRequest)
def moves_listed(of: Conversation, version: int) -> None:
    topic = of.topic(2).name

    def ask(label: str, *topics: tuple[str, list[int]]) -> None:
        asked = [ListPartitionReassignmentsTopics(name=name, partition_indexes=at) for name, at in topics]
        of.ask(label, ListPartitionReassignmentsRequest(topics=asked), version)

    of.ask("all", ListPartitionReassignmentsRequest(topics=None), version)
    ask("none")
    ask("a topic", (topic, [0, 1]))
    ask("a topic without partitions", (topic, []))
    ask("a partition that is not there", (topic, [9]))
    ask("a topic that is not there", (of.name("gone"), [0]))
