"""`dlog pipeline status`: what the history says, and how far the topics are ahead now.  Needs no Spark.

| exit code | meaning                                                      |
|-----------|--------------------------------------------------------------|
| 0         | the last run completed, or one is going on, or none ever was |
| 1         | the last run failed, or its process died in the middle       |
"""

from typing import TYPE_CHECKING

import click

from distributedlog.cli.output import (
    TextTable,
    columns,
    output_option,
    print_json,
    print_line,
    show_time,
    warn,
)
from distributedlog.cli.pipeline.places import project_option
from distributedlog.cli.topic.session import BOOTSTRAP_VARIABLE

if TYPE_CHECKING:
    from distributedlog.pipelines.project import Project
    from distributedlog.pipelines.status import PipelineStatus

HEADING = "flow<24 state<10 rows>12 last-batch>10 batch-time>10 too-late>8 lag>10 last-seen<24"


@click.command()
@project_option
@click.option(
    "-b", "--bootstrap", envvar=BOOTSTRAP_VARIABLE, show_envvar=True, metavar="HOST:PORT,…",
    help="Some of the cluster's brokers.  [default: as the project says]",
)  # fmt: skip
@click.option(
    "--plot", type=click.Path(dir_okay=False), metavar="FILE.png", help="Draw lag and rows over time."
)
@output_option
def status(where: str, bootstrap: str | None, plot: str | None, output: str) -> int:
    """Show what the pipeline has done: the last run, and of each flow rows, batch time, lag and last error.

    \b
    dlog pipeline status
    dlog pipeline status -p shop --plot lag.png
    """
    from distributedlog.pipelines.history import read_history
    from distributedlog.pipelines.project import find_project, is_running
    from distributedlog.pipelines.status import fold

    project = find_project(where)
    found = fold(read_history(project.history_path), is_running=is_running(project))
    ends = _ends(found, bootstrap or project.bootstrap)
    show = _show_json if output == "json" else _show_table
    show(project, found, ends)
    if plot is not None:
        from distributedlog.pipelines.plot import draw

        draw(list(read_history(project.history_path)), plot, title=project.name)
        click.echo(f"drawn: {plot}", err=True)
    return 1 if found.state in ("failed", "stopped") else 0


def _ends(found: "PipelineStatus", bootstrap: str | None) -> dict[str, dict[int, int]] | None:
    """None if nobody can be asked: the rest is shown all the same."""
    positions = found.positions()
    if not positions or bootstrap is None:
        return None
    from distributedlog.model.errors import DlogError
    from distributedlog.pipelines.lag import topic_ends

    try:
        return topic_ends(bootstrap, list(positions))
    except DlogError as error:
        warn(f"the lag is not known: {error}")
        return None


def _show_table(project: "Project", found: "PipelineStatus", ends: dict[str, dict[int, int]] | None) -> None:
    from distributedlog.pipelines.status import lag_of

    took = ""
    if found.milliseconds_last is not None:
        took = f"; the last run took {found.milliseconds_last / 1000:.1f} s"
    print_line(f"{project.name}: {found.state}, {found.runs} runs, {found.rows:,} rows from topics{took}")
    if found.flows:
        print_line("")
    table = TextTable(columns(HEADING))
    for flow in found.flows.values():
        behind = lag_of(flow.positions, ends) if flow.positions and ends is not None else None
        time_taken = f"{flow.milliseconds_last:,} ms" if flow.milliseconds_last is not None else None
        table.row(
            flow.name, flow.state, f"{flow.rows:,}", f"{flow.rows_last:,}", time_taken,
            f"{flow.rows_too_late:,}", behind if behind is None else f"{behind:,}", show_time(flow.time_ms),
        )  # fmt: skip
    if found.error:
        print_line(f"\nlast error: {found.error}")


def _show_json(project: "Project", found: "PipelineStatus", ends: dict[str, dict[int, int]] | None) -> None:
    from distributedlog.pipelines.status import lag_of

    print_json(
        {
            "type": "pipeline",
            "name": project.name,
            "state": found.state,
            "runs": found.runs,
            "rows": found.rows,
            "started_ms": found.started_ms,
            "ended_ms": found.ended_ms,
            "milliseconds": found.milliseconds_last,
            "failures_in_a_row": found.failures_in_a_row,
            "lag": lag_of(found.positions(), ends) if ends is not None else None,
            "error": found.error,
        }
    )
    for flow in found.flows.values():
        print_json(
            {
                "type": "flow",
                "name": flow.name,
                "state": flow.state,
                "rows": flow.rows,
                "rows_last": flow.rows_last,
                "rows_too_late": flow.rows_too_late,
                "batches": flow.batches,
                "milliseconds": flow.milliseconds_last,
                "lag": lag_of(flow.positions, ends) if flow.positions and ends is not None else None,
                "positions": {topic: dict(each) for topic, each in flow.positions.items()},
                "time_ms": flow.time_ms,
                "error": flow.error,
            }
        )
