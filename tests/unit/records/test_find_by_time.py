"""A record is found by its time as if all had been decoded and looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.errors import InvalidRecordError
from distributedlog.records.batch import HEADER_BYTES, read_header
from distributedlog.records.record import Record, decode_batch, encode_batch, find_record_by_time
from tests.unit.records.strategies import record_lists, thorough

TIMES = st.one_of(st.integers(-3, 40), st.integers(-(2**63), 2**63 - 1))


def expect(
    records: list[Record], timestamp_ms: int, start: int, end: int, newest: bool
) -> tuple[int, int] | None:
    found = [
        (each.offset, each.timestamp_ms)
        for each in records
        if each.timestamp_ms >= timestamp_ms and start <= each.offset < end
    ]
    if newest:
        return max(found, key=lambda each: (each[1], -each[0]), default=None)
    return found[0] if found else None


@thorough
@given(
    st.one_of(
        record_lists, st.lists(st.builds(Record, st.none(), st.none(), st.just(()), st.integers(0, 30)))
    ),
    st.integers(0, 5),
    TIMES,
    st.integers(0, 20),
    st.integers(0, 20),
    st.booleans(),
    st.sampled_from([None, 17, 2**40]),
)
def test_the_record_is_the_one_that_decoding_all_would_find(
    these: list[Record],
    base_offset: int,
    timestamp_ms: int,
    start: int,
    end: int,
    newest: bool,
    append_time_ms: int | None,
) -> None:
    batch = encode_batch(these, base_offset=base_offset, log_append_time_ms=append_time_ms)
    found = find_record_by_time(
        bytes(batch[HEADER_BYTES:]), read_header(batch), timestamp_ms, start=start, end=end, newest=newest
    )
    assert found == expect(decode_batch(batch), timestamp_ms, start, end, newest)


def test_a_section_that_is_cut_off_is_refused() -> None:
    batch = encode_batch([Record(b"v", b"k", timestamp_ms=number) for number in range(9)])
    section, header = bytes(batch[HEADER_BYTES:]), read_header(batch)
    for end in range(len(section)):
        with pytest.raises(InvalidRecordError):
            find_record_by_time(section[:end], header, 100, start=0, end=9)
    with pytest.raises(InvalidRecordError):
        find_record_by_time(b"\x80" * 70, header, 100, start=0, end=9)
