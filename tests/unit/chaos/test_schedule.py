"""What is planned: the same for the same seed, quiet for a quarter of the time, and healed before the end."""

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.schedule import PERIOD_SECONDS, QUIET_SHARE, draw

NEMESES = ("a", "b", "c")


@given(st.integers(0, 2**31), st.floats(0, 3_600))
def test_every_fault_ends_before_its_period_and_the_run_does(seed: int, seconds: float) -> None:
    planned = draw(seed, seconds, NEMESES)
    assert planned == draw(seed, seconds, NEMESES)
    assert planned == sorted(planned, key=lambda each: each.begins_s)
    for each in planned:
        assert each.lasts_s > 0
        assert each.begins_s // PERIOD_SECONDS == each.ends_s // PERIOD_SECONDS
        assert each.ends_s < seconds


def test_a_quarter_of_the_periods_is_quiet_and_some_have_two_faults() -> None:
    periods = 4_000
    busy = [each.begins_s // PERIOD_SECONDS for each in draw(1, periods * PERIOD_SECONDS, NEMESES)]
    assert abs(len(set(busy)) / periods - (1 - QUIET_SHARE)) < 0.03
    assert max(busy.count(period) for period in set(busy[:400])) == 2


def test_other_seeds_draw_other_faults_and_all_of_them_come() -> None:
    assert draw(1, 600, NEMESES) != draw(2, 600, NEMESES)
    assert {each.nemesis for each in draw(1, 600, NEMESES)} == set(NEMESES)


def test_there_may_be_one_nemesis_alone() -> None:
    assert {each.nemesis for each in draw(1, 600, ("a",))} == {"a"}
