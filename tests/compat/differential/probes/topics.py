"""Metadata, DescribeTopicPartitions, CreateTopics, CreatePartitions, DeleteTopics, ElectLeaders."""

from typing import Any

from distributedlog.model.ids import ZERO_UUID
from distributedlog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from distributedlog.protocol.messages.create_topics import CreateTopicsRequest
from distributedlog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from distributedlog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from distributedlog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from distributedlog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.compat.differential.asking import Conversation
from tests.compat.differential.building import NO_TOPIC, create, metadata, new_topic
from tests.compat.differential.registry import probe
from tests.compat.differential.trees import Tree

BAD_NAMES = ("", ".", "..", "a/b", "a b", "ä", "x" * 250)
NODE, NO_NODE = 1, 9
METADATA_VERSION = 9


# --- Metadata ----------------------------------------------------------------------------------


def _only_mine(of: Conversation) -> Any:
    """Other probes' topics come and go."""

    def keep(answer: Tree) -> Tree:
        mine = {name: topic for name, topic in answer["topics"].items() if name.startswith(of.prefix)}
        return {**answer, "topics": mine}

    return keep


@probe(MetadataRequest)
def named(of: Conversation, version: int) -> None:
    topic = of.topic(3)
    of.ask("one", metadata(topic.name), version)
    of.ask("one twice", metadata(topic.name, topic.name), version)
    if version >= 4:  # else it would be made
        of.ask("one that is not there", metadata(of.name("none")), version)
        of.ask("there, and not there", metadata(topic.name, of.name("none")), version)
    of.ask("internal", metadata("__consumer_offsets"), version)


@probe(MetadataRequest)
def every_topic(of: Conversation, version: int) -> None:
    of.topic()
    everything = MetadataRequest(topics=None if version else [])
    of.ask("all", everything, version, keep=_only_mine(of))
    if version:
        of.ask("none", MetadataRequest(topics=[]), version)


@probe(MetadataRequest)
def bad_names(of: Conversation, version: int) -> None:
    for name in BAD_NAMES:
        label = name if len(name) < 10 else "250 letters"
        of.ask(f"name '{label}'", metadata(name), version)
        of.ask(f"name '{label}', to be made", metadata(name, allow_auto_topic_creation=True), version)


@probe(MetadataRequest)
def made_on_first_use(of: Conversation, version: int) -> None:
    request = metadata(of.name("new"), allow_auto_topic_creation=True)
    of.ask("first", request, version)
    is_there = lambda answer: not any(each.error_code for each in answer.topics)  # noqa: E731
    of.call_until(request, version, MetadataResponse, is_there)
    of.ask("then", request, version)


