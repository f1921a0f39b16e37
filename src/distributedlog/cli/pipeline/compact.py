"""`dlog pipeline compact`: the small files that runs leave in tables, merged.

| exit code | meaning                                                                          |
|-----------|----------------------------------------------------------------------------------|
| 0         | done, or there was nothing to merge                                              |
| 1         | a table could not be compacted (it is as it was); there is no project            |
| 2         | wrong usage, or an unknown table                                                 |
| 3         | no Java, Spark did not start, another process runs this project                  |
"""

from typing import TYPE_CHECKING

import click

from distributedlog.cli.exit_codes import EXISTING_DIRECTORY
from distributedlog.cli.output import TextTable, columns, output_option, print_json
from distributedlog.cli.pipeline.durations import Duration
from distributedlog.cli.pipeline.places import project_option
from distributedlog.cli.pipeline.spark_errors import explained

if TYPE_CHECKING:
    from distributedlog.pipelines.compaction.compactor import TableCompaction

HEADING = "table<40 before>8 after>8 note<40"


class NotCompactedError(click.ClickException):
    exit_code = 1


@click.command()
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@project_option
@click.option(
    "--keep", "keep_seconds", type=Duration(), default="10m", show_default=True, metavar="TIME",
    help="How long files that were merged stay, for queries that are reading them.",
)  # fmt: skip
@click.option(
    "--checkpoints", multiple=True, type=EXISTING_DIRECTORY, metavar="DIR",
    help="Checkpoints of other programs that stream from these tables, and are stopped; may be repeated.",
)  # fmt: skip
@click.option("--master", metavar="URL", help="Where Spark runs.  [default: local[*], in this process]")
@output_option
def compact(
    tables: tuple[str, ...],
    where: str,
    keep_seconds: float,
    checkpoints: tuple[str, ...],
    master: str | None,
    output: str,
) -> int:
    """Merge the small files that runs leave in streaming tables, of all tables or of those that are named.

    Rows stay as they are, for queries and for the pipeline's own flows, which go on as if nothing had been
    done.  A stream of another program that reads these files would take a merged one for new rows: stop it,
    and name its checkpoint with --checkpoints.  The pipeline must not be running; while it runs,
    --compact-files of dlog pipeline run does it between its runs.

    \b
    dlog pipeline compact
    dlog pipeline compact orders_raw -p shop
    """
    from distributedlog.pipelines.compaction.compactor import Compactor, choose_tables
    from distributedlog.pipelines.project import find_project, has_tables
    from distributedlog.pipelines.tables import list_tables
    from distributedlog.spark.session.session import QUICK_START, close, session

    project = find_project(where)
    if not has_tables(project):
        raise NotCompactedError(f"{project.name} has no tables yet; dlog pipeline run makes them")
    if (known := list_tables(project.state_directory)) is not None:
        choose_tables(known, tables)  # a name that is wrong is told before Spark is started
    static = {key: value for key, value in project.configuration.items() if key.startswith("spark.")}
    with explained():
        try:
            spark = session(
                project.name,
                master=master,
                directory=project.state_directory,
                config={**QUICK_START, **static},
            )
            compactor = Compactor(project, spark, keep_seconds=keep_seconds, checkpoints=checkpoints)
            done = compactor.compact(tables)
        finally:
            close()
    show(done, output)
    if failed := [each for each in done if each.error is not None]:
        raise NotCompactedError("; ".join(f"{each.table} is as it was: {each.error}" for each in failed))
    return 0


def show(done: "list[TableCompaction]", output: str) -> None:
    if output == "json":
        for each in done:
            print_json(
                {
                    "type": "compaction",
                    "table": each.table,
                    "files_before": each.files_before,
                    "files_after": each.files_after,
                    "reason": each.reason,
                    "error": each.error,
                }
            )
        return
    table = TextTable(columns(HEADING))
    for each in done:
        note = "failed" if each.error is not None else each.reason or "compacted"
        table.row(each.table, each.files_before or "-", each.files_after or "-", note)
