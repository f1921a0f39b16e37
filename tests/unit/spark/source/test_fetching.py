"""What is taken out of an answer: batches with what is wanted, and where the next question begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.client.fetcher import AbortedFilter
from distributedlog.model.errors import RecordTooLargeError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.fetch import AbortedTransaction
from distributedlog.records.batch import stamp, stamp_append_time
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Record, encode_batch
from distributedlog.spark.source.columns import RowMaker
from distributedlog.spark.source.fetching import Taken, take
from distributedlog.spark.source.sampling import bytes_per_offset

HERE = TopicPartition("t", 0)


def batch(count: int, base_offset: int, producer_id: int = -1, *, is_transactional: bool = False) -> bytes:
    made = bytearray(
        encode_batch(
            [Record(b"%d" % (base_offset + number)) for number in range(count)],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            is_transactional=is_transactional,
        )
    )
    stamp(made, 0, base_offset, 0)
    return bytes(made)


def offsets(taken: Taken, start: int, end: int) -> list[int]:
    found: list[int] = []
    for each in RowMaker(HERE, ("offset",)).rows(taken.runs, start, end):
        found += each.column("offset").to_pylist()
    return found


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=8),
    st.integers(0, 30),
    st.integers(1, 30),
    st.integers(0, 60),
)
def test_everything_between_two_offsets_is_taken_whatever_the_gaps(
    shape: list[tuple[int, int]], start: int, size: int, cut: int
) -> None:
    """Batches of some records, gaps behind them; and the last batch cut off."""
    end = start + size
    there: list[int] = []
    batches: list[bytes] = []
    at = 0
    for count, gap in shape:
        batches.append(batch(count, at))
        there += range(at, at + count)
        at += count + gap
    data = b"".join(batches)
    data = data[: len(data) - min(cut, len(batches[-1]) - 1) * (len(batches) > 1)]
    whole = [each for each in there if len(batches) == 1 or cut == 0 or each < at - sum(shape[-1])]
    if not any(each >= start for each in whole):
        return
    taken = take(data, start, end, AbortedFilter(()))
    assert offsets(taken, start, end) == [each for each in whole if start <= each < end]
    assert start < taken.next_offset <= end
    unread = [each for each in there if taken.next_offset <= each < end]
    assert not set(unread) & set(whole), "the next question begins behind what was taken"


def test_an_end_in_a_gap_is_reached() -> None:
    data = batch(2, 0) + batch(2, 10)
    taken = take(data, 0, 5, AbortedFilter(()))
    assert (offsets(taken, 0, 5), taken.next_offset) == ([0, 1], 5)


def test_aborted_transactions_and_markers_are_passed_over() -> None:
    abort = encode_end_marker_batch(
        EndMarker(ControlType.ABORT, 0), producer_id=7, producer_epoch=0, timestamp_ms=0, base_offset=6
    )
    data = (
        batch(2, 0)
        + batch(2, 2, producer_id=7, is_transactional=True)
        + batch(2, 4, producer_id=8, is_transactional=True)
        + bytes(abort)
        + batch(1, 7, producer_id=7, is_transactional=True)
    )
    aborted = [AbortedTransaction(producer_id=7, first_offset=2)]
    taken = take(data, 0, 100, AbortedFilter(aborted))
    assert offsets(taken, 0, 100) == [0, 1, 4, 5, 7]
    assert taken.next_offset == 8
    only_aborted = take(batch(2, 2, producer_id=7, is_transactional=True), 2, 100, AbortedFilter(aborted))
    assert (only_aborted.runs, only_aborted.next_offset) == ([], 4), "it moves on over them"


def test_times_of_two_kinds_are_two_runs() -> None:
    stamped = bytearray(batch(2, 2))
    stamp_append_time(stamped, 0, 1000)
    taken = take(batch(2, 0) + bytes(stamped) + batch(1, 4), 0, 100, AbortedFilter(()))
    assert [each.is_log_append_time for each in taken.runs] == [False, True, False]
    assert [each.offsets for each in taken.runs] == [2, 2, 1]


def test_a_batch_that_does_not_fit_is_an_error_that_says_what_to_raise() -> None:
    with pytest.raises(RecordTooLargeError, match=r"raise kafka\.max\.partition\.fetch\.bytes"):
        take(batch(5, 0)[:-1], 0, 10, AbortedFilter(()))
    assert take(b"", 3, 10, AbortedFilter(())) == Taken([], 3)


def test_bytes_for_each_offset_are_an_average_even_of_a_batch_that_is_cut_off() -> None:
    data = batch(10, 0)
    assert bytes_per_offset(data) == len(data) / 10
    assert bytes_per_offset(data[:80]) == len(data) / 10
    assert bytes_per_offset(data[:20]) is None
    assert bytes_per_offset(b"") is None
