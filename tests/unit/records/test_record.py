"""Encoding and decoding are inverse, and the bytes are Kafka's."""

import gc
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.errors import (
    CorruptBatchError,
    InvalidRecordError,
    RecordTooLargeError,
    UnsupportedCompressionError,
)
from distributedlog.model.limits import RecordLimits
from distributedlog.records.batch import HEADER_BYTES, check_batch, read_header
from distributedlog.records.compression import Codec
from distributedlog.records.kernel import FORM, decode_records, new_record
from distributedlog.records.record import Header, Record, decode_batch, decompress_records, encode_batch
from tests.unit.records.strategies import (
    LIMITS,
    codecs,
    int64s,
    numbered,
    record_lists,
    records,
    some_records,
    thorough,
)


@thorough
@given(record_lists, codecs, st.integers(0, 2**40))
def test_every_record_comes_back_as_it_went_in(these: list[Record], codec: Codec, base_offset: int) -> None:
    batch = encode_batch(these, codec=codec, base_offset=base_offset)
    assert decode_batch(batch, limits=LIMITS) == numbered(these, base_offset)
    header = check_batch(batch, limits=LIMITS)
    assert (header.base_offset, header.record_count, header.codec) == (base_offset, len(these), codec)
    assert header.size == len(batch)


class Placed(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


@thorough
@given(record_lists, codecs, st.integers(0, 2**40))
def test_records_may_come_with_their_place(these: list[Record], codec: Codec, base_offset: int) -> None:
    batch = encode_batch(these, codec=codec, base_offset=base_offset)
    header = read_header(batch)
    found = decode_records(decompress_records(batch, 0, header), header, 1000, (Placed, "t", 7))
    assert found == [
        Placed("t", 7, each.offset, each.timestamp_ms, each.key, each.value, each.headers)
        for each in numbered(these, base_offset)
    ]
    assert all(type(each) is Placed for each in found)


@pytest.mark.skipif(FORM == "interpreted", reason="only the compiled kernel makes tuples by itself")
@pytest.mark.parametrize("place", [None, (Placed, "t", 7)])
def test_the_garbage_collector_does_not_look_at_decoded_records(place: tuple[type, str, int] | None) -> None:
    batch = encode_batch([Record(b"v", b"k", (Header("h", b"1"),), 5, -1)] * 3)
    header = read_header(batch)
    found = decode_records(decompress_records(batch, 0, header), header, 1000, place)
    assert not any(map(gc.is_tracked, found))
    assert not any(gc.is_tracked(each) for record in found for each in record.headers)


@thorough
@given(record_lists, st.data())
def test_gaps_between_offsets_are_kept(these: list[Record], data: st.DataObject) -> None:
    offsets = sorted(data.draw(st.sets(st.integers(1000, 2000), min_size=len(these), max_size=len(these))))
    placed = [record._replace(offset=offset) for record, offset in zip(these, offsets, strict=True)]
    batch = encode_batch(placed, base_offset=1000, preserve_offsets=True, last_offset_delta=1500)
    assert decode_batch(batch, limits=LIMITS) == placed
    assert read_header(batch).next_offset == 2501


@thorough
@given(st.lists(records, min_size=1, max_size=5), int64s, codecs)
def test_a_log_append_time_is_the_time_of_every_record(
    these: list[Record], now_ms: int, codec: Codec
) -> None:
    batch = encode_batch(these, log_append_time_ms=now_ms, codec=codec)
    assert [record.timestamp_ms for record in decode_batch(batch, limits=LIMITS)] == [now_ms] * len(these)
    assert read_header(batch).is_log_append_time


def test_the_header_holds_what_the_producer_said() -> None:
    batch = encode_batch(
        some_records(3),
        leader_epoch=7,
        producer_id=2**40,
        producer_epoch=12,
        base_sequence=2**31 - 2,
        is_transactional=True,
    )
    header = read_header(batch)
    assert (header.leader_epoch, header.producer_id, header.producer_epoch) == (7, 2**40, 12)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 2, 0)
    assert header.is_transactional
    assert not header.is_control
    assert header.has_producer_id


def test_timestamps_of_the_header_are_the_first_and_the_highest() -> None:
    batch = encode_batch(
        [Record(b"", timestamp_ms=50), Record(b"", timestamp_ms=90), Record(b"", timestamp_ms=10)]
    )
    assert (read_header(batch).base_timestamp, read_header(batch).max_timestamp) == (50, 90)


