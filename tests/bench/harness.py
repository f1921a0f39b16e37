"""How cases are run: each alone, so that one that fails is reported and the others go on.

    def run(bench: Bench) -> None:
        with ...set-up... as broker:
            bench.case("produce 1 KB", lambda: produce(broker))

A case is a function that measures and returns figures.  Around it the machine is watched (`machine`): figures
say how much of the CPU was taken from them.  One that lost more than `disturbed` is run again, at most
`repeats_max` times and as long as all of it takes no longer than `seconds_max`; before that the machine is
given some time to come to rest.  What counts is the quietest run, not the best one.  So a case must be able
to run twice: it leaves nothing behind that it would stumble over.

A case that raises is reported with its cause and not run again: a failure that comes and goes is a finding
too.  An error outside a case, in the set-up of a section, ends that section alone.
"""

import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.bench.figures import Figure
from tests.bench.machine import Disturbance, Sample, compare_samples, take_sample

DISTURBED: Final = 0.1
REPEATS_MAX: Final = 2
SECONDS_MAX: Final = 300.0
REST_SECONDS_MAX: Final = 20.0
LOOK_SECONDS: Final = 1.0
PROGRAM_SECONDS_MAX: Final = 300.0
STDERR_LINES: Final = 15

Measure = Callable[[], Sequence[Figure]]


class ProgramFailedError(Exception):
    """A program that a case has started did not do what it should, and what it said."""


@dataclass(slots=True)
class CaseReport:
    name: str
    figures: list[Figure] = field(default_factory=list)
    disturbance: Disturbance | None = None
    runs: int = 0
    cause: str = ""
    """Why it failed; empty if it did not."""
    trace: str = ""

    def is_disturbed(self, limit: float) -> bool:
        return self.disturbance is not None and self.disturbance.share > limit

    @property
    def machine(self) -> str:
        """How busy the machine was, and how often it was tried."""
        if self.disturbance is None:
            return ""
        return str(self.disturbance) + (f"; the quietest of {self.runs} runs" if self.runs > 1 else "")


class Bench:
    """Runs cases and keeps their reports, in order."""

    def __init__(
        self,
        *,
        only: str = "",
        disturbed: float = DISTURBED,
        repeats_max: int = REPEATS_MAX,
        seconds_max: float = SECONDS_MAX,
        sample: Callable[[], Sample] = take_sample,
        pause: Callable[[float], None] = time.sleep,
        on_begin: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`only` is a part of the names of those cases that are to run."""
        self.reports: list[CaseReport] = []
        self.disturbed = disturbed
        self._only = only
        self._repeats_max = repeats_max
        self._seconds_max = seconds_max
        self._sample = sample
        self._pause = pause
        self._on_begin = on_begin

    @property
    def failures(self) -> list[CaseReport]:
        return [report for report in self.reports if report.cause]

    def case(self, name: str, measure: Measure) -> None:
        if self._only.lower() not in name.lower():
            return
        report = CaseReport(name)
        self.reports.append(report)
        began = self._sample().clock_s
        self._on_begin(name)
        while self._run_once(report, measure):
            self._on_begin(f"{name}, again: {report.disturbance}")
            self._rest()
            if self._sample().clock_s - began > self._seconds_max:
                return

    def note(self, figure: Figure) -> None:
        """Something that was not measured: a rival that is not here."""
        self.reports.append(CaseReport(figure.name, [figure]))

    def section(self, name: str, run: "Callable[[Bench], None]") -> None:
        """Runs a section's cases; an error outside of them is a failure of that name."""
        try:
            run(self)
        except Exception as error:
            self.reports.append(CaseReport(name, cause=describe(error), trace=traceback.format_exc()))

    def _run_once(self, report: CaseReport, measure: Measure) -> bool:
        """Whether it should run again."""
        report.runs += 1
        before = self._sample()
        try:
            figures = list(measure())
        except Exception as error:
            report.cause, report.trace = describe(error), traceback.format_exc()
            return False
        disturbance = compare_samples(before, self._sample())
        if report.disturbance is None or disturbance.share < report.disturbance.share:
            report.figures, report.disturbance = figures, disturbance
        return report.is_disturbed(self.disturbed) and report.runs <= self._repeats_max

    def _rest(self) -> None:
        """Until others leave the machine alone, or for so long."""
        first = before = self._sample()
        while before.clock_s - first.clock_s < REST_SECONDS_MAX:
            self._pause(LOOK_SECONDS)
            after = self._sample()
            if compare_samples(before, after).share <= self.disturbed:
                return
            before = after


def describe(error: BaseException) -> str:
    """An error, and those that caused it, in one line for each."""
    lines = []
    seen: BaseException | None = error
    while seen is not None:
        lines.append(f"{type(seen).__name__}: {seen}".rstrip(": "))
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return "\ncaused by ".join(lines)


def run_program(command: Sequence[str], seconds_max: float = PROGRAM_SECONDS_MAX) -> str:
    """What it prints.  One that fails tells why: the end of what it wrote to standard error is kept."""
    try:
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds_max)
    except subprocess.TimeoutExpired as error:
        raise ProgramFailedError(f"{_named(command)} took longer than {seconds_max:g} s") from error
    if ran.returncode != 0:
        said = "\n".join(ran.stderr.strip().splitlines()[-STDERR_LINES:])
        raise ProgramFailedError(f"{_named(command)} ended with {ran.returncode}:\n{said}")
    return ran.stdout


def _named(command: Sequence[str]) -> str:
    return " ".join(command)[:300]
