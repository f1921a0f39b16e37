"""Which faults begin when, and for how long they last: a pure function of the seed.

A run is cut into periods.  In a quarter of them there is no fault; in the others one fault, or two at once.
Each begins within the first part of its period and is healed before the period ends; the last period ends
before the run does, so that a run ends healed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

PERIOD_SECONDS = 14.0
FAULT_SECONDS_MIN, FAULT_SECONDS_MAX = 1.0, 8.0
DELAY_SECONDS_MAX = 2.0
QUIET_SHARE = 0.25
TWO_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault: seconds are counted from the start of the run."""

    nemesis: str
    begins_s: float
    lasts_s: float
    seed: int
    """Draws what the schedule leaves open: which broker, which link."""

    @property
    def ends_s(self) -> float:
        return self.begins_s + self.lasts_s


def draw(seed: int, seconds: float, nemeses: Sequence[str]) -> list[Planned]:
    """The faults of a run, in the order of their beginnings."""
    chance = Random(f"chaos {seed}")
    planned: list[Planned] = []
    for period in range(int(seconds // PERIOD_SECONDS)):
        if chance.random() < QUIET_SHARE:
            continue
        count = min(len(nemeses), 2 if chance.random() < TWO_SHARE else 1)
        for nemesis in chance.sample(list(nemeses), count):
            begins_s = period * PERIOD_SECONDS + chance.uniform(0, DELAY_SECONDS_MAX)
            lasts_s = chance.uniform(FAULT_SECONDS_MIN, FAULT_SECONDS_MAX)
            planned.append(Planned(nemesis, begins_s, lasts_s, chance.randrange(2**32)))
    return sorted(planned, key=lambda each: each.begins_s)
