"""Messages with their version in front: coordinators' records, and what members tell each other."""

import pytest

from distributedlog.model.errors import MalformedMessageError, UnsupportedVersionError
from distributedlog.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from distributedlog.protocol.messages.group_records import (
    GROUP_RECORDS,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from distributedlog.protocol.messages.transaction_records import (
    PartitionsOfTopic,
    TransactionLogKey,
    TransactionLogValue,
)
from distributedlog.protocol.versioned import (
    decode_compatible,
    decode_versioned,
    encode_versioned,
    version_of,
)


def hexed(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


def test_a_committed_offset_has_the_bytes_of_the_book() -> None:
    key = OffsetCommitKey(group="g", topic="orders", partition=3)
    value = OffsetCommitValue(offset=1000, leader_epoch=5, metadata="m", commit_timestamp=1_700_000_000_000)
    key_bytes = hexed("0001 0001 67 0006 6f7264657273 00000003")
    value_bytes = hexed("0003 00000000000003e8 00000005 0001 6d 0000018bcfe56800")
    assert encode_versioned(key, 1) == key_bytes
    assert encode_versioned(value, 3) == value_bytes
    assert decode_versioned(OffsetCommitKey, key_bytes) == (1, key)
    assert decode_versioned(OffsetCommitValue, value_bytes) == (3, value)


def test_a_transaction_has_the_bytes_of_the_book() -> None:
    key = TransactionLogKey(transactional_id="tx")
    value = TransactionLogValue(
        producer_id=9,
        producer_epoch=2,
        transaction_timeout_ms=60000,
        transaction_status=1,
        transaction_partitions=[PartitionsOfTopic(topic="t", partition_ids=[0, 4])],
        transaction_last_update_timestamp_ms=2,
        transaction_start_timestamp_ms=1,
        client_transaction_version=2,
    )
    assert encode_versioned(key, 0) == hexed("0000 0002 7478")
    old = hexed(
        "0000 0000000000000009 0002 0000ea60 01 00000001 0001 74 00000002 00000000 00000004"
        "0000000000000002 0000000000000001"
    )
    new = hexed(
        "0001 0000000000000009 0002 0000ea60 01 02 02 74 03 00000000 00000004 00"
        "0000000000000002 0000000000000001 01 02 02 0002"
    )
    assert encode_versioned(value, 0) == old
    assert encode_versioned(value, 1) == new
    assert decode_versioned(TransactionLogValue, new) == (1, value)


def test_a_nullable_tagged_struct_is_marked() -> None:
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_names=[],
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=1, supported_protocols=[ClassicProtocol(name="range", metadata=b"x")]
        ),
    )
    data = encode_versioned(member, 0)
    assert data.endswith(hexed("01 00 10 01 00000001 02 06 72616e6765 02 78 00 00"))
    assert decode_versioned(ConsumerGroupMemberMetadataValue, data) == (0, member)


def test_a_nullable_tagged_struct_that_is_null_says_so_as_kafka_does() -> None:
    """These are the bytes that a broker of Kafka's wrote for a member of its new protocol."""
    written = hexed(
        "0000 00 00 07 676f6c64656e 0b 2f3132372e302e302e31 02 09 7365676d656e7473 01 000493e0 00 01 00 01 00"
    )
    _, member = decode_versioned(ConsumerGroupMemberMetadataValue, written)
    assert member.classic_member_metadata is None
    assert member.subscribed_topic_names == ["segments"]
    assert encode_versioned(member, 0) == written


@pytest.mark.parametrize("version", GROUP_RECORDS)
def test_a_keys_version_says_what_kind_of_record_it_is(version: int) -> None:
    key, value = GROUP_RECORDS[version]
    assert key.versions[0] <= version <= key.versions[1]
    assert value.__name__ == key.__name__.removesuffix("Key") + "Value"


def test_a_record_of_a_newer_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_versioned(OffsetCommitValue, b"\x00\x05" + bytes(30))


def test_a_subscription_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    subscription = ConsumerProtocolSubscription(
        topics=["a", "b"],
        owned_partitions=[TopicPartitions(topic="a", partitions=[0, 1])],
        generation_id=4,
        rack_id="r",
    )
    data = encode_versioned(subscription, 3)
    assert decode_compatible(ConsumerProtocolSubscription, data) == subscription
    newer = b"\x00\x09" + data[2:] + b"what version 9 adds"
    assert decode_compatible(ConsumerProtocolSubscription, newer) == subscription


@pytest.mark.parametrize("data", [b"", b"\x00"])
def test_bytes_without_a_version_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError, match="hold no version"):
        version_of(data)


def test_a_negative_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_compatible(ConsumerProtocolSubscription, b"\xff\xff" + bytes(20))


def test_bytes_behind_a_record_are_refused() -> None:
    data = encode_versioned(TransactionLogKey(transactional_id="tx"), 0)
    with pytest.raises(MalformedMessageError, match="1 bytes follow"):
        decode_versioned(TransactionLogKey, data + b"x")
