"""Work in slices, in its order, also where a thread does a part of it."""

import pytest

from distributedlog.broker.replicas.sliced_work import SLICE_MS, SlicedWork
from distributedlog.ports.executor import Outcome
from tests.simulation.clock import ManualClock
from tests.simulation.executor import StepExecutor
from tests.unit.broker.partition_stage import StepScheduler


class Stage:
    def __init__(self, *, with_executor: bool = True) -> None:
        self.clock = ManualClock()
        self.scheduler = StepScheduler(self.clock)
        self.executor = StepExecutor()
        self.work = SlicedWork(self.clock, self.scheduler, self.executor if with_executor else None)
        self.lines: list[str] = []

    def add(self, name: str, *, takes_ms: int = 0, first: bool = False) -> None:
        def piece() -> None:
            self.lines.append(name)
            self.clock.advance(takes_ms)

        self.work.add(piece, first=first)

    def add_waiting(self, name: str) -> None:
        def done(outcome: Outcome[str]) -> None:
            self.lines.append(f"{outcome.value()} done")

        self.work.add(lambda: self.work.wait_for(lambda: name, done))


def test_a_slice_ends_after_its_time_and_what_is_left_comes_after_others() -> None:
    stage = Stage()
    for name in "abc":
        stage.add(name, takes_ms=SLICE_MS)
    stage.work.run()
    stage.work.run()
    assert stage.lines == ["a"]
    stage.scheduler.run_posted()
    assert stage.lines == ["a", "b", "c"]


def test_what_is_added_as_first_comes_before_the_rest() -> None:
    stage = Stage()
    stage.add("rest")
    stage.add("first", first=True)
    stage.work.run()
    assert stage.lines == ["first", "rest"]


@pytest.mark.parametrize("with_executor", [True, False])
def test_nothing_overtakes_a_piece_of_which_a_thread_does_a_part(with_executor: bool) -> None:
    stage = Stage(with_executor=with_executor)
    stage.add("before")
    for number in range(500):
        stage.add_waiting(str(number))
    stage.add("behind")
    stage.work.run()
    stage.work.run()
    if with_executor:
        assert stage.lines == ["before"]
    stage.executor.run_all()
    assert stage.lines == ["before", *(f"{number} done" for number in range(500)), "behind"]


def test_a_piece_that_fails_holds_up_no_other() -> None:
    def fail(outcome: Outcome[None]) -> None:
        raise ZeroDivisionError

    stage = Stage()
    stage.work.add(lambda: stage.work.wait_for(lambda: None, fail))
    stage.add("behind")
    stage.work.run()
    with pytest.raises(ZeroDivisionError):
        stage.executor.run_all()
    assert stage.lines == ["behind"]


def test_after_the_end_nothing_is_done_any_more() -> None:
    stage = Stage()
    stage.add_waiting("waits")
    stage.add("behind")
    stage.work.run()
    stage.work.close()
    stage.executor.run_all()
    assert stage.lines == []
