"""Bytes of records as Kafka writes them, and what is not a record."""

import pytest

from distributedlog.groups.machine import GroupMachine
from distributedlog.groups.records import (
    GroupMetadataRecord,
    GroupRecord,
    OffsetRecord,
    decode_record,
    encode_record,
    size_bound,
)
from distributedlog.model.errors import MalformedMessageError
from distributedlog.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.unit.groups.stage import Stage

POSITION = OffsetCommitKey(group="g", topic="t", partition=3)
OFFSET = OffsetRecord(POSITION, OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9))
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
    value = OffsetCommitValue(offset=7, metadata="", commit_timestamp=9, expire_timestamp=10)
    key, data = encode_record(OffsetRecord(POSITION, value))
    assert data is not None
    assert data[:2] == b"\0\x01"
    assert decode_record(key, data) == OffsetRecord(POSITION, value)


@pytest.mark.parametrize(
    "record", [OFFSET, METADATA, OffsetRecord(POSITION, None), GroupMetadataRecord(METADATA.key, None)]
)
def test_a_record_is_read_as_it_was_written_and_is_no_larger_than_was_said(record: GroupRecord) -> None:
    key, value = encode_record(record)
    assert decode_record(memoryview(key), None if value is None else memoryview(value)) == record
    assert len(key) + len(value or b"") <= size_bound(record)


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
