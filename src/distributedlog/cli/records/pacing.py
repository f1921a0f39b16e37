"""The times at which records are due in a replay.  Pure: times come in, waits go out.

| rate     | a record is sent                                                                   |
|----------|------------------------------------------------------------------------------------|
| `1x`     | as long after the first as it was then; `10x` ten times as fast, `0.5x` half       |
| `500/s`  | evenly, so many in a second                                                        |
| `max`    | at once                                                                            |

Time does not run backwards: a record that is older than one before it is due at once.  A gap between two
records counts as no longer than `gap_ms_max`, so that a night without traffic need not be waited through.
"""

import re
from dataclasses import dataclass
from typing import Final

import click

_SPEED: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)x")
_PER_SECOND: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)/s")


@dataclass(frozen=True, slots=True)
class Rate:
    speed: float = 0.0
    """The speed relative to the records' own time; 0: that does not count."""
    per_second: float = 0.0
    """0: no bound."""


MAX_RATE: Final = Rate()


class RateType(click.ParamType[Rate]):
    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Rate:
        if isinstance(value, Rate):
            return value
        text = str(value).strip().lower()
        if text == "max":
            return MAX_RATE
        speed, per_second = _SPEED.fullmatch(text), _PER_SECOND.fullmatch(text)
        if speed is not None and float(speed[1]) > 0:
            return Rate(speed=float(speed[1]))
        if per_second is not None and float(per_second[1]) > 0:
            return Rate(per_second=float(per_second[1]))
        return self.fail(
            f"{text!r} is no rate: write 1x (as it was), 10x (ten times as fast), 500/s or max", param, ctx
        )


class Pace:
    """Asked for each record in turn."""

    def __init__(self, rate: Rate, gap_ms_max: int | None = None) -> None:
        self._rate = rate
        self._gap_ms_max = gap_ms_max
        self._last_ms: int | None = None
        self._due_ms = 0.0

    def due_ms(self, timestamp_ms: int) -> float:
        """Returns when the record is due, in milliseconds after the first."""
        before, self._last_ms = self._last_ms, max(timestamp_ms, self._last_ms or timestamp_ms)
        if before is None:
            return self._due_ms
        if self._rate.per_second:
            self._due_ms += 1000 / self._rate.per_second
        elif self._rate.speed:
            gap_ms = self._last_ms - before
            if self._gap_ms_max is not None:
                gap_ms = min(gap_ms, self._gap_ms_max)
            self._due_ms += gap_ms / self._rate.speed
        return self._due_ms
