"""Coarse timers for many: one timer of the loop serves every connection.

Each item has at most one time at which it is looked at.  It lies in the bucket of that time, one bucket per
tick; when the tick has come the item is asked when to be looked at next.  So a time that is moved ahead again
and again, as an idle time is, costs nothing until it would have run out, and only a time that comes *earlier*
than the one set must be told (`hurry`).

Nothing is looked at before its time, and nothing more than about a tick after it.
"""

import asyncio
from typing import Generic, Protocol, TypeVar

from distributedlog.ports.clock import Clock


class Timed(Protocol):
    due_ms: int
    """When it is looked at next.  Set by the wheel alone."""

    def look(self, now_ms: int) -> int | None:
        """When to look again, by the monotonic clock; None for never."""
        ...


T = TypeVar("T", bound=Timed)


class TimingWheel(Generic[T]):
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, tick_ms: int) -> None:
        self._loop = loop
        self._clock = clock
        self._tick_ms = tick_ms
        self._buckets: dict[int, dict[T, None]] = {}
        self._done_tick = self._tick_of(clock.monotonic_ms()) - 1
        """Every tick up to this one has been served."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, item: T, due_ms: int) -> None:
        """Adds an item that is not in the wheel."""
        if not self._buckets:
            self._done_tick = max(self._done_tick, self._tick_of(self._clock.monotonic_ms()) - 1)
        item.due_ms = max(due_ms, (self._done_tick + 1) * self._tick_ms)
        self._buckets.setdefault(self._tick_of(item.due_ms), {})[item] = None
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick_ms / 1000, self._on_tick)

    def hurry(self, item: T, due_ms: int) -> None:
        """Looks at it no later than this."""
        if due_ms < item.due_ms:
            self.remove(item)
            self.add(item, due_ms)

    def remove(self, item: T) -> None:
        tick = self._tick_of(item.due_ms)
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(item, None)
            if not bucket:
                del self._buckets[tick]

    def close(self) -> None:
        self._buckets.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick_of(self, moment_ms: int) -> int:
        return moment_ms // self._tick_ms

    def _on_tick(self) -> None:
        self._timer = None
        try:
            self.advance(self._clock.monotonic_ms())
        finally:  # one item that fails must not stop the clock for the others
            if self._buckets and self._timer is None:
                self._timer = self._loop.call_later(self._tick_ms / 1000, self._on_tick)

    def advance(self, now_ms: int) -> None:
        """Looks at all whose tick has passed."""
        last = self._tick_of(now_ms) - 1
        if last - self._done_tick > len(self._buckets):
            passed = sorted(tick for tick in self._buckets if tick <= last)
        else:
            passed = [tick for tick in range(self._done_tick + 1, last + 1) if tick in self._buckets]
        self._done_tick = max(self._done_tick, last)
        try:
            for tick in passed:
                # Looking at one may remove another: take them one by one.
                bucket = self._buckets.get(tick)
                while bucket:
                    self._look(bucket.popitem()[0], now_ms)
                self._buckets.pop(tick, None)
        except BaseException:
            left = [tick for tick in passed if self._buckets.get(tick)]
            self._done_tick = min([self._done_tick, *(tick - 1 for tick in left)])
            raise

    def _look(self, item: T, now_ms: int) -> None:
        due_ms = item.look(now_ms)
        if due_ms is not None:
            self.add(item, due_ms)
