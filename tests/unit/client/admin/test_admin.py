"""Topics: made, described, deleted; over the asyncio face and the blocking one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from distributedlog.client.admin.admin import Admin, ConfigEntry, NewTopic
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import LATEST
from distributedlog.client.offsets import list_offsets
from distributedlog.model.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    InvalidReplicationFactorError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from distributedlog.protocol.messages.metadata import MetadataRequest
from distributedlog.protocol.schema import Message
from tests.ports import free_port
from tests.unit.client.stage import QUICK, HangUp, Raw, ScriptedBroker, run
from tests.unit.client.town import Town


@contextmanager
def admin_of(town: Town) -> Iterator[BlockingAdmin]:
    with town.broker().running() as broker, BlockingAdmin(broker.bootstrap, QUICK) as admin:
        yield admin


def test_a_topic_is_made_listed_described_and_deleted() -> None:
    with admin_of(Town()) as admin:
        created = admin.create_topic(NewTopic("orders", 3, 1, {"retention.ms": "1000"}))
        assert (created.name, created.partitions, created.replication_factor) == ("orders", 3, 1)
        assert [topic.name for topic in admin.list_topics()] == ["orders"]
        (topic,) = admin.describe_topics(["orders"])
        assert [each.index for each in topic.partitions] == [0, 1, 2]
        assert admin.delete_topics(["orders"]) == {"orders": None}
        assert admin.list_topics() == ()


def test_what_is_left_open_is_as_the_cluster_is_set_up() -> None:
    with admin_of(Town()) as admin:
        assert admin.create_topic(NewTopic("orders")).partitions == Town.DEFAULT_PARTITIONS


def test_each_topic_has_an_outcome_of_its_own() -> None:
    with admin_of(Town(topics={"old": 1})) as admin:
        outcomes = admin.create_topics([NewTopic("old"), NewTopic("new"), NewTopic("wide", 1, 99)])
        assert isinstance(outcomes["old"], TopicExistsError)
        assert isinstance(outcomes["wide"], InvalidReplicationFactorError)
        assert "only 1 broker" in str(outcomes["wide"])
        assert {each.name for each in admin.list_topics()} == {"old", "new"}
        with pytest.raises(TopicExistsError):
            admin.create_topic(NewTopic("old"))
        deleted = admin.delete_topics(["old", "none"])
        assert deleted["old"] is None
        assert isinstance(deleted["none"], UnknownTopicError)


def test_validation_makes_nothing() -> None:
    with admin_of(Town()) as admin:
        assert set(admin.create_topics([NewTopic("a")], validate_only=True)) == {"a"}
        assert admin.list_topics() == ()


def test_settings_and_sizes_are_told_where_they_are_served() -> None:
    town = Town(topics={"orders": 2}, configs={"orders": {"retention.ms": "5"}})
    with admin_of(town) as admin:
        configs = admin.topic_configs("orders")
        assert configs is not None
        assert ConfigEntry("retention.ms", "5", 1) in configs
        assert [each.is_set_on_topic for each in configs if each.name == "cleanup.policy"] == [False]
        assert admin.log_sizes(admin.describe_topics(["orders"])) == {
            TopicPartition("orders", 0): 1000,
            TopicPartition("orders", 1): 1001,
        }


def test_where_they_are_not_served_they_are_unknown() -> None:
    with admin_of(Town(topics={"orders": 1}, is_small=True)) as admin:
        assert admin.topic_configs("orders") is None
        assert admin.log_sizes(admin.describe_topics(["orders"])) is None
        with pytest.raises(UnsupportedVersionError, match="does not serve CREATE_TOPICS"):
            admin.create_topic(NewTopic("x"))


def test_internal_topics_are_shown_when_asked_for() -> None:
    with admin_of(Town(topics={"orders": 1, "__consumer_offsets": 1})) as admin:
        assert [topic.name for topic in admin.list_topics()] == ["orders"]
        assert len(admin.list_topics(with_internal=True)) == 2


def test_offsets_are_listed_for_partitions_that_are_led() -> None:
    with admin_of(Town(topics={"orders": 2})) as admin:
        ranges = admin.offset_ranges(admin.describe_topics(["orders"]))
        assert ranges == {TopicPartition("orders", 0): (0, 7), TopicPartition("orders", 1): (0, 7)}
        at = admin.list_offsets({TopicPartition("orders", 1): LATEST})
        assert at[TopicPartition("orders", 1)].offset == 7
        assert admin.describe_cluster().cluster_id == "scripted"


def test_a_topic_that_is_not_there_cannot_be_described() -> None:
    with admin_of(Town()) as admin, pytest.raises(UnknownTopicError, match="no topic 'orders'"):
        admin.describe_topics(["orders"])


def test_another_controller_is_looked_for() -> None:
    town = Town()
    refusals = iter([41, 41])
    broker = town.broker()

    def create(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
        response = town.create(request, version)
        code = next(refusals, None)
        if code is not None:
            town.topics.clear()
            response.topics[0].error_code = code
        return response

    broker.answers[ApiKey.CREATE_TOPICS] = create
    with broker.running(), BlockingAdmin(broker.bootstrap, QUICK) as admin:
        assert admin.create_topic(NewTopic("orders", 1)).name == "orders"
    assert broker.count(ApiKey.CREATE_TOPICS) == 3
    assert broker.count(ApiKey.METADATA) >= 3


def test_a_change_of_unknown_fate_is_not_tried_again() -> None:
    broker = Town().broker()

    def create(*_: object) -> None:
        raise HangUp

    broker.answers[ApiKey.CREATE_TOPICS] = create
    with broker.running(), BlockingAdmin(broker.bootstrap, QUICK) as admin:
        with pytest.raises(ConnectionLostError):
            admin.create_topic(NewTopic("orders"))
        assert admin.list_topics() == ()  # the next call connects again
    assert broker.count(ApiKey.CREATE_TOPICS) == 1


def test_a_change_that_was_not_asked_for_yet_is_tried_again() -> None:
    """A broker hangs up on who asks it where the controller is, as an isolated one does."""
    broker = Town().broker()
    metadata, asked = broker.answers[ApiKey.METADATA], 0

    def hang_up_once(request: MetadataRequest, version: int) -> Message | Raw | None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise HangUp
        return metadata(request, version)

    broker.answers[ApiKey.METADATA] = hang_up_once
    with broker.running(), BlockingAdmin(broker.bootstrap, QUICK) as admin:
        assert admin.create_topic(NewTopic("orders", 1)).name == "orders"
    assert broker.count(ApiKey.CREATE_TOPICS) == 1


def test_the_blocking_face_says_at_once_that_nobody_is_there() -> None:
    with BlockingAdmin(f"127.0.0.1:{free_port()}", QUICK) as admin, pytest.raises(BrokerUnreachableError):
        admin.list_topics()


def test_the_asyncio_face_shares_a_cluster_with_others() -> None:
    async def story(broker: ScriptedBroker) -> None:
        async with Cluster([broker.address], replace(QUICK, client_id="shared")) as cluster:
            admin = Admin(cluster)
            await admin.create_topic(NewTopic("orders", 1))
            found = await list_offsets(cluster, {TopicPartition("orders", 0): LATEST})
            assert found[TopicPartition("orders", 0)].offset == 7
        async with Admin.connect(broker.bootstrap, QUICK) as admin:
            assert [each.name for each in await admin.list_topics()] == ["orders"]

    with Town().broker().running() as broker:
        run(story(broker))
    assert broker.count(ApiKey.API_VERSIONS) == 2
