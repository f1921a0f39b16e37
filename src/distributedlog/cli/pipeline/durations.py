"""Durations as people write them on the command line."""

import click

SECONDS_MAX = 86_400.0


class Duration(click.ParamType[float]):
    """10s, 500ms, 2m, 1h, or a number of seconds."""

    name = "time"
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}  # noqa: RUF012 (never changed)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        number, unit = text, "s"
        for each in self.units:
            if text.endswith(each) and text[: -len(each)][-1:].isdigit():
                number, unit = text[: -len(each)], each
                break
        try:
            seconds = float(number) * self.units[unit]
        except ValueError:
            self.fail(f"{text!r} is no time: write 10s, 500ms, 2m or 1h", param, ctx)
        if not 0 <= seconds <= SECONDS_MAX:
            self.fail(f"{text!r} is not between 0 and a day", param, ctx)
        return seconds
