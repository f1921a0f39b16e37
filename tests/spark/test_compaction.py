"""Compaction of a table that Spark's own streams write and read, beside `tests/unit/pipelines/compaction`.

One table, and streams that read it: one that has read all, one that lags, one that was killed in the middle
of a micro-batch; and one that begins when all is over.  Every row has to come through each of them once.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from distributedlog.pipelines.compaction.compactor import Compactor, TableCompaction
from distributedlog.pipelines.compaction.replacement import STEPS
from distributedlog.pipelines.project import Project
from distributedlog.pipelines.runner import NOTHING_NEW
from tests.spark.test_pipelines import QUICK, dlog, objects, send
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_SECOND_BATCH = "--conf=spark.sql.streaming.fileSink.log.compactInterval=2"
"""So that a few runs are enough for Spark's log of a table to have a compact."""
RUNS = 5
TIMEOUT_SECONDS = 300
SCHEMA = "id LONG, part LONG, at TIMESTAMP, price DECIMAL(12,2)"


class CrashError(Exception):
    pass


class Stage:
    def __init__(
        self, spark: "SparkSession", directory: Path, name: str, *, is_partitioned: bool = False
    ) -> None:
        self.spark = spark
        self.directory = directory
        self.name = name
        self.is_partitioned = is_partitioned
        self.rows = 0
        self.project = Project(str(directory), "", "stage", f"file://{directory}/storage")
        (directory / "in").mkdir(parents=True)
        (directory / ".dlog").mkdir()
        by = "PARTITIONED BY (part)" if is_partitioned else ""
        spark.sql(f"CREATE TABLE {name} ({SCHEMA}) USING parquet {by} LOCATION '{self.place('table')}'")

    def place(self, name: str) -> str:
        return f"file://{self.directory}/{name}"

    def add(self, batches: int) -> None:
        """So many micro-batches, each a file of ten rows."""
        for _ in range(batches):
            rows = self.spark.range(self.rows, self.rows + 10, 1, 1).selectExpr(
                "id", "id % 2 AS part", "timestamp_seconds(id) AS at", "CAST(id AS DECIMAL(12,2)) AS price"
            )
            rows.write.mode("append").parquet(self.place("in"))
            self.rows += 10
        self.stream("in", "table", "writer")

    def stream(self, source: str, to: str, name: str, files: int = 1) -> None:
        """Runs a stream until it has read all that is there."""
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", str(files))
        writer = reader.parquet(self.place(source)).writeStream.format("parquet")
        if self.is_partitioned and to == "table":
            writer = writer.partitionBy("part")
        query = (
            writer.option("checkpointLocation", self.place(f"storage/{name}/0"))
            .trigger(availableNow=True)
            .start(self.place(to))
        )
        query.awaitTermination()

    def follow(self, name: str, files: int = 4) -> None:
        """Runs a stream that reads the table, and checks that it has had every row once."""
        self.stream("table", name, name, files)
        assert self.ids(name) == list(range(self.rows)), name

    def ids(self, name: str) -> list[int]:
        frame = self.spark.read.schema(SCHEMA).parquet(self.place(name))
        rows = frame.selectExpr("id", "unix_seconds(at)", "CAST(price AS LONG)").collect()
        assert all(row[0] == row[1] == row[2] for row in rows)
        return sorted(row[0] for row in rows)

    def check(self) -> None:
        assert self.ids("table") == list(range(self.rows))

    def crash_in_a_batch(self, name: str) -> None:
        """Leaves what is there as if the stream had been killed before its last micro-batch was committed."""
        commits = self.directory / "storage" / name / "0" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def compact(self, crash_after: str | None = None, keep_seconds: float = 600.0) -> TableCompaction:
        def on_step(step: str) -> None:
            if step == crash_after:
                raise CrashError(step)

        compactor = Compactor(self.project, self.spark, keep_seconds=keep_seconds)
        (done,) = compactor.compact([self.name], on_step=on_step)
        return done

    def files(self) -> set[str]:
        return {str(path) for path in (self.directory / "table").rglob("part-*.parquet")}


def test_every_row_comes_through_once(spark: "SparkSession", tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path / "a stage", "compacted_1")
    stage.add(5)
    stage.follow("behind")
    stage.add(4)
    stage.follow("killed", files=9)
    stage.crash_in_a_batch("killed")  # its one micro-batch has nine files to be read again
    stage.add(12)
    stage.follow("ahead")
    for step in STEPS:
        with pytest.raises(CrashError):
            stage.compact(crash_after=step)
        stage.check()
    stage.follow("ahead")
    done = stage.compact(keep_seconds=0)
    assert done.error is None
    stage.check()
    stage.add(3)
    for name in ("ahead", "behind", "killed"):
        stage.follow(name)
    stage.follow("fresh", files=1)

    # Once more: what was merged is merged again, and what it replaces is removed.
    stage.add(10)
    stage.follow("ahead")
    done = stage.compact(keep_seconds=0)
    assert done.error is None
    assert done.reason is None
    assert done.files_after < done.files_before
    stage.check()
    stage.compact(keep_seconds=0)
    assert {path for path in stage.files() if "merged" in path}
    plain = sorted(value for path in stage.files() for value in pq.read_table(path)["id"].to_pylist())
    assert plain == list(range(stage.rows))  # without Spark's log: nothing is left beside
    stage.add(2)
    for name in ("ahead", "behind", "killed", "fresh", "fresher"):
        stage.follow(name)


