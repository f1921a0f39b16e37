"""Bytes that lie: nothing crashes, hangs, allocates on their word, or gives data that was not written."""

import tracemalloc
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.errors import CorruptBatchError, DlogError, InvalidRecordError
from distributedlog.records.arrow import decode_to_arrow
from distributedlog.records.batch import read_header
from distributedlog.records.compression import Codec
from distributedlog.records.kernel import varint_bytes
from distributedlog.records.layout import BatchHeader
from distributedlog.records.record import (
    Record,
    check_records,
    decode_batch,
    encode_batch,
    find_record_spans,
    rebuild_batch,
)
from tests.unit.records.strategies import LIMITS, numbered, some_records, thorough

decode_to_arrow_plainly = partial(decode_to_arrow, include_headers=False)
OUTSIDE_THE_CHECKSUM = {*range(8), *range(12, 16)}  # base offset and leader epoch: the leader writes these


def body(**fields: bytes) -> bytes:
    """A record's fields, each of which may be replaced."""
    sound = {
        "attributes": b"\0",
        "timestamp": varint_bytes(0),
        "offset": varint_bytes(0),
        "key": varint_bytes(1) + b"k",
        "value": varint_bytes(1) + b"v",
        "headers": varint_bytes(1) + varint_bytes(1) + b"h" + varint_bytes(-1),
    }
    return b"".join({**sound, **fields}.values())


def batch_of(section: bytes, count: int = 1, last_offset_delta: int = 0) -> bytearray:
    """A batch with a right checksum around a section that may be anything."""
    header = BatchHeader(0, 0, -1, 2, 0, 0x08, last_offset_delta, 0, 0, -1, -1, -1, count)
    batch = bytearray(rebuild_batch(header._replace(record_count=1), SOUND, 1)[:61]) + section
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = last_offset_delta.to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    return batch


SOUND = varint_bytes(len(body())) + body()


