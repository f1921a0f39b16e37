"""Who waits for the end of a sink's batch gets one answer, and not more wait than fit."""

from collections.abc import Callable

from distributedlog.broker.coordination.sink_ends import WAITING_MAX, SinkEnds
from distributedlog.model.errors import CoordinatorNotAvailableError, NotCoordinatorError
from distributedlog.ports.executor import Outcome
from distributedlog.transactions.requests import Reply
from distributedlog.transactions.sinks.requests import SinkEnded


class Told:
    def __init__(self) -> None:
        self.outcomes: list[tuple[int, Outcome[Reply]]] = []

    def by(self, number: int) -> Callable[[Outcome[Reply]], None]:
        return lambda outcome: self.outcomes.append((number, outcome))


def test_all_who_wait_for_a_query_are_answered_once() -> None:
    ends, told = SinkEnds(), Told()
    for number in range(3):
        ends.wait("q", told.by(number))
    ends.wait("other", told.by(3))
    ends.completed("q")
    ends.completed("q")
    assert [(number, outcome.value()) for number, outcome in told.outcomes] == [
        (number, SinkEnded()) for number in range(3)
    ]
    ends.fail(NotCoordinatorError("another leads"))
    assert [number for number, outcome in told.outcomes if outcome.error is not None] == [3]
    assert len(ends) == 0


def test_a_driver_that_asks_for_ever_leaves_no_more_than_fit() -> None:
    ends, told = SinkEnds(), Told()
    for number in range(WAITING_MAX + 2):
        ends.wait("q", told.by(number))
    assert len(ends) == WAITING_MAX
    assert [number for number, _ in told.outcomes] == [0, 1]
    assert all(isinstance(outcome.error, CoordinatorNotAvailableError) for _, outcome in told.outcomes)