def test_partitions_stay_what_they_are(spark: "SparkSession", tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path / "stage", "compacted_2", is_partitioned=True)
    stage.add(11)
    stage.follow("ahead", files=100)
    done = stage.compact()
    assert (done.files_before, done.files_after) == (22, 4)
    stage.check()
    spark.catalog.refreshTable("compacted_2")
    counts = spark.sql("SELECT part, count(*), sum(id % 2) FROM compacted_2 GROUP BY part ORDER BY part")
    assert [tuple(row) for row in counts.collect()] == [(0, 55, 0), (1, 55, 55)]
    stage.add(1)
    stage.follow("ahead")
    stage.follow("fresh", files=1)


def test_a_table_whose_log_spark_reads_otherwise_is_left(spark: "SparkSession", tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path / "stage", "compacted_3")
    done = stage.compact()
    assert done.reason is not None
    assert "no log of streams" in done.reason
    stage.add(10)
    log = tmp_path / "stage" / "table" / "_spark_metadata"
    (log / "6").rename(log / "6.compact")  # Spark takes it for a log with a compact every third batch
    before = stage.files()
    done = stage.compact()
    assert done.error is not None
    assert "8.compact" in done.error
    assert (stage.files(), len((log / "9.compact").read_text().split("\n"))) == (before, 11)


def order(number: int) -> dict[str, object]:
    return {
        "order": f"A-{number}",
        "customer": "c",
        "country": "NO",
        "cents": number,
        "time": f"2026-01-31T12:{number:02}:00Z",
    }


def test_a_pipeline_compacts_between_its_runs_and_by_command(tmp_path: Path, topics: Topics) -> None:
    """From topic to windows every order counts once, whatever was merged meanwhile."""
    dlog("pipeline", "init", "shop", "--topic", "compact-orders", "-b", topics.bootstrap, cwd=tmp_path)
    shop = tmp_path / "shop"
    assert "has no tables yet" in dlog("pipeline", "compact", cwd=shop, expected=1).stderr
    command = [
        sys.executable,
        "-m",
        "distributedlog.cli.main",
        "pipeline",
        "run",
        "--every",
        "0s",
        "-o",
        "json",
    ]
    running = subprocess.Popen(
        [*command, *QUICK, EVERY_SECOND_BATCH, "--compact-files", "2"],
        cwd=shop,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        sent = completed = 0
        while completed < RUNS:
            send(topics, "compact-orders", [order(sent)])
            sent += 1
            run = json.loads(running.stdout.readline())
            assert run["state"] in ("completed", NOTHING_NEW), (
                run
            )  # it may have looked before the record came
            completed += run["rows"] > 0
        refused = dlog("pipeline", "compact", cwd=shop, expected=3)
        assert "another process" in refused.stderr
        running.send_signal(signal.SIGTERM)
        assert running.wait(TIMEOUT_SECONDS) == 0
    finally:
        running.kill()
        running.wait()
        running.communicate()
    events = objects((shop / ".dlog" / "history.jsonl").read_text())
    merged = {event["table"] for event in events if event["type"] == "compaction"}
    assert merged >= {"default.orders_raw", "default.orders"}

    told = dlog("pipeline", "compact", "oders", cwd=shop, expected=2).stderr
    assert "did you mean orders" in told
    dlog("pipeline", "compact", "--keep", "0s", cwd=shop)
    # A second one removes what the first has replaced.
    done = objects(
        dlog("pipeline", "compact", "orders_raw", "orders", "--keep=0s", "--output=json", cwd=shop).stdout
    )
    for each in done:
        location = shop / ".dlog" / "warehouse" / str(each["table"]).removeprefix("default.")
        assert len(list(location.glob("part-*"))) == each["files_after"] <= 3, each
    send(topics, "compact-orders", [order(59)])  # ends the windows of all others
    dlog("pipeline", "run", *QUICK, EVERY_SECOND_BATCH, cwd=shop)
    query = (
        "SELECT (SELECT count(*) FROM orders_raw), (SELECT count(DISTINCT order) FROM orders),"
        " (SELECT sum(cents) FROM orders), (SELECT sum(orders) FROM orders_per_minute),"
        " (SELECT sum(cents) FROM orders_per_minute)"
    )
    asked = dlog("sql", "--pipeline", shop, query, "-b", topics.bootstrap, "-o", "csv", cwd=tmp_path)
    cents = sum(range(sent))
    assert asked.stdout.splitlines()[1] == f"{sent + 1},{sent + 1},{cents + 59},{sent},{cents}"
