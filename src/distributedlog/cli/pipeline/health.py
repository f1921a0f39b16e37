"""`dlog pipeline health`: are pipelines well?  For cron, systemd and alerts.  Needs no Spark.

| exit code | meaning                                         |
|-----------|-------------------------------------------------|
| 0         | all are well                                    |
| 1         | something is wrong, or there is no such project |

The judgement is `pipelines/health`'s; here it is shown.
"""

import time
from typing import TYPE_CHECKING

import click

from distributedlog.cli.exit_codes import EXISTING_DIRECTORY
from distributedlog.cli.output import output_option, print_json, print_line, show_seconds
from distributedlog.cli.pipeline.durations import Duration
from distributedlog.cli.pipeline.measuring import measured
from distributedlog.cli.pipeline.places import project_bootstrap_option

if TYPE_CHECKING:
    from distributedlog.pipelines.health import HealthLimits

EXIT_UNWELL = 1


@click.command()
@click.argument("directories", nargs=-1, metavar="[DIR]…", type=EXISTING_DIRECTORY)
@click.option("--lag-max", type=click.IntRange(0), metavar="N", help="More records behind is wrong.")
@click.option(
    "--behind-max", "behind_seconds", type=Duration(), metavar="TIME",
    help="Longer behind is wrong: 30s, 5m, 1h.",
)  # fmt: skip
@click.option(
    "--silent-max", "silent_seconds", type=Duration(), metavar="TIME",
    help="If no run has ended for longer, that is wrong.",
)  # fmt: skip
@project_bootstrap_option
@output_option
def health(
    directories: tuple[str, ...],
    lag_max: int | None,
    behind_seconds: float | None,
    silent_seconds: float | None,
    bootstrap: str | None,
    output: str,
) -> int:
    """Say whether pipelines are well: the last run failed, its process died, nothing happened for too long,
    too far behind.  If anything is wrong, the exit code is 1.

    \b
    dlog pipeline health
    dlog pipeline health shop clicks --behind-max 5m --silent-max 10m -o json
    """
    from distributedlog.pipelines.health import HealthLimits

    limits = HealthLimits(
        records_max=lag_max, behind_seconds_max=behind_seconds, silent_seconds_max=silent_seconds
    )
    found = [_look(where, bootstrap, limits, output) for where in directories or (".",)]
    return 0 if all(found) else EXIT_UNWELL


def _look(where: str, bootstrap: str | None, limits: "HealthLimits", output: str) -> bool:
    """Returns whether it is well; and says so."""
    from distributedlog.pipelines.health import judge
    from distributedlog.pipelines.history import read_history
    from distributedlog.pipelines.project import find_project, is_running
    from distributedlog.pipelines.status import fold

    project = find_project(where)
    status = fold(read_history(project.history_path), is_running=is_running(project))
    lag = measured(status, bootstrap or project.bootstrap).get(None)
    problems = judge(status, lag, limits, now_ms=int(time.time() * 1000))
    if output == "json":
        print_json(
            {
                "type": "health",
                "name": project.name,
                "directory": project.directory,
                "is_well": not problems,
                "problems": problems,
                "state": status.state,
                "runs": status.runs,
                "ended_ms": status.ended_ms,
                "looked_ms": status.looked_ms,
                "failures_in_a_row": status.failures_in_a_row,
                "lag": lag and lag.records,
                "lag_seconds": lag and lag.seconds,
            }
        )
    elif problems:
        for problem in problems:
            print_line(f"{project.name}: {problem}")
    else:
        behind = (
            "" if lag is None else f", {lag.records:,} records behind ({show_seconds(lag.seconds) or '?'})"
        )
        idle = ", nothing new since" if status.is_idle else ""
        print_line(f"{project.name}: well: {status.state}, {status.runs} runs{idle}{behind}")
    return not problems
