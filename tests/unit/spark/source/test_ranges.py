"""Which offsets a micro-batch takes, and into which tasks they are split."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.ids import TopicPartition
from distributedlog.spark.source.ranges import Span, is_worth_a_batch, limited, limited_by_bytes, split

A, B, C = (TopicPartition("t", index) for index in range(3))
SPANS = st.lists(st.tuples(st.integers(0, 2**62), st.integers(-5, 100_000)), max_size=6).map(
    lambda drawn: [Span(TopicPartition("t", n), start, start + size) for n, (start, size) in enumerate(drawn)]
)


@given(SPANS, st.integers(1, 1000))
def test_a_limit_is_kept_and_nobody_is_left_out(spans: list[Span], offsets_max: int) -> None:
    ends = limited(spans, offsets_max)
    taken = {each.partition: ends[each.partition] - each.start for each in spans}
    busy = [each for each in spans if each.size > 0]
    assert sum(taken[each.partition] for each in busy) <= max(offsets_max, len(busy))
    assert all(0 < taken[each.partition] <= each.size for each in busy)
    assert all(ends[each.partition] == each.end for each in spans if each.size <= 0)


def test_each_gives_its_share() -> None:
    assert limited([Span(A, 0, 90), Span(B, 5, 15), Span(C, 7, 7)], 10) == {A: 9, B: 6, C: 7}
    assert limited([Span(A, 0, 5), Span(B, 0, 5)], 10) == {A: 5, B: 5}
    assert limited([Span(A, 0, 2**62), Span(B, 0, 2**62)], 2**62) == {A: 2**61, B: 2**61}


def test_the_largest_gives_up_what_the_smallest_get_beyond_their_share() -> None:
    assert limited([Span(A, 0, 1), Span(B, 0, 1), Span(C, 0, 4)], 3) == {A: 1, B: 1, C: 1}
    assert limited([Span(A, 0, 1), Span(B, 0, 1), Span(C, 0, 4)], 2) == {A: 1, B: 1, C: 1}


def test_a_limit_in_bytes_goes_by_what_an_offset_takes() -> None:
    spans = [Span(A, 10, 110), Span(B, 0, 100)]
    assert limited_by_bytes(spans, 10_000, {A: 150.0, B: 50.0}) == {A: 60, B: 50}
    assert limited_by_bytes(spans, 10**9, {A: 150.0}) == {A: 110, B: 100}
    assert limited_by_bytes(spans, 1, {A: 150.0, B: 50.0}) == {A: 11, B: 1}, "it goes on all the same"
    assert limited_by_bytes([Span(A, 5, 3)], 1, {}) == {A: 3}


def test_few_offsets_are_worth_a_batch_only_after_the_delay() -> None:
    spans = [Span(A, 0, 3), Span(B, 0, 1)]
    assert is_worth_a_batch(spans, None, 0, 1000)
    assert is_worth_a_batch(spans, 4, 0, 1000)
    assert not is_worth_a_batch(spans, 5, 999, 1000)
    assert is_worth_a_batch(spans, 5, 1000, 1000)


@given(SPANS, st.none() | st.integers(1, 40), st.none() | st.integers(1000, 100_000))
def test_the_tasks_are_the_spans_in_pieces(
    spans: list[Span], tasks_min: int | None, task_offsets_max: int | None
) -> None:
    tasks = split(spans, tasks_min, task_offsets_max)
    assert all(each.size > 0 for each in tasks)
    for span in spans:
        mine = [each for each in tasks if each.partition == span.partition]
        if span.size <= 0:
            assert not mine
            continue
        assert (mine[0].start, mine[-1].end) == (span.start, span.end)
        assert all(one.end == next_one.start for one, next_one in pairwise(mine))
    if task_offsets_max is not None:
        assert all(each.size <= task_offsets_max for each in tasks)


@pytest.mark.parametrize(
    ("sizes", "tasks_min", "task_offsets_max", "expected"),
    [
        ([100, 10], None, None, [100, 10]),
        ([100, 10], 2, None, [100, 10]),
        ([90, 10], 10, None, [10] * 9 + [10]),
        ([5, 1000], 4, None, [5, 333, 333, 334]),
        ([10, 0], 4, None, [2, 2, 3, 3]),
        ([90, 10], None, 25, [22, 22, 23, 23, 10]),
        ([90, 10], 8, 50, [11, 11, 11, 12, 11, 11, 11, 12, 10]),
        ([1, 1, 1], 10, None, [1, 1, 1]),
    ],
)
def test_the_arithmetic_is_that_of_sparks_kafka_source(
    sizes: list[int], tasks_min: int | None, task_offsets_max: int | None, expected: list[int]
) -> None:
    spans = [Span(TopicPartition("t", index), 0, size) for index, size in enumerate(sizes)]
    assert [each.size for each in split(spans, tasks_min, task_offsets_max)] == expected
