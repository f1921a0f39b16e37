"""`--from` and `--to`: where to begin and where to stop.

| written                         | means                                                     |
|---------------------------------|-----------------------------------------------------------|
| `beginning`, `end`              | the ends of each partition, as they are now               |
| `1000`                          | that offset                                               |
| `-10`                           | the last ten of each partition                            |
| `-10m`, `-2h`, `-1d`            | as long ago: ms, s, m, h, d                               |
| `2026-01-31T12:00`              | that time; UTC unless it says otherwise                   |
| `@1769860800000`                | that time, in milliseconds since 1970                     |
"""

import re

import click

from distributedlog.cli.timestamps import TimestampType
from distributedlog.client.offset_specs import BEGINNING, END, AtOffset, AtTime, LastRecords, OffsetSpec

_OFFSET = re.compile(r"[0-9]{1,18}")
_LAST = re.compile(r"-([0-9]{1,18})")
_NAMED = {"beginning": BEGINNING, "start": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END}


class OffsetSpecType(click.ParamType[OffsetSpec]):
    name = "place"

    def __init__(self, now_ms: int | None = None) -> None:
        self._now_ms = now_ms

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> OffsetSpec:
        if isinstance(value, AtOffset | AtTime | LastRecords):
            return value
        text = str(value).strip()
        named = _NAMED.get(text)
        if named is not None:
            return named
        if _OFFSET.fullmatch(text):
            return AtOffset(int(text))
        last = _LAST.fullmatch(text)
        if last is not None:
            return LastRecords(int(last[1]))
        try:
            return AtTime(TimestampType(self._now_ms).convert(text.removeprefix("@"), param, ctx))
        except click.BadParameter:
            self.fail(
                f"{text!r} is no place: write beginning, end, an offset, -10 (the last ten), "
                "-10m (ten minutes ago), or a time such as 2026-01-31T12:00",
                param,
                ctx,
            )
