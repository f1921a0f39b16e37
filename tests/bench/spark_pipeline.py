"""What a run of a pipeline costs in a session that is warm: the project of `dlog pipeline init`.

| figure                    | it is                                                               |
|---------------------------|---------------------------------------------------------------------|
| nothing new               | every flow looks, and finds nothing                                 |
| nothing new, in the loop  | the same period of `--every`, in which no run is made               |
| 25,000 rows               | they go through two tables, a window and two topics                 |
| CPU of the JVM meanwhile  | what of it is work: the rest is waiting, or others on the machine   |

Each kind of run has its turn in every round; the first runs, which warm the session up, do not count.
"""

import json
import os
import statistics
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

from distributedlog.pipelines.loop.watch import Watch
from distributedlog.pipelines.project import find_project
from distributedlog.pipelines.runner import Runner
from distributedlog.pipelines.template import files_of
from distributedlog.spark.session.connect import jvm_process
from tests.bench.figures import Figure, at_most, stopwatch
from tests.bench.harness import Bench
from tests.spark.sink_stage import Stage, stage

ROUNDS = 3
WARM_UP_RUNS = 2
ROWS = 25_000
TOPIC = "orders"
NOTHING_AIM, ROWS_AIM = 3.95, 6.85
"""Half of the 7.9 and 13.7 seconds that they once took on two quiet cores."""
CONFIG = {
    "spark.driver.memory": "2g",
    "spark.python.authenticate.socketTimeout": "120s",  # a busy machine takes its time to start a Python
}
IDLE_AIM_MS = 100.0
COUNTRIES = ("NO", "DE", "FR")
TICKS = os.sysconf("SC_CLK_TCK")
BEGIN = datetime(2026, 1, 1)  # noqa: DTZ001 (written as UTC below)


def run(bench: Bench) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="dlog-bench-") as directory,
        stage(Path(directory) / "broker") as broker,
    ):
        place = Path(directory) / "project"
        for name, text in files_of("warm", TOPIC, broker.bootstrap, f"file://{place}/.dlog/storage").items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        with Runner(find_project(str(place)), config=CONFIG) as runner:
            bench.case("warm runs of a pipeline", _WarmRuns(runner, broker).figures)


class _WarmRuns:
    def __init__(self, runner: Runner, broker: Stage) -> None:
        self._runner = runner
        self._broker = broker
        self._written = 0
        self._watch = Watch(runner.project)

    def figures(self) -> list[Figure]:
        for _ in range(WARM_UP_RUNS):
            self._run(ROWS)
        rounds = [(self._run(0), self._look(), self._run(ROWS)) for _ in range(ROUNDS)]
        (nothing, nothing_cpu), (idle, idle_cpu), (rows, rows_cpu) = (
            map(statistics.median, zip(*(each[kind] for each in rounds), strict=True)) for kind in range(3)
        )
        return [
            at_most("warm run, nothing new", nothing, "s", NOTHING_AIM),
            at_most("nothing new, in the loop", idle * 1000, "ms", IDLE_AIM_MS),
            Figure("CPU of this process for it", idle_cpu * 1000, "ms"),
            at_most(f"warm run, {ROWS:,} rows", rows, "s", ROWS_AIM),
            Figure("CPU of the JVM, nothing new", nothing_cpu, "s"),
            Figure(f"CPU of the JVM, {ROWS:,} rows", rows_cpu, "s"),
        ]

    def _run(self, rows: int) -> tuple[float, float]:
        """Returns how long it took, and how long the JVM computed."""
        self._broker.fill(TOPIC, [self._order(self._written + number) for number in range(rows)])
        self._written += rows
        before = self._cpu_seconds()
        self._watch.begin()
        with stopwatch() as seconds:
            outcome = self._runner.run_once((), self._watch.on_graph)
        assert outcome.is_completed, outcome.error
        self._watch.end(is_whole=True)
        return seconds(), self._cpu_seconds() - before

    def _look(self) -> tuple[float, float]:
        """Returns how long it took to know that a run would find nothing, and this process computed."""
        before = time.process_time()
        with stopwatch() as seconds:
            news = self._watch.news()
        assert news is None, news
        return seconds(), time.process_time() - before

    def _order(self, number: int) -> bytes:
        at = BEGIN + timedelta(milliseconds=20 * number)
        order = {
            "order": f"o{number}",
            "customer": f"c{number % 100}",
            "country": ("NO", "DE", "FR")[number % 3],
        }
        return json.dumps(order | {"cents": number % 1000, "time": at.isoformat() + "Z"}).encode()

    def _cpu_seconds(self) -> float:
        process = jvm_process(self._runner.spark)
        assert process is not None
        facts = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(facts[11]) + int(facts[12])) / TICKS
