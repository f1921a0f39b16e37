import asyncio
from collections.abc import Awaitable

import pytest

from distributedlog.broker.handlers import metadata
from distributedlog.broker.handlers._metadata_cache import (
    IMAGES_MAX,
    SLICE_PARTITIONS,
    VIEWS_MAX,
    TopicDescriber,
)
from distributedlog.broker.handlers._operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR, TOPIC_OPERATIONS
from distributedlog.broker.net.context import ANONYMOUS, RequestContext
from distributedlog.controller.image import Topic
from distributedlog.controller.records import NO_LEADER
from distributedlog.controller.requests import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MorePartitions,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import LeadershipLostError, RequestTimedOutError
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.codec import decode_all, encode_bytes
from distributedlog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from distributedlog.protocol.schema import Message
from distributedlog.settings.node_settings import NodeSettings
from tests.unit.broker.handlers.admin_stage import Broker, elsewhere, registration_of, versions_of
from tests.unit.controller.stage import CLUSTER

EVERY = versions_of(MetadataRequest)
LATEST = EVERY[-1]


def ask(broker: Broker, *names: str, version: int = LATEST, **fields: object) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, **fields)  # type: ignore[arg-type]
    return broker.ask(request, version, MetadataResponse)


def ask_for_all(broker: Broker, version: int = LATEST, **fields: object) -> MetadataResponse:
    listener = fields.pop("listener", "CLIENT")
    request = MetadataRequest(topics=None if version else [], **fields)  # type: ignore[arg-type]
    return broker.ask(request, version, MetadataResponse, listener=str(listener))


def ask_by_id(broker: Broker, *ids: Uuid, version: int = LATEST) -> MetadataResponse:
    topics = [MetadataRequestTopic(topic_id=each, name=None) for each in ids]
    return broker.ask(MetadataRequest(topics=topics), version, MetadataResponse)


def errors(response: MetadataResponse) -> dict[str | None, ErrorCode]:
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}


def only(response: MetadataResponse) -> MetadataResponseTopic:
    (topic,) = response.topics
    return topic


# --- what every version tells --------------------------------------------------------------------


@pytest.mark.parametrize("version", EVERY)
def test_every_version_tells_brokers_leaders_and_replicas(version: int) -> None:
    broker = Broker(1, 2, 3)
    broker.create("t", (2, 3), (3, 1))
    response = ask(broker, "t", version=version)
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [
        (1, "host-1", 9092),
        (2, "host-2", 9092),
        (3, "host-3", 9092),
    ]
    topic = only(response)
    assert (topic.name, topic.error_code) == ("t", 0)
    assert [(each.partition_index, each.leader_id) for each in topic.partitions] == [(0, 2), (1, 3)]
    assert topic.partitions[0].replica_nodes == topic.partitions[0].isr_nodes == [2, 3]
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == (CLUSTER if version >= 2 else None)
    assert topic.topic_id == (broker.image.topic_ids["t"] if version >= 10 else ZERO_UUID)


@pytest.mark.parametrize("version", EVERY)
def test_every_version_can_ask_for_all_topics(version: int) -> None:
    broker = Broker()
    broker.create("a")
    broker.create("b", (1,), (1,))
    response = ask_for_all(broker, version)
    assert {topic.name: len(topic.partitions) for topic in response.topics} == {"a": 1, "b": 2}


def test_no_topics_is_none_from_version_1_on() -> None:
    broker = Broker()
    broker.create("a")
    assert ask(broker, version=1).topics == []


def test_a_topic_that_is_named_twice_is_told_once() -> None:
    broker = Broker()
    broker.create("t")
    assert len(ask(broker, "t", "t").topics) == 1


def test_a_coordinators_topic_is_internal() -> None:
    broker = Broker()
    broker.create("__consumer_offsets")
    broker.create("t")
    told = {topic.name: topic.is_internal for topic in ask_for_all(broker).topics}
    assert told == {"__consumer_offsets": True, "t": False}


# --- who can be reached --------------------------------------------------------------------------


def test_a_partition_without_a_leader_says_so() -> None:
    broker = Broker(1, 2)
    broker.create("t", (2,))
    broker.silence(2)
    assert broker.stage.partition("t").leader == NO_LEADER
    response = ask(broker, "t")
    (partition,) = only(response).partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.offline_replicas == [2]
    assert [each.node_id for each in response.brokers] == [1]
    assert only(response).error_code == 0


