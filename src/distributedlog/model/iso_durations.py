"""How far back: durations of ISO 8601 as Java reads them, from days down, and not negative as a whole.  Pure.

P3D    PT1H30M    P1DT0.5S    PT-1H61M
"""

import re
from typing import Final

INT64_MAX: Final = 2**63 - 1
_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]{1,19})D)?"
    r"(?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]{1,19})H)?(?:(?P<minutes>[-+]?[0-9]{1,19})M)?"
    r"(?:(?P<seconds>[-+]?[0-9]{1,19})(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def duration_nanoseconds(text: str) -> int | None:
    """Returns None for what is no duration, is negative, or longer than Java can say."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match[unit] for unit in _UNITS_MS):
        return None
    total_ms = sum(int(match[unit] or 0) * factor for unit, factor in _UNITS_MS.items())
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    nanoseconds = total_ms * 1_000_000 + (-fraction if (match["seconds"] or "").startswith("-") else fraction)
    if match["sign"] == "-":
        nanoseconds = -nanoseconds
    return nanoseconds if 0 <= nanoseconds <= INT64_MAX * 1_000_000_000 else None