def assert_refused(batch: bytearray) -> None:
    header = read_header(batch)
    with pytest.raises(InvalidRecordError):
        decode_batch(batch, limits=LIMITS, check_crc=False)
    with pytest.raises(InvalidRecordError):
        find_record_spans(batch[61:], header)
    with pytest.raises(InvalidRecordError):
        check_records(batch[61:], header)
    with pytest.raises(InvalidRecordError):
        check_records(batch[61:], header, releases_lock=True)
    with pytest.raises(InvalidRecordError):
        decode_to_arrow(batch, limits=LIMITS, check_crc=False)
    with pytest.raises(InvalidRecordError):
        decode_to_arrow_plainly(batch, limits=LIMITS, check_crc=False)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_cut_at_any_byte_is_refused(codec: Codec) -> None:
    batch = bytes(encode_batch(some_records(6), codec=codec))
    for length in range(len(batch)):
        with pytest.raises(CorruptBatchError):
            decode_batch(batch[:length], limits=LIMITS)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_flipped_byte_is_refused_or_changes_nothing_that_was_checked(codec: Codec) -> None:
    these = some_records(6)
    batch = bytes(encode_batch(these, codec=codec, base_offset=5))
    for at in range(len(batch)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(batch)
            damaged[at] ^= flip
            try:
                read = decode_batch(damaged, limits=LIMITS)
            except DlogError:
                continue
            assert at in OUTSIDE_THE_CHECKSUM
            assert [record._replace(offset=-1) for record in read] == these


@pytest.mark.parametrize("codec", list(Codec))
def test_flipped_bytes_behind_a_forged_checksum_never_break_the_reader(codec: Codec) -> None:
    batch = bytes(encode_batch(some_records(6), codec=codec))
    for at in range(len(batch)):
        for flip in (0x01, 0x02, 0x40, 0x80, 0xFF):
            damaged = bytearray(batch)
            damaged[at] ^= flip
            outcomes = [outcome(decode_batch, damaged), outcome(decode_to_arrow, damaged)]
            became_control = at == 22 and flip == 0xFF
            assert len(set(outcomes)) == 1 or became_control, (at, flip, outcomes)
            plainly = outcome(decode_to_arrow_plainly, damaged)  # of two flaws it may find the other first
            assert (plainly == "read") == (outcomes[1] == "read"), (at, flip, plainly)


def outcome(decode: object, batch: bytearray) -> str:
    """Both decoders must agree on whether there is anything to read."""
    try:
        decode(batch, limits=LIMITS, check_crc=False)  # type: ignore[operator]
    except DlogError as error:
        return type(error).__name__
    return "read"


def test_the_sound_record_of_these_tests_is_sound() -> None:
    (record,) = decode_batch(batch_of(SOUND), limits=LIMITS, check_crc=False)
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", None),))


@pytest.mark.parametrize(
    "lie",
    [
        {"timestamp": b"\xff" * 10},
        {"timestamp": b"\x80" * 9 + b"\x02"},
        {"timestamp": b"\x80" * 30},
        {"offset": varint_bytes(-1)},
        {"offset": varint_bytes(1)},
        {"offset": b"\xff\xff\xff\xff\x1f"},
        {"offset": b"\x80" * 6},
        {"key": varint_bytes(-2)},
        {"key": varint_bytes(2**31 - 1)},
        {"key": varint_bytes(-(2**31))},
        {"value": varint_bytes(-2)},
        {"value": varint_bytes(100)},
        {"value": varint_bytes(8)},
        {"headers": varint_bytes(-1)},
        {"headers": varint_bytes(2**31 - 1)},
        {"headers": varint_bytes(2) + varint_bytes(1) + b"h" + varint_bytes(-1)},
        {"headers": varint_bytes(1) + varint_bytes(-1) + varint_bytes(0)},
        {"headers": varint_bytes(1) + varint_bytes(1) + b"h" + varint_bytes(-2)},
        {"headers": varint_bytes(1) + varint_bytes(1) + b"h" + varint_bytes(5)},
        {"headers": varint_bytes(0) + b"left over"},
        {"headers": b""},
    ],
)
def test_a_field_that_lies_is_refused(lie: dict[str, bytes]) -> None:
    fields = body(**lie)
    assert_refused(batch_of(varint_bytes(len(fields)) + fields))


@pytest.mark.parametrize("claimed", [-1, 0, 1, 5, len(body()) - 1, len(body()) + 1, 2**31 - 1, -(2**31)])
def test_a_record_length_that_lies_is_refused(claimed: int) -> None:
    assert_refused(batch_of(varint_bytes(claimed) + body()))


def test_a_record_count_that_lies_is_refused() -> None:
    assert_refused(batch_of(SOUND, count=0))
    assert_refused(batch_of(SOUND, count=2, last_offset_delta=1))
    assert_refused(batch_of(SOUND * 2, count=1))
    assert_refused(batch_of(b"", count=1))
    with pytest.raises(InvalidRecordError, match="cannot hold"):
        decode_batch(batch_of(SOUND, count=9, last_offset_delta=9), limits=LIMITS, check_crc=False)


def test_a_record_that_holds_another_is_refused() -> None:
    second = body(offset=varint_bytes(1))
    outer = body() + varint_bytes(len(second)) + second
    assert_refused(batch_of(varint_bytes(len(outer)) + outer, count=2, last_offset_delta=1))


def test_records_out_of_order_are_refused() -> None:
    second = varint_bytes(len(body())) + body()
    assert_refused(batch_of(SOUND + second, count=2, last_offset_delta=1))


def test_a_claim_of_ten_million_records_takes_no_memory() -> None:
    batch = batch_of(SOUND, count=10_000_000, last_offset_delta=10_000_000)
    tracemalloc.start()
    try:
        assert_refused(batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@thorough
@given(st.binary(max_size=120), st.integers(0, 8), st.integers(0, 2**31 - 1))
def test_noise_as_records_is_refused_or_fills_its_bytes_exactly(noise: bytes, count: int, delta: int) -> None:
    batch = batch_of(noise, count, max(delta, count))
    try:
        read = decode_batch(batch, limits=LIMITS, check_crc=False)
    except InvalidRecordError:
        assert_refused(batch)
    else:
        assert len(read) == count
        spans = find_record_spans(noise, read_header(batch))
        assert [span.end for span in spans][-1:] == [len(noise)][:count]
        assert decode_to_arrow(batch, check_crc=False).num_rows == count


@thorough
@given(
    st.lists(
        st.sampled_from([b"\0", b"\x01", b"\x02", b"\x0c", b"\x0e", b"\x80", b"\xff", b"k"]), max_size=40
    )
)
def test_nearly_sound_records_are_read_alike_by_all_readers(pieces: list[bytes]) -> None:
    noise = b"".join(pieces)
    for count in (1, 2, 3):
        batch = batch_of(noise, count, 1000)
        assert outcome(decode_batch, batch) == outcome(decode_to_arrow, batch)
        assert outcome(decode_batch, batch) == outcome(decode_to_arrow_plainly, batch)


def test_a_sound_batch_between_damaged_ones_is_still_read() -> None:
    batch = encode_batch(some_records(3))
    assert decode_batch(b"\xff" * 7 + batch + b"\xff" * 7, 7, limits=LIMITS) == numbered(some_records(3))
    assert decode_batch(encode_batch([Record()]), limits=LIMITS) == [Record(offset=0)]
