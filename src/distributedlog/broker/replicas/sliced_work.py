"""Work of the data loop that is done a few milliseconds at a time: between two slices the loop serves others.

Pieces are done one after the other, those that were added as `first` before the rest.  A piece may leave what
waits for the disk to another thread (`wait_for`): no other piece is done before that is over, so that their
order is the same, but the loop goes on.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Executor, Outcome
from distributedlog.ports.scheduler import Scheduler

T = TypeVar("T")
Piece = Callable[[], None]

SLICE_MS: Final = 5


class SlicedWork:
    """Belongs to the data loop."""

    def __init__(self, clock: Clock, scheduler: Scheduler, executor: Executor | None = None) -> None:
        """`executor` calls back on the loop; without one everything is done there."""
        self._clock = clock
        self._scheduler = scheduler
        self._executor = executor
        self._first: deque[Piece] = deque()
        self._rest: deque[Piece] = deque()
        self._is_posted = False
        self._is_running = False
        self._is_waiting = False
        """A thread does a part of the piece that was begun."""
        self._is_closed = False

    def add(self, piece: Piece, *, first: bool = False) -> None:
        (self._first if first else self._rest).append(piece)

    def run(self) -> None:
        """Does as much as fits a slice, at least one piece."""
        if self._is_posted or self._is_running or self._is_waiting:
            return
        self._is_running = True
        ends_ms = self._clock.monotonic_ms() + SLICE_MS
        try:
            while (line := self._first or self._rest) and not self._is_closed:
                line.popleft()()
                if self._has_to_wait():
                    return
                if (self._first or self._rest) and self._clock.monotonic_ms() >= ends_ms:
                    self._is_posted = True
                    self._scheduler.post(self._next_slice)
                    return
        finally:
            self._is_running = False

    def _has_to_wait(self) -> bool:
        return self._is_waiting

    def _next_slice(self) -> None:
        self._is_posted = False
        self.run()

    def wait_for(self, work: Callable[[], T], done: Done[T]) -> None:
        """Has a thread do `work`, as a part of the piece that is being done; `done` is called on the loop, if
        the work is still to go on by then."""
        if self._executor is None:
            done(Outcome.of(work))
            return
        self._is_waiting = True
        self._executor.run_blocking(work, partial(self._go_on, done))

    def _go_on(self, done: Done[T], outcome: Outcome[T]) -> None:
        self._is_waiting = False
        if self._is_closed:
            return
        try:
            done(outcome)
        finally:
            self.run()

    def close(self) -> None:
        """Does nothing more."""
        self._is_closed = True
        self._first.clear()
        self._rest.clear()
