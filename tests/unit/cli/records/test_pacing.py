"""When records are due in a replay."""

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.cli.records.pacing import MAX_RATE, Pace, Rate, RateType


def due(rate: Rate, *timestamps_ms: int, gap_ms_max: int | None = None) -> list[float]:
    pace = Pace(rate, gap_ms_max)
    return [pace.due_ms(each) for each in timestamps_ms]


@pytest.mark.parametrize(
    ("text", "rate"),
    [("max", MAX_RATE), ("1x", Rate(speed=1)), ("0.5x", Rate(speed=0.5)), ("500/s", Rate(per_second=500))],
)
def test_a_rate_is_read(text: str, rate: Rate) -> None:
    assert RateType().convert(text, None, None) == rate


@pytest.mark.parametrize("text", ["", "fast", "0x", "-1x", "1", "0/s", "1e9x"])
def test_what_is_no_rate_is_said_with_what_is_one(text: str) -> None:
    with pytest.raises(click.BadParameter, match="500/s or max"):
        RateType().convert(text, None, None)


def test_records_come_as_they_came_then_or_faster() -> None:
    assert due(Rate(speed=1), 1000, 1500, 3000) == [0, 500, 2000]
    assert due(Rate(speed=10), 1000, 1500, 3000) == [0, 50, 200]
    assert due(MAX_RATE, 1000, 1500, 3000) == [0, 0, 0]


def test_records_come_evenly_whatever_their_times() -> None:
    assert due(Rate(per_second=4), 9, 9, 1, 5000) == [0, 250, 500, 750]


def test_a_record_that_is_late_is_due_at_once_and_the_next_is_not_later_for_it() -> None:
    assert due(Rate(speed=1), 1000, 2000, 500, 2100) == [0, 1000, 1000, 1100]


def test_a_long_gap_counts_as_a_short_one() -> None:
    assert due(Rate(speed=2), 0, 100, 1_000_000, 1_000_100, gap_ms_max=200) == [0, 50, 150, 200]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), st.floats(0.01, 100))
def test_nothing_is_due_before_what_came_before_it(timestamps_ms: list[int], speed: float) -> None:
    found = due(Rate(speed=speed), *timestamps_ms)
    assert found == sorted(found)
    assert found[-1] == pytest.approx((max(timestamps_ms) - timestamps_ms[0]) / speed)