@pytest.mark.parametrize(("version", "code"), [(5, "LEADER_NOT_AVAILABLE"), (6, "LISTENER_NOT_FOUND")])
def test_a_leader_that_the_client_cannot_reach_is_told_as_the_version_can(version: int, code: str) -> None:
    broker = Broker(1)
    broker.join(2, endpoints=elsewhere(2))
    broker.create("t", (2, 1))
    response = ask(broker, "t", version=version)
    (partition,) = only(response).partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode[code], -1)
    assert partition.offline_replicas == [2]
    assert [each.node_id for each in response.brokers] == [1]


def test_version_0_leaves_out_replicas_that_are_down() -> None:
    broker = Broker(1, 2)
    broker.create("t", (1, 2))
    broker.silence(2)
    (partition,) = only(ask(broker, "t", version=0)).partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.REPLICA_NOT_AVAILABLE, 1)
    assert partition.replica_nodes == [1]
    (partition,) = only(ask(broker, "t", version=5)).partitions
    assert (partition.error_code, partition.replica_nodes, partition.offline_replicas) == (0, [1, 2], [2])


def test_clients_are_told_a_live_broker_as_controller() -> None:
    broker = Broker(2, 3, controller_id=1)
    assert broker.image.controller_id == 1
    assert ask(broker).controller_id == 2
    broker.silence(2)
    assert ask(broker).controller_id == 3


@pytest.mark.parametrize(
    ("software", "told"),
    [("apache-kafka-java", [1]), ("", [1]), ("librdkafka", [1, 2]), ("confluent-kafka-python", [1, 2])],
)
def test_a_client_that_forgets_brokers_which_are_left_out_is_told_of_fenced_ones(
    software: str, told: list[int]
) -> None:
    broker = Broker(1, 2)
    broker.create("t", (1, 2))
    broker.silence(2)
    broker.session.software_name = software
    for response in (ask(broker, "t"), ask_for_all(broker)):
        assert [each.node_id for each in response.brokers] == told
        assert response.controller_id == 1
        assert response.topics[0].partitions[0].offline_replicas == [2]


