"""The simulated clock and executor keep the ports' promises and leave the pace to the test."""

import pytest

from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Executor, Outcome
from tests.simulation.clock import ManualClock
from tests.simulation.disk import PowerCut, SimDisk
from tests.simulation.executor import StepExecutor


def test_time_passes_only_when_told() -> None:
    clock = ManualClock(wall_ms=1000, monotonic_ms=5)
    port: Clock = clock
    assert (port.wall_ms(), port.monotonic_ms()) == (1000, 5)
    clock.advance(10)
    assert (port.wall_ms(), port.monotonic_ms()) == (1010, 15)


def test_the_wall_clock_jumps_without_the_monotonic_one() -> None:
    clock = ManualClock(wall_ms=1000)
    clock.set_wall(10)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (10, 0)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_work_waits_until_it_is_run_and_in_the_order_the_test_chooses() -> None:
    executor = StepExecutor()
    port: Executor = executor
    heard: list[str] = []

    def hear(outcome: Outcome[str]) -> None:
        heard.append(outcome.value())

    for name in ("a", "b", "c"):
        port.run_blocking(lambda name=name: name, hear)  # type: ignore[misc]
    assert heard == []
    assert executor.run_one(1)
    assert executor.run_one()
    assert heard == ["b", "a"]
    assert executor.waiting == 1
    port.run_cpu("{}{}".format, ("d", "!"), hear)
    assert executor.run_all() == 2
    assert heard == ["b", "a", "c", "d!"]
    assert not executor.run_one()


def test_a_seed_decides_the_order_and_repeats_it() -> None:
    def run(seed: int) -> list[int]:
        executor, heard = StepExecutor(seed), list[int]()
        for number in range(10):
            executor.run_cpu(abs, (number,), lambda outcome: heard.append(outcome.value()))
        executor.close()
        return heard

    assert run(1) == run(1) != run(2)
    assert sorted(run(1)) == list(range(10))


def test_what_work_raises_comes_out_of_its_outcome() -> None:
    executor, errors = StepExecutor(), list[BaseException | None]()
    executor.run_cpu(int, ("no number",), lambda outcome: errors.append(outcome.error))
    executor.run_all()
    assert isinstance(errors[0], ValueError)


def test_work_that_is_asked_for_meanwhile_runs_too() -> None:
    executor, heard = StepExecutor(), list[int]()

    def again(outcome: Outcome[int]) -> None:
        heard.append(outcome.value())
        if outcome.value() < 3:
            executor.run_cpu(abs, (outcome.value() + 1,), again)

    executor.run_cpu(abs, (0,), again)
    assert executor.run_all() == 4
    assert heard == [0, 1, 2, 3]


def test_a_power_cut_goes_to_the_test_and_not_to_whoever_waits() -> None:
    disk, executor, heard = SimDisk(1), StepExecutor(), list[object]()
    file = disk.open("/a", create=True)
    disk.fail_after(0)
    executor.run_blocking(file.sync, heard.append)
    with pytest.raises(PowerCut):
        executor.run_all()
    assert heard == []


def test_dropped_work_never_runs() -> None:
    executor, heard = StepExecutor(), list[object]()
    executor.run_cpu(abs, (1,), heard.append)
    executor.drop_all()
    executor.close()
    assert heard == []
