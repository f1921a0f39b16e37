"""`place_batch` takes what the checks of a header and of a checksum take one by one, and nothing else."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.errors import (
    CorruptBatchError,
    DlogError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
)
from distributedlog.model.limits import RecordLimits
from distributedlog.records.batch import HEADER_BYTES, BatchHeader, check_batch, place_batch, stamp
from distributedlog.records.checksum import crc32c
from distributedlog.records.layout import ATTRIBUTES_AT, CRC_AT, INT64_MAX, MAX_TIMESTAMP_AT
from distributedlog.records.record import encode_batch
from tests.unit.records.strategies import LIMITS, some_records, thorough

BYTES_MAX, RECORDS_MAX = 100_000, 50
EDGES = (b"\x00", b"\x01", b"\x02", b"\x07", b"\x20", b"\x7f", b"\x80", b"\xff")


def place(
    data: bytearray | bytes | memoryview,
    position: int = 0,
    *,
    base_offset: int = 7,
    leader_epoch: int = 3,
    oldest_ms: int = -INT64_MAX,
    newest_ms: int = INT64_MAX,
    is_control_allowed: bool = False,
) -> BatchHeader:
    return place_batch(
        data, position, base_offset, leader_epoch, BYTES_MAX, RECORDS_MAX, oldest_ms, newest_ms,
        is_control_allowed,
    )  # fmt: skip


def check_one_by_one(data: bytearray, base_offset: int, leader_epoch: int) -> BatchHeader | type[DlogError]:
    """Does what `place_batch` does for clients, with what else there is."""
    if len(data) < HEADER_BYTES:
        return CorruptBatchError
    stamp(data, 0, base_offset, leader_epoch)
    limits = RecordLimits(batch_bytes_max=BYTES_MAX, records_max=RECORDS_MAX)
    try:
        header = check_batch(data, 0, limits=limits)
    except DlogError as error:
        return type(error)
    if header.record_count != header.last_offset_delta + 1 or header.is_control:
        return InvalidRecordError
    return header


def renew_crc(data: bytearray) -> None:
    struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[ATTRIBUTES_AT:])))


@thorough
@given(st.integers(0, 2**32))
def test_what_was_damaged_is_judged_as_by_one_check_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    sound = encode_batch(some_records(chance.randint(1, 60)))
    for _ in range(30):
        data = bytearray(sound)
        for _ in range(chance.randint(0, 2)):
            at = chance.randrange(HEADER_BYTES)
            data[at : at + 1] = chance.choice(EDGES)
        if chance.random() < 0.1:
            del data[chance.randrange(len(data)) :]
        if chance.random() < 0.8 and len(data) > ATTRIBUTES_AT:
            renew_crc(data)
        offset = chance.choice((0, 7, 2**40, INT64_MAX - 60, INT64_MAX - 1, INT64_MAX))
        epoch = chance.choice((0, 3, 2**31 - 1, -1))
        other = bytearray(data)
        expected = check_one_by_one(other, offset, epoch)
        if isinstance(expected, BatchHeader):
            assert place(data, base_offset=offset, leader_epoch=epoch) == expected
            assert data == other
        else:
            with pytest.raises(expected):
                place(data, base_offset=offset, leader_epoch=epoch)


def test_a_batch_behind_another_is_placed_and_the_first_stays_as_it_is() -> None:
    first, second = encode_batch(some_records(3)), encode_batch(some_records(2))
    data = bytearray(first + second)
    header = place(memoryview(data), len(first), base_offset=1_000_000_007, leader_epoch=9)
    assert isinstance(header, BatchHeader)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (1_000_000_007, 9, 2)
    assert data[: len(first)] == first
    assert check_batch(data, len(first), limits=LIMITS) == header


def test_timestamps_are_compared_with_bounds_of_any_size() -> None:
    data = bytearray(encode_batch(some_records(1)))
    newest_ms = check_batch(data, 0, limits=LIMITS).max_timestamp
    assert place(data, newest_ms=newest_ms, oldest_ms=-(2**70)).max_timestamp == newest_ms
    assert place(data, newest_ms=2**70).max_timestamp == newest_ms
    with pytest.raises(InvalidTimestampError):
        place(data, newest_ms=newest_ms - 1)
    with pytest.raises(InvalidTimestampError):
        place(data, oldest_ms=newest_ms + 1)
    struct.pack_into(">q", data, MAX_TIMESTAMP_AT, -1)
    renew_crc(data)
    assert place(data, newest_ms=0, oldest_ms=0).max_timestamp == -1


def test_brokers_alone_write_control_batches() -> None:
    data = bytearray(encode_batch(some_records(1)))
    data[ATTRIBUTES_AT + 1] |= 0x20
    renew_crc(data)
    assert place(data, is_control_allowed=True).is_control
    with pytest.raises(InvalidRecordError, match="control"):
        place(data)


def test_a_position_outside_and_a_batch_over_the_limit_are_refused() -> None:
    data = bytearray(encode_batch(some_records(1)))
    for position in (-1, 1, len(data)):
        with pytest.raises(CorruptBatchError):
            place(bytearray(data), position)
    with pytest.raises(RecordTooLargeError):
        place_batch(data, 0, 7, 3, len(data) - 1, RECORDS_MAX, 0, INT64_MAX, False)


def test_what_cannot_be_written_to_and_what_is_no_offset_or_epoch_are_mistakes_of_the_caller() -> None:
    data = encode_batch(some_records(1))
    with pytest.raises(TypeError):
        place(bytes(data))
    with pytest.raises(struct.error):
        place(bytearray(data), leader_epoch=2**31)
