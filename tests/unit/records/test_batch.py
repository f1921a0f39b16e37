"""Batches as wholes: headers, checks, stamps, scans."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.errors import (
    CorruptBatchError,
    UnsupportedCompressionError,
    UnsupportedFormatError,
)
from distributedlog.model.limits import RecordLimits
from distributedlog.records import batch as batch_module
from distributedlog.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    ScanResult,
    check_batch,
    increment_sequence,
    read_header,
    scan,
    stamp,
    stamp_append_time,
    whole_batches,
)
from distributedlog.records.compression import Codec
from distributedlog.records.layout import is_behind
from distributedlog.records.record import Record, decode_batch, encode_batch
from tests.unit.records.strategies import LIMITS, brief, codecs, some_records, thorough


def is_corrupt(result: ScanResult) -> bool:
    return result.reason is not None and result.needs_bytes == 0


FIELDS_AT = {
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}


def altered(batch: bytearray, **fields: int) -> bytearray:
    changed = bytearray(batch)
    for name, value in fields.items():
        at, form = FIELDS_AT[name]
        struct.pack_into(form, changed, at, value)
    return changed


def test_every_field_lies_where_the_layout_says() -> None:
    batch = encode_batch(some_records(5), base_offset=77, producer_id=3, producer_epoch=4, base_sequence=5)
    header = read_header(batch)
    for name, (at, form) in FIELDS_AT.items():
        assert getattr(header, name) == struct.unpack_from(form, batch, at)[0], name
    assert header.crc == struct.unpack_from(">I", batch, 17)[0]


@pytest.mark.parametrize(
    "lie",
    [
        {"batch_length": 48},
        {"batch_length": 0},
        {"batch_length": -1},
        {"record_count": -1},
        {"record_count": 2**31 - 1},
        {"last_offset_delta": -1},
        {"last_offset_delta": 3},
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
        {"magic": 3},
        {"magic": -1},
    ],
)
def test_a_header_that_cannot_be_is_corrupt(lie: dict[str, int]) -> None:
    with pytest.raises(CorruptBatchError):
        read_header(altered(encode_batch(some_records(5)), **lie))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_named_as_such(magic: int) -> None:
    with pytest.raises(UnsupportedFormatError, match=str(magic)):
        read_header(altered(encode_batch(some_records(1)), magic=magic))


def test_a_codec_that_is_not_known_is_named_and_ends_a_scan() -> None:
    batch = altered(encode_batch(some_records(1)), attributes=5)
    with pytest.raises(UnsupportedCompressionError, match="codec 5"):
        read_header(batch)
    assert is_corrupt(scan(batch, check_crc=False))


def test_a_header_needs_all_its_bytes() -> None:
    batch = encode_batch([])
    for length in range(HEADER_BYTES):
        with pytest.raises(CorruptBatchError, match="61 bytes"):
            read_header(batch[:length])
    for position in (-1, 1, 10**30):
        with pytest.raises(CorruptBatchError):
            read_header(batch, position)


def test_a_batch_that_is_not_all_there_is_corrupt() -> None:
    batch = encode_batch(some_records(3))
    with pytest.raises(CorruptBatchError, match="are there"):
        check_batch(batch[:-1], limits=LIMITS)
    with pytest.raises(CorruptBatchError, match="are there"):
        check_batch(altered(batch, batch_length=2**31 - 1), limits=RecordLimits(batch_bytes_max=2**40))


@brief
@given(codecs, st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
def test_a_stamp_places_a_batch_and_keeps_its_checksum(codec: Codec, base_offset: int, epoch: int) -> None:
    buffer = bytearray(b"..") + encode_batch(some_records(3), codec=codec)
    stamp(buffer, 2, base_offset, epoch)
    header = check_batch(buffer, 2, limits=LIMITS)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (
        base_offset,
        epoch,
        base_offset + 2,
    )
    assert decode_batch(buffer, 2, limits=LIMITS)[1].offset == base_offset + 1


@pytest.mark.parametrize("codec", list(Codec))
def test_an_append_time_stamp_renews_the_checksum(codec: Codec) -> None:
    buffer = bytearray(b"..") + encode_batch(some_records(3), codec=codec, is_transactional=True)
    stamp_append_time(memoryview(buffer), 2, 123_456)
    header = check_batch(buffer, 2, limits=LIMITS)
    assert header.is_log_append_time
    assert header.is_transactional
    assert header.codec == codec
    assert [record.timestamp_ms for record in decode_batch(buffer, 2, limits=LIMITS)] == [123_456] * 3
    with pytest.raises(CorruptBatchError, match="whole"):
        stamp_append_time(buffer[:-1], 2, 1)


def test_a_delete_horizon_is_read_from_the_base_timestamp() -> None:
    header = read_header(encode_batch([Record(b"", timestamp_ms=5)]))
    assert header.delete_horizon_ms is None
    marked = header._replace(attributes=header.attributes | 0x40)
    assert (marked.has_delete_horizon, marked.delete_horizon_ms) == (True, 5)


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_sequences_wrap_to_zero(sequence: int, increment: int) -> None:
    assert increment_sequence(sequence, increment) == (sequence + increment) % 2**31


@given(st.integers(0, 2**31 - 1), st.integers(1, 2**30 - 1))
def test_a_sequence_is_behind_those_from_which_it_is_counted_on(sequence: int, increment: int) -> None:
    later = increment_sequence(sequence, increment)
    assert is_behind(later, sequence)
    assert not is_behind(sequence, later)
    assert not is_behind(sequence, sequence)


def test_a_batch_without_a_sequence_has_no_last_one() -> None:
    assert read_header(encode_batch(some_records(3))).last_sequence == -1


# --- scans -------------------------------------------------------------------------------------


def log_of(*counts: int) -> tuple[bytes, list[int]]:
    """Batches one after the other, and where each begins."""
    output, starts, offset = bytearray(), [], 0
    for count in counts:
        starts.append(len(output))
        output += encode_batch(some_records(count), base_offset=offset, codec=Codec(count % 5))
        offset += count
    return bytes(output), starts


def headers_of(log: bytes, starts: list[int]) -> list[BatchHeader]:
    return [read_header(log, start) for start in starts]


def test_a_scan_finds_every_batch_and_stops_at_the_end() -> None:
    log, starts = log_of(1, 2, 3, 4, 5)
    assert scan(log) == ScanResult(headers_of(log, starts), len(log), None, 0)
    assert not is_corrupt(scan(log))
    assert scan(b"") == ScanResult([], 0, None, 0)
    assert scan(log, starts[2]).headers == headers_of(log, starts[2:])


def test_a_scan_of_a_cut_log_stops_before_the_cut_and_asks_for_more() -> None:
    log, starts = log_of(2, 3, 1)
    for cut in range(len(log)):
        whole = [start for start, end in zip(starts, [*starts[1:], len(log)], strict=True) if end <= cut]
        for result in (scan(log[:cut]), scan(log, 0, cut), scan(memoryview(log), 0, cut)):
            assert result.headers == headers_of(log, whole)
            assert not is_corrupt(result)
            assert (result.reason is None) == (result.end == cut)
            assert result.needs_bytes == 0 or result.end + result.needs_bytes > cut


def test_a_scan_that_is_given_what_it_needs_goes_on() -> None:
    log, starts = log_of(2, 3, 1)
    window = starts[1] + 5
    while (result := scan(log, 0, window)).needs_bytes:
        assert result.end + result.needs_bytes > window
        window = result.end + result.needs_bytes
    assert result.headers == headers_of(log, starts[:2])


def test_a_scan_stops_at_a_flipped_bit_and_calls_it_corrupt() -> None:
    log, starts = log_of(2, 3, 1)
    for at in range(starts[1] + 21, starts[2]):
        damaged = bytearray(log)
        damaged[at] ^= 0x10
        result = scan(damaged)
        assert result.end == starts[1]
        assert is_corrupt(result), at
        assert result.headers == headers_of(log, starts[:1])


def test_a_scan_without_checksums_reads_headers_only() -> None:
    log, starts = log_of(2, 3, 1)
    damaged = bytearray(log)
    damaged[starts[1] + 70] ^= 1
    assert len(scan(damaged, check_crc=False).headers) == 3
    assert len(scan(damaged).headers) == 1


def test_a_scan_of_zeroes_is_corrupt_at_once() -> None:
    log, _ = log_of(2)
    result = scan(log + bytes(4096))
    assert (result.end, is_corrupt(result), len(result.headers)) == (len(log), True, 1)


@thorough
@given(st.binary(max_size=300))
def test_a_scan_of_noise_never_fails(noise: bytes) -> None:
    log, _ = log_of(1)
    result = scan(log + noise)
    assert result.end >= len(log)
    assert (result.reason is None) == (result.end == len(log) + len(noise))


def test_the_constants_are_those_of_the_layout() -> None:
    assert (batch_module.HEADER_BYTES, batch_module.LOG_OVERHEAD, batch_module.MAGIC) == (61, 12, 2)


@pytest.mark.parametrize("cut_bytes", [0, 1, HEADER_BYTES, HEADER_BYTES + 5])
def test_a_run_of_batches_is_walked_as_far_as_they_are_whole(cut_bytes: int) -> None:
    batches = [encode_batch([Record(b"v" * n)], base_offset=n) for n in range(1, 4)]
    run = b"".join(bytes(each) for each in batches)
    found = [
        (at, header.base_offset) for at, header in whole_batches(memoryview(run)[: len(run) - cut_bytes])
    ]
    starts = [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert found == list(zip(starts, (1, 2, 3), strict=True))[: 3 if cut_bytes == 0 else 2]


def test_a_header_that_cannot_be_ends_the_walk_of_a_run() -> None:
    run = bytes(encode_batch([Record(b"v")])) + bytes(HEADER_BYTES)
    walk = whole_batches(run)
    assert next(walk)[0] == 0
    with pytest.raises(UnsupportedFormatError):
        next(walk)
