"""Frames, headers, and the stream they come in."""

import io
import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseHeaderV1
from kio.serial import entity_writer

from distributedlog.model.errors import MalformedMessageError, UnsupportedVersionError
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.codec import Part, join_parts
from distributedlog.protocol.framing import (
    FRAME_BYTES_MAX,
    RECEIVE_BYTES,
    FrameReader,
    decode_correlation_id,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    request_header_version,
    response_header_version,
)
from distributedlog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from distributedlog.protocol.registry import APIS, Api
from tests.unit.protocol.catalogue import notable_versions_of
from tests.unit.protocol.generator import random_message

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def frame_of(parts: list[Part]) -> bytes:
    """The frame without its size, which is checked."""
    data = join_parts(parts)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


def kio_bytes(header: object) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(header))(out, header)  # type: ignore[type-var]
        return out.getvalue()


# --- headers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name)
@pytest.mark.parametrize("client_id", ["some client", "", None])
def test_requests_and_responses_of_every_api_survive_their_frames(api: Api, client_id: str | None) -> None:
    for version in notable_versions_of(api.request):
        request = random_message(api.request, version, Random(version))
        frame = frame_of(encode_request(request, version, 2**31 - 1, client_id))
        assert decode_request(frame) == ((api.key, version, 2**31 - 1, client_id), request)
        response = random_message(api.response, version, Random(version))
        frame = frame_of(encode_response(response, version, -5))
        assert decode_correlation_id(frame) == -5
        assert decode_response(api.response, version, frame) == (-5, response)


@pytest.mark.parametrize(("version", "header"), [(3, KioRequestHeaderV1), (4, KioRequestHeaderV2)])
@pytest.mark.parametrize("client_id", ["some client", None])
def test_request_headers_are_those_of_kio(
    version: int, header: type[KioRequestHeaderV1 | KioRequestHeaderV2], client_id: str | None
) -> None:
    expected = kio_bytes(
        header(
            request_api_key=12,  # type: ignore[arg-type]
            request_api_version=version,  # type: ignore[arg-type]
            correlation_id=77,  # type: ignore[arg-type]
            client_id=client_id,
        )
    )
    frame = frame_of(encode_request(HEARTBEAT, version, 77, client_id))
    assert frame.startswith(expected)
    assert decode_request_header(frame) == ((12, version, 77, client_id), len(expected))


@pytest.mark.parametrize(("version", "header"), [(3, KioResponseHeaderV0), (4, KioResponseHeaderV1)])
def test_response_headers_are_those_of_kio(
    version: int, header: type[KioResponseHeaderV0 | KioResponseHeaderV1]
) -> None:
    expected = kio_bytes(header(correlation_id=77))  # type: ignore[arg-type]
    assert frame_of(encode_response(HeartbeatResponse(), version, 77)).startswith(expected)
    assert len(expected) == (4 if version == 3 else 5)


def test_an_answer_to_api_versions_never_has_a_flexible_header() -> None:
    for version in range(5):
        assert response_header_version(ApiKey.API_VERSIONS, version) == 0
        frame = frame_of(encode_response(ApiVersionsResponse(api_keys=[]), version, 1))
        assert frame.startswith(b"\x00\x00\x00\x01\x00\x00"), "the body follows the correlation id"
    assert request_header_version(ApiKey.API_VERSIONS, 2) == 1
    assert request_header_version(ApiKey.API_VERSIONS, 3) == 2


def test_the_header_of_an_api_versions_request_of_the_future_is_read() -> None:
    frame = frame_of(encode_request(ApiVersionsRequest(), 4, 9, "new"))
    future = frame[:2] + (99).to_bytes(2, "big") + frame[4:]
    header, _ = decode_request_header(future)
    assert header == (ApiKey.API_VERSIONS, 99, 9, "new")
    with pytest.raises(UnsupportedVersionError):
        decode_request(future)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = frame_of(encode_request(HEARTBEAT, 4, 9, "c"))
    assert frame[:12] == b"\x00\x0c\x00\x04\x00\x00\x00\x09\x00\x01c\x00"
    tagged = frame[:11] + b"\x02\x00\x03abc\x81\x01\x00" + frame[12:]
    header, position = decode_request_header(tagged)
    assert header.client_id == "c"
    assert tagged[position:] == frame[12:]
    response = frame_of(encode_response(HeartbeatResponse(error_code=27), 4, 9))
    tagged = response[:4] + b"\x01\x07\x01x" + response[5:]
    assert decode_response(HeartbeatResponse, 4, tagged)[1].error_code == 27


def test_bytes_behind_a_request_are_let_pass() -> None:
    assert decode_request(frame_of(encode_request(HEARTBEAT, 4, 9)) + b"more")[1] == HEARTBEAT


