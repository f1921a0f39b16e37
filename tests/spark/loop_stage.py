"""A pipeline in a loop, to which something happens whenever it rests: what it does goes to stdout, as JSON.

python -m tests.spark.loop_stage PROJECT

One session for all of it, because starting Spark is what costs; a process of its own, because a process has
just one session.
"""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.graph_reader import GraphReader
from distributedlog.pipelines.loop.loop import run_loop
from distributedlog.pipelines.loop.news import unknowable
from distributedlog.pipelines.loop.plans import reads_of
from distributedlog.pipelines.loop.watch import Watch
from distributedlog.pipelines.project import find_project
from distributedlog.pipelines.runner import Runner, RunOutcome
from tests.spark.pipeline_stage import CONFIG
from tests.spark.topics import Topics

TABLES = ("minutes", "totals")
DOUBTFUL = {
    "plain": "CREATE MATERIALIZED VIEW more AS SELECT country FROM totals WHERE amount IN (SELECT 7)",
    "clock": "CREATE MATERIALIZED VIEW more AS SELECT country, current_timestamp() AS at FROM totals",
    "user": "CREATE MATERIALIZED VIEW more AS SELECT country, current_user() AS who FROM totals",
    "chance": "CREATE MATERIALIZED VIEW more AS SELECT country, rand() AS number FROM totals",
    "sample": "CREATE MATERIALIZED VIEW more AS SELECT * FROM totals TABLESAMPLE (10 PERCENT)",
    "inner clock": "CREATE MATERIALIZED VIEW more AS SELECT * FROM totals"
    " WHERE amount > (SELECT max(unix_timestamp()) FROM totals)",
    "files": "CREATE MATERIALIZED VIEW more AS SELECT * FROM parquet.`FILES`",
    "inner files": "CREATE MATERIALIZED VIEW more AS SELECT * FROM totals"
    " WHERE amount IN (SELECT id FROM parquet.`FILES`)",
}


def order(number: int, minute: int) -> bytes:
    time = f"2026-01-31T12:{minute:02d}:00Z"
    return json.dumps({"country": ("NO", "DE")[number % 2], "cents": number, "time": time}).encode()


class Happenings(threading.Event):
    """What a loop waits with: whenever it rests, something happens; after the last it is to stop."""

    def __init__(self, happenings: list[Callable[[], None]]) -> None:
        super().__init__()
        self._happenings = happenings

    def wait(self, timeout: float | None = None) -> bool:
        if not self._happenings:
            return True
        self._happenings.pop(0)()
        return False


def main(directory: str) -> None:
    project = find_project(directory)
    topics, topic = Topics(str(project.bootstrap)), project.configuration["dlog.topic"]
    definitions = Path(directory) / "transformations"

    def produce() -> None:
        topics.produce(topic, [order(9, minute=9)])

    def edit() -> None:
        path = definitions / "tables.sql"
        path.write_text(path.read_text() + "-- edited\n")

    def nothing() -> None:
        pass

    with Runner(project, master="local[2]", config=CONFIG) as runner:

        def tell(outcome: RunOutcome, how: str = "loop") -> None:
            tables: dict[str, list[str]] = {}
            for table in TABLES if outcome.is_completed else ():
                runner.spark.catalog.refreshTable(table)
                rows = runner.spark.sql(f"SELECT * FROM {table}").collect()
                tables[table] = sorted(map(str, map(tuple, rows)))
            told = {"how": how, "state": outcome.state, "run": outcome.run, "error": outcome.error}
            print(json.dumps({**told, "batches": outcome.batches, "tables": tables}), flush=True)

        happenings = Happenings([nothing, produce, nothing, edit, nothing])
        run_loop(runner, 0.0, happenings, tell, failures_max=1, watch=Watch(project))
        tell(runner.run_once(), "forced")
        files = str(Path(directory) / "files")
        runner.spark.range(3).write.parquet(files)
        for name, text in DOUBTFUL.items():
            (definitions / "more.sql").write_text(text.replace("FILES", files))
            print(json.dumps({"how": "doubt", "of": name, "why": doubt(runner)}), flush=True)


def doubt(runner: Runner) -> str | None:
    """What is said of the definitions as they are; they are not run."""
    found: list[str | None] = []

    def look(reader: GraphReader) -> None:
        found.append(unknowable(reads_of(reader)))
        raise PipelineError("seen")

    outcome = runner.run_once((), look)
    assert outcome.error == "seen", outcome.error
    return found[0]


if __name__ == "__main__":
    main(*sys.argv[1:])
