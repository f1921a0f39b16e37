"""The walk of a section's records accepts exactly what the decoder decodes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.errors import InvalidRecordError
from distributedlog.records.batch import HEADER_BYTES, BatchHeader, read_header
from distributedlog.records.kernel import UNSOUND, count_keyless, decode_records
from distributedlog.records.record import Record, check_records, encode_batch
from tests.unit.records.strategies import LIMITS, brief, record_lists, some_records, thorough

HEADERS_MAX = LIMITS.headers_per_record_max


def agree(section: bytes, header: BatchHeader) -> None:
    try:
        keyless = sum(record.key is None for record in decode_records(section, header, HEADERS_MAX))
    except InvalidRecordError:
        keyless = UNSOUND
    for releases_lock in (False, True):
        assert count_keyless(section, 0, len(section), header, HEADERS_MAX, releases_lock) == keyless
    inside, end = b"\x01" * 3 + section + b"\x02" * 5, 3 + len(section)
    assert count_keyless(inside, 3, end, header, HEADERS_MAX, False) == keyless


@thorough
@given(record_lists)
def test_what_was_encoded_is_sound(these: list[Record]) -> None:
    batch = encode_batch(these)
    agree(bytes(batch[HEADER_BYTES:]), read_header(batch))
    assert check_records(batch[HEADER_BYTES:], read_header(batch)) == sum(each.key is None for each in these)


@thorough
@given(record_lists, st.integers(0, 2**32))
def test_what_was_damaged_is_judged_as_the_decoder_judges_it(these: list[Record], seed: int) -> None:
    batch = encode_batch(these)
    header, chance = read_header(batch), random.Random(seed)
    for _ in range(30):
        section = bytearray(batch[HEADER_BYTES:])
        for _ in range(chance.randint(1, 3)):
            at = chance.randint(0, len(section))
            change = chance.randrange(3)
            if change == 0:
                section[at : at + 1] = bytes([chance.randrange(256)])
            elif change == 1:
                del section[at : at + chance.randint(1, 4)]
            else:
                section[at:at] = bytes(chance.choice((0, 1, 2, 127, 128, 255)) for _ in range(3))
        agree(bytes(section), header)
        agree(bytes(section), header._replace(record_count=chance.randint(0, 9)))


@brief
@given(st.binary(max_size=200), st.integers(0, 30), st.integers(0, 30))
def test_any_bytes_are_judged_alike(section: bytes, count: int, last_delta: int) -> None:
    header = read_header(encode_batch([]))._replace(record_count=count, last_offset_delta=last_delta)
    agree(section, header)


def test_every_prefix_of_a_sound_section_is_unsound() -> None:
    batch = encode_batch(some_records(20))
    section, header = bytes(batch[HEADER_BYTES:]), read_header(batch)
    for end in range(len(section)):
        agree(section[:end], header)
        with pytest.raises(InvalidRecordError):
            check_records(section[:end], header)
