"""How long the data loop takes to answer: a callback is posted to it, and the time until it ran is measured.

One is under way at a time.  While it has not come back, the lag is its age, so a loop that is stuck shows at
once and not only when it is free again.  Runs on the control loop, which is idle enough to tell the time.
"""

import asyncio
from typing import Final

from distributedlog.broker.loops import post
from distributedlog.ports.clock import Clock
from distributedlog.ports.scheduler import Scheduler

PROBE_INTERVAL_MS: Final = 200


class LagProbe:
    def __init__(self, data_loop: asyncio.AbstractEventLoop, clock: Clock, scheduler: Scheduler) -> None:
        self._data_loop = data_loop
        self._clock = clock
        self._scheduler = scheduler
        self._sent_ms: int | None = None
        self._last_ms = 0
        self._running = False

    def start(self) -> None:
        self._running = True
        self._probe()

    def stop(self) -> None:
        self._running = False

    def lag_ms(self) -> int:
        if self._sent_ms is None:
            return self._last_ms
        return max(self._last_ms, self._clock.monotonic_ms() - self._sent_ms)

    def _probe(self) -> None:
        if self._running:
            self._sent_ms = self._clock.monotonic_ms()
            post(self._data_loop, self._on_data_loop)

    def _on_data_loop(self) -> None:
        ran_ms = self._clock.monotonic_ms()
        self._scheduler.post(lambda: self._came_back(ran_ms))

    def _came_back(self, ran_ms: int) -> None:
        if self._sent_ms is None:
            return
        self._last_ms, self._sent_ms = ran_ms - self._sent_ms, None
        self._scheduler.call_at(self._clock.monotonic_ms() + PROBE_INTERVAL_MS, self._probe)
