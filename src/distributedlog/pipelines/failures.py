"""What went wrong in a run, told so that it can be mended: the cause, where it stands, and the line itself.
Nothing here has effects.

Spark says a lot: the flows that could not be resolved because another could not, in whatever order, and
behind each message its plan, or Java's stack.  Of that remains:

    flow orders_per_minute (transformations/orders_per_minute.sql:5): [UNRESOLVED_COLUMN.WITH_SUGGESTION] A
    column … with name `contry` cannot be resolved. Did you mean … SQLSTATE: 42703; line 5 pos 2
      contry,
      ^

| what failed                         | what is told                                                         |
|-------------------------------------|----------------------------------------------------------------------|
| flows that could not be resolved    | those that failed by themselves, not those that read them            |
| a statement that is no SQL          | its file and line, and Spark's own mark below the word               |
| Python in the definitions           | the file's line, with a mark                                         |
| a flow while it ran                 | its error; of ours, which is deep inside, just ours; what Java had   |
|                                     | below it (a full disk), behind it                                    |
| what came through Java              | the last cause that has an error class                               |
"""

import os
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

ERROR_CHARACTERS_MAX: Final = 2_000
CAUSE_CHARACTERS_MAX: Final = 300
CAUSES_SHOWN_MAX: Final = 3
SQL_LINES_BEFORE: Final = 3
_JAVA_BEGINS: Final = ("at org.apache", "JVM stacktrace", "at java.", "at scala.", "=== Streaming Query")
_THROUGH_PY4J: Final = "An error occurred while calling"
_CLASSED_ERROR: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]+")
_OUR_ERROR: Final = re.compile(r"^\s*distributedlog\.[\w.]+Error: (.+)$", re.MULTILINE)
_WRAPPING: Final = re.compile(
    r"(?:\([\w.$]+\) |(?:[\w$]+\.)+[\w$]+(?:Exception|Error): "
    r"|\[STREAM_FAILED\] Query \[[^\]\n]*\] terminated with exception: )"
)
_STREAM_ID: Final = re.compile(r"Query \[id = ([0-9a-f-]{36})")
_CAUSED_BY: Final = re.compile(r"^\s*Caused by: (?:[\w.$]+: )*(.+)$", re.MULTILINE)
_CLASS_NAME: Final = re.compile(r"^\[([A-Z][A-Z0-9_.]+)\]")
_PLAN_FOLLOWS: Final = re.compile(r"(?:SQLSTATE: \w{5}|line \d+,? pos \d+);$")
_STATE_TWICE: Final = re.compile(r"( SQLSTATE: \w{5})(?: SQLSTATE: \w{5})+")
_SQL_PLACE: Final = re.compile(r"line (\d+),? pos (\d+)")
_MARK: Final = re.compile(r"-*\^+-*\s*")
_UNRESOLVED: Final = re.compile(
    r"^Failed to resolve flow( due to upstream failure)?: '([^'\n]*)'\.?\s*(.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a definition stands."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class FlowFailure:
    flow: str
    reason: str
    is_downstream: bool = False
    """It failed because one that it reads did."""


def parse_unresolved(message: str) -> FlowFailure | None:
    """Parses the message; None for another one."""
    found = _UNRESOLVED.match(message)
    if found is None:
        return None
    return FlowFailure(found[2], describe(found[3].removeprefix("Error: ")), bool(found[1]))


def describe_failures(
    failures: Sequence[FlowFailure], places: Mapping[str, Location], sources: Mapping[str, str]
) -> str | None:
    """The causes, each with its place: `places` of the flows by name, `sources` the SQL of each file."""
    causes = [each for each in failures if not each.is_downstream] or list(failures)
    reasons = []
    for cause in causes[:CAUSES_SHOWN_MAX]:
        place = places.get(cause.flow)
        reason = cause.reason
        if place is not None and place.file in sources:
            place, reason = in_sql(place, reason, sources[place.file])
        where = "" if place is None else f" ({place})"
        reasons.append(f"flow {cause.flow.rsplit('.', 1)[-1]}{where}: {reason}")
    if len(causes) > CAUSES_SHOWN_MAX:
        reasons.append(f"and {len(causes) - CAUSES_SHOWN_MAX} more")
    return "\n".join(reasons) or None


def split_flow_error(text: str) -> tuple[str, str | None]:
    """Parses what Spark says behind "Flow … has FAILED": the error, and the id of the stream that failed."""
    before, word, error = text.partition("Error: ")
    found = _STREAM_ID.search(error if word else before)
    return (error if word else before).strip(), found[1] if found else None


def with_cause(error: str, trace: str | None) -> str:
    """Returns the error with the deepest cause of Java's trace behind it, unless it says it already."""
    causes = _CAUSED_BY.findall(trace or "")
    cause = str(causes[-1]).strip()[:CAUSE_CHARACTERS_MAX] if causes else ""
    is_said = cause in error or any(word in error for word in _CLASS_NAME.findall(cause))
    if not cause or is_said or cause.startswith("Traceback"):  # of Python, which is told as that
        return error
    return f"{error} (the cause: {cause})"


def in_sql(place: Location, reason: str, text: str) -> tuple[Location, str]:
    """The place within a file of SQL, with a mark below it if Spark made none."""
    found = _SQL_PLACE.search(reason)
    lines = text.splitlines()
    if found is None or not 1 <= int(found[1]) <= len(lines):
        return place, reason
    number, column = int(found[1]), int(found[2])
    if "== SQL ==" not in reason:
        reason = f"{reason}\n{marked(lines[number - 1], column, column + 1)}"
    return Location(place.file, number), reason


def marked(line: str, begin: int, end: int) -> str:
    """A line of code, and below it the mark."""
    blanks = "".join(each if each == "\t" else " " for each in line[:begin])
    return f"{line.rstrip()}\n{blanks}{'^' * max(1, min(end, len(line)) - begin)}"


def describe(error: BaseException | str) -> str:
    """An error of Spark's: ours in it if there is one, else its first lines, up to the plan or to Java."""
    text = str(error).strip()
    if ours := _OUR_ERROR.findall(text):
        return str(ours[-1]).strip()[:ERROR_CHARACTERS_MAX]
    if text.startswith(_THROUGH_PY4J) and (causes := _CLASSED_ERROR.findall(text)):
        return str(causes[-1]).strip()[:ERROR_CHARACTERS_MAX]
    while wrapping := _WRAPPING.match(text):
        text = text[wrapping.end() :]
    lines = []
    for line in map(str.rstrip, text.splitlines()):
        if line.strip().startswith(_JAVA_BEGINS):
            break
        lines.append(line.removesuffix(";") if _PLAN_FOLLOWS.search(line) else line)
        if _PLAN_FOLLOWS.search(line):
            break
    text = _STATE_TWICE.sub(r"\1", "\n".join(filter(None, _around_mark(lines))))
    return text[:ERROR_CHARACTERS_MAX].strip() or type(error).__name__


def _around_mark(lines: list[str]) -> list[str]:
    """Returns of a long statement only the lines around the mark."""
    begin = next((at for at, line in enumerate(lines) if line.startswith("== SQL")), None)
    mark = next((at for at, line in enumerate(lines) if line.strip() and _MARK.fullmatch(line)), None)
    if begin is None or mark is None or mark < begin:
        return lines
    return [*lines[: begin + 1], *lines[max(begin + 1, mark - 1 - SQL_LINES_BEFORE) : mark + 1]]


def describe_raised(error: BaseException, directory: str) -> str:
    """Returns what was raised while the definitions were read, with the line of theirs that it came from."""
    if isinstance(error, SyntaxError) and error.filename and _is_within(error.filename, directory):
        place = Location(os.path.relpath(error.filename, directory), error.lineno)
        begin = (error.offset or 1) - 1
        end = error.end_offset - 1 if error.end_offset and error.end_lineno == error.lineno else begin + 1
        return f"{place}: {type(error).__name__}: {error.msg}\n{marked(error.text or '', begin, end)}"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if _is_within(frame.filename, directory)
    ]
    reason = describe(error)
    if not reason.startswith("["):
        reason = f"{type(error).__name__}: {reason}"
    if not frames:
        return reason if reason.startswith("[") else describe(error)
    last = frames[-1]
    place = Location(os.path.relpath(last.filename, directory), last.lineno)
    line = f"\n{last.line}" if last.line else ""
    return f"{place}: {reason}{line}"


def _is_within(path: str, directory: str) -> bool:
    root = os.path.realpath(directory)
    return os.path.realpath(path).startswith(root + os.sep)
