"""What a command prints: a table for people or JSON for programs, on stdout, as it comes.

A table is printed row by row, so that a large log needs no memory and the first rows come at once; its
columns are as wide as their heading and what is usual, and a wider value moves its own row only.

JSON is one object a line.  Field names are stable.  Bytes are UTF-8 text where they are that; otherwise
they are base64 and a field `NAME_encoding` beside them says `"base64"`.  Null is null.

No control character of a name or a record is printed as it is (`escaping`).
"""

import base64
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import click

from distributedlog.cli.escaping import escape_controls, escape_json_controls

Command = TypeVar("Command", bound=Callable[..., Any])
TIMESTAMP_PRINTABLE_MAX = 253_402_300_799_999  # the last millisecond of year 9999
CELL_CHARACTERS_MAX = 80


def output_option(command: Command) -> Command:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="A table for people, or JSON, one object a line.",
    )(command)


class Column(NamedTuple):
    title: str
    width: int
    is_number: bool = False


def columns(heading: str) -> tuple[Column, ...]:
    """Columns from a line such as `name<12 count>7`: title, side, width; a hyphen stands for a blank."""
    found = []
    for word in heading.split():
        title, side, width = re.split("([<>])", word)
        found.append(Column(title.replace("-", " "), int(width), side == ">"))
    return tuple(found)


class TextTable:
    """Prints its heading with the first row."""

    def __init__(self, columns: Sequence[Column], *, indent: int = 0) -> None:
        self._columns = columns
        self._indent = " " * indent
        self._is_begun = False

    def row(self, *cells: object) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._print([column.title for column in self._columns])
        self._print([_spell(cell) for cell in cells])

    def _print(self, cells: list[str]) -> None:
        parts = [
            cell.rjust(column.width) if column.is_number else cell.ljust(column.width)
            for cell, column in zip(cells, self._columns, strict=True)
        ]
        print_line((self._indent + "  ".join(parts)).rstrip())


def _spell(cell: object) -> str:
    return "-" if cell is None else escape_controls(str(cell))


def print_line(line: str) -> None:
    """Prints one line: a newline in it is escaped as other control characters are.

    It is not flushed line by line, unless stdout is a terminal: a dump has many lines.
    """
    sys.stdout.write(escape_controls(line) + "\n")


def print_text(text: str) -> None:
    """Prints a text that may have several lines."""
    for line in text.split("\n"):
        print_line(line)


def print_json(value: Mapping[str, object]) -> None:
    sys.stdout.write(json_line(value) + "\n")


def json_line(value: Mapping[str, object]) -> str:
    return escape_json_controls(json.dumps(value, ensure_ascii=False))


def json_bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    """A field, or a field and its encoding."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {name: base64.b64encode(value).decode("ascii"), f"{name}_encoding": "base64"}


def show_bytes(value: bytes | None) -> str:
    """Spells bytes for a table cell: text where it is printable text, else hexadecimal; long ones are cut."""
    if value is None:
        return "-"
    head = value[: CELL_CHARACTERS_MAX * 4]
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError:
        text = "0x" + head.hex()
    text = escape_controls(text)
    if len(text) > CELL_CHARACTERS_MAX or len(head) < len(value):
        return f"{text[:CELL_CHARACTERS_MAX]}… ({len(value)} bytes)"
    return text or '""'


def show_time(timestamp_ms: int | None) -> str:
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    if timestamp_ms > TIMESTAMP_PRINTABLE_MAX:
        return f"{timestamp_ms} ms"
    time = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def show_size(size_bytes: int) -> str:
    amount = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{size_bytes} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def show_seconds(seconds: float | None) -> str | None:
    """Spells a duration to be read at a glance: `0 s`, `2.5 s`, `3 min`, `2.0 h`, `4.1 d`."""
    if seconds is None:
        return None
    if seconds < 60:
        return "0 s" if seconds == 0 else f"{seconds:.1f} s"
    if seconds < 3_600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 86_400 else f"{seconds / 86_400:.1f} d"


def warn(message: str, *, keeps_lines: bool = False) -> None:
    click.echo(f"dlog: {escape_controls(message, keeps_lines=keeps_lines)}", err=True)
