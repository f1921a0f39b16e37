"""Round trips, parts and views, and what is refused when writing."""

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.errors import MalformedMessageError, UnsupportedVersionError
from distributedlog.protocol import codec
from distributedlog.protocol.codec import decode, decode_all, encode, encode_bytes, source_of
from distributedlog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.protocol.messages.metadata import MetadataRequest
from distributedlog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from distributedlog.protocol.schema import Message
from tests.unit.protocol.catalogue import COORDINATOR_RECORDS, MESSAGES, name_of, versions_of
from tests.unit.protocol.generator import random_message


def a_produce_request(*payloads: bytes | bytearray) -> ProduceRequest:
    partitions = [
        PartitionProduceData(index=index, records=payload) for index, payload in enumerate(payloads)
    ]
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=partitions)]
    )


# --- round trips -------------------------------------------------------------------------------


@settings(max_examples=2000 if os.environ.get("DLOG_SOAK") else 80, deadline=None)
@given(st.sampled_from(MESSAGES), st.data())
def test_a_message_is_read_as_it_was_written_from_anywhere_in_a_buffer(
    message: type[Message], data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(versions_of(message)))
    original = random_message(message, version, data.draw(st.randoms(use_true_random=False)))
    written = encode_bytes(original, version)
    read, end = decode(message, version, memoryview(b"before" + written + b"behind"), 6)
    assert read == original
    assert end == 6 + len(written)


@pytest.mark.parametrize("message", COORDINATOR_RECORDS, ids=name_of)
def test_coordinators_read_their_records_as_they_were_written(message: type[Message]) -> None:
    for version in versions_of(message):
        for seed in range(20):
            original = random_message(message, version, Random(seed))
            written = encode_bytes(original, version)
            assert decode_all(message, version, written) == original


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(st.integers(3, 2**32 - 1), st.binary(max_size=300), min_size=1, max_size=4),
    st.booleans(),
)
def test_tagged_fields_of_a_newer_version_are_kept_and_written_again(
    newer: dict[int, bytes], with_known: bool
) -> None:
    unknown = tuple(sorted(newer.items()))
    partition = PartitionData(
        partition_index=1,
        high_watermark=5,
        aborted_transactions=None,
        records=None,
        diverging_epoch=EpochEndOffset(epoch=3, end_offset=9, unknown_tags=unknown) if with_known else None,
        unknown_tags=unknown,
    )
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic="orders", partitions=[partition])], unknown_tags=unknown
    )
    written = encode_bytes(response, 12)
    read = decode_all(FetchResponse, 12, written)
    assert read == response
    assert read.responses[0].partitions[0].unknown_tags == unknown
    assert encode_bytes(read, 12) == written


def test_a_version_without_a_field_does_not_write_it_and_reads_its_default() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="static")
    assert decode_all(HeartbeatRequest, 3, encode_bytes(request, 3)).group_instance_id == "static"
    assert decode_all(HeartbeatRequest, 2, encode_bytes(request, 2)).group_instance_id is None


def test_null_means_all_topics_only_since_that_version() -> None:
    everything = MetadataRequest(topics=None)
    assert decode_all(MetadataRequest, 1, encode_bytes(everything, 1)).topics is None
    with pytest.raises(MalformedMessageError, match="MetadataRequest cannot be written as version 0"):
        encode(everything, 0)


def test_codecs_are_compiled_once_and_can_be_read() -> None:
    assert codec.encoder_of(FetchRequest, 11) is codec.encoder_of(FetchRequest, 11)
    assert codec.decoder_of(FetchRequest, 11) is codec.decoder_of(FetchRequest, 11)
    source = source_of(FetchRequest, 11)
    assert "message.session_id" in source
    assert "unpack_iiqqi(buffer, p)" in source, "neighbours of fixed size are read in one step"
    compile(source, "<source>", "exec")


# --- payloads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 9])
def test_payloads_are_parts_of_their_own_and_not_copied(version: int) -> None:
    first, second = bytearray(300), bytearray(b"second")
    request = a_produce_request(first, second)
    parts = encode(request, version)
    assert [part for part in parts if isinstance(part, bytearray)] == [first, second]
    assert any(part is first for part in parts)
    assert any(part is second for part in parts)
    assert len(parts) <= 5


def test_an_empty_payload_makes_no_part() -> None:
    assert len(encode(a_produce_request(b""), 9)) == 1


def test_whatever_has_a_length_can_stand_for_records() -> None:
    class Region:
        def __len__(self) -> int:
            return 70000

    region = Region()
    partition = PartitionData(partition_index=0, high_watermark=1, aborted_transactions=None, records=region)
    topic = FetchableTopicResponse(topic="t", partitions=[partition])
    parts = encode(FetchResponse(responses=[topic]), 11)
    assert parts[1] is region
    assert isinstance(parts[0], bytes)
    assert parts[0].endswith((70000).to_bytes(4, "big"))


@pytest.mark.parametrize("version", [3, 9])
def test_records_are_views_of_the_input(version: int) -> None:
    buffer = bytearray(encode_bytes(a_produce_request(b"payload"), version))
    request = decode_all(ProduceRequest, version, buffer)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"payload")] = ord("P")
    assert bytes(records) == b"Payload"
    records[1] = ord("A")
    assert b"PAyload" in buffer


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_a_version_we_do_not_have_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match="has the versions 0 to 4"):
        encode(HeartbeatResponse(), version)
    with pytest.raises(UnsupportedVersionError, match="has the versions 0 to 4"):
        decode(HeartbeatResponse, version, bytes(100))


@pytest.mark.parametrize(
    "request_",
    [
        HeartbeatRequest(group_id="g", generation_id=2**31, member_id="m"),
        HeartbeatRequest(group_id="x" * 32768, generation_id=1, member_id="m"),
        HeartbeatRequest(group_id="\ud800", generation_id=1, member_id="m"),
        HeartbeatRequest(group_id=None, generation_id=1, member_id="m"),  # type: ignore[arg-type]
    ],
    ids=["number too great", "string too long", "lone surrogate", "null"],
)
def test_a_value_that_does_not_fit_its_field_is_refused(request_: HeartbeatRequest) -> None:
    with pytest.raises(MalformedMessageError, match="HeartbeatRequest cannot be written as version 3"):
        encode(request_, 3)


def test_a_tag_that_is_known_cannot_be_given_as_unknown_too() -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], cluster_id="c", unknown_tags=((0, b""),))
    with pytest.raises(MalformedMessageError, match="tag 0 is given twice"):
        encode(request, 12)


def test_more_tagged_fields_than_readers_accept_are_not_written() -> None:
    response = HeartbeatResponse(unknown_tags=tuple((tag, b"") for tag in range(10_001)))
    with pytest.raises(MalformedMessageError, match="10001 tagged fields"):
        encode(response, 4)


def test_bytes_behind_a_message_are_refused_where_it_should_fill_them() -> None:
    written = encode_bytes(HeartbeatResponse(), 4)
    with pytest.raises(MalformedMessageError, match="1 bytes follow"):
        decode_all(HeartbeatResponse, 4, written + b"x")