def test_an_unknown_api_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="no API with the key 999"):
        decode_request_header((999).to_bytes(2, "big") + bytes(20))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\x00",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\x00\x05abc",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xfe",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\x00\x01\xff\x00",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff\x02\x01",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff\x80",
    ],
    ids=["empty", "short", "client id", "negative", "not UTF-8", "no tags", "few tags", "half a varint"],
)
def test_a_header_that_is_cut_short_or_wrong_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_request_header(frame)


def test_a_response_without_a_header_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="no whole header"):
        decode_response(HeartbeatResponse, 4, b"\x00\x00\x00")
    with pytest.raises(MalformedMessageError, match="cut short"):
        decode_response(HeartbeatResponse, 4, b"\x00\x00\x00\x01")


def test_a_client_id_that_does_not_fit_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="client id of 32768 bytes"):
        encode_request(HEARTBEAT, 4, 1, "x" * 32768)


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_the_payload_of_a_framed_request_is_not_copied(size: int) -> None:
    payload = bytearray(size)
    partition = PartitionProduceData(index=0, records=payload)
    request = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t" * 5000, partition_data=[partition])]
    )
    parts = encode_request(request, 8, 1, "c")
    assert any(part is payload for part in parts) == (size > 0)
    assert decode_request(frame_of(parts))[1] == request


# --- the stream --------------------------------------------------------------------------------


def stream_of(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def read_by_filling(reader: FrameReader, stream: bytes, chunk_bytes_max: int) -> list[bytearray]:
    """Reads as a transport does: receives into the reader's buffer, no more than there is room for."""
    frames, position = [], 0
    while position < len(stream):
        room = reader.get_buffer()
        count = min(len(room), chunk_bytes_max, len(stream) - position)
        room[:count] = stream[position : position + count]
        position += count
        frames += reader.buffer_updated(count)
    return frames


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(1, 60))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(frames: list[bytes], step: int) -> None:
    stream = stream_of(frames)
    reader, received = FrameReader(), []
    for position in range(0, len(stream), step):
        received += reader.receive(stream[position : position + step])
    assert received == frames
    assert reader.buffered_bytes == 0
    assert read_by_filling(FrameReader(), stream, step) == frames


@pytest.mark.parametrize("chunk_bytes_max", [1000, 65536, 10_000_000])
def test_large_frames_are_received_into_their_own_buffer(chunk_bytes_max: int) -> None:
    frames = [os.urandom(size) for size in (10, 300_000, RECEIVE_BYTES, RECEIVE_BYTES - 4, 1, 200_000)]
    assert read_by_filling(FrameReader(), stream_of(frames), chunk_bytes_max) == frames


def test_both_ways_to_receive_can_be_mixed_between_frames() -> None:
    reader = FrameReader()
    stream = stream_of([b"x" * 100_000])
    assert read_by_filling(reader, stream[:70_000], 70_000) == []
    reader.get_buffer()
    assert reader.buffer_updated(0) == []
    assert reader.receive(stream[70_000:]) == [b"x" * 100_000]


def test_a_frame_is_a_buffer_of_its_own_that_can_be_written_to() -> None:
    reader = FrameReader()
    data = bytearray(stream_of([b"first", b"second"]))
    first, second = reader.receive(data)
    data[:] = bytes(len(data))
    first[0] = ord("F")
    assert [bytes(first), bytes(second)] == [b"First", b"second"]


@pytest.mark.parametrize("size", [-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
@pytest.mark.parametrize("step", [1, 4])
def test_a_frame_that_is_too_large_is_refused_by_its_size_alone(size: int, step: int) -> None:
    reader = FrameReader()
    claim = size.to_bytes(4, "big", signed=True)
    for position in range(0, 4 - step, step):
        assert reader.receive(claim[position : position + step]) == []
    with pytest.raises(MalformedMessageError, match=f"claims {size} bytes"):
        reader.receive(claim[4 - step :])
    assert reader.buffered_bytes == 0
    with pytest.raises(MalformedMessageError):
        reader.receive(b"more")
    with pytest.raises(MalformedMessageError):
        reader.get_buffer()


def test_frames_before_one_that_is_too_large_are_still_given() -> None:
    reader = FrameReader(frame_bytes_max=10)
    assert reader.receive(stream_of([b"good"]) + b"\x00\x00\x00\x0b") == [b"good"]
    assert reader.failure is not None
    with pytest.raises(MalformedMessageError, match="at most 10 are allowed"):
        reader.receive(b"")


def test_a_claim_gets_no_memory() -> None:
    reader = FrameReader()
    reader.receive(FRAME_BYTES_MAX.to_bytes(4, "big"))
    assert len(reader.get_buffer()) == RECEIVE_BYTES
    reader.buffer_updated(RECEIVE_BYTES)
    assert len(reader.get_buffer()) == RECEIVE_BYTES, "the buffer at most doubles what has arrived"
