"""Sends count for what happened when they were begun; restarts are measured by quiet."""

from tests.reliability.history import History, Outcome, Place, Send
from tests.system.failover.figures import QUIET, RESTARTS, describe, judge_restarts, measure

SECOND_NS = 1_000_000_000
SPANS = [(QUIET, 0, SECOND_NS), (RESTARTS, SECOND_NS, 2 * SECOND_NS), (QUIET, 2 * SECOND_NS, 3 * SECOND_NS)]


def sends(second: int, count: int, slow: int, slow_ms: int) -> list[Send]:
    """Makes so many sends of a millisecond each, and some that are slow, begun in that second."""
    begun_ns = second * SECOND_NS
    return [
        Send(
            "p", Place("t", 0), f"{second}-{number}", begun_ns + number,
            begun_ns + number + (slow_ms if number < slow else 1) * 1_000_000, Outcome.OK, number,
        )
        for number in range(count)
    ]  # fmt: skip


def test_restarts_may_take_three_times_as_long_as_quiet() -> None:
    quiet = sends(0, 200, 4, 10) + sends(2, 200, 4, 10)
    for slow_ms, is_slow in ((30, False), (31, True)):
        figures = measure(History(sends=quiet + sends(1, 100, 2, slow_ms)), SPANS)
        assert (figures[QUIET].p99_ms, figures[RESTARTS].p99_ms) == (10, slow_ms)
        assert bool(judge_restarts(figures)) is is_slow
        assert "rolling-restart: 100 sends, 100 a second" in describe(figures)
        assert "50% of the sends in quiet" in describe(figures)


def test_what_was_not_acknowledged_has_no_time() -> None:
    lost = [each._replace(outcome=Outcome.UNKNOWN) for each in sends(1, 10, 0, 0)]
    assert set(measure(History(sends=sends(0, 10, 0, 0) + lost), SPANS)) == {QUIET}
