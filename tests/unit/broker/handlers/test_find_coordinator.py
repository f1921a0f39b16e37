from typing import Any

import pytest

from distributedlog.controller.image import ResourceType
from distributedlog.groups.placement import partition_of
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from distributedlog.settings.addresses import Voter
from distributedlog.settings.node_settings import NodeSettings
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

EVERY = versions_of(FindCoordinatorRequest)
SETTINGS: dict[str, Any] = {
    "offsets_topic_num_partitions": 7,
    "offsets_topic_replication_factor": 3,
    "transaction_state_log_num_partitions": 5,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 2,
}


def ask(broker: Broker, key_type: int, version: int, *keys: str) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key_type=key_type)
    if version >= 4:
        request.coordinator_keys = list(keys)
    else:
        (request.key,) = keys
    return broker.ask(request, version, FindCoordinatorResponse)


@pytest.mark.parametrize("version", [each for each in EVERY if each < 4])
def test_a_group_is_coordinated_by_the_leader_of_its_partition(version: int) -> None:
    broker = Broker(1, 2, **SETTINGS)
    response = ask(broker, 0, version, "group")
    topic = broker.image.topic_named(OFFSETS_TOPIC)
    assert topic is not None
    leader = topic.partitions[partition_of("group", 7)].leader
    assert response.error_code == ErrorCode.NONE
    assert (response.node_id, response.host, response.port) == (leader, f"host-{leader}", 9092)


@pytest.mark.parametrize("version", [each for each in EVERY if each >= 4])
def test_each_of_several_groups_has_its_own(version: int) -> None:
    broker = Broker(1, 2, 3, **SETTINGS)
    keys = [f"g{at}" for at in range(20)]
    response = ask(broker, 0, version, *keys)
    topic = broker.image.topic_named(OFFSETS_TOPIC)
    assert topic is not None
    leaders = [topic.partitions[partition_of(key, 7)].leader for key in keys]
    assert [(each.key, each.node_id) for each in response.coordinators] == list(
        zip(keys, leaders, strict=True)
    )
    assert len(set(leaders)) == 3


def test_the_topic_is_made_once_as_the_settings_say_and_with_no_more_replicas_than_brokers() -> None:
    broker = Broker(1, 2, **SETTINGS)
    ask(broker, 0, 4, "a")
    topic = broker.image.topic_named(OFFSETS_TOPIC)
    assert topic is not None
    assert len(topic.partitions) == 7
    assert {len(each.replicas) for each in topic.partitions.values()} == {2}
    settings = broker.image.settings_of(ResourceType.TOPIC, OFFSETS_TOPIC)
    assert settings["cleanup.policy"] == "compact"
    assert settings["segment.bytes"] == str(100 * 1024 * 1024)
    ask(broker, 0, 4, "b")
    assert broker.image.topic_named(OFFSETS_TOPIC) == topic


def test_a_fenced_broker_has_a_replica_of_the_topic_too() -> None:
    """It comes back, and the topic keeps the replicas it is made with."""
    broker = Broker(1, 2, 3, **SETTINGS)
    broker.silence(3)
    ask(broker, 0, 4, "a")
    topic = broker.image.topic_named(OFFSETS_TOPIC)
    assert topic is not None
    assert {len(each.replicas) for each in topic.partitions.values()} == {3}


def test_the_topic_is_not_made_before_the_brokers_that_vote_have_registered() -> None:
    voters = tuple(Voter(node, "127.0.0.1", 9093 + node) for node in (1, 2, 3))
    broker = Broker(1, 2, settings=NodeSettings(controller_quorum_voters=voters), **SETTINGS)
    assert ask(broker, 0, 3, "a").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.image.topic_named(OFFSETS_TOPIC) is None
    broker.join(3)
    assert ask(broker, 0, 3, "a").error_code == ErrorCode.NONE


def test_voters_that_store_nothing_say_nothing_of_how_many_brokers_there_will_be() -> None:
    voters = tuple(Voter(node, "127.0.0.1", 9093 + node) for node in (7, 8, 9))
    settings = NodeSettings(controller_quorum_voters=voters, process_roles=frozenset({"broker"}))
    assert ask(Broker(1, settings=settings, **SETTINGS), 0, 3, "a").error_code == ErrorCode.NONE


def test_a_partition_without_a_leader_has_no_coordinator_for_now() -> None:
    broker = Broker(1, 2, offsets_topic_num_partitions=2)
    ask(broker, 0, 4, "a")
    broker.silence(1, 2)
    response = ask(broker, 0, 3, "a")
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (response.node_id, response.host, response.port) == (-1, "", -1)


@pytest.mark.parametrize("version", EVERY[1:])
def test_a_transactional_id_has_a_topic_of_its_own(version: int) -> None:
    broker = Broker(1, 2, **SETTINGS)
    response = ask(broker, 1, version, "k")
    topic = broker.image.topic_named(TRANSACTIONS_TOPIC)
    assert topic is not None
    assert len(topic.partitions) == 5
    leader = topic.partitions[partition_of("k", 5)].leader
    found = [each.node_id for each in response.coordinators] or [response.node_id]
    assert found == [leader]
    assert broker.image.topic_named(OFFSETS_TOPIC) is None


def test_the_topic_of_transactions_is_made_as_the_settings_say() -> None:
    broker = Broker(1, 2, 3, **SETTINGS)
    ask(broker, 1, 4, "k")
    topic = broker.image.topic_named(TRANSACTIONS_TOPIC)
    assert topic is not None
    assert {len(each.replicas) for each in topic.partitions.values()} == {3}
    settings = broker.image.settings_of(ResourceType.TOPIC, TRANSACTIONS_TOPIC)
    assert settings["cleanup.policy"] == "compact"
    assert settings["min.insync.replicas"] == "2"


@pytest.mark.parametrize("version", EVERY[1:])
@pytest.mark.parametrize("key_type", [2, 3, -1])
def test_kinds_that_are_not_coordinated_here_are_refused(version: int, key_type: int) -> None:
    response = ask(Broker(), key_type, version, "k")
    codes = [each.error_code for each in response.coordinators] or [response.error_code]
    assert codes == [ErrorCode.INVALID_REQUEST]
