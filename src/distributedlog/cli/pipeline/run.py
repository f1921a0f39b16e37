"""`dlog pipeline run`: once, or again and again in one Spark session.

| exit code | meaning                                                                          |
|-----------|----------------------------------------------------------------------------------|
| 0         | the run completed; with `--every`, it was stopped and its last run had completed |
| 1         | the run failed; with `--every`, the last one, or too many in a row; no project   |
| 2         | wrong usage, or the project's settings are wrong                                 |
| 3         | no cluster, no Java, Spark did not start, another process runs this project      |

Ctrl-C and SIGTERM let the run that is going on finish; a second one stops at once, which is safe too: what
was not committed is done again by the next run.
"""

import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING

import click

from distributedlog.cli.output import TextTable, columns, output_option, print_json, show_time
from distributedlog.cli.overrides import parse_pairs
from distributedlog.cli.pipeline.places import project_option
from distributedlog.cli.topic.session import BOOTSTRAP_VARIABLE, NoClusterError

if TYPE_CHECKING:
    from distributedlog.pipelines.runner import RunOutcome

EVERY_SECONDS_MAX = 86_400.0
HEADING = "run>5 started<24 state<10 rows>12 batches>7 seconds>8"


class NoSparkError(click.ClickException):
    exit_code = 3


class RunFailedError(click.ClickException):
    exit_code = 1


class Seconds(click.ParamType[float]):
    """10s, 500ms, 2m, 1h, or a number of seconds."""

    name = "time"
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}  # noqa: RUF012 (never changed)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        number, unit = text, "s"
        for each in self.units:
            if text.endswith(each) and text[: -len(each)][-1:].isdigit():
                number, unit = text[: -len(each)], each
                break
        try:
            seconds = float(number) * self.units[unit]
        except ValueError:
            self.fail(f"{text!r} is no time: write 10s, 500ms, 2m or 1h", param, ctx)
        if not 0 <= seconds <= EVERY_SECONDS_MAX:
            self.fail(f"{text!r} is not between 0 and a day", param, ctx)
        return seconds


@click.command()
@project_option
@click.option("--once", is_flag=True, help="One run, until all that is there has been read (the default).")
@click.option(
    "--every", "every_seconds", type=Seconds(), metavar="TIME", help="Again and again, so far apart: 10s, 1m."
)
@click.option("--master", metavar="URL", help="Where Spark runs.  [default: local[*], in this process]")
@click.option(
    "-b", "--bootstrap", envvar=BOOTSTRAP_VARIABLE, show_envvar=True, metavar="HOST:PORT,…",
    help="Some of the cluster's brokers.  [default: as the project says]",
)  # fmt: skip
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
    output: str,
) -> int:
    """Run the pipeline: every flow reads what is there since the last run, and stops.

    With --every it is run again and again in the same Spark session, which is how it stays fresh; then Ctrl-C
    is the way to end it.  Prints a line for each run.

    \b
    dlog pipeline run
    dlog pipeline run --every 10s -p shop
    dlog pipeline run --master spark://spark.example.com:7077 --conf spark.executor.memory=2g
    """
    if once and every_seconds is not None:
        raise click.UsageError("--once and --every contradict each other.")
    from distributedlog.model.errors import BrokerUnreachableError, SparkNotReadyError
    from distributedlog.pipelines.project import find_project
    from distributedlog.pipelines.runner import Runner, run_loop

    project = find_project(where)
    show = _Lines(output)
    stopping = threading.Event()
    try:
        with (
            Runner(
                project,
                master=master,
                bootstrap=bootstrap,
                config=parse_pairs(settings, "--conf", example="spark.driver.memory=2g"),
            ) as runner,
            _Signals(stopping),
        ):
            if every_seconds is None:
                outcome = runner.run_once(full_refresh)
                show(outcome)
            else:
                outcome = run_loop(runner, every_seconds, stopping, show, failures_max, full_refresh)
    except BrokerUnreachableError as error:
        raise NoClusterError(
            f"{error}; start one with `dlog dev`, or name another with --bootstrap"
        ) from error
    except SparkNotReadyError as error:
        raise NoSparkError(str(error)) from error
    if outcome.error is not None:
        raise RunFailedError(
            f"run {outcome.run} failed: {outcome.error} (more in {project.state_directory}/spark.log)"
        )
    return 0


class _Lines:
    """A line for each run, as it ends."""

    def __init__(self, output: str) -> None:
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
