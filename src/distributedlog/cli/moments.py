"""Times as people write them on a command line."""

import re
from datetime import UTC, datetime

import click

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RELATIVE = re.compile(r"-([0-9]{1,12})(ms|s|m|h|d)")
_EPOCH_MS = re.compile(r"[0-9]{1,15}")


class Moment(click.ParamType[int]):
    """Milliseconds since 1970, from `2026-01-31T12:00`, `1769860800000` or `-10m` (ten minutes ago)."""

    name = "time"

    def __init__(self, now_ms: int | None = None) -> None:
        self._now_ms = now_ms

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if _EPOCH_MS.fullmatch(text):
            return int(text)
        relative = _RELATIVE.fullmatch(text)
        if relative is not None:
            return max(0, self._now() - int(relative[1]) * _UNITS_MS[relative[2]])
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is not a time: write 2026-01-31T12:00 (UTC unless it says otherwise), "
                "milliseconds since 1970, or -10m",
                param,
                ctx,
            )
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0, int(moment.timestamp() * 1000))

    def _now(self) -> int:
        if self._now_ms is not None:
            return self._now_ms
        return int(datetime.now(UTC).timestamp() * 1000)
