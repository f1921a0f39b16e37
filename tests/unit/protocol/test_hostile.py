"""Bytes that are no message: a clean refusal, whatever they are, and nothing allocated for what they claim.

`corpus/` keeps inputs that are interesting by themselves, named MESSAGE-vVERSION-WHY.bin: all must be
refused.  `corpus/__main__.py` wrote them.
"""

import contextlib
import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.errors import MalformedMessageError
from distributedlog.protocol.codec import decode, decode_all, encode_bytes
from distributedlog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.protocol.messages.metadata import MetadataRequest
from distributedlog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderTopic,
)
from distributedlog.protocol.primitives import rest_of_uvarint, uvarint
from distributedlog.protocol.schema import Message
from tests.unit.protocol.catalogue import MESSAGES, name_of, notable_versions_of, versions_of
from tests.unit.protocol.corpus.__main__ import INPUTS
from tests.unit.protocol.generator import random_message

CORPUS = Path(__file__).parent / "corpus"
BY_NAME = {message.__name__: message for message in MESSAGES}
EXAMPLES = 5000 if os.environ.get("DLOG_SOAK") else 100


@contextmanager
def memory_bounded(bytes_max: int, message: type[Message], version: int) -> Iterator[None]:
    """Bounds the memory for reading this message: without what the making of its codec takes, once."""
    with contextlib.suppress(MalformedMessageError):
        decode(message, version, b"")
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= bytes_max


# --- any bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.bin")), ids=lambda path: path.stem)
def test_the_corpus_is_refused(path: Path) -> None:
    name, version, _ = path.stem.split("-", 2)
    message, number = BY_NAME[name], int(version.removeprefix("v"))
    data = path.read_bytes()
    with memory_bounded(1_000_000, message, number), pytest.raises(MalformedMessageError):
        decode(message, number, data)


def test_the_corpus_is_whole() -> None:
    assert {path.stem for path in CORPUS.glob("*.bin")} == set(INPUTS)


@pytest.mark.parametrize("message", MESSAGES, ids=name_of)
def test_a_message_that_is_cut_short_anywhere_is_refused(message: type[Message]) -> None:
    for version in notable_versions_of(message):
        whole = encode_bytes(random_message(message, version, Random(version)), version)
        step = max(1, len(whole) // 100)
        for length in range(0, len(whole), step):
            with pytest.raises(MalformedMessageError):
                decode(message, version, whole[:length])


def decode_or_refuse(message: type[Message], version: int, data: bytes) -> None:
    """Anything but a message or a refusal fails the test; a message must be one that can be written."""
    try:
        read, end = decode(message, version, data)
    except MalformedMessageError:
        return
    # Compared as bytes, since a number may be NaN.
    written = encode_bytes(read, version)
    assert encode_bytes(decode_all(message, version, written), version) == written
    assert end <= len(data)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(MESSAGES), st.data())
def test_random_bytes_are_a_message_or_refused(message: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(message)))
    decode_or_refuse(message, version, data.draw(st.binary(max_size=300)))


@pytest.mark.parametrize("message", MESSAGES, ids=name_of)
def test_a_message_with_a_few_bytes_changed_is_a_message_or_refused(message: type[Message]) -> None:
    random = Random(message.__name__)
    for version in notable_versions_of(message):
        for _ in range(EXAMPLES // 10):
            data = bytearray(encode_bytes(random_message(message, version, random), version))
            for _ in range(random.randint(1, 3)):
                if data:
                    interesting = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
                    data[random.randrange(len(data))] = interesting
            decode_or_refuse(message, version, bytes(data))


# --- counts and lengths ------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_001, 5, -2, -(2**31)])
def test_a_count_beyond_the_bytes_is_refused_before_anything_is_made_of_it(count: int) -> None:
    data = count.to_bytes(4, "big", signed=True) + bytes(8)
    with (
        memory_bounded(20_000, MetadataRequest, 1),
        pytest.raises(MalformedMessageError, match=r"MetadataRequest\.topics"),
    ):
        decode(MetadataRequest, 1, data)


def test_an_array_of_more_than_a_million_is_refused_though_its_bytes_are_there() -> None:
    data = (1_000_001).to_bytes(4, "big") + bytes(2 * 1_000_001)
    with (
        memory_bounded(20_000, MetadataRequest, 1),
        pytest.raises(MalformedMessageError, match="1000001 elements"),
    ):
        decode(MetadataRequest, 1, data)


def test_the_elements_of_all_arrays_are_counted_together() -> None:
    topics = [OffsetForLeaderTopic(topic="t", partitions=[]) for _ in range(20)]
    data = encode_bytes(OffsetForLeaderEpochRequest(topics=topics), 4)
    assert len(decode(OffsetForLeaderEpochRequest, 4, data, elements_max=20)[0].topics) == 20
    with pytest.raises(MalformedMessageError, match="20 elements"):
        decode(OffsetForLeaderEpochRequest, 4, data, elements_max=19)


def test_nested_arrays_share_the_budget() -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [FetchTopic(topic="t", partitions=[partition] * 3) for _ in range(2)]
    data = encode_bytes(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), 11)
    assert decode(FetchRequest, 11, data, elements_max=2 + 2 * 3)[0].topics == topics
    with pytest.raises(MalformedMessageError, match=r"FetchTopic\.partitions has 3 elements"):
        decode(FetchRequest, 11, data, elements_max=2 + 2 * 3 - 1)


