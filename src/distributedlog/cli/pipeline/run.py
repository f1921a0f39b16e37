"""`dlog pipeline run`: once, or again and again in one Spark session.

| exit code | meaning                                                                          |
|-----------|----------------------------------------------------------------------------------|
| 0         | the run completed; with `--every`, it was stopped and its last run had completed |
| 1         | the run failed; with `--every`, the last one, or too many in a row; no project   |
| 2         | wrong usage, an unknown table, or the project's settings are wrong               |
| 3         | no cluster, no Java, Spark did not start, another process runs this project      |

With `--every` the reason of each failed run is told on stderr as it ends, and a run that would find nothing
new is not made: the first of several that were not, one after the other, has a line of its own.

Ctrl-C and SIGTERM let the run that is going on finish; a second one stops at once, which is safe too: what
was not committed is done again by the next run.
"""

import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING

import click

from distributedlog.cli.key_values import parse_pairs
from distributedlog.cli.output import TextTable, columns, output_option, print_json, show_time, warn
from distributedlog.cli.pipeline.durations import Duration
from distributedlog.cli.pipeline.places import project_bootstrap_option, project_option
from distributedlog.cli.pipeline.spark_errors import explained
from distributedlog.cli.progress import live_line
from distributedlog.cli.session import NoClusterError

if TYPE_CHECKING:
    from distributedlog.pipelines.runner import RunOutcome, RunProgress

ENDED = frozenset({"completed", "failed", "skipped", "excluded"})
HEADING = "run>5 started<24 state<11 rows>12 batches>7 seconds>8"


class RunFailedError(click.ClickException):
    exit_code = 1
    is_quoting = True
    """Whether the message quotes the definitions: the line that is wrong, with a mark below it."""


@click.command()
@project_option
@click.option("--once", is_flag=True, help="One run, until all that is there has been read (the default).")
@click.option(
    "--every",
    "every_seconds",
    type=Duration(),
    metavar="TIME",
    help="Again and again, so far apart: 10s, 1m.",
)
@click.option("--master", metavar="URL", help="Where Spark runs.  [default: local[*], in this process]")
@project_bootstrap_option
@click.option(
    "--conf", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."
)
@click.option(
    "--full-refresh", multiple=True, metavar="TABLE", help="Make this table anew, once; may be repeated."
)
@click.option(
    "--failures", "failures_max", type=click.IntRange(1), default=5, show_default=True,
    metavar="N", help="With --every: give up after so many failed runs in a row.",
)  # fmt: skip
@click.option(
    "--compact-files", type=click.IntRange(2, 1_000_000), metavar="N",
    help="Between runs, merge the files of tables that have so many small ones."
    "  [default: as the project says, dlog.compact.files]",
)  # fmt: skip
@click.option(
    "--always", is_flag=True,
    help="With --every: run also if nothing is new.  [default: as the project says, dlog.run.always]",
)  # fmt: skip
@output_option
def run(
    where: str,
    once: bool,
    every_seconds: float | None,
    master: str | None,
    bootstrap: str | None,
    settings: tuple[str, ...],
    full_refresh: tuple[str, ...],
    failures_max: int,
    compact_files: int | None,
    always: bool,
    output: str,
) -> int:
    """Run the pipeline: every flow reads what is there since the last run, and stops.

    With --every it is run again and again in the same Spark session, which is how it stays fresh; then Ctrl-C
    is the way to end it.  Prints a line for each run.  With --every a run that would certainly
    find nothing new is not made; one line says so until the next run.

    \b
    dlog pipeline run
    dlog pipeline run --every 10s -p shop
    dlog pipeline run --master spark://spark.example.com:7077 --conf spark.executor.memory=2g
    """
    if once and every_seconds is not None:
        raise click.UsageError("--once and --every contradict each other.")
    from distributedlog.model.errors import BrokerUnreachableError
    from distributedlog.pipelines.loop.loop import run_loop
    from distributedlog.pipelines.loop.watch import Watch
    from distributedlog.pipelines.project import find_project
    from distributedlog.pipelines.runner import Runner
    from distributedlog.pipelines.written_names import check_tables

    project = find_project(where)
    check_tables(project, full_refresh)
    show = _Lines(output, tells_failures=every_seconds is not None)
    stopping = threading.Event()
    runner = Runner(
        project,
        master=master,
        bootstrap=bootstrap,
        config=parse_pairs(settings, "--conf", example="spark.driver.memory=2g"),
        warn=warn,
        compact_files=compact_files,
    )
    with explained(), live_line(lambda: spell_progress(runner.progress)), runner, _Signals(stopping):
        if every_seconds is None:
            outcome = runner.run_once(full_refresh)
            show(outcome)
        else:
            watch = None if always or project.runs_always() else Watch(project)
            outcome = run_loop(runner, every_seconds, stopping, show, failures_max, full_refresh, watch)
    if isinstance(outcome.cause, BrokerUnreachableError):
        raise NoClusterError(f"run {outcome.run} failed: {outcome.error}")
    if outcome.error is not None:
        raise RunFailedError(
            f"run {outcome.run} failed: {outcome.error}\n(more in {project.state_directory}/spark.log)"
        )
    return 0


def spell_progress(progress: "RunProgress") -> str:
    """Returns what is going on, in one line."""
    if not progress.is_started:
        return "starting Spark"
    if progress.is_idle:
        return f"nothing new since run {progress.run}"
    if not progress.is_running:
        return f"run {progress.run} is over; waiting for the next"
    flows = [name for name, state in progress.flow_states.items() if state == "running"]
    done = sum(state in ENDED for state in progress.flow_states.values())
    parts = [
        f"run {progress.run}",
        f"{done} of {len(progress.flow_states)} flows done",
        f"{progress.rows:,} rows in {progress.batches} batches",
    ]
    if progress.lag is not None:
        parts.append(f"{progress.lag:,} records behind")
    if flows:
        parts.append(", ".join(flows))
    return "; ".join(parts)


class _Lines:
    """A line for each run, as it ends; with `tells_failures` what went wrong in it, on stderr."""

    def __init__(self, output: str, *, tells_failures: bool) -> None:
        self._tells_failures = tells_failures
        self._table = TextTable(columns(HEADING)) if output == "table" else None

    def __call__(self, outcome: "RunOutcome") -> None:
        import sys

        if self._table is not None:
            self._table.row(
                outcome.run,
                show_time(outcome.started_ms),
                outcome.state,
                f"{outcome.rows:,}",
                outcome.batches,
                f"{outcome.milliseconds / 1000:.1f}",
            )
        else:
            print_json(
                {
                    "type": "run",
                    "run": outcome.run,
                    "state": outcome.state,
                    "started_ms": outcome.started_ms,
                    "rows": outcome.rows,
                    "batches": outcome.batches,
                    "milliseconds": outcome.milliseconds,
                    "error": outcome.error,
                }
            )
        sys.stdout.flush()
        if self._tells_failures and outcome.error is not None:
            warn(f"run {outcome.run} failed: {outcome.error}")


class _Signals:
    """The first signal asks to stop after this run, the second stops."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._heed)

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def _heed(self, number: int, _: FrameType | None) -> None:
        if self._stopping.is_set():
            raise KeyboardInterrupt
        self._stopping.set()
