"""What is counted about records: exact while it fits into memory, and near the truth when it does not."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.cli.records.figures import Figures, size_of
from distributedlog.cli.records.ranges import OffsetSpan, TopicRange
from distributedlog.cli.records.sketches import HeavyKeys, KeySketch, Quantiles, Timeline, hash_of
from distributedlog.cli.topic.analyze import WINDOWS, sampled
from distributedlog.client.offset_specs import Isolation
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Header, Record

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


# --- sketches ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 100)), max_size=60))
def test_of_few_keys_it_is_known_exactly_what_compaction_would_drop(records: list[tuple[int, int]]) -> None:
    sketch = KeySketch()
    newest: dict[int, int] = {}
    for key, size in records:
        sketch.add(hash_of(b"%d" % key), size)
        newest[key] = size
    assert sketch.is_exact
    assert sketch.distinct == len(newest)
    assert sketch.superseded_records == len(records) - len(newest)
    assert sketch.superseded_bytes == sum(size for _, size in records) - sum(newest.values())


def test_of_many_keys_it_is_known_about() -> None:
    sketch = KeySketch(keys_max=512)
    for turn in range(3):
        for key in range(20_000):
            sketch.add(hash_of(b"%d" % key), 10 + turn)
    assert not sketch.is_exact
    assert sketch.distinct == pytest.approx(20_000, rel=0.2)
    assert sketch.superseded_records == pytest.approx(40_000, rel=0.2)
    assert sketch.superseded_bytes == pytest.approx(420_000, rel=0.2)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=200))
def test_no_frequent_key_is_missed_and_no_count_is_too_high(keys: list[int]) -> None:
    heavy = HeavyKeys(counters_max=5)
    for key in keys:
        heavy.add(b"%d" % key)
    found: Counter[bytes] = Counter({each.key: each.records for each in heavy.top(5)})
    for number, count in Counter(keys).items():
        counted = found[b"%d" % number]
        assert counted <= count <= counted + heavy.missed_max
    assert heavy.missed_max <= len(keys) / 5


def test_quantiles_are_right_to_two_percent() -> None:
    quantiles = Quantiles()
    sizes = random.Random(3).sample(range(1, 10**6), 5000)
    for size in sizes:
        quantiles.add(size)
    for share in (0.5, 0.95, 0.99):
        assert quantiles.at(share) == pytest.approx(sorted(sizes)[int(share * 5000) - 1], rel=0.021)
    assert Quantiles().at(0.5) == 0


def test_the_busiest_time_is_found_also_over_years() -> None:
    timeline = Timeline(buckets_max=16)
    for day in range(1000):
        timeline.add(day * 86_400_000)
    for _ in range(5000):
        timeline.add(500 * 86_400_000 + 7)
    timeline.add(-1)
    busiest = timeline.busiest
    assert busiest is not None
    assert busiest.start_ms <= 500 * 86_400_000 < busiest.start_ms + busiest.width_ms
    assert busiest.records >= 5000
    assert Timeline().busiest is None


# --- figures -----------------------------------------------------------------------------------


def test_a_topic_is_counted() -> None:
    figures = Figures()
    figures.add(PLACE, Record(b"12345", b"a", (Header("hé", b"x"),), 1000, 0))
    figures.add(PLACE, Record(None, b"a", (), 3000, 1))
    figures.add(PLACE, Record(b"1", None, (), 2500, 2))
    figures.add(OTHER, Record(b"1234", b"b", (), 2000, 9))
    assert (figures.records, figures.keyless, figures.tombstones, figures.with_headers) == (4, 1, 1, 1)
    assert (figures.key_bytes, figures.value_bytes, figures.header_bytes) == (3, 10, 4)
    assert figures.partitions[0].late_records == 1
    assert figures.partitions[0].lateness_ms_max == 500
    assert (figures.oldest_ms, figures.newest_ms, figures.seconds) == (1000, 3000, 2.0)
    assert figures.largest[0] == (10, 0, 0)
    assert figures.skew(2) == 1.5
    assert figures.keys.superseded_records == 1
    assert Figures().skew(3) == 1.0
    assert Figures().seconds == 0.0


def test_only_the_largest_are_kept() -> None:
    figures = Figures()
    for offset in range(100):
        figures.add(PLACE, Record(b"x" * (offset % 50), None, (), -1, offset))
    assert [each.size_bytes for each in figures.largest] == [49, 49, 48, 48, 47]
    assert size_of(Record(None)) == 0


# --- samples -----------------------------------------------------------------------------------


def whole(*counts: int) -> TopicRange:
    spans = {TopicPartition("t", at): OffsetSpan(100, 100 + count) for at, count in enumerate(counts)}
    return TopicRange("t", spans, Isolation.READ_COMMITTED)


def test_a_small_topic_is_read_whole() -> None:
    assert sampled(whole(50, 50), 100) == [whole(50, 50)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=5), st.integers(1, 2000))
def test_a_sample_is_of_the_size_that_was_asked_for_and_nothing_is_read_twice(
    counts: list[int], wanted: int
) -> None:
    windows = sampled(whole(*counts), wanted)
    offsets = [
        (partition, offset)
        for window in windows
        for partition, span in window.spans.items()
        for offset in range(span.start, span.end)
    ]
    assert len(offsets) == len(set(offsets)) <= wanted + WINDOWS * len(counts)
    known = whole(*counts).spans
    assert all(known[partition].start <= offset < known[partition].end for partition, offset in offsets)