@probe(MetadataRequest, since=8)
def authorized_operations(of: Conversation, version: int) -> None:
    topic = of.topic()
    request = metadata(
        topic.name, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    of.ask("of topic and cluster", request, version)
    of.ask("of a topic that is not there",
           metadata(of.name("none"), include_topic_authorized_operations=True), version)  # fmt: skip


@probe(MetadataRequest, since=10)
def by_id(of: Conversation, version: int) -> None:
    topic = of.topic()

    def ask(label: str, *wanted: MetadataRequestTopic) -> None:
        of.ask(label, MetadataRequest(topics=list(wanted), allow_auto_topic_creation=False), version)

    ask("id", MetadataRequestTopic(name=None, topic_id=topic.id))
    ask("id that no topic has", MetadataRequestTopic(name=None, topic_id=NO_TOPIC))
    ask("id and name", MetadataRequestTopic(name=topic.name, topic_id=topic.id))
    ask("neither", MetadataRequestTopic(name=None, topic_id=ZERO_UUID))
    ask("one by id, one by name", MetadataRequestTopic(name=None, topic_id=topic.id),
        MetadataRequestTopic(name=topic.name))  # fmt: skip


# --- DescribeTopicPartitions -------------------------------------------------------------------


@probe(DescribeTopicPartitionsRequest)
def described(of: Conversation, version: int) -> None:
    topic, other = of.topic(3), of.topic()

    def ask(label: str, *names: str, **more: Any) -> None:
        topics = [TopicRequest(name=name) for name in names]
        of.ask(label, DescribeTopicPartitionsRequest(topics=topics, **more), version)

    ask("one", topic.name)
    ask("two, in the other order", other.name, topic.name)
    ask("one twice", topic.name, topic.name)
    ask("not there", of.name("none"))
    ask("bad name", "a/b")
    ask("internal", "__consumer_offsets")
    for limit in (2, 1, 3, 0, -1):
        ask(f"limit {limit}", topic.name, other.name, response_partition_limit=limit)
    ask("from a partition on", topic.name, cursor=Cursor(topic_name=topic.name, partition_index=1))
    ask("behind the last", topic.name, cursor=Cursor(topic_name=topic.name, partition_index=3))
    ask("cursor -1", topic.name, cursor=Cursor(topic_name=topic.name, partition_index=-1))
    ask("from the second topic on", topic.name, other.name,
        cursor=Cursor(topic_name=other.name, partition_index=0))  # fmt: skip
    ask("cursor of another topic", topic.name, cursor=Cursor(topic_name=of.name("none"), partition_index=0))


# --- CreateTopics ------------------------------------------------------------------------------


@probe(CreateTopicsRequest)
def new(of: Conversation, version: int) -> None:
    of.ask("one partition", create(new_topic(of.name("a"))), version)
    of.ask("again", create(new_topic(of.name("a"))), version)
    of.ask("only to validate", create(new_topic(of.name("b")), validate_only=True), version)
    of.ask("only to validate, and there", create(new_topic(of.name("a")), validate_only=True), version)
    of.ask("not made by it", metadata(of.name("b")), METADATA_VERSION)
    of.ask("two at once", create(new_topic(of.name("c"), 2), new_topic(of.name("d"), 3)), version)
    of.ask("one of two is there", create(new_topic(of.name("c")), new_topic(of.name("e"))), version)
    of.ask("a name twice", create(new_topic(of.name("f")), new_topic(of.name("f"), 2)), version)
    of.ask("none", create(), version)
    if version >= 4:
        of.ask("by default", create(new_topic(of.name("g"), -1, -1)), version)


@probe(CreateTopicsRequest)
def refused(of: Conversation, version: int) -> None:
    for name in BAD_NAMES:
        label = name if len(name) < 10 else "250 letters"
        of.ask(f"name '{label}'", create(new_topic(name)), version)
    of.ask("249 letters", create(new_topic(of.name("x").ljust(249, "x"))), version)
    for partitions in (0, -1, -2):
        of.ask(f"{partitions} partitions", create(new_topic(of.name(f"p{partitions}"), partitions)), version)
    for replicas in (0, -1, -2, 2, 32767):
        of.ask(f"{replicas} replicas", create(new_topic(of.name(f"r{replicas}"), 1, replicas)), version)


@probe(CreateTopicsRequest)
def names_alike(of: Conversation, version: int) -> None:
    of.ask("with a dot", create(new_topic(of.name("a.b"))), version)
    of.ask("with an underscore", create(new_topic(of.name("a_b"))), version)
    of.ask("internal", create(new_topic("__consumer_offsets")), version)
    of.ask("metadata", create(new_topic("__cluster_metadata")), version)
    of.ask("two underscores", create(new_topic("__" + of.name("own"))), version)
    of.ask("two at once", create(new_topic(of.name("c.d")), new_topic(of.name("c_d"))), version)


@probe(CreateTopicsRequest)
def assigned(of: Conversation, version: int) -> None:
    questions: list[tuple[str, list[tuple[int, list[int]]]]] = [
        ("two partitions", [(0, [NODE]), (1, [NODE])]),
        ("in another order", [(1, [NODE]), (0, [NODE])]),
        ("no such broker", [(0, [NO_NODE])]),
        ("a broker twice", [(0, [NODE, NODE])]),
        ("no brokers", [(0, [])]),
        ("a gap", [(0, [NODE]), (2, [NODE])]),
        ("not from zero", [(1, [NODE])]),
        ("a partition twice", [(0, [NODE]), (0, [NODE])]),
        ("different factors", [(0, [NODE]), (1, [NODE, NO_NODE])]),
        ("negative broker", [(0, [-1])]),
        ("negative partition", [(-1, [NODE])]),
    ]
    for at, (label, assignments) in enumerate(questions):
        wanted = new_topic(of.name(f"t{at}"), -1, -1, assignments=assignments)
        of.ask(label, create(wanted), version)
    both = new_topic(of.name("both"), 1, 1, assignments=[(0, [NODE])])
    of.ask("assigned and counted", create(both), version)
    of.ask(
        "assigned and one count", create(new_topic(of.name("c"), 1, -1, assignments=[(0, [NODE])])), version
    )


@probe(CreateTopicsRequest)
def with_settings(of: Conversation, version: int) -> None:
    questions: list[tuple[str, list[tuple[str, str | None]]]] = [
        ("one", [("retention.ms", "1000")]),
        ("several", [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.1")]),
        ("not known", [("no.such.setting", "1")]),
        ("empty name", [("", "1")]),
        ("not a number", [("retention.ms", "soon")]),
        ("null", [("retention.ms", None)]),
        ("empty", [("retention.ms", "")]),
        ("twice", [("retention.ms", "1"), ("retention.ms", "2")]),
        ("one good, one bad", [("retention.ms", "1"), ("segment.bytes", "-5")]),
    ]
    for at, (label, configs) in enumerate(questions):
        of.ask(label, create(new_topic(of.name(f"t{at}"), configs=configs)), version)


# --- CreatePartitions --------------------------------------------------------------------------


def _grow(
    name: str, count: int, brokers: list[list[int]] | None = None, *, validate_only: bool = False
) -> CreatePartitionsRequest:
    assignments = (
        None if brokers is None else [CreatePartitionsAssignment(broker_ids=each) for each in brokers]
    )
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=15_000, validate_only=validate_only)


@probe(CreatePartitionsRequest)
def more_partitions(of: Conversation, version: int) -> None:
    topic = of.topic(2)
    name = topic.name
    questions = [
        ("only to validate", _grow(name, 5, validate_only=True)),
        ("to three", _grow(name, 3)),
        ("to three again", _grow(name, 3)),
        ("to fewer", _grow(name, 1)),
        ("to none", _grow(name, 0)),
        ("to -1", _grow(name, -1)),
        ("assigned", _grow(name, 4, [[NODE]])),
        ("no such broker", _grow(name, 5, [[NO_NODE]])),
        ("too few assigned", _grow(name, 6, [[NODE]])),
        ("too many assigned", _grow(name, 5, [[NODE], [NODE]])),
        ("no brokers", _grow(name, 5, [[]])),
        ("a broker twice", _grow(name, 5, [[NODE, NODE]])),
        ("empty assignment", _grow(name, 5, [])),
        ("not there", _grow(of.name("none"), 3)),
        ("bad name", _grow("a/b", 3)),
        ("internal", _grow("__consumer_offsets", 1)),
    ]
    for label, request in questions:
        of.ask(label, request, version)
    twice = CreatePartitionsRequest(
        topics=[*_grow(name, 8).topics, *_grow(name, 9).topics], timeout_ms=15_000, validate_only=False
    )
    of.ask("a topic twice", twice, version)
    of.ask("none", CreatePartitionsRequest(topics=[], timeout_ms=1000, validate_only=False), version)


# --- DeleteTopics ------------------------------------------------------------------------------


def _delete(version: int, *names: str) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=15_000)
    states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
    return DeleteTopicsRequest(topics=states, timeout_ms=15_000)


@probe(DeleteTopicsRequest)
def deleted(of: Conversation, version: int) -> None:
    first, second = of.topic(), of.topic()
    of.ask("one", _delete(version, first.name), version)
    of.ask("again", _delete(version, first.name), version)
    of.ask("there, and not there", _delete(version, second.name, of.name("none")), version)
    of.ask("bad name", _delete(version, "a/b"), version)
    of.ask("empty name", _delete(version, ""), version)
    third = of.topic()
    of.ask("a name twice", _delete(version, third.name, third.name), version)
    of.ask("none", _delete(version), version)


@probe(DeleteTopicsRequest, since=6)
def deleted_by_id(of: Conversation, version: int) -> None:
    first, second = of.topic(), of.topic()

    def ask(label: str, *states: DeleteTopicState) -> None:
        of.ask(label, DeleteTopicsRequest(topics=list(states), timeout_ms=15_000), version)

    ask("id", DeleteTopicState(name=None, topic_id=first.id))
    ask("again", DeleteTopicState(name=None, topic_id=first.id))
    ask("id that no topic has", DeleteTopicState(name=None, topic_id=NO_TOPIC))
    ask("neither", DeleteTopicState(name=None, topic_id=ZERO_UUID))
    ask("id and name", DeleteTopicState(name=second.name, topic_id=second.id))
    ask("id and name of one topic", DeleteTopicState(name=None, topic_id=second.id),
        DeleteTopicState(name=second.name, topic_id=ZERO_UUID))  # fmt: skip


# --- ElectLeaders ------------------------------------------------------------------------------


@probe(ElectLeadersRequest)
def elections(of: Conversation, version: int) -> None:
    topic = of.topic(2)

    def ask(label: str, kind: int, name: str, *partitions: int) -> None:
        places = [TopicPartitions(topic=name, partitions=list(partitions))]
        request = ElectLeadersRequest(election_type=kind, topic_partitions=places, timeout_ms=5000)
        of.ask(label, request, version)

    ask("preferred", 0, topic.name, 0, 1)
    ask("partition that is not there", 0, topic.name, 0, 7)
    ask("topic that is not there", 0, of.name("none"), 0)
    ask("bad name", 0, "a/b", 0)
    ask("no partitions", 0, topic.name)
    if version >= 1:
        ask("unclean", 1, topic.name, 0)
        ask("unclean, not there", 1, of.name("none"), 0)
        ask("type 7", 7, topic.name, 0)
