"""`dlog sql "SELECT …"`: topics as tables, on Spark in this process.

| exit code | meaning                                  |
|-----------|------------------------------------------|
| 0         | done                                     |
| 1         | no such topic or column; it failed       |
| 2         | wrong usage, or the query is no SQL      |
| 3         | no cluster, no Java, Spark did not start |

Rows are fetched from Spark piece by piece, as Arrow, so that a large answer needs little memory here.  A
table's columns are as wide as the first rows want; it shows `--limit` rows and says how to have them all.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from distributedlog.cli.output import CELL_CHARACTERS_MAX, Column, TextTable, print_json, show_time, warn
from distributedlog.cli.overrides import parse_pairs
from distributedlog.cli.refusals import EXISTING_DIRECTORY, ThereAlreadyError
from distributedlog.cli.topic.session import NoClusterError, cluster_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_SHOWN = 100
ROWS_SIZED = 50
"""Of a table, the widths are those of so many rows."""


class QueryError(click.ClickException):
    """Spark could not answer it."""

    exit_code = 1


class NoQueryError(click.ClickException):
    """Spark does not understand it."""

    exit_code = 2


class NoSparkError(click.ClickException):
    exit_code = 3


@click.command()
@click.argument("query")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "parquet"]), default="table", show_default=True,
    help="A table for people, JSON, one object a line, or Parquet files.",
)  # fmt: skip
@click.option("--to", type=click.Path(), metavar="DIR", help="Where Parquet files go; must not be there yet.")
@click.option(
    "--limit", type=click.IntRange(0), default=ROWS_SHOWN, show_default=True, metavar="ROWS",
    help="Rows that a table shows; 0 for all.",
)  # fmt: skip
@click.option(
    "--pipeline", "project", type=EXISTING_DIRECTORY, metavar="DIR",
    help="A pipeline's directory: its tables can be asked too, while it does not run.",
)  # fmt: skip
@click.option("--master", metavar="URL", help="Where Spark runs.  [default: local[*], in this process]")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE",
    help="An option of the source, such as startingTimestamp=-10m; may be repeated.",
)  # fmt: skip
@cluster_options
def sql(
    query: str,
    output: str,
    to: str | None,
    limit: int,
    project: str | None,
    master: str | None,
    options: tuple[str, ...],
    bootstrap: str,
    timeout_seconds: float,
) -> int:
    """Ask topics with SQL: each topic that QUERY names is a table, up to where it ends now.

    \b
    Columns: key and value (text where they are UTF-8, else 0x…), topic, partition, offset, timestamp,
    headers; key_bytes and value_bytes are the bytes.  Names with dots or dashes go in backquotes.

    \b
      dlog sql "SELECT partition, count(*) FROM orders GROUP BY partition"
      dlog sql "SELECT parse_json(value):country::string, count(*) FROM orders GROUP BY 1"
      dlog sql 'SELECT * FROM `web.clicks-eu` ORDER BY timestamp DESC LIMIT 5' -o json
    """
    if (output == "parquet") != (to is not None):
        raise click.UsageError("Parquet goes into files: -o parquet and --to DIR belong together.")
    from distributedlog.model.errors import BrokerUnreachableError, SparkNotReadyError

    given = parse_pairs(options, "--option", example="startingTimestamp=-10m")
    try:
        with _asked(query, bootstrap, timeout_seconds, project, master, given) as frame:
            if output == "parquet":
                assert to is not None
                return _write_parquet(frame, to)
            return _print_json(frame) if output == "json" else _print_table(frame, limit)
    except BrokerUnreachableError as error:
        raise NoClusterError(
            f"{error}; start one with `dlog dev`, or name another with --bootstrap"
        ) from error
    except SparkNotReadyError as error:
        raise NoSparkError(str(error)) from error


@contextlib.contextmanager
def _asked(
    query: str,
    bootstrap: str,
    timeout_seconds: float,
    project: str | None,
    master: str | None,
    options: Mapping[str, str],
) -> Iterator["DataFrame"]:
    """The query's answer.  The cluster is asked before Spark is started: what is not there is noticed at
    once.
    """
    ends = ends_of_named(query, bootstrap, timeout_seconds)
    directory = None
    if project is not None:
        from distributedlog.pipelines.project import find_project

        directory = find_project(project).state_directory
    from distributedlog.spark.session import QUICK_START, close, session

    was_there = _is_there()
    spark = session("dlog sql", master=master, directory=directory, config=QUICK_START)
    try:
        yield answer(spark, query, bootstrap, ends, options)
    except Exception as error:
        if not is_sparks(error):
            raise
        kind = NoQueryError if _is_no_sql(error) else QueryError
        raise kind(_explain(error, query, ends)) from error
    finally:
        if not was_there:
            close()


def _is_there() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def ends_of_named(query: str, bootstrap: str, timeout_seconds: float) -> dict[str, dict[int, int]]:
    """Topic → partition → end, of the topics that the query may mean."""
    from distributedlog.client.blocking import BlockingAdmin
    from distributedlog.client.options import ClientOptions
    from distributedlog.spark.topic_views import named_topics

    timeout_ms = max(1, int(timeout_seconds * 1000))
    patience = ClientOptions(
        connect_timeout_ms=min(timeout_ms, ClientOptions().connect_timeout_ms),
        request_timeout_ms=timeout_ms,
        call_timeout_ms=timeout_ms,
    )
    with BlockingAdmin(bootstrap, patience) as admin:
        topics = {topic.name: topic for topic in admin.list_topics(with_internal=True)}
        named = named_topics(query, topics)
        ends: dict[str, dict[int, int]] = {name: {} for name in named}
        for place, found in admin.offset_ranges([topics[name] for name in named]).items():
            ends[place.topic][place.partition] = found.end
    return ends


def answer(
    spark: "SparkSession",
    query: str,
    bootstrap: str,
    ends: Mapping[str, Mapping[int, int]],
    options: Mapping[str, str],
) -> "DataFrame":
    from distributedlog.spark.topic_views import make_view

    for topic, partitions in ends.items():
        make_view(spark, bootstrap, topic, partitions, options)
    return spark.sql(query)


def is_sparks(error: Exception) -> bool:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError)


def _is_no_sql(error: Exception) -> bool:
    from pyspark.errors import ParseException

    return isinstance(error, ParseException)


def _explain(error: Exception, query: str, ends: Mapping[str, object]) -> str:
    from distributedlog.pipelines.runner import describe

    told = describe(error)
    if "TABLE_OR_VIEW_NOT_FOUND" in told:
        topics = f"topics that it names: {', '.join(ends)}" if ends else "it names no topic that is there"
        told += f" ({topics}; `dlog topic list` lists all, and names with dots or dashes go in backquotes)"
    return told


# --- showing -----------------------------------------------------------------------------------


def _print_table(frame: "DataFrame", limit: int) -> int:
    rows = frame.limit(limit + 1).toLocalIterator() if limit else frame.toLocalIterator()
    names = frame.columns
    sized: list[list[str]] = []
    table: TextTable | None = None
    count = 0
    for row in rows:
        if limit and count == limit:
            warn(f"there are more than {limit} rows; --limit 0 shows all, -o json is for programs")
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
    return 0


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
        print("  ".join(names))
    return table


def show_cell(value: object) -> str:
    from datetime import datetime

    if value is None:
        return "-"
    if isinstance(value, bytes | bytearray):
        text = "0x" + bytes(value[:CELL_CHARACTERS_MAX]).hex()
    elif isinstance(value, datetime):
        text = show_time(_milliseconds(value))
    else:
        text = str(value)
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= CELL_CHARACTERS_MAX else f"{text[:CELL_CHARACTERS_MAX]}…"


def _milliseconds(value: Any) -> int:
    """Spark gives times without a zone, in the one of this process.  Whole seconds, because a fraction of one
    as a float may be just below what it stands for."""
    return int(value.replace(microsecond=0).timestamp()) * 1000 + int(value.microsecond) // 1000


def _print_json(frame: "DataFrame") -> int:
    names = frame.columns
    if twice := [name for name in names if names.count(name) > 1]:
        raise NoQueryError(f"two columns are called {twice[0]}; give them names of their own with AS")
    for row in frame.toLocalIterator():
        print_json({name: as_json(value) for name, value in zip(names, row, strict=True)})
    return 0


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


def _write_parquet(frame: "DataFrame", to: str) -> int:
    import os

    if os.path.exists(to):
        raise ThereAlreadyError(f"{to} is there already; name a directory that is not")
    from distributedlog.spark.session import place_of

    frame.write.parquet(place_of(to))
    count = frame.sparkSession.read.parquet(place_of(to)).count()
    click.echo(f"{count:,} rows in {to}", err=True)
    return 0
