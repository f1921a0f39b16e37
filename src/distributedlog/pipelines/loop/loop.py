"""Runs a pipeline again and again, in one session.

It goes on after a failed run (a broker that restarts is worth waiting for) until too many failed in a row; it
waits longer from failure to failure.  A run that would find nothing new is not made (`news`): what is left of
it is a look at the topics, and a line in the history for whoever wonders whether the pipeline is alive.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.loop.watch import Watch
from distributedlog.pipelines.runner import Runner, RunOutcome

FAILURES_MAX_DEFAULT: Final = 5
PAUSE_SECONDS_MAX: Final = 30.0
LOOK_SECONDS_MIN: Final = 1.0
"""The time between two looks that found nothing, however soon the next run is wanted."""


def run_loop(
    runner: Runner,
    every_seconds: float,
    stopping: threading.Event,
    tell: Callable[[RunOutcome], None],
    failures_max: int = FAILURES_MAX_DEFAULT,
    full_refresh: Sequence[str] = (),
    watch: Watch | None = None,
) -> RunOutcome:
    """Does run after run, at least so far apart from start to start; returns the last outcome.  The first
    that completes makes the tables of `full_refresh` anew.  After a failed run there is a pause, longer each
    time.  With a `watch` only those are made that may find something; of looks that found nothing, one after
    the other, the first is told."""
    failures = 0
    was_idle = False
    while True:
        started = time.monotonic()
        is_idle = watch is not None and runner.is_spark_there and watch.news() is None
        if is_idle:
            outcome = runner.note_nothing_new()
        else:
            outcome = _run(runner, full_refresh, watch)
            full_refresh = () if outcome.is_completed else full_refresh
            failures = 0 if outcome.is_completed else failures + 1
        if not (is_idle and was_idle):
            tell(outcome)
        was_idle = is_idle
        if failures >= failures_max:
            raise PipelineError(f"{failures} runs failed, one after the other; the last: {outcome.error}")
        rest = every_seconds - (time.monotonic() - started)
        pause = min(2.0 ** (failures - 1), PAUSE_SECONDS_MAX) if failures else 0.0
        if stopping.wait(max(pause, rest, LOOK_SECONDS_MIN if is_idle else 0.0)):
            return outcome


def _run(runner: Runner, full_refresh: Sequence[str], watch: Watch | None) -> RunOutcome:
    if watch is None:
        return runner.run_once(full_refresh)
    watch.begin()
    outcome = runner.run_once(full_refresh, watch.on_graph)
    watch.end(is_whole=outcome.is_completed and not full_refresh)
    return outcome
