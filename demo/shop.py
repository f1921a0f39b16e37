"""The second act: a shop's topics become tables and topics on Spark, while a leader is killed in the middle.

    dlog dev, three brokers ◄── librdkafka: orders, payments, clicks   workload, with its ledger
          │       ▲
          └──►    │ Spark: the project in demo/pipeline, run after run distributedlog.pipelines.Runner
                                                                       then the proof

It begins to produce before Spark is there, so there is something to catch up with.  Half-way after the
first run the broker that leads the orders gets SIGKILL: another one leads, and `dlog dev` starts it again.
At the end all is read, the windows are closed, and it is counted.
"""

import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from demo.cluster import Cluster
from demo.proof import Check, prove
from demo.view import Facts, View
from demo.workload import Workload
from distributedlog.pipelines.history import read_history
from distributedlog.pipelines.plot import draw
from distributedlog.pipelines.project import Project, find_project
from distributedlog.pipelines.runner import Runner, RunOutcome
from distributedlog.spark.session.session import QUICK_START

HERE = Path(__file__).parent
KILLED_TOPIC = "orders"
LOOK_SECONDS = 0.25
LOAD_SECONDS_MAX = 150.0
FAILURES_MAX = 10
SEED = 20_260_131
SPARK = {"spark.driver.memory": "1g", **QUICK_START}


@dataclass(frozen=True, slots=True)
class Size:
    events_per_second: int = 1_500
    seconds: float = 30.0
    """The seconds of load, after the first run is through."""


def make_project(directory: Path) -> Project:
    """A copy of demo/pipeline, whose tables and checkpoints go where the demo's things go."""
    copy = directory / "shop"
    shutil.copytree(HERE / "pipeline", copy, ignore=shutil.ignore_patterns("__pycache__"))
    spec = copy / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("STORAGE", f"file://{copy}/.dlog/storage"))
    return find_project(str(copy))


class Pipeline:
    """Runs of the project in a thread: again and again, and at last until nothing is left."""

    def __init__(self, runner: Runner, view: View) -> None:
        self.outcomes: list[RunOutcome] = []
        self.error: BaseException | None = None
        self._runner = runner
        self._view = view
        self._is_last_wanted = threading.Event()
        self._is_to_end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pipeline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_first_through(self) -> bool:
        return any(outcome.is_completed for outcome in self.outcomes)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def finish(self) -> None:
        """One more whole run, begun after this was called, is the last."""
        self._is_last_wanted.set()

    def give_up(self) -> None:
        self._is_to_end.set()

    def _work(self) -> None:
        failures = 0
        try:
            while not self._is_to_end.is_set():
                is_last = self._is_last_wanted.is_set()
                outcome = self._runner.run_once()
                if self._is_to_end.is_set():
                    return
                self.outcomes.append(outcome)
                if outcome.is_completed:
                    failures = 0
                    seconds = outcome.milliseconds / 1000
                    self._view.news(f"run {outcome.run}: {outcome.rows:,} rows in {seconds:.1f} s")
                    if is_last:
                        return
                else:
                    failures += 1
                    self._view.news(
                        f"run {outcome.run} failed, and is tried again: {(outcome.error or '')[:150]}"
                    )
                    if failures == FAILURES_MAX:
                        raise RuntimeError(f"{failures} runs failed: {outcome.error}")
        except BaseException as error:
            self.error = error


