"""The lag of the data loop: shown while it is stuck, and gone when it answers again."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from distributedlog.broker.cluster.data_loop_lag import PROBE_INTERVAL_MS, LagProbe
from distributedlog.broker.cluster.lease_grant import lease_ms
from distributedlog.controller.cluster_settings import data_loop_lag_ms_max
from tests.simulation.clock import ManualClock
from tests.unit.controller.stage import Stage, config


class _Loop:
    """A data loop that runs what was posted when it is told to."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self.posted.append(callback)

    def run(self) -> None:
        posted, self.posted = self.posted, []
        for callback in posted:
            callback()


class _Scheduler:
    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.planned: list[tuple[int, Callable[[], None]]] = []

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> None:
        self.planned.append((monotonic_ms, callback))

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def run_due(self) -> None:
        due = [each for each in self.planned if each[0] <= self.clock.monotonic_ms()]
        self.planned = [each for each in self.planned if each not in due]
        for _, callback in due:
            callback()


def _probe() -> tuple[ManualClock, _Loop, _Scheduler, LagProbe]:
    clock = ManualClock()
    loop = _Loop()
    scheduler = _Scheduler(clock)
    probe = LagProbe(cast("asyncio.AbstractEventLoop", cast("Any", loop)), clock, scheduler)
    probe.start()
    return clock, loop, scheduler, probe


def test_a_loop_that_answers_at_once_has_no_lag() -> None:
    _, loop, _, probe = _probe()
    loop.run()
    assert probe.lag_ms() == 0


def test_a_stuck_loop_shows_before_it_is_free_again() -> None:
    clock, loop, _, probe = _probe()
    clock.advance(7_000)
    assert probe.lag_ms() == 7_000
    assert len(loop.posted) == 1, "one probe at a time, however long it takes"


def test_the_lag_stays_known_until_the_next_answer_and_then_is_new() -> None:
    clock, loop, scheduler, probe = _probe()
    clock.advance(300)
    loop.run()
    assert probe.lag_ms() == 300
    clock.advance(PROBE_INTERVAL_MS)
    scheduler.run_due()
    clock.advance(5)
    assert probe.lag_ms() == 300, "the new probe is younger than the last lag"
    loop.run()
    assert probe.lag_ms() == 5


def test_a_stopped_probe_asks_no_more() -> None:
    clock, loop, scheduler, probe = _probe()
    loop.run()
    probe.stop()
    clock.advance(10 * PROBE_INTERVAL_MS)
    scheduler.run_due()
    assert not loop.posted


@pytest.mark.parametrize("session_ms", [3_001, 6_000, 9_000])
def test_a_loop_so_stuck_that_its_broker_is_fenced_has_outlived_the_lease_it_knows(session_ms: int) -> None:
    """It cannot hear that its lease is given up before it goes on, and then it may answer first."""
    stage = Stage(config(broker_session_timeout_ms=session_ms))
    assert data_loop_lag_ms_max(stage.image) >= lease_ms(session_ms)
