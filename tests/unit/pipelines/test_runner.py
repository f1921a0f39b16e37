"""The parts of a run that need no Spark; the runs themselves are in tests/spark/test_pipelines.py."""

import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkValueError

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.runner import Runner, RunOutcome, describe, messages_of, run_loop

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


def test_of_a_long_error_the_beginning_is_told() -> None:
    text = "[TABLE_NOT_FOUND] no such table\n  orders\n\nJVM stacktrace:\norg.apache.X\n at org.apache.Y"
    assert describe(RuntimeError(text)) == "[TABLE_NOT_FOUND] no such table orders"
    assert describe(RuntimeError()) == "RuntimeError"
    assert (
        describe("[STREAM_FAILED] it ended\n=== Streaming Query ===\nIdentifier: x")
        == "[STREAM_FAILED] it ended"
    )
    assert len(describe(RuntimeError("x" * 10_000))) == 2_000


def test_of_an_error_that_came_through_java_the_last_cause_is_told() -> None:
    text = (
        "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: Job aborted\n"
        "\tat org.apache.X\nCaused by: org.apache.Y: [USER_RAISED_EXCEPTION] 'false' is not true!\n\tat Z"
    )
    assert describe(text) == "[USER_RAISED_EXCEPTION] 'false' is not true!"


def test_of_an_error_in_a_worker_ours_is_told() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated: Traceback (most recent call last):\n"
        '  File "worker.py", line 3, in main\n'
        "distributedlog.model.errors.UnknownTopicError: there is no topic 'orders'\n"
        "\tat org.apache.spark.X\n"
    )
    assert describe(RuntimeError(text)) == "there is no topic 'orders'"


class Stage:
    """A runner whose runs end as they are told to."""

    def __init__(self, states: list[str], stopping: threading.Event) -> None:
        self.states = states
        self.runs = 0
        self.refreshed: list[tuple[str, ...]] = []
        self._stopping = stopping

    def run_once(self, full_refresh: Sequence[str] = ()) -> RunOutcome:
        self.refreshed.append(tuple(full_refresh))
        state = self.states[self.runs]
        self.runs += 1
        if self.runs == len(self.states):
            self._stopping.set()
        return RunOutcome(self.runs, state, 1, 1, 1, 0, "why" if state == "failed" else None)


def looped(states: list[str], failures_max: int = 3) -> tuple[Stage, list[str], RunOutcome]:
    stopping = threading.Event()
    stage = Stage(states, stopping)
    told: list[str] = []
    outcome = run_loop(
        cast(Runner, stage), 0.0, stopping, lambda each: told.append(each.state), failures_max, ["orders"]
    )
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
