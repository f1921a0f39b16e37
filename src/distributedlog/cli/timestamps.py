"""Times as people write them on a command line; `client/timestamps` has the grammar."""

from datetime import UTC, datetime

import click

from distributedlog.client.timestamps import parse_timestamp
from distributedlog.model.errors import ConfigError


class TimestampType(click.ParamType[int]):
    """Milliseconds since 1970, from `2026-01-31T12:00`, `1769860800000` or `-10m` (ten minutes ago)."""

    name = "time"

    def __init__(self, now_ms: int | None = None) -> None:
        self._now_ms = now_ms

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        try:
            return parse_timestamp(text, self.name).at(self._now())
        except ConfigError:
            self.fail(
                f"{text!r} is not a time: write 2026-01-31T12:00 (UTC unless it says otherwise), "
                "milliseconds since 1970, or -10m",
                param,
                ctx,
            )

    def _now(self) -> int:
        if self._now_ms is not None:
            return self._now_ms
        return int(datetime.now(UTC).timestamp() * 1000)
