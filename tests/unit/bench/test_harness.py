"""A case that fails is reported with its cause and the others go on; one that was disturbed runs again."""

import sys
from collections.abc import Callable

import pytest

from tests.bench.figures import Figure
from tests.bench.harness import (
    REST_SECONDS_MAX,
    Bench,
    ProgramFailedError,
    describe,
    run_program,
)
from tests.bench.machine import Sample

FIGURE = Figure("speed", 1.0, "MB/s")


class Machine:
    """Two cores on which others use so many, as a test says."""

    def __init__(self) -> None:
        self.cores_of_others = 0.0
        self._clock_s = self._cpu_s = 0.0
        self.paused: list[float] = []

    def sample(self) -> Sample:
        return Sample(self._clock_s, 2, self._cpu_s, 0.0, 0.0, 0.0, {})

    def pass_time(self, seconds: float) -> None:
        self._clock_s += seconds
        self._cpu_s += seconds * self.cores_of_others

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.pass_time(seconds)

    def bench(self, only: str = "", seconds_max: float = 1_000.0) -> Bench:
        return Bench(only=only, seconds_max=seconds_max, sample=self.sample, pause=self.pause)

    def measure(self, *cores_of_others: float, seconds: float = 10.0) -> Callable[[], list[Figure]]:
        """A case of so many seconds; its runs are disturbed as listed, and its figure is the run's number."""
        runs = iter(enumerate(cores_of_others, 1))

        def work() -> list[Figure]:
            number, self.cores_of_others = next(runs)
            self.pass_time(seconds)
            self.cores_of_others = 0.0
            return [FIGURE._replace(value=float(number))]

        return work


def fail() -> list[Figure]:
    try:
        raise OSError("connection refused")
    except OSError as error:
        raise AssertionError("the broker hung up") from error


def test_a_case_that_fails_is_told_with_its_cause_and_the_others_go_on() -> None:
    bench = Machine().bench()
    bench.case("first", lambda: [FIGURE])
    bench.case("second", fail)
    bench.case("third", lambda: [FIGURE])
    assert [(report.name, report.figures) for report in bench.reports] == [
        ("first", [FIGURE]),
        ("second", []),
        ("third", [FIGURE]),
    ]
    (failed,) = bench.failures
    assert failed.cause == "AssertionError: the broker hung up\ncaused by OSError: connection refused"
    assert "def fail" not in failed.trace
    assert "in fail" in failed.trace


def test_a_failure_is_not_run_again() -> None:
    bench, runs = Machine().bench(), []

    def work() -> list[Figure]:
        runs.append(1)
        return fail()

    bench.case("failing", work)
    assert len(runs) == bench.reports[0].runs == 1


def test_an_error_in_the_set_up_ends_its_section_alone() -> None:
    bench = Machine().bench()

    def broken(bench: Bench) -> None:
        bench.case("before", lambda: [FIGURE])
        raise RuntimeError("no room on the disk")

    bench.section("broken", broken)
    bench.section("whole", lambda bench: bench.case("after", lambda: [FIGURE]))
    assert [report.name for report in bench.reports] == ["before", "broken", "after"]
    assert [report.cause for report in bench.failures] == ["RuntimeError: no room on the disk"]


def test_somebody_who_interrupts_is_heard() -> None:
    def interrupted() -> list[Figure]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Machine().bench().case("long", interrupted)


def test_a_quiet_case_runs_once_and_says_that_it_was_quiet() -> None:
    machine = Machine()
    bench = machine.bench()
    bench.case("quiet", machine.measure(0.1))
    (report,) = bench.reports
    assert (report.runs, report.figures[0].value) == (1, 1.0)
    assert report.machine == "others 5%, steal 0%, disk 0%"
    assert not report.is_disturbed(bench.disturbed)


def test_a_disturbed_case_runs_again_when_the_machine_is_at_rest() -> None:
    machine = Machine()
    bench = machine.bench()
    bench.case("disturbed", machine.measure(1.0, 0.0))
    (report,) = bench.reports
    assert (report.runs, report.figures[0].value) == (2, 2.0)
    assert report.machine == "others 0%, steal 0%, disk 0%; the quietest of 2 runs"
    assert machine.paused == [1.0], "one look, and nobody was there"


def test_what_counts_is_the_quietest_run_and_their_number_is_bounded() -> None:
    machine = Machine()
    bench = machine.bench()
    bench.case("always disturbed", machine.measure(1.5, 0.6, 1.0, 0.0))
    (report,) = bench.reports
    assert (report.runs, report.figures[0].value) == (3, 2.0)
    assert report.is_disturbed(bench.disturbed)
    assert report.machine.startswith("others 30%")


def test_a_long_case_is_not_run_again_beyond_its_time() -> None:
    machine = Machine()
    bench = machine.bench(seconds_max=100.0)
    bench.case("long", machine.measure(1.0, 0.0, seconds=120.0))
    assert bench.reports[0].runs == 1


def test_a_machine_that_is_never_at_rest_is_not_waited_for_for_ever() -> None:
    machine = Machine()

    def work() -> list[Figure]:
        machine.cores_of_others = 2.0
        machine.pass_time(1.0)
        return [FIGURE]

    machine.bench().case("busy", work)
    assert sum(machine.paused) == 2 * REST_SECONDS_MAX


def test_a_failure_of_a_later_run_is_told_beside_what_the_first_one_found() -> None:
    machine = Machine()
    bench = machine.bench()
    bench.case("fails later", machine.measure(1.0))
    (report,) = bench.failures
    assert report.cause == "StopIteration"
    assert report.figures[0].value == 1.0


def test_only_the_named_cases_run() -> None:
    bench = Machine().bench(only="1 kb")
    bench.case("produce 1 KB alone", lambda: [FIGURE])
    bench.case("produce 1 MB", fail)
    assert [report.name for report in bench.reports] == ["produce 1 KB alone"]


def test_who_is_not_here_is_noted() -> None:
    bench = Machine().bench()
    bench.note(Figure("Redis Streams: left out", float("nan"), ""))
    (report,) = bench.reports
    assert (report.cause, report.machine) == ("", "")


def test_a_cause_that_was_suppressed_is_not_told() -> None:
    inner, outer = ValueError("inner"), KeyError("outer")
    outer.__context__ = inner
    assert describe(outer) == "KeyError: 'outer'\ncaused by ValueError: inner"
    outer.__suppress_context__ = True
    assert describe(outer) == "KeyError: 'outer'"


# --- programs ----------------------------------------------------------------------------------


def test_what_a_program_prints_is_returned() -> None:
    assert run_program([sys.executable, "-c", "print(7)"]) == "7\n"


def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(ProgramFailedError, match=r"ended with 3:\nthe broker refused$"):
        run_program([sys.executable, "-c", "import sys; sys.stderr.write('the broker refused'); sys.exit(3)"])


def test_a_program_that_never_ends_is_ended() -> None:
    with pytest.raises(ProgramFailedError, match=r"took longer than 0\.2 s"):
        run_program([sys.executable, "-c", "import threading; threading.Event().wait()"], 0.2)