def test_a_record_without_a_timestamp_takes_the_default() -> None:
    batch = encode_batch([Record(b"a"), Record(b"b", timestamp_ms=5)], default_timestamp_ms=99)
    assert [record.timestamp_ms for record in decode_batch(batch, limits=LIMITS)] == [99, 5]


def test_a_batch_may_have_no_records() -> None:
    batch = encode_batch([])
    assert len(batch) == HEADER_BYTES
    assert decode_batch(batch, limits=LIMITS) == []
    assert read_header(batch).max_timestamp == -1


def test_a_batch_is_read_from_the_middle_of_a_buffer_of_any_kind() -> None:
    batch = encode_batch(some_records(4), base_offset=3)
    for buffer in (b"before" + batch + b"after", bytearray(b"before") + batch, memoryview(b"before" + batch)):
        assert decode_batch(buffer, 6, limits=LIMITS) == numbered(some_records(4), 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Record("text"), "bytes or None, not str"),  # type: ignore[arg-type]
        (Record(b"", 7), "bytes or None, not int"),  # type: ignore[arg-type]
        (Record(b"", headers=(Header(b"k", b""),)), "key is a str, not bytes"),  # type: ignore[arg-type]
        (Record(b"", headers=(Header("k", "v"),)), "value is bytes or None, not str"),  # type: ignore[arg-type]
        (Record(b"", headers=(Header("\ud800", b""),)), "no UTF-8 form"),
        (Record(b"", timestamp_ms=2**63), "more than 64 bits"),
        (Record(b"", timestamp_ms=-(2**63) - 1), "more than 64 bits"),
        (b"not a record", "not a Record"),
        ((b"too", b"short"), "not a Record"),
    ],
)
def test_what_is_not_a_record_is_refused_with_a_reason(wrong: Record, message: str) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        encode_batch([Record(b"fine"), wrong])


def test_offsets_that_do_not_rise_or_lie_too_far_apart_are_refused() -> None:
    for offsets in ((5, 5), (6, 5), (4, 8), (5, 5 + 2**31)):
        these = [Record(b"", offset=offset) for offset in offsets]
        with pytest.raises(InvalidRecordError, match="its offset"):
            encode_batch(these, base_offset=5, preserve_offsets=True)
    with pytest.raises(InvalidRecordError, match="before the last record"):
        encode_batch(some_records(3), last_offset_delta=1)


def test_a_header_key_that_is_not_utf8_is_read_with_replacement() -> None:
    batch = encode_batch([Record(b"", headers=(Header("ab", b"v"),))])
    at = batch.index(b"\x04ab")
    batch[at + 1] = 0xFF
    (record,) = decode_batch(batch, limits=LIMITS, check_crc=False)
    assert record.headers == (Header("\ufffdb", b"v"),)


def test_limits_are_held_before_anything_is_decoded() -> None:
    batch = encode_batch(some_records(10), codec=Codec.ZSTD)
    for limits, error in (
        (RecordLimits(batch_bytes_max=len(batch) - 1), RecordTooLargeError),
        (RecordLimits(records_max=9), InvalidRecordError),
        (RecordLimits(decompressed_bytes_max=50), RecordTooLargeError),
        (RecordLimits(headers_per_record_max=1), InvalidRecordError),
    ):
        with pytest.raises(error):
            decode_batch(batch, limits=limits)


def test_an_unknown_codec_is_named() -> None:
    batch = encode_batch(some_records(1))
    batch[22] = 5
    with pytest.raises(UnsupportedCompressionError, match="5"):
        decode_batch(batch, limits=LIMITS, check_crc=False)


def test_a_wrong_checksum_is_refused_unless_it_is_not_asked_for() -> None:
    batch = encode_batch([Record(b"payload")])
    batch[-2] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC32C"):
        decode_batch(batch, limits=LIMITS)
    assert decode_batch(batch, limits=LIMITS, check_crc=False) == [Record(b"payloae", offset=0)]


def test_a_record_that_a_producer_makes_is_as_any_other() -> None:
    headers = (Header("h", b"1"),)
    record = new_record(b"v", None, headers, 5)
    assert record == Record(b"v", None, headers, 5)
    assert type(record) is Record
    assert gc.is_tracked(record) is (FORM == "interpreted")