def test_unknown_tags_are_counted_with_the_elements() -> None:
    data = encode_bytes(HeartbeatResponse(unknown_tags=((1, b""), (2, b""))), 4)
    assert len(decode(HeartbeatResponse, 4, data, elements_max=2)[0].unknown_tags) == 2
    with pytest.raises(MalformedMessageError, match="2 tagged fields are more than allowed"):
        decode(HeartbeatResponse, 4, data, elements_max=1)


@pytest.mark.parametrize("length", [3, 32767, -2, -1, -32768])
def test_a_string_longer_than_the_bytes_or_null_is_refused(length: int) -> None:
    data = length.to_bytes(2, "big", signed=True) + b"ab"
    with pytest.raises(MalformedMessageError, match=r"HeartbeatRequest\.group_id"):
        decode(HeartbeatRequest, 0, data)


@pytest.mark.parametrize("encoded", [b"\x00", b"\x04ab", b"\xff\xff\xff\xff\x0fab"])
def test_a_compact_string_longer_than_the_bytes_or_null_is_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedMessageError, match=r"HeartbeatRequest\.group_id"):
        decode(HeartbeatRequest, 4, encoded)


@pytest.mark.parametrize("text", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82"])
def test_a_string_that_is_not_utf8_is_refused(text: bytes) -> None:
    data = len(text).to_bytes(2, "big") + text + bytes(20)
    with pytest.raises(MalformedMessageError, match="not UTF-8"):
        decode(HeartbeatRequest, 0, data)


# --- varints -----------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_a_varint_is_read_as_it_was_written(number: int) -> None:
    data = uvarint(number)
    assert len(data) <= 5
    if data[0] < 128:
        assert data == bytes([number])
    else:
        assert rest_of_uvarint(data, 1, data[0]) == (number, len(data))


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x01", b"\xff" * 10], ids=["33 bits", "6", "10"]
)
def test_a_varint_of_more_than_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError, match="more than 32 bits"):
        decode(HeartbeatRequest, 4, data + bytes(20))


@pytest.mark.parametrize("number", [-1, 2**32])
def test_a_number_that_is_no_varint_is_not_written(number: int) -> None:
    with pytest.raises(MalformedMessageError):
        uvarint(number)


# --- tagged fields -----------------------------------------------------------------------------


def heartbeat_response(tags: bytes) -> bytes:
    return bytes(6) + tags


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (uvarint(10_001) + b"\x00\x00" * 10_001, "10001 tagged fields"),
        (uvarint(2**32 - 1), "tagged fields are more than"),
        (b"\x02\x05\x00\x05\x00", "tag 5 follows tag 5"),
        (b"\x02\x06\x00\x05\x00", "tag 5 follows tag 6"),
        (b"\x01\x05\x03ab", "tag 5 has 3 bytes, of which 2"),
        (b"\x01\x05" + uvarint(2**32 - 1), "tag 5 has 4294967295 bytes"),
        (b"\x02\x05\x00\x06", "tagged fields are more than"),
        (b"\x01\x85", "tagged fields are more than"),
        (b"\x01\x85\x80", "cut short"),
    ],
)
def test_a_tagged_section_that_lies_is_refused(tags: bytes, message: str) -> None:
    with memory_bounded(100_000, HeartbeatResponse, 4), pytest.raises(MalformedMessageError, match=message):
        decode(HeartbeatResponse, 4, heartbeat_response(tags))


def test_as_many_tagged_fields_as_allowed_are_read() -> None:
    tags = uvarint(10_000) + b"".join(uvarint(tag) + b"\x00" for tag in range(10_000))
    assert len(decode_all(HeartbeatResponse, 4, heartbeat_response(tags)).unknown_tags) == 10_000


@pytest.mark.parametrize("size", [3, 5])
def test_a_known_tagged_field_must_have_the_size_it_claims(size: int) -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], cluster_id="abc")
    data = encode_bytes(request, 12)
    whole = b"\x01\x00\x04\x04abc"
    assert data.endswith(whole)
    lying = data.removesuffix(whole) + bytes([1, 0, size]) + b"\x04abc" + bytes(4)
    with pytest.raises(MalformedMessageError, match="does not have the size it claims"):
        decode(FetchRequest, 12, lying)
