"""Bytes of records as Kafka writes them, and what is not a record."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.groups.machine import GroupMachine
from distributedlog.groups.records import (
    NO_EXPIRY,
    GroupMetadataRecord,
    GroupRecord,
    OffsetRecord,
    StoredOffset,
    decode_record,
    encode_record,
    encode_records,
    size_bound,
    size_bounds,
)
from distributedlog.model.errors import MalformedMessageError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from distributedlog.protocol.versioned import encode_versioned
from tests.unit.groups.stage import Stage

PLACE = TopicPartition("t", 3)
OFFSET = OffsetRecord("g", PLACE, StoredOffset(7, 2, "m", 9))
MEMBER = MemberMetadata(
    member_id="id",
    group_instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout=2,
    session_timeout=1,
    subscription=b"s",
    assignment=b"a",
)
METADATA = GroupMetadataRecord(
    GroupMetadataKey(group="g"),
    GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="id",
        current_state_timestamp=5,
        members=[MEMBER],
    ),
)


def test_a_position_has_kafkas_bytes() -> None:
    key, value = encode_record(OFFSET)
    assert key.hex(" ", -2) == "0001 0001 6700 0174 0000 0003"
    assert value is not None
    # version 3; offset; leader epoch; metadata; commit timestamp
    assert value.hex() == "0003" + "0000000000000007" + "00000002" + "00016d" + "0000000000000009"


def test_a_group_has_kafkas_bytes() -> None:
    key, value = encode_record(METADATA)
    assert key.hex() == "0002" + "000167"
    assert value is not None
    head = "0003" + "0008" + b"consumer".hex() + "00000004" + "0005" + b"range".hex() + "00026964"
    member = "00026964" + "000169" + "000163" + "00022f68" + "00000002" + "00000001"
    assert value.hex() == head + "0000000000000005" + "00000001" + member + "0000000173" + "0000000161"


def test_a_position_with_its_own_expiry_is_written_in_the_version_that_has_it() -> None:
    record = OffsetRecord("g", PLACE, StoredOffset(7, -1, "", 9, 10))
    key, data = encode_record(record)
    assert data is not None
    assert data[:2] == b"\0\x01"
    assert decode_record(key, data) == record


@pytest.mark.parametrize(
    "record", [OFFSET, METADATA, OffsetRecord("g", PLACE, None), GroupMetadataRecord(METADATA.key, None)]
)
def test_a_record_is_read_as_it_was_written_and_is_no_larger_than_was_said(record: GroupRecord) -> None:
    key, value = encode_record(record)
    assert decode_record(memoryview(key), None if value is None else memoryview(value)) == record
    assert len(key) + len(value or b"") <= size_bound(record)


texts = st.text(st.characters(codec="utf-8"), max_size=30)
int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
positions = st.builds(
    OffsetRecord,
    texts,
    st.builds(TopicPartition, texts, int32s),
    st.none() | st.builds(StoredOffset, int64s, int32s, texts, int64s, st.just(NO_EXPIRY) | int64s),
)


def by_the_messages(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    """The bytes that the classes of the messages give."""
    topic, partition = record.partition
    key = encode_versioned(OffsetCommitKey(group=record.group_id, topic=topic, partition=partition), 1)
    if record.value is None:
        return key, None
    version = 3 if record.value.expire_timestamp == NO_EXPIRY else 1
    return key, encode_versioned(OffsetCommitValue(**record.value._asdict()), version)


@settings(max_examples=100, deadline=None)
@given(st.lists(positions, max_size=6))
def test_positions_have_the_bytes_of_their_messages_and_are_no_larger_than_was_said(
    records: list[OffsetRecord],
) -> None:
    mixed: list[GroupRecord] = [*records, METADATA, *records[::-1]]
    expected = [by_the_messages(each) for each in records]
    found = encode_records(mixed)
    assert found == [*expected, encode_record(METADATA), *expected[::-1]]
    assert sum(len(key) + len(value or b"") for key, value in found) <= size_bounds(mixed)
    assert size_bounds(mixed) == sum(size_bound(each) for each in mixed)


def test_a_text_that_no_record_can_hold_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="32768 bytes"):
        encode_record(OffsetRecord("g" * 32_768, PLACE, None))
    encode_record(OffsetRecord("g" * 32_767, PLACE, None))


def test_kinds_that_are_not_known_are_passed_over_and_versions_are_not() -> None:
    assert decode_record(b"\0\x04\0\x01g", b"\0\0\0\0\0\x01\0") is None
    key, value = encode_record(OFFSET)
    assert value is not None
    for damaged in (b"\0\x63" + value[2:], value[:-1], b""):
        with pytest.raises(Exception, match=r"version|cut|bytes") as raised:
            decode_record(key, damaged)
        assert raised.type.__name__ in ("MalformedMessageError", "UnsupportedVersionError")
    with pytest.raises(MalformedMessageError):
        decode_record(None, value)


def test_a_snapshot_holds_all_that_is_durable() -> None:
    stage = Stage()
    stage.stable(None, "i1")
    stage.commit(3, group="alone")
    stage.commit(4, group="alone", retention_ms=5, topic="u")
    snapshot = stage.machine.snapshot()
    other: GroupMachine = stage.new_machine()
    other.restore(snapshot, 9)
    assert list(other.durable_records()) == list(stage.machine.durable_records())
    for cut in (1, 8, len(snapshot) - 1):
        with pytest.raises(MalformedMessageError):
            stage.new_machine().restore(snapshot[:cut], 9)
