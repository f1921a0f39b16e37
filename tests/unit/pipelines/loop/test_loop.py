"""Which runs are made, and when; with real runs, that none is left out that had something to find, is
tests/spark/test_pipeline_loop.py."""

import threading
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.graph_reader import GraphReader
from distributedlog.pipelines.loop.loop import LOOK_SECONDS_MIN, run_loop
from distributedlog.pipelines.loop.watch import Watch
from distributedlog.pipelines.runner import NOTHING_NEW, Runner, RunOutcome


class Stage:
    """A runner whose runs end as they are told to."""

    def __init__(self, states: list[str], stopping: threading.Event) -> None:
        self.states = states
        self.runs = 0
        self.looks = 0
        self.has_spark = True
        self.refreshed: list[tuple[str, ...]] = []
        self.pauses: list[float] = []
        self._stopping = stopping

    @property
    def is_spark_there(self) -> bool:
        return self.has_spark

    def note_nothing_new(self) -> RunOutcome:
        self.looks += 1
        return RunOutcome(self.runs, NOTHING_NEW, 0, 0, 0, 0)

    def run_once(
        self, full_refresh: Sequence[str] = (), on_graph: Callable[[GraphReader], None] = lambda _: None
    ) -> RunOutcome:
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


class Told:
    """A watch that says of each look whether there is news, and remembers what it is told of runs."""

    def __init__(self, news: list[bool]) -> None:
        self._news = news
        self.ends: list[bool] = []

    def news(self) -> str | None:
        return "orders has news" if self._news.pop(0) else None

    def begin(self) -> None:
        pass

    def on_graph(self, reader: GraphReader) -> None:
        pass

    def end(self, *, is_whole: bool) -> None:
        self.ends.append(is_whole)


def watched(
    states: list[str], news: list[bool], *, has_spark: bool = True, full_refresh: Sequence[str] = ()
) -> tuple[Stage, list[str], Told]:
    stopping = Stopping()
    stage = Stage(states, stopping)
    stage.has_spark = has_spark
    told: list[str] = []
    watch = Told(news)
    run_loop(
        cast(Runner, stage),
        0.0,
        stopping,
        lambda each: told.append(each.state),
        full_refresh=full_refresh,
        watch=cast(Watch, watch),
    )
    stage.pauses = stopping.pauses
    return stage, told, watch


def test_without_news_no_run_is_made_and_that_is_told_once() -> None:
    stage, told, _ = watched(["completed", "completed"], [True, False, False, False, True])
    assert told == ["completed", NOTHING_NEW, "completed"]
    assert (stage.runs, stage.looks) == (2, 3)


def test_looks_do_not_follow_each_other_at_once() -> None:
    stage, _, _ = watched(["completed", "completed"], [True, False, True])
    assert stage.pauses == [0.0, LOOK_SECONDS_MIN, 0.0]


def test_a_spark_that_is_gone_is_not_taken_for_a_pipeline_without_news() -> None:
    stage, _, _ = watched(["completed", "completed"], [False], has_spark=False)
    assert (stage.runs, stage.looks) == (2, 0)


def test_only_whole_runs_that_completed_are_believed() -> None:
    _, _, watch = watched(["failed", "completed", "completed"], [True] * 3, full_refresh=["orders"])
    assert watch.ends == [False, False, True]
