"""A loop in virtual time: a heap of (time, sequence, callback), and a queue of what is due now.

Nothing runs but what was scheduled, and equal times run in the order they were asked for, so a run is a
function of its seed.  Time is in whole microseconds and jumps from one event to the next.  What is asked for
at the time it is due comes behind all that was asked for before, and needs no place in the heap.
"""

import heapq
from collections import deque
from collections.abc import Callable
from math import ceil


class SimLoop:
    __slots__ = ("_due", "_heap", "_sequence", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._due: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self._sequence = 0

    def call_at(self, time_us: int, callback: Callable[..., None], *arguments: object) -> None:
        """Runs `callback` at `time_us`, or now if that has passed."""
        if time_us <= self.now_us:
            self._due.append((callback, arguments))
        else:
            self._sequence += 1
            heapq.heappush(self._heap, (time_us, self._sequence, callback, arguments))

    def call_after(self, delay_us: int, callback: Callable[..., None], *arguments: object) -> None:
        if delay_us <= 0:
            self._due.append((callback, arguments))
        else:
            self._sequence += 1
            heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, callback, arguments))

    def take_back(self) -> bool:
        """Takes back what was asked for last, if that is all that is due now: who asked does it at once."""
        due, heap = self._due, self._heap
        if len(due) != 1 or (heap and heap[0][0] <= self.now_us):
            return False
        due.pop()
        return True

    def run_until(self, time_us: int) -> int:
        """Runs every event up to `time_us`, included; says how many there were."""
        heap, due, count = self._heap, self._due, 0
        while due or (heap and heap[0][0] <= time_us):
            if due and not (heap and heap[0][0] <= self.now_us):
                callback, arguments = due.popleft()
            else:
                self.now_us, _, callback, arguments = heapq.heappop(heap)
            callback(*arguments)
            count += 1
        self.now_us = time_us
        return count


class DriftingClock:
    """A node's own clock: starts anywhere, and runs a little, or much, too fast or too slow.

    The wall clock also jumps, which nothing that waits may notice.
    """

    __slots__ = ("_loop", "_rate_ppm", "_since_ms", "_since_us", "wall_jump_ms")

    def __init__(self, loop: SimLoop, offset_ms: int, rate_ppm: int) -> None:
        self._loop = loop
        self._since_ms = offset_ms
        self._since_us = loop.now_us
        self._rate_ppm = rate_ppm
        self.wall_jump_ms = 0

    @property
    def rate_ppm(self) -> int:
        """A million is true to the loop's time."""
        return self._rate_ppm

    def set_rate(self, rate_ppm: int) -> None:
        """From now on; it goes on from what it shows."""
        self._since_ms, self._since_us = self.monotonic_ms(), self._loop.now_us
        self._rate_ppm = rate_ppm

    def monotonic_ms(self) -> int:
        return self._since_ms + (self._loop.now_us - self._since_us) * self._rate_ppm // 1_000_000_000

    def monotonic_seconds(self) -> float:
        elapsed_us = (self._loop.now_us - self._since_us) * self._rate_ppm / 1_000_000
        return self._since_ms / 1000 + elapsed_us / 1_000_000

    def loop_us(self, seconds: float) -> int:
        """Returns how long the loop takes, at the present rate, until this clock has gone on so far."""
        return ceil(seconds * 1_000_000_000_000 / self._rate_ppm)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms() + self.wall_jump_ms

    def time_us_at(self, monotonic_ms: int) -> int:
        """The loop's time at which this clock first shows `monotonic_ms`, at its present rate."""
        return self._since_us + -((self._since_ms - monotonic_ms) * 1_000_000_000 // self._rate_ppm)
