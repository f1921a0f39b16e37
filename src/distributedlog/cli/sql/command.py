"""`dlog sql "SELECT …"`: topics as tables, on Spark in this process.

| exit code | meaning                                  |
|-----------|------------------------------------------|
| 0         | done                                     |
| 1         | no such topic or column; it failed       |
| 2         | wrong usage, or the query is no SQL      |
| 3         | no cluster, no Java, Spark did not start |
"""

import os
import sys

import click

from distributedlog.cli.exit_codes import EXISTING_DIRECTORY
from distributedlog.cli.key_values import parse_pairs
from distributedlog.cli.output import warn
from distributedlog.cli.session import NoClusterError, cluster_options
from distributedlog.cli.sql.answers import ROWS_SHOWN, print_answer, write_parquet
from distributedlog.cli.sql.asking import Asker, explained, spark_session
from distributedlog.cli.standard_output import check_stdout_open
from distributedlog.model.errors import BrokerUnreachableError, SparkNotReadyError


class NoSparkError(click.ClickException):
    exit_code = 3


@click.command()
@click.argument("query", required=False)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "csv", "parquet"]), default="table",
    show_default=True, help="A table for people, JSON, one object a line, CSV, or Parquet files.",
)  # fmt: skip
@click.option("--to", type=click.Path(), metavar="DIR", help="Where Parquet files go; must not be there yet.")
@click.option(
    "--limit", type=click.IntRange(0), default=ROWS_SHOWN, show_default=True, metavar="ROWS",
    help="Rows that a table shows; 0 for all.",
)  # fmt: skip
@click.option(
    "--pipeline", "project", type=EXISTING_DIRECTORY, metavar="DIR",
    help="A pipeline's directory: its tables can be asked too, also while it runs.",
)  # fmt: skip
@click.option("--master", metavar="URL", help="Where Spark runs.  [default: local[*], in this process]")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE",
    help="An option of the source, such as startingTimestamp=-10m; may be repeated.",
)  # fmt: skip
@cluster_options
def sql(
    query: str | None,
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

    Without QUERY, statements are typed one after the other, or read from stdin; each ends with a semicolon.
    Spark is started once for all, and an answer takes a second rather than ten.

    \b
    Columns: key and value (text where they are UTF-8, else 0x…), topic, partition, offset, timestamp,
    headers; key_bytes and value_bytes are the bytes.  Names with dots or dashes go in backquotes.

    \b
      dlog sql "SELECT partition, count(*) FROM orders GROUP BY partition"
      dlog sql "SELECT parse_json(value):country::string, count(*) FROM orders GROUP BY 1" -o csv
      dlog sql 'SELECT * FROM `web.clicks-eu` ORDER BY timestamp DESC LIMIT 5' -o json
      dlog sql
    """
    if (output == "parquet") != (to is not None):
        raise click.UsageError("Parquet goes into files: -o parquet and --to DIR belong together.")
    if output == "parquet" and query is None:
        raise click.UsageError("-o parquet is for one query: give it on the command line.")
    if output != "parquet":
        check_stdout_open()
    given = parse_pairs(options, "--option", example="startingTimestamp=-10m")
    asker = Asker(bootstrap, timeout_seconds, given, project)
    _say_what_is_faster()
    try:
        if query is None:
            from distributedlog.cli.sql.shell import Shell

            return Shell(asker, master, output, limit).run()
        ends = asker.ends_of_named(query)  # a cluster that is not there is noticed before Spark is started
        with spark_session(master) as spark, explained(ends):
            frame = asker.answer(spark, query, ends)
            if to is not None:
                write_parquet(frame, to)
            else:
                print_answer(frame, output, limit)
    except BrokerUnreachableError as error:
        raise NoClusterError(
            f"{error}; start one with `dlog dev`, or name another with --bootstrap"
        ) from error
    except SparkNotReadyError as error:
        raise NoSparkError(str(error)) from error
    return 0


def _say_what_is_faster() -> None:
    """Says what is faster to people, until they did it."""
    from distributedlog.spark.session.archive import MADE_BY, archive_path
    from distributedlog.spark.session.java import find_java

    if not sys.stderr.isatty() or MADE_BY in os.environ:
        return
    if not os.path.exists(archive_path(find_java(), os.environ)):
        warn("Spark starts in half the time once `dlog pipeline prepare` has been run")
