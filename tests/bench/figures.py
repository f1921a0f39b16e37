"""What a section of the bench gives, and how it is measured: interleaved rounds, medians."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Figure(NamedTuple):
    name: str
    value: float
    unit: str
    aim: str = ""
    """What the design asks for, in words; empty for a figure that is only reported."""
    reached: bool | None = None


def at_least(name: str, value: float, unit: str, aim: float) -> Figure:
    return Figure(name, value, unit, f"≥ {aim:g}", value >= aim)


def at_most(name: str, value: float, unit: str, aim: float) -> Figure:
    return Figure(name, value, unit, f"≤ {aim:g}", value <= aim)


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Seconds since the block began; stops when it ends."""
    started = time.perf_counter()
    ended: list[float] = []
    yield lambda: (ended[0] if ended else time.perf_counter()) - started
    ended.append(time.perf_counter())


@contextmanager
def cpu_watch() -> Iterator[Callable[[], float]]:
    """CPU seconds of this process since the block began: what others do on the machine does not count."""
    started = time.process_time()
    ended: list[float] = []
    yield lambda: (ended[0] if ended else time.process_time()) - started
    ended.append(time.process_time())


def medians(rounds: int, *contestants: Callable[[], float]) -> list[float]:
    """Each contestant's median seconds, run in turns so that a noisy minute strikes all alike."""
    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(rounds):
        for seconds, contestant in zip(times, contestants, strict=True):
            seconds.append(contestant())
    return [statistics.median(seconds) for seconds in times]


class Rounds(NamedTuple):
    """What two contestants did side by side, round by round."""

    ours: list[float]
    theirs: list[float]

    @property
    def medians(self) -> tuple[float, float]:
        return statistics.median(self.ours), statistics.median(self.theirs)

    def named(self, name: str, unit: str, places: int = 0) -> str:
        """The name of their ratio, with what it is the ratio of."""
        ours, theirs = self.medians
        return f"{name} ({ours:,.{places}f} / {theirs:,.{places}f} {unit})"

    def ratio(self, floor: float = 0.0) -> float:
        """The median of the rounds' own ratios: a machine that is slower in some rounds than in others (its
        disk, its neighbours) is so for both.  Below the floor they differ in nothing that matters."""
        return statistics.median(
            our / max(their, floor) for our, their in zip(self.ours, self.theirs, strict=True)
        )