def show(console: Console, directory: Path, picture: Path, size: Size) -> int:
    """The act; its exit code."""
    began = time.monotonic()
    project = make_project(directory)
    with View(console) as view, Cluster(directory) as cluster:
        view.news(f"three brokers serve on {cluster.bootstrap}")
        with (
            Workload(cluster.bootstrap, size.events_per_second, SEED) as workload,
            Runner(project, bootstrap=cluster.bootstrap, config=SPARK) as runner,
        ):
            view.news(f"Spark {runner.spark.version} is there, after {time.monotonic() - began:.1f} s")
            pipeline = Pipeline(runner, view)
            pipeline.start()
            try:
                killed_ms = _load(cluster, workload, runner, pipeline, view, size)
                workload.finish()
                view.news(f"no more events: {workload.ledger.acknowledged:,} were acknowledged")
                pipeline.finish()
                while pipeline.is_alive:
                    view.show(_facts(workload, runner, cluster, "reads the rest"))
                    time.sleep(LOOK_SECONDS)
            finally:
                pipeline.give_up()
            if pipeline.error is not None:
                raise pipeline.error
            view.news("counting, against the ledger")
            checks = prove(runner.spark, cluster.bootstrap, workload.ledger)
        picture.parent.mkdir(parents=True, exist_ok=True)
        marks = [(moment, word) for moment, word in zip(killed_ms, ("kill -9", "serves again"), strict=False)]
        draw(list(read_history(project.history_path)), str(picture), title="the shop's pipeline", marks=marks)
    return _conclude(console, checks, pipeline, picture, time.monotonic() - began)


def _load(
    cluster: Cluster, workload: Workload, runner: Runner, pipeline: Pipeline, view: View, size: Size
) -> list[int]:
    """Until the load has lasted; when the leader was killed, and when it was back."""
    began = time.monotonic()
    first: float | None = None
    killed: list[int] = []
    while pipeline.is_alive:
        now = time.monotonic()
        if first is None and pipeline.is_first_through:
            first = now
        if first is not None and not killed and now - first >= size.seconds / 2:
            killed = _kill_leader(cluster, view)
        is_over = first is not None and now - first >= size.seconds
        if killed and (is_over or now - began > LOAD_SECONDS_MAX):
            break
        view.show(_facts(workload, runner, cluster, "runs"))
        time.sleep(LOOK_SECONDS)
    return killed


def _kill_leader(cluster: Cluster, view: View) -> list[int]:
    """When it was killed, and when it served again."""
    leader = cluster.leader(KILLED_TOPIC)
    victim = cluster.kill(leader)
    killed_ms = int(time.time() * 1000)
    view.news(f"kill -9 {victim}: broker {leader}, which led {KILLED_TOPIC}, is gone in the middle of it")
    another = cluster.wait_for_another(leader, victim)
    now = cluster.leader(KILLED_TOPIC)
    view.news(f"broker {leader} serves again, pid {another}; broker {now} leads {KILLED_TOPIC}")
    return [killed_ms, int(time.time() * 1000)]


def _facts(workload: Workload, runner: Runner, cluster: Cluster, state: str) -> Facts:
    ledger, status = workload.ledger, runner.status
    samples = list(status.lag_samples)
    facts = Facts(
        sent=workload.sent,
        acknowledged=ledger.acknowledged,
        malformed=sum(ledger.malformed.values()),
        late=sum(ledger.late.values()),
        runs=status.runs,
        rows=status.rows,
        lag=samples[-1][1] if samples else None,
        broker="three" + (f", after {cluster.kills} kill -9" if cluster.kills else ""),
        spark=state,
    )
    facts.lags.extend(records for _, records in samples[-60:])
    return facts


def _conclude(
    console: Console, checks: list[Check], pipeline: Pipeline, picture: Path, seconds: float
) -> int:
    table = Table("proof", "by the ledger", "found", "")
    for check in checks:
        table.add_row(
            check.what, check.expected, check.found, "right" if check.is_right else "[red]WRONG[/red]"
        )
    console.print(table)
    done = [outcome for outcome in pipeline.outcomes if outcome.is_completed]
    rows, busy_ms = sum(outcome.rows for outcome in done), sum(outcome.milliseconds for outcome in done)
    best = max(
        (outcome.rows * 1000 / outcome.milliseconds for outcome in done if outcome.milliseconds), default=0
    )
    console.print(
        f"\n{rows:,} rows in {len(done)} runs, {rows * 1000 / max(1, busy_ms):,.0f} rows/s, "
        f"the best run {best:,.0f} rows/s (each row is written twice, parsed twice and counted)",
        soft_wrap=True,
    )
    console.print(f"lag over time: {picture}")
    console.print(f"this act took {seconds:.0f} s")
    return 0 if all(check.is_right for check in checks) else 1
