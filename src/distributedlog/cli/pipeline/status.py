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
    print_text,
    show_seconds,
    show_time,
)
from distributedlog.cli.pipeline.measuring import measured
from distributedlog.cli.pipeline.places import project_bootstrap_option, project_option

if TYPE_CHECKING:
    from distributedlog.pipelines.project import Project
    from distributedlog.pipelines.status import FlowLag, PipelineStatus

HEADING = (
    "flow<24 state<10 rows-in>12 rows-out>12 last-batch>10 batch-time>10 too-late>8 lag>10 behind>8"
    " last-seen<24"
)


@click.command()
@project_option
@project_bootstrap_option
@click.option(
    "--plot", type=click.Path(dir_okay=False), metavar="FILE.png", help="Draw lag and rows over time."
)
@output_option
def status(where: str, bootstrap: str | None, plot: str | None, output: str) -> int:
    """Show what the pipeline has done: the last run, and of each flow the rows it read and wrote, batch time,
    lag in records and in time, and the last error.

    \b
    dlog pipeline status
    dlog pipeline status -p shop --plot lag.png
    """
    from distributedlog.pipelines.history import read_history
    from distributedlog.pipelines.project import find_project, is_running
    from distributedlog.pipelines.status import fold

    project = find_project(where)
    found = fold(read_history(project.history_path), is_running=is_running(project))
    lags = measured(found, bootstrap or project.bootstrap)
    show = _show_json if output == "json" else _show_table
    show(project, found, lags)
    if plot is not None:
        from distributedlog.pipelines.plot import draw

        draw(list(read_history(project.history_path)), plot, title=project.name)
        click.echo(f"drawn: {plot}", err=True)
    return 1 if found.state in ("failed", "stopped") else 0


def _show_table(project: "Project", found: "PipelineStatus", lags: "dict[str | None, FlowLag]") -> None:
    took = ""
    if found.milliseconds_last is not None:
        took = f"; the last run took {found.milliseconds_last / 1000:.1f} s"
    if found.is_idle:
        took += f"; nothing new since, last looked {show_time(found.looked_ms)}"
    print_line(f"{project.name}: {found.state}, {found.runs} runs, {found.rows:,} rows from topics{took}")
    if found.flows:
        print_line("")
    table = TextTable(columns(HEADING))
    for flow in found.flows.values():
        lag = lags.get(flow.name)
        time_taken = f"{flow.milliseconds_last:,} ms" if flow.milliseconds_last is not None else None
        table.row(
            flow.name, flow.state, f"{flow.rows:,}", f"{flow.rows_out:,}", f"{flow.rows_last:,}", time_taken,
            f"{flow.rows_too_late:,}", lag and f"{lag.records:,}", lag and show_seconds(lag.seconds),
            show_time(flow.time_ms),
        )  # fmt: skip
    if found.error:
        print_text(f"\nlast error: {found.error}")


def _show_json(project: "Project", found: "PipelineStatus", lags: "dict[str | None, FlowLag]") -> None:
    whole = lags.get(None)
    print_json(
        {
            "type": "pipeline",
            "name": project.name,
            "state": found.state,
            "runs": found.runs,
            "rows": found.rows,
            "started_ms": found.started_ms,
            "ended_ms": found.ended_ms,
            "is_idle": found.is_idle,
            "looked_ms": found.looked_ms,
            "milliseconds": found.milliseconds_last,
            "failures_in_a_row": found.failures_in_a_row,
            "lag": whole and whole.records,
            "lag_seconds": whole and whole.seconds,
            "error": found.error,
        }
    )
    for flow in found.flows.values():
        lag = lags.get(flow.name)
        print_json(
            {
                "type": "flow",
                "name": flow.name,
                "state": flow.state,
                "rows": flow.rows,
                "rows_last": flow.rows_last,
                "rows_out": flow.rows_out,
                "rows_out_last": flow.rows_out_last,
                "rows_too_late": flow.rows_too_late,
                "batches": flow.batches,
                "milliseconds": flow.milliseconds_last,
                "lag": lag and lag.records,
                "lag_seconds": lag and lag.seconds,
                "positions": {topic: dict(each) for topic, each in flow.positions.items()},
                "time_ms": flow.time_ms,
                "error": flow.error,
            }
        )
