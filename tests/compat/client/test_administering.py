"""What an administrator asks for and is told, the same everywhere."""

from typing import Any

import pytest

from distributedlog import ConfigError, InvalidNameError, NewTopic, TopicPartition
from distributedlog.client.admin.configs import ConfigEdit, of_topic
from distributedlog.client.admin.quotas import QuotaChange, QuotaComponent, QuotaEntity
from distributedlog.client.offset_specs import EARLIEST, LATEST
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.errors import (
    GroupNotFoundError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicError,
)
from tests.compat.client.faces import Face
from tests.compat.client.reading import WAIT_S, until

NOWHERE = TopicPartition("no-such-topic", 0)


def config(admin: Any, topic: str, wanted: str) -> tuple[str, bool]:
    (entry,) = [each for each in admin.topic_configs(topic) if each.name == wanted]
    return entry.value, not entry.is_set_on_topic


def test_a_topic_lives_from_its_creation_to_its_deletion(face: Face, name: str, replicas: int) -> None:
    with face.admin() as admin:
        made = admin.create_topic(NewTopic(name, 3, configs={"retention.ms": "3600000"}))
        assert (made.name, made.partitions, made.replication_factor) == (name, 3, replicas)
        with pytest.raises(TopicExistsError):
            admin.create_topic(NewTopic(name, 3))
        until(lambda: name in {each.name for each in admin.list_topics()})
        (described,) = admin.describe_topics([name])
        assert described.topic_id == made.topic_id
        assert [each.index for each in described.partitions] == [0, 1, 2]
        assert all(len(each.replicas) == replicas for each in described.partitions)
        assert admin.create_partitions({name: 5}) == {name: None}
        until(lambda: len(admin.describe_topics([name])[0].partitions) == 5)
        assert isinstance(admin.create_partitions({name: 4})[name], InvalidPartitionsError)
        assert admin.delete_topics([name]) == {name: None}
        until(lambda: name not in {each.name for each in admin.list_topics()})
        assert isinstance(admin.delete_topics([name])[name], UnknownTopicError)


def test_what_cannot_be_made_is_refused_for_its_reason(face: Face, name: str) -> None:
    with face.admin() as admin:
        for topic, error in (
            (NewTopic(name, 1, 99), InvalidReplicationFactorError),
            (NewTopic(name, 0), InvalidPartitionsError),
            (NewTopic("no/such name", 1), InvalidNameError),
            (NewTopic(name, 1, configs={"retention.ms": "soon"}), ConfigError),
            (NewTopic(name, 1, configs={"no.such.config": "1"}), ConfigError),
        ):
            with pytest.raises(error):
                admin.create_topic(topic)
        assert not isinstance(admin.create_topics([NewTopic(name, 1)], validate_only=True)[name], Exception)
        assert name not in {each.name for each in admin.list_topics()}


def test_settings_are_told_changed_and_taken_back(face: Face, topic: str) -> None:
    whose = of_topic(topic)
    with face.admin() as admin:
        assert config(admin, topic, "cleanup.policy") == ("delete", True)
        assert admin.alter_configs({whose: [ConfigEdit("cleanup.policy", ConfigOp.SET, "compact")]}) == {
            whose: None
        }
        until(lambda: config(admin, topic, "cleanup.policy") == ("compact", False))
        change = ConfigEdit("cleanup.policy", ConfigOp.APPEND, "delete")
        assert admin.alter_configs({whose: [change]}) == {whose: None}
        until(lambda: config(admin, topic, "cleanup.policy") == ("compact,delete", False))
        refused = admin.alter_configs({whose: [ConfigEdit("retention.ms", ConfigOp.SET, "soon")]})[whose]
        assert isinstance(refused, ConfigError)
        admin.alter_configs({whose: [ConfigEdit("cleanup.policy", ConfigOp.DELETE)]})
        until(lambda: config(admin, topic, "cleanup.policy") == ("delete", True))
        missing = of_topic(NOWHERE.topic)
        error = admin.alter_configs({missing: [ConfigEdit("retention.ms", ConfigOp.SET, "1000")]})[missing]
        assert isinstance(error, UnknownTopicError)


def test_offsets_are_told_and_records_deleted(face: Face, topic: str) -> None:
    place = TopicPartition(topic, 1)
    with face.admin() as admin, face.producer() as producer:
        for number in range(10):
            producer.send(topic, str(number), partition=1, timestamp_ms=1000 + number).result(WAIT_S)

        def offset(when: int) -> tuple[int, int]:
            return tuple(admin.list_offsets({place: when})[place])[:2]

        assert offset(EARLIEST)[0] == 0
        assert offset(LATEST)[0] == 10
        assert offset(1004) == (4, 1004)
        assert offset(2000)[0] == -1, "nothing is so late"
        assert admin.delete_records({place: 6}) == {place: 6}
        assert offset(EARLIEST)[0] == 6
        assert isinstance(admin.delete_records({place: 11})[place], OffsetOutOfRangeError)
        assert admin.delete_records({place: -1}) == {place: 10}
        assert isinstance(admin.delete_records({NOWHERE: 1})[NOWHERE], UnknownTopicError)


def test_the_cluster_tells_of_itself(face: Face, topic: str, replicas: int) -> None:
    place = TopicPartition(topic, 0)
    with face.admin() as admin, face.producer() as producer:
        producer.send(topic, bytes(1000), partition=0).result(WAIT_S)
        view = admin.describe_cluster()
        assert view.cluster_id
        assert view.controller_id in view.brokers
        quorum = admin.describe_quorum()
        assert quorum.leader_id in {each.node_id for each in quorum.voters}
        assert admin.describe_features().finalized["transaction.version"] == 2
        topics = admin.describe_topics([topic])
        assert admin.offset_ranges(topics)[place] == (0, 1)
        assert admin.log_sizes(topics)[place] >= 1000
        directories = [each for found in admin.describe_log_dirs().values() for each in found]
        assert sum(place in each.replicas for each in directories) == replicas
        (written_by,) = admin.describe_producers(place)
        assert (written_by.last_sequence, written_by.transaction_start_offset) == (0, -1)
        assert of_topic(topic) in admin.list_config_resources()
        assert admin.list_reassignments() == {}


def test_quotas_are_set_and_unset(face: Face, name: str) -> None:
    entity = QuotaEntity(client_id=name)
    with face.admin() as admin:
        assert admin.alter_quotas([QuotaChange(entity, {"producer_byte_rate": 1e6})]) == {entity: None}
        everyone = [QuotaComponent("client-id")]
        until(lambda: admin.describe_quotas(everyone).get(entity) == {"producer_byte_rate": 1e6})
        assert admin.alter_quotas([QuotaChange(entity, {"producer_byte_rate": None})]) == {entity: None}
        until(lambda: entity not in admin.describe_quotas(everyone))


def test_a_group_that_is_not_there_is_told(face: Face, name: str) -> None:
    with face.admin() as admin:
        with pytest.raises(GroupNotFoundError):
            admin.describe_group(name)
        assert admin.group_offsets(name) == {}
