"""The parts of a run that need no Spark; the runs themselves are in tests/spark/test_pipelines.py."""

import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkValueError

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.runner import Runner, RunOutcome, messages_of, run_loop

ACCUMULATOR = "PlanObserved(name=__python_accumulator__, metrics={})"


def event(message: str) -> dict[str, Any]:
    return {"pipeline_event_result": SimpleNamespace(event=SimpleNamespace(message=message))}


def ending_with(error: Exception | None) -> Iterator[dict[str, Any]]:
    yield {"pipeline_command_result": None}
    yield event("Flow a.b.c is RUNNING.")
    yield event("Run is COMPLETED.")
    if error is not None:
        raise error


def unknown(response: str) -> PySparkValueError:
    return PySparkValueError(errorClass="UNKNOWN_RESPONSE", messageParameters={"response": response})


def test_the_one_error_that_is_none_ends_the_messages() -> None:
    expected = ["Flow a.b.c is RUNNING.", "Run is COMPLETED."]
    assert list(messages_of(ending_with(None))) == expected
    assert list(messages_of(ending_with(unknown(ACCUMULATOR)))) == expected


@pytest.mark.parametrize("error", [unknown("something else"), RuntimeError("lost"), ValueError(ACCUMULATOR)])
def test_every_other_error_is_one(error: Exception) -> None:
    with pytest.raises(type(error)):
        list(messages_of(ending_with(error)))


class Stage:
    """A runner whose runs end as they are told to."""

    def __init__(self, states: list[str], stopping: threading.Event) -> None:
        self.states = states
        self.runs = 0
        self.refreshed: list[tuple[str, ...]] = []
        self.pauses: list[float] = []
        self._stopping = stopping

    def run_once(self, full_refresh: Sequence[str] = ()) -> RunOutcome:
        self.refreshed.append(tuple(full_refresh))
        state = self.states[self.runs]
        self.runs += 1
        if self.runs == len(self.states):
            self._stopping.set()
        return RunOutcome(self.runs, state, 1, 1, 1, 0, "why" if state == "failed" else None)


class Stopping(threading.Event):
    """Is told how long would be waited."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        return self.is_set()


def looped(states: list[str], failures_max: int = 3) -> tuple[Stage, list[str], RunOutcome]:
    stopping = Stopping()
    stage = Stage(states, stopping)
    told: list[str] = []
    outcome = run_loop(
        cast(Runner, stage), 0.0, stopping, lambda each: told.append(each.state), failures_max, ["orders"]
    )
    stage.pauses = stopping.pauses
    return stage, told, outcome


def test_a_loop_runs_until_it_is_stopped_and_tells_each_run() -> None:
    stage, told, outcome = looped(["completed", "completed", "completed"])
    assert stage.runs == 3
    assert told == ["completed"] * 3
    assert outcome.run == 3


def test_tables_are_made_anew_by_the_first_run_that_completes_and_by_no_other() -> None:
    stage, _, _ = looped(["failed", "completed", "completed", "failed"])
    assert stage.refreshed == [("orders",), ("orders",), (), ()]


def test_a_failed_run_is_tried_again_and_success_forgives() -> None:
    states = ["failed", "failed", "completed", "failed", "failed", "completed"]
    _, told, outcome = looped(states)
    assert told == states
    assert outcome.is_completed


def test_too_many_failures_in_a_row_end_it() -> None:
    with pytest.raises(PipelineError, match=r"3 runs failed.*why"):
        looped(["completed", "failed", "failed", "failed", "completed"])


def test_a_loop_that_is_stopped_after_a_failure_says_so() -> None:
    _, _, outcome = looped(["completed", "failed"])
    assert outcome.error == "why"


def test_after_failures_there_is_a_pause_longer_each_time() -> None:
    stage, _, _ = looped(["failed", "failed", "failed", "completed", "failed", "completed"], failures_max=4)
    assert stage.pauses == [1.0, 2.0, 4.0, 0.0, 1.0, 0.0]
    many = ["failed"] * 12 + ["completed"]
    assert looped(many, failures_max=20)[0].pauses[-2] == 30.0
