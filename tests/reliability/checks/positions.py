"""Offsets that only go forward did so, and are not behind what was acknowledged before they were asked."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate, pairwise

from tests.reliability.history import LATEST, History, Place, Position


def offset_regressions(history: History) -> Iterator[str]:
    """A group's committed offset, the high watermark or the latest offset went back for a client."""
    told: dict[tuple[str, Place, str], list[Position]] = defaultdict(list)
    for position in history.positions:
        told[position.process, position.place, position.what].append(position)
    for (process, place, what), positions in told.items():
        for before, after in pairwise(sorted(positions, key=lambda position: position.invoked_ns)):
            if after.offset < before.offset and before.completed_ns <= after.invoked_ns:
                yield f"{process}: {what} of {place} was {before.offset} and then {after.offset}"


def group_offset_regressions(history: History) -> Iterator[str]:
    """A group's committed offset went back, whichever members were told it."""
    told: dict[tuple[str, Place], list[Position]] = defaultdict(list)
    for position in history.positions:
        if position.what != LATEST:
            told[position.what, position.place].append(position)
    for (group, place), positions in told.items():
        ended = sorted(positions, key=lambda position: position.completed_ns)
        times = [position.completed_ns for position in ended]
        highest = list(accumulate(ended, _higher))
        for position in positions:
            before = bisect_left(times, position.invoked_ns)
            if before and position.offset < highest[before - 1].offset:
                earlier = highest[before - 1]
                yield (
                    f"{group} on {place}: {earlier.offset} for {earlier.process} and then "
                    f"{position.offset} for {position.process}"
                )


def _higher(one: Position, other: Position) -> Position:
    return one if one.offset >= other.offset else other


def stale_ends(history: History) -> Iterator[str]:
    """The latest offset was told lower than what had been acknowledged before it was asked."""
    acknowledged: dict[Place, list[tuple[int, int]]] = defaultdict(list)
    for send in history.acknowledged():
        if send.offset is not None and send.completed_ns is not None:
            acknowledged[send.place].append((send.completed_ns, send.offset + 1))
    times: dict[Place, list[int]] = {}
    ends: dict[Place, list[int]] = {}
    for place, found in acknowledged.items():
        found.sort()
        times[place] = [completed for completed, _ in found]
        ends[place] = list(accumulate((end for _, end in found), max))
    for position in history.positions:
        if position.what != LATEST or position.place not in times:
            continue
        before = bisect_left(times[position.place], position.invoked_ns)
        if before and position.offset < ends[position.place][before - 1]:
            yield (
                f"{position.process} was told that {position.place} ends at {position.offset}, "
                f"when it had reached {ends[position.place][before - 1]}"
            )
