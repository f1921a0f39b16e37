"""Gaps: the times between one success of a client and its next, as a histogram.

A success is an acknowledged send or a poll that gave records.  Short times are what a client sees without
faults; only those of half a second and more are counted as gaps.
"""

from bisect import bisect_right
from collections import defaultdict
from itertools import pairwise

from tests.reliability.history import History

GAP_SECONDS_MIN = 0.5
EDGES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
BAR_WIDTH_MAX = 40


def gaps(history: History) -> dict[str, list[float]]:
    """The gaps of each client, in seconds, in the order in which they happened."""
    successes: dict[str, list[int]] = defaultdict(list)
    for send in history.acknowledged():
        if send.completed_ns is not None:
            successes[send.process].append(send.completed_ns)
    for poll in history.polls:
        if poll.records:
            successes[poll.process].append(poll.completed_ns)
    return {
        process: [
            (after - before) / 1e9
            for before, after in pairwise(sorted(times))
            if after - before >= GAP_SECONDS_MIN * 1e9
        ]
        for process, times in sorted(successes.items())
    }


def histogram(found: list[float]) -> list[int]:
    """How many gaps begin at each edge and end before the next one."""
    counts = [0] * len(EDGES)
    for gap in found:
        counts[bisect_right(EDGES, gap) - 1] += 1
    return counts


def describe_gaps(history: History) -> str:
    """A histogram of the gaps of all clients, and the longest gap of each client."""
    by_client = gaps(history)
    everything = [gap for found in by_client.values() for gap in found]
    counts = histogram(everything)
    most = max(counts, default=0) or 1
    lines = [f"gaps of half a second and more, of {len(by_client)} clients: {len(everything)}"]
    for edge, count in zip(EDGES, counts, strict=True):
        bar = "#" * -(-count * BAR_WIDTH_MAX // most)
        lines.append(f"  from {edge:4.1f} s {count:5d} {bar}")
    longest = ", ".join(f"{client} {max(found):.1f} s" for client, found in by_client.items() if found)
    return "\n".join([*lines, f"  longest: {longest or 'none'}"])
