"""An executor that runs its work only when told, in an order that a test or a seed chooses.

Work waits in the order it came.  `run_one` takes one piece, runs it and calls its `done` before it returns,
so that a test decides what happens between a sync being asked for and its being done.  What `done` asks
for joins the queue.  As with the real executor, blocking work and CPU work are not ordered among each other.
"""

import random
from collections.abc import Callable
from typing import Any, TypeVar

from distributedlog.ports.executor import Done, Outcome
from tests.simulation.disk import PowerCut

T = TypeVar("T")


class InlineExecutor:
    """Runs everything at once, in the caller: for tests of what comes after."""

    def run_blocking(self, work: Callable[[], T], done: Done[T]) -> None:
        done(Outcome.of(work))

    def run_cpu(self, function: Callable[..., T], arguments: tuple[Any, ...], done: Done[T]) -> None:
        done(Outcome.of(lambda: function(*arguments)))

    def close(self) -> None:
        return None


class StepExecutor:
    """An executor that runs one piece of work at a time: with a seed the next is drawn; without, it is the
    oldest."""

    def __init__(self, seed: int | None = None) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._chance = None if seed is None else random.Random(seed)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def run_blocking(self, work: Callable[[], T], done: Done[T]) -> None:
        self._waiting.append(lambda: _finish(work, done))

    def run_cpu(self, function: Callable[..., T], arguments: tuple[Any, ...], done: Done[T]) -> None:
        self._waiting.append(lambda: _finish(lambda: function(*arguments), done))

    def run_one(self, index: int | None = None) -> bool:
        """Runs the piece at `index`, or the next one; False if none waits."""
        if not self._waiting:
            return False
        if index is None:
            index = 0 if self._chance is None else self._chance.randrange(len(self._waiting))
        self._waiting.pop(index)()
        return True

    def run_all(self) -> int:
        """Runs until nothing waits, also what is asked for meanwhile; says how many pieces ran."""
        count = 0
        while self.run_one():
            count += 1
        return count

    def drop_all(self) -> None:
        """Forgets what waits: the process was killed before it ran."""
        self._waiting.clear()

    def close(self) -> None:
        self.run_all()


def _finish(work: Callable[[], T], done: Done[T]) -> None:
    """A power cut ends the process that would have heard of it: it goes to the test and not to `done`."""
    outcome = Outcome.of(work)
    if isinstance(outcome.error, PowerCut):
        raise outcome.error
    done(outcome)
