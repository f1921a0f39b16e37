"""An asyncio loop in virtual time: no file descriptors, no waiting.

Callbacks, timers, futures and tasks are asyncio's own.  When nothing is ready, time jumps to the next timer;
when there is none either, nothing can ever happen again, and that is an error.
"""

import asyncio
from typing import Any


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now_seconds = 0.0
        self._selector = self  # what the base class waits with

    def time(self) -> float:
        return self._now_seconds

    def select(self, timeout: float | None) -> list[Any]:
        """Lets the time pass for which asyncio would wait for file descriptors."""
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing is left that could happen")
        self._now_seconds += timeout
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Whoever calls from another thread finds a loop that is awake."""


class VirtualClock:
    """The clock port on such a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)
