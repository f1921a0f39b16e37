"""Rows of an answer, as a table for people, as JSON, as CSV, or in Parquet files.

Rows are fetched from Spark piece by piece, as Arrow, so that a large answer needs little memory here.  A
table's columns are as wide as the first rows want; it shows `--limit` rows and says how to have them all.

| value                          | JSON                       | CSV; tables but for bytes (0x…) |
|--------------------------------|----------------------------|---------------------------------|
| null                           | null                       | empty                           |
| bytes                          | UTF-8 text, or base64      | the same                        |
| a time                         | milliseconds since 1970    | `2026-01-31T12:00:05.123Z`      |
| lists, maps, structs           | arrays and objects         | the JSON of it                  |
| intervals, decimals, NaN       | text                       | text                            |
"""

import csv
import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from distributedlog.cli.escaping import escape_controls
from distributedlog.cli.exit_codes import AlreadyExistsError
from distributedlog.cli.output import (
    CELL_CHARACTERS_MAX,
    Column,
    TextTable,
    print_json,
    print_line,
    show_time,
    warn,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_SHOWN = 100
ROWS_SIZED = 50
"""The rows by which the widths of a table's columns are chosen."""


class NoQueryError(click.ClickException):
    """Spark does not understand it."""

    exit_code = 2


def print_answer(frame: "DataFrame", output: str, limit: int) -> int:
    """Returns how many rows were printed."""
    if output == "json":
        return _print_json(frame)
    return _print_csv(frame) if output == "csv" else _print_table(frame, limit)


def _print_table(frame: "DataFrame", limit: int) -> int:
    rows = frame.limit(limit + 1).toLocalIterator() if limit else frame.toLocalIterator()
    names = frame.columns
    sized: list[list[str]] = []
    table: TextTable | None = None
    count = 0
    has_more = False
    for row in rows:
        if limit and count == limit:
            has_more = True
            break
        count += 1
        cells = [show_cell(value) for value in row]
        if table is not None:
            table.row(*cells)
            continue
        sized.append(cells)
        if len(sized) == ROWS_SIZED:
            table = _begin(names, sized)
    if table is None:
        _begin(names, sized)
    if has_more:
        sys.stdout.flush()  # so that the note stands below the table, where both go to one terminal
        warn(f"there are more than {limit} rows; --limit 0 shows all, -o json is for programs")
    return count


def _begin(names: Sequence[str], rows: list[list[str]]) -> TextTable:
    """Prints what was held back to see how wide it is."""
    widths = [
        max(len(name), *(len(row[index]) for row in rows)) if rows else len(name)
        for index, name in enumerate(names)
    ]
    table = TextTable([Column(name, width) for name, width in zip(names, widths, strict=True)])
    for row in rows:
        table.row(*row)
    if not rows:
        print_line("  ".join(names))
    return table


def show_cell(value: object) -> str:
    from datetime import datetime

    if value is None:
        return "-"
    if isinstance(value, bytes | bytearray):
        text = "0x" + bytes(value[:CELL_CHARACTERS_MAX]).hex()
    elif isinstance(value, datetime):
        text = show_time(_milliseconds(value))
    elif isinstance(value, bool | dict | list | tuple):  # a struct is a tuple
        text = str(as_csv(value))
    else:
        text = str(value)
    text = escape_controls(text)
    return text if len(text) <= CELL_CHARACTERS_MAX else f"{text[:CELL_CHARACTERS_MAX]}…"


def _milliseconds(value: Any) -> int:
    """Returns milliseconds; Spark gives times without a zone, in the one of this process.  Whole seconds,
    because a fraction of one as a float may be just below what it stands for."""
    return int(value.replace(microsecond=0).timestamp()) * 1000 + int(value.microsecond) // 1000


def _print_json(frame: "DataFrame") -> int:
    names = frame.columns
    if twice := [name for name in names if names.count(name) > 1]:
        raise NoQueryError(f"two columns are called {twice[0]}; give them names of their own with AS")
    count = 0
    for count, row in enumerate(frame.toLocalIterator(), start=1):  # noqa: B007 (wanted after the loop)
        print_json({name: as_json(value) for name, value in zip(names, row, strict=True)})
    return count


def _print_csv(frame: "DataFrame") -> int:
    lines = csv.writer(sys.stdout, lineterminator="\n")
    shown = _shown_on_terminal if sys.stdout.isatty() else list
    lines.writerow(shown(frame.columns))
    count = 0
    for count, row in enumerate(frame.toLocalIterator(), start=1):  # noqa: B007 (wanted after the loop)
        lines.writerow(shown(as_csv(value) for value in row))
    return count


def _shown_on_terminal(cells: Iterable[Any]) -> list[Any]:
    return [escape_controls(cell) if isinstance(cell, str) else cell for cell in cells]


def as_csv(value: Any) -> str | int | float | None:
    from datetime import UTC, datetime

    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    converted = as_json(value)
    if isinstance(converted, bool):
        return "true" if converted else "false"
    return json.dumps(converted, ensure_ascii=False) if isinstance(converted, dict | list) else converted


def as_json(value: Any) -> Any:
    """Bytes are UTF-8 text, or base64; times are milliseconds, as everywhere in `dlog`'s JSON.  What JSON has
    no word for (intervals, decimals, NaN) is text."""
    import base64
    from datetime import datetime
    from math import isfinite

    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return _milliseconds(value)
    if isinstance(value, dict):
        return {str(key): as_json(each) for key, each in value.items()}
    if hasattr(value, "asDict"):
        return {key: as_json(each) for key, each in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    is_json = value is None or isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))
    return value if is_json else str(value)


def write_parquet(frame: "DataFrame", to: str) -> int:
    """Returns how many rows were written."""
    import os

    if os.path.exists(to):
        raise AlreadyExistsError(f"{to} is there already; name a directory that is not")
    from distributedlog.spark.session.session import place_of

    frame.write.parquet(place_of(to))
    count = frame.sparkSession.read.parquet(place_of(to)).count()
    click.echo(f"{count:,} rows in {to}", err=True)
    return count