def test_allowed_operations_are_told_to_those_who_ask() -> None:
    broker = Broker()
    broker.create("t")
    quiet = ask(broker, "t", version=10)
    assert quiet.cluster_authorized_operations == NOT_ASKED_FOR
    assert only(quiet).topic_authorized_operations == NOT_ASKED_FOR
    told = ask(
        broker,
        "t",
        version=10,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert told.cluster_authorized_operations == CLUSTER_OPERATIONS == 0b1111110100000
    assert only(told).topic_authorized_operations == TOPIC_OPERATIONS == 0b110111111000
    assert only(ask_for_all(broker)).topic_authorized_operations == NOT_ASKED_FOR
    everything = ask_for_all(broker, include_topic_authorized_operations=True)
    assert only(everything).topic_authorized_operations == TOPIC_OPERATIONS


# --- by id ---------------------------------------------------------------------------------------


def test_topics_are_found_by_id() -> None:
    broker = Broker()
    broker.create("t")
    unknown = Uuid(b"?" * 16)
    response = ask_by_id(broker, broker.image.topic_ids["t"], unknown, version=12)
    assert errors(response) == {"t": ErrorCode.NONE, None: ErrorCode.UNKNOWN_TOPIC_ID}
    assert response.topics[1].topic_id == unknown
    assert broker.controller.asked == []


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_before_they_were_served(version: int) -> None:
    broker = Broker()
    broker.create("t")
    response = ask_by_id(broker, broker.image.topic_ids["t"], version=version)
    assert errors(response) == {"": ErrorCode.INVALID_REQUEST}
    assert response.brokers == []


def test_a_topic_without_name_and_id_is_refused() -> None:
    response = ask_by_id(Broker(), ZERO_UUID)
    assert (response.error_code, errors(response)) == (
        ErrorCode.INVALID_REQUEST,
        {"": ErrorCode.INVALID_REQUEST},
    )


# --- topics that are not there ---------------------------------------------------------------------


@pytest.mark.parametrize("version", EVERY)
def test_a_topic_is_created_on_first_use(version: int) -> None:
    broker = Broker(num_partitions=3)
    topic = only(ask(broker, "new", version=version))
    assert (topic.name, topic.error_code) == ("new", 0)
    assert [each.leader_id for each in topic.partitions] == [1, 1, 1]
    assert "new" in broker.image.topic_ids


def test_nothing_is_created_if_the_request_or_the_broker_does_not_want_it() -> None:
    unknown = {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    broker = Broker()
    assert errors(ask(broker, "new", allow_auto_topic_creation=False)) == unknown
    assert broker.controller.asked == []
    strict = Broker(settings=NodeSettings(auto_create_topics=False))
    assert errors(ask(strict, "new")) == unknown
    assert strict.controller.asked == []


def test_one_request_creates_what_is_missing_and_tells_the_rest_too() -> None:
    broker = Broker()
    broker.create("old")
    told = errors(ask(broker, "old", "new", "in valid", "..", "__consumer_offsets", "__cluster_metadata"))
    assert told == {
        "old": ErrorCode.NONE,
        "new": ErrorCode.NONE,
        "in valid": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    ((asked, _),) = broker.controller.asked
    assert isinstance(asked, CreateTopicsRequest)
    assert [each.name for each in asked.topics] == ["new"]


@pytest.mark.parametrize("error", [RequestTimedOutError("late"), LeadershipLostError("gone")])
def test_a_creation_whose_outcome_is_unknown_is_to_be_asked_for_again(error: Exception) -> None:
    broker = Broker()
    broker.create("old")
    broker.controller.failure = error  # type: ignore[assignment]
    assert errors(ask(broker, "old", "new")) == {"old": ErrorCode.NONE, "new": ErrorCode.LEADER_NOT_AVAILABLE}


def test_a_topic_that_is_made_but_not_seen_yet_has_no_leader_yet() -> None:
    broker = Broker()
    broker.controller.is_visible = False
    assert errors(ask(broker, "new")) == {"new": ErrorCode.LEADER_NOT_AVAILABLE}


def test_a_topic_that_somebody_else_just_made_is_told() -> None:
    broker = Broker()
    broker.stage.create("new", (1,))
    assert errors(ask(broker, "new")) == {"new": ErrorCode.NONE}


def test_a_topic_that_the_controller_refuses_stays_unknown() -> None:
    broker = Broker(default_replication_factor=3)
    assert errors(ask(broker, "new")) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    crowded = Broker(partitions_max=1, num_partitions=2)
    assert errors(ask(crowded, "new")) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_name_that_collides_is_invalid() -> None:
    broker = Broker()
    broker.create("a.b")
    assert errors(ask(broker, "a_b")) == {"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_a_connection_is_not_held_up_for_long_by_a_creation() -> None:
    broker = Broker()
    ask(broker, "new")
    ((_, timeout_ms),) = broker.controller.asked
    assert timeout_ms == 5_000


# --- the answer that is kept ready -----------------------------------------------------------------


def test_an_answer_that_is_kept_follows_every_change() -> None:
    broker = Broker(1, 2)
    broker.create("a", (1, 2))
    assert errors(ask_for_all(broker)) == {"a": ErrorCode.NONE}
    broker.create("b", (2, 1))
    before = ask_for_all(broker)
    assert errors(before) == {"a": ErrorCode.NONE, "b": ErrorCode.NONE}
    broker.silence(2)
    after = ask_for_all(broker)
    assert {each.node_id for each in after.brokers} == {1}
    assert [topic.partitions[0].isr_nodes for topic in after.topics] == [[1], [1]]
    assert [topic.partitions[0].offline_replicas for topic in after.topics] == [[2], [2]]
    assert ask_for_all(broker) == after


def test_an_answer_that_is_kept_follows_brokers_where_no_topic_changes() -> None:
    broker = Broker(1, 2)
    broker.create("t", (1, 2))
    broker.silence(2)
    assert only(ask_for_all(broker)).partitions[0].offline_replicas == [2]
    topics = broker.image.topics
    broker.stage.heartbeat(2)
    broker.controller.catch_up()
    assert broker.image.topics is topics
    assert only(ask_for_all(broker)).partitions[0].offline_replicas == []


def test_an_answer_that_is_kept_follows_topics_where_no_broker_changes() -> None:
    broker = Broker()
    broker.create("t")
    assert len(only(ask_for_all(broker)).partitions) == 1
    brokers = broker.image.brokers
    broker.stage.ask(CreatePartitionsRequest((MorePartitions("t", 3),)), object)
    broker.controller.catch_up()
    assert broker.image.brokers is brokers
    assert len(only(ask_for_all(broker)).partitions) == 3


def test_an_answer_that_is_kept_is_for_those_who_asked_alike() -> None:
    broker = Broker(1)
    broker.join(2, endpoints=elsewhere(2))
    broker.create("t", (2, 1))
    for version, code in ((0, 5), (5, 5), (6, 72), (13, 72)):
        (partition,) = only(ask_for_all(broker, version)).partitions
        assert partition.error_code == code
    (partition,) = only(ask_for_all(broker, listener="OTHER")).partitions
    assert (partition.error_code, partition.leader_id) == (0, 2)


def test_an_answer_that_is_kept_is_of_one_broker() -> None:
    one, other = Broker(), Broker()
    one.create("a")
    other.create("b")
    for _ in range(2):
        assert errors(ask_for_all(one)) == {"a": ErrorCode.NONE}
        assert errors(ask_for_all(other)) == {"b": ErrorCode.NONE}


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the topics that were described, as often as they were."""
    names: list[str] = []
    describe = TopicDescriber.describe

    def noting(self: TopicDescriber, topic: Topic) -> MetadataResponseTopic:
        names.append(topic.name)
        return describe(self, topic)

    monkeypatch.setattr(TopicDescriber, "describe", noting)
    return names


def test_a_topic_that_did_not_change_is_described_once(described: list[str]) -> None:
    broker = Broker()
    broker.create("a")
    ask_for_all(broker)
    ask_for_all(broker)
    broker.create("b")
    ask_for_all(broker)
    assert described == ["a", "b"]


def test_a_topic_that_is_gone_is_not_kept() -> None:
    broker = Broker()
    for name in ("a", "b"):
        broker.create(name)
    ask_for_all(broker)
    broker.stage.ask(DeleteTopicsRequest(("a",)), object)
    broker.controller.catch_up()
    assert errors(ask_for_all(broker)) == {"b": ErrorCode.NONE}
    kept = [
        name for each in metadata._cache._described.values() for name in map(_name_of, each.topics.values())
    ]
    assert "a" not in kept


def _name_of(entry: tuple[Topic, MetadataResponseTopic]) -> str:
    return entry[0].name


def test_a_large_answer_is_made_in_slices_that_others_share(described: list[str]) -> None:
    broker = Broker()
    broker.create_many(6, SLICE_PARTITIONS // 2)
    registration = registration_of(MetadataRequest)
    context = RequestContext(ANONYMOUS, "CLIENT", None, "127.0.0.1", 1, LATEST, 0, 1_000)

    async def story() -> list[Message]:
        first = registration.handle(broker.services, MetadataRequest(topics=None), context)
        assert isinstance(first, Awaitable)
        assert len(described) == 2
        broker.create("later")
        second = registration.handle(broker.services, MetadataRequest(topics=None), context)
        assert isinstance(second, Awaitable)
        return [answer for answer in await asyncio.gather(first, second) if answer is not None]

    answers = [
        decode_all(MetadataResponse, LATEST, encode_bytes(each, LATEST)) for each in asyncio.run(story())
    ]
    assert [len(each.topics) for each in answers] == [6, 7]
    assert [sum(len(topic.partitions) for topic in each.topics) for each in answers] == [3_000, 3_001]
    assert sorted(described) == sorted({*described})
    assert ask_for_all(broker) == answers[1]


def test_what_is_kept_is_bounded() -> None:
    broker = Broker()
    for number in range(IMAGES_MAX + 2):
        broker.create(f"t{number}")
        ask_for_all(broker)
    for number in range(VIEWS_MAX + 2):
        ask_for_all(broker, listener=f"L{number}")
    assert len(metadata._cache._of_images) <= IMAGES_MAX
    assert len(metadata._cache._described) <= VIEWS_MAX
