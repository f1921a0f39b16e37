"""How long sends took while something happened to brokers, and how many there were, beside quiet.  Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.reliability.checker import Finding
from tests.reliability.history import History

QUIET, RESTARTS = "quiet", "rolling-restart"
RESTARTS_P99_MAX = 3
"""So many times as long as in quiet sends may take while brokers are restarted, but for one of a hundred."""
Span = tuple[str, int, int]
"""What happened, from when to when, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Figures:
    """How sends went while things of one kind happened, of all clients."""

    per_second: float
    times_ms: Sequence[float]
    """How long each took that was acknowledged, the shortest first."""

    @property
    def p99_ms(self) -> float:
        return self.times_ms[min(len(self.times_ms) - 1, len(self.times_ms) * 99 // 100)]

    def __str__(self) -> str:
        return (
            f"{len(self.times_ms)} sends, {self.per_second:.0f} a second, "
            f"p50 {statistics.median(self.times_ms):.0f} ms, p99 {self.p99_ms:.0f} ms, "
            f"longest {self.times_ms[-1]:.0f} ms"
        )


def measure(history: History, spans: Sequence[Span]) -> dict[str, Figures]:
    """Returns the figures of each kind of thing during which anything was sent and acknowledged."""
    acknowledged = list(history.acknowledged())
    found = {}
    for name in dict.fromkeys(each[0] for each in spans):
        own = [(begun_ns, ended_ns) for kind, begun_ns, ended_ns in spans if kind == name]
        times = sorted(
            (send.completed_ns - send.invoked_ns) / 1e6
            for begun_ns, ended_ns in own
            for send in acknowledged
            if send.completed_ns is not None and begun_ns <= send.invoked_ns < ended_ns
        )
        if times:
            seconds = sum(ended_ns - begun_ns for begun_ns, ended_ns in own) / 1e9
            found[name] = Figures(len(times) / seconds, times)
    return found


def describe(figures: Mapping[str, Figures]) -> str:
    return "\n".join(f"{name}: {each}{_share(name, figures)}" for name, each in figures.items())


def _share(name: str, figures: Mapping[str, Figures]) -> str:
    if name == QUIET or QUIET not in figures:
        return ""
    return f"; {figures[name].per_second / figures[QUIET].per_second:.0%} of the sends in quiet"


def judge_restarts(figures: Mapping[str, Figures]) -> list[Finding]:
    """Judges by a ratio, since both were measured on the same machine, by turns."""
    quiet, restarts = figures[QUIET], figures[RESTARTS]
    if restarts.p99_ms <= RESTARTS_P99_MAX * quiet.p99_ms:
        return []
    found = f"p99 {restarts.p99_ms:.0f} ms, more than {RESTARTS_P99_MAX} times {quiet.p99_ms:.0f} ms in quiet"
    return [Finding("slow restarts", found)]
