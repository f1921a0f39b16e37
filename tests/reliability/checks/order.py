"""A consumer that is not moved goes step by step; a producer's records stand in the order it sent them."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.reliability.history import History, Place, Poll


def _runs(history: History) -> Iterator[list[Poll]]:
    """The polls of one consumer on one partition between two changes of its assignment or position."""
    runs: dict[tuple[str, Place, int], list[Poll]] = defaultdict(list)
    for poll in history.polls:
        runs[poll.process, poll.place, poll.seat].append(poll)
    for run in runs.values():
        yield sorted(run, key=lambda poll: poll.invoked_ns)


def _steps(history: History) -> Iterator[tuple[str, Place, int, int]]:
    for run in _runs(history):
        offsets = [seen.offset for poll in run for seen in poll.records]
        for before, after in pairwise(offsets):
            yield run[0].process, run[0].place, before, after


def poll_skips(history: History) -> Iterator[str]:
    """A consumer with a fixed assignment jumped over an offset at which there is a record."""
    there: dict[Place, set[int]] = defaultdict(set)
    for place, seen in history.read():
        there[place].add(seen.offset)
    for process, place, before, after in _steps(history):
        passed = sum(offset in there[place] for offset in range(before + 1, after))
        if passed:
            yield f"{process} on {place}: from {before} to {after}, over {passed} records"


def non_monotonic_polls(history: History) -> Iterator[str]:
    """A consumer with a fixed assignment went back, or stood still."""
    for process, place, before, after in _steps(history):
        if after <= before:
            yield f"{process} on {place}: {after} after {before}"


def non_monotonic_sends(history: History) -> Iterator[str]:
    """A later send of one process stands at a lower offset."""
    standing = history.stands_at()
    sends: dict[tuple[str, Place], list[tuple[int, str]]] = defaultdict(list)
    for send in sorted(history.sends, key=lambda send: send.invoked_ns):
        if send.value in standing:
            sends[send.process, send.place].append((standing[send.value][1], send.value))
    for (process, place), placed in sends.items():
        for (before, first), (after, second) in pairwise(placed):
            if after < before:
                yield f"{process} on {place}: {second} at {after}, sent after {first} at {before}"
