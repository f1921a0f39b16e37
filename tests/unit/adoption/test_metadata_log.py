"""Kafka's metadata log: what a real one says, and what is said about one that is not whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.adoption.kafka_image import KafkaImage
from distributedlog.adoption.kafka_records import (
    AccessRuleRemoved,
    AccessRuleSet,
    TokenIssued,
    TokenRemoved,
    TransactionAborted,
    TransactionBegun,
    TransactionEnded,
    UserRemoved,
    UserSet,
    decode_kafka_record,
)
from distributedlog.adoption.metadata_log import MetadataLogRead, read_metadata_log
from distributedlog.controller.records import (
    ClientQuotaChanged,
    ConfigChanged,
    NoOp,
    PartitionChanged,
    QuotaEntityPart,
    TopicCreated,
    TopicRemoved,
)
from distributedlog.model.errors import (
    ConsensusError,
    CorruptLogError,
    MalformedMessageError,
    UnsupportedVersionError,
)
from distributedlog.protocol.schema import Message
from distributedlog.storage.files import Files
from tests.simulation.disk import SimDisk
from tests.unit.adoption.kafka_stage import (
    CLEAN,
    FIRST_LOG,
    METADATA,
    batches,
    copy_in,
    framed,
    put,
    topic_records,
    uuid,
)

GOLDEN_TOPICS = 25


def golden() -> SimDisk:
    disk = SimDisk(1)
    copy_in(disk, CLEAN / METADATA, f"/{METADATA}")
    return disk


def read(disk: SimDisk) -> MetadataLogRead:
    return read_metadata_log(Files(disk), f"/{METADATA}")


def described(image: KafkaImage) -> object:
    topics = {
        topic.name: (topic.topic_id, {n: (p.state, p.directories) for n, p in topic.partitions.items()})
        for topic in image.topics.values()
    }
    return topics, image.configs, image.features, image.next_producer_id


def made(*messages: Message) -> KafkaImage:
    image = KafkaImage()
    for message in messages:
        image.apply(message)
    return image


# --- a log that Kafka wrote --------------------------------------------------------------------


def test_kafkas_own_log_says_which_topics_there_are() -> None:
    image = read(golden()).image
    assert len(image.topics) == GOLDEN_TOPICS
    segments = image.topic_named("segments")
    assert segments is not None
    assert sorted(segments.partitions) == [0, 1]
    assert segments.partitions[0].state.replicas == (1,)
    assert segments.partitions[0].state.elr == (1,)  # it stopped: the ISR is empty, and it may lead again
    assert image.settings_of(2, "codec-zstd") == {"compression.type": "zstd"}
    assert image.next_producer_id == 1000
    assert image.controllers == {1}
    epochs = image.topic_named("epochs")
    assert epochs is not None
    assert epochs.partitions[0].state.leader_epoch == 9


def test_a_snapshot_with_the_log_behind_it_says_what_the_whole_log_says() -> None:
    with_snapshots, whole = golden(), golden()
    for name in whole.list_directory(f"/{METADATA}"):
        if name.endswith(".checkpoint"):
            whole.remove(f"/{METADATA}/{name}")
    assert described(read(with_snapshots).image) == described(read(whole).image)
    assert read(with_snapshots).end_offset == read(whole).end_offset


def test_a_torn_end_is_left_out_and_told() -> None:
    disk = golden()
    path = f"/{METADATA}/{FIRST_LOG}"
    file = disk.open(path, write=True)
    file.truncate(file.size() - 5)
    torn = read(disk)
    assert len(torn.image.topics) == GOLDEN_TOPICS
    assert "is torn at position" in torn.notes[0]
    assert torn.end_offset < read(golden()).end_offset


def test_damage_before_the_end_refuses_the_whole_with_where_it_is() -> None:
    disk = SimDisk(1)
    copy_in(disk, CLEAN / METADATA, f"/{METADATA}")
    for name in disk.list_directory(f"/{METADATA}"):
        if name.endswith(".checkpoint"):
            disk.remove(f"/{METADATA}/{name}")
    disk.flip_bit(f"/{METADATA}/{FIRST_LOG}", 400, 3)
    with pytest.raises(CorruptLogError, match=r"\.log at position .* CRC32C"):
        read(disk)


def test_a_log_that_begins_behind_its_snapshot_is_refused() -> None:
    disk = SimDisk(1)
    Files(disk).make_directory(f"/{METADATA}")
    put(disk, f"/{METADATA}/{40:020d}.log", batches([NoOp()], 40))
    with pytest.raises(CorruptLogError, match="begins at 40, and its newest snapshot ends at 0"):
        read(disk)


def test_two_segments_must_meet() -> None:
    disk = SimDisk(1)
    Files(disk).make_directory(f"/{METADATA}")
    put(disk, f"/{METADATA}/{FIRST_LOG}", batches([NoOp()]))
    put(disk, f"/{METADATA}/{5:020d}.log", batches([NoOp()], 5))
    with pytest.raises(CorruptLogError, match="ends at 1; the next file begins at 5"):
        read(disk)


def test_an_empty_directory_is_no_metadata() -> None:
    disk = SimDisk(1)
    Files(disk).make_directory(f"/{METADATA}")
    with pytest.raises(CorruptLogError, match="neither a snapshot nor a log"):
        read(disk)


def test_what_cannot_be_understood_is_told_with_its_offset() -> None:
    disk = SimDisk(1)
    Files(disk).make_directory(f"/{METADATA}")
    change = PartitionChanged(partition_id=0, topic_id=uuid(9))
    put(disk, f"/{METADATA}/{FIRST_LOG}", batches([NoOp(), change]))
    with pytest.raises(CorruptLogError, match="at offset 1: a record speaks of the topic"):
        read(disk)


# --- records -----------------------------------------------------------------------------------


def test_a_record_of_a_later_kafka_is_not_guessed_at() -> None:
    with pytest.raises(UnsupportedVersionError, match="of the kind 99"):
        decode_kafka_record(bytes([1, 99, 0]))
    with pytest.raises(UnsupportedVersionError, match="of the kind 2 in version 7; known are 0 to 0"):
        decode_kafka_record(bytes([1, 2, 7]) + framed(TopicCreated(name="a", topic_id=uuid(1)))[3:])
    with pytest.raises(UnsupportedVersionError, match="frame version 2"):
        decode_kafka_record(bytes([2, 2, 0]))
    with pytest.raises(MalformedMessageError, match="no value"):
        decode_kafka_record(None)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_whatever_the_bytes_are_they_are_a_record_or_refused(noise: bytes) -> None:
    for data in (noise, bytes([1, len(noise) % 30, 0]) + noise):
        try:
            decode_kafka_record(data)
        except (MalformedMessageError, UnsupportedVersionError):
            continue


def test_what_is_in_a_transaction_counts_when_it_ends() -> None:
    created = topic_records("orders", uuid(1), [[1]])
    assert not made(TransactionBegun(), *created).topics
    assert made(TransactionBegun(), *created).is_in_transaction
    assert made(TransactionBegun(), *created, TransactionEnded()).topic_named("orders") is not None
    assert not made(TransactionBegun(), *created, TransactionAborted()).topics
    with pytest.raises(ConsensusError, match="ends that never began"):
        made(TransactionEnded())
    with pytest.raises(ConsensusError, match="begins within another"):
        made(TransactionBegun(), TransactionBegun())


def test_a_removed_topic_takes_its_settings_along() -> None:
    setting = ConfigChanged(resource_type=2, resource_name="orders", name="retention.ms", value="5")
    image = made(*topic_records("orders", uuid(1), [[1]]), setting, TopicRemoved(topic_id=uuid(1)))
    assert not image.topics
    assert image.settings_of(2, "orders") == {}


def test_a_setting_that_was_taken_back_is_gone() -> None:
    setting = ConfigChanged(resource_type=4, resource_name="", name="log.retention.ms", value="5")
    back = ConfigChanged(resource_type=4, resource_name="", name="log.retention.ms", value=None)
    assert made(setting).settings_of(4, "") == {"log.retention.ms": "5"}
    assert made(setting, back).settings_of(4, "") == {}


def test_what_is_not_taken_over_is_counted() -> None:
    user = UserSet(name="ann", mechanism=1, salt=b"", stored_key=b"", server_key=b"", iterations=1)
    rule = AccessRuleSet(
        id=uuid(3), resource_type=2, resource_name="a", pattern_type=3,
        principal="User:ann", host="*", operation=3, permission_type=3,
    )  # fmt: skip
    token = TokenIssued(
        owner="a", requester="a", renewers=[], issue_timestamp=0, max_timestamp=0,
        expiration_timestamp=0, token_id="t",
    )  # fmt: skip
    image = made(user, rule, token)
    assert (image.users, image.access_rules, image.tokens) == ({("ann", 1)}, {uuid(3)}, {"t"})
    for removal in (
        UserRemoved(name="ann", mechanism=1),
        AccessRuleRemoved(id=uuid(3)),
        TokenRemoved(token_id="t"),
    ):
        image.apply(removal)
    assert [len(each) for each in (image.users, image.access_rules, image.tokens)] == [0] * 3


def test_a_quota_is_what_was_said_last() -> None:
    def quota(value: float, *, remove: bool = False) -> Message:
        whom = [QuotaEntityPart(entity_type="user", entity_name=None)]
        return ClientQuotaChanged(entity=whom, key="producer_byte_rate", value=value, remove=remove)

    assert made(quota(1.0), quota(2.0)).quotas == {(("user", None),): {"producer_byte_rate": 2.0}}
    assert made(quota(1.0), quota(1.0, remove=True)).quotas == {(("user", None),): {}}
