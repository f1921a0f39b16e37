"""Times as people write them in an option or on a command line.  Pure: what "now" is comes in.

| written                    | means                                                     |
|----------------------------|-----------------------------------------------------------|
| `1769860800000`            | milliseconds since 1970                                   |
| `2026-01-31T12:00`         | that time, in UTC unless it says otherwise                |
| `-10m`                     | ten minutes before the query was planned (ms, s, m, h, d) |
| `15m`, `500` (a duration)  | so long; a plain number is milliseconds                   |
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from distributedlog.model.errors import ConfigError

UNITS_MS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_UNIT: Final = "|".join(UNITS_MS)
_RELATIVE = re.compile(rf"-([0-9]{{1,12}})\s*({_UNIT})")
_DURATION = re.compile(rf"([0-9]{{1,15}})\s*({_UNIT})?")
_EPOCH_MS = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class TimestampSpec:
    """A time, or so long ago."""

    value_ms: int
    is_ago: bool = False

    def at(self, now_ms: int) -> int:
        return max(0, now_ms - self.value_ms) if self.is_ago else self.value_ms


def parse_timestamp(text: str, option: str) -> TimestampSpec:
    text = text.strip()
    if _EPOCH_MS.fullmatch(text):
        return TimestampSpec(int(text))
    relative = _RELATIVE.fullmatch(text)
    if relative is not None:
        return TimestampSpec(int(relative[1]) * UNITS_MS[relative[2]], is_ago=True)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"{option} is {text!r}, which is no time: write -10m, 2026-01-31T12:00,"
            " or milliseconds since 1970"
        ) from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return TimestampSpec(max(0, int(time.timestamp() * 1000)))


def is_relative(text: str) -> bool:
    return _RELATIVE.fullmatch(text.strip()) is not None


def parse_duration_ms(text: str, option: str) -> int:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigError(f"{option} is {text!r}, which is no time span: write 15m, 30s or 500ms")
    return int(found[1]) * UNITS_MS[found[2] or "ms"]
