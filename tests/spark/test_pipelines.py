"""`dlog pipeline` as people call it: projects that it writes, run by processes of their own.

What a run leaves is read through `dlog sql`, in this process's own session where that is enough.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from distributedlog.cli.sql.command import sql
from distributedlog.model.ids import TopicPartition
from distributedlog.spark.session.session import QUICK_START
from tests.spark.processes import descendants
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_SECONDS = 300
RUNS_WATCHED = 4
WORKERS_BYTES_MORE_MAX = 32 * 1024 * 1024
SOON_SECONDS = 40.0
QUICK = ("--master", "local[2]", *(f"--conf={key}={value}" for key, value in QUICK_START.items()))
FIRST: list[dict[str, object]] = [
    {"order": "A-1", "customer": "c-7", "country": "NO", "cents": 1999, "time": "2026-01-31T12:00:05Z"},
    {"order": "A-2", "customer": "c-9", "country": "PT", "cents": 4250, "time": "2026-01-31T12:00:40Z"},
    {"order": "A-3", "customer": "c-2", "country": "PT", "cents": "many", "time": "2026-01-31T12:01:20Z"},
    {"customer": "c-4", "country": "KE", "cents": 1200, "time": "2026-01-31T12:01:00Z"},
    {"order": "A-5", "customer": "c-4", "country": "KE", "cents": 1200, "time": "2026-01-31T12:09:00Z"},
]
SECOND: list[dict[str, object]] = [
    {"order": "A-6", "customer": "c-1", "country": "NO", "cents": 100, "time": "2026-01-31T13:00:00Z"}
]


NUMBERS = """\
import time

from pyspark import pipelines as dp
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "id INT"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": BEGUN}

    def latestOffset(self):
        return {"at": int(time.time())}

    def partitions(self, start, end):
        return [InputPartition(range(start["at"], end["at"]))]

    def read(self, partition):
        return ((number,) for number in partition.value)


spark.dataSource.register(Numbers)


@dp.table
def numbers():
"""


def dlog(*arguments: object, cwd: Path, expected: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "distributedlog.cli.main", *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip
    if expected is not None:
        assert done.returncode == expected, done.stdout + done.stderr
    return done


def own_positions(topics: Topics) -> dict[TopicPartition, int]:
    """What the project's group has committed; another test's project of that name has another topic."""
    committed = topics.group_positions("shop")
    return {each: offset for each, offset in committed.items() if each.topic.startswith("shop-")}


def objects(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def send(topics: Topics, topic: str, orders: list[dict[str, object]], *others: bytes) -> None:
    topics.produce(topic, [*(json.dumps(order).encode() for order in orders), *others])


def records(topics: Topics, topic: str) -> list[Any]:
    told = dlog(
        "topic",
        "consume",
        topic,
        "--from",
        "beginning",
        "-e",
        "-o",
        "json",
        "-b",
        topics.bootstrap,
        cwd=Path(),
    )
    return objects(told.stdout)


def test_a_new_project_works_at_once_and_a_second_run_continues(tmp_path: Path, topics: Topics) -> None:
    made = dlog("pipeline", "init", "shop", "--topic", "shop-orders", "-b", topics.bootstrap, cwd=tmp_path)
    assert "topic shop-orders\n" in made.stdout
    shop = tmp_path / "shop"
    described = dlog("topic", "describe", "shop-orders", "-b", topics.bootstrap, "-o", "json", cwd=tmp_path)
    assert len([row for row in objects(described.stdout) if row["type"] == "partition"]) == 2
    send(topics, "shop-orders", FIRST, b"this is no order", b"\xff\xfe\x00")

    # The exit code is 0 though Spark's own client takes the end of a run with a Python source for an error.
    first = objects(dlog("pipeline", "run", *QUICK, "-o", "json", cwd=shop).stdout)
    assert [(run["state"], run["rows"]) for run in first] == [("completed", 7)]

    # The catalog is on disk: were it in memory, the second run would find the tables' directories and fail.
    send(topics, "shop-orders", SECOND)
    second = objects(dlog("pipeline", "run", *QUICK, "-o", "json", cwd=shop).stdout)
    assert [(run["run"], run["state"], run["rows"]) for run in second] == [(2, "completed", 1)]

    told = objects(dlog("pipeline", "status", "-o", "json", cwd=shop).stdout)
    assert (told[0]["state"], told[0]["runs"], told[0]["rows"], told[0]["lag"]) == ("completed", 2, 8, 0)
    flows = {flow["name"]: flow for flow in told[1:]}
    assert flows["orders_raw"]["rows"] == 8
    # The same run that read the new record also brought it through the rest of the pipeline.
    assert flows["orders"]["rows"] == 8

    letters = records(topics, "shop-orders-dead")
    reasons = sorted(record["headers"][0]["value"] for record in letters)
    assert reasons == ["a field has the wrong type", "no field order", "not JSON", "not UTF-8"]
    assert {record["value"] for record in letters} >= {"this is no order", "//4A"}
    windows = [json.loads(record["value"]) for record in records(topics, "shop-orders-per-minute")]
    assert sorted((each["country"], each["orders"], each["cents"]) for each in windows) == [
        ("KE", 1, 1200),
        ("NO", 1, 1999),
        ("PT", 1, 4250),
    ]

    query = "SELECT order FROM orders ORDER BY order"
    table = dlog("sql", "--pipeline", shop, query, "-b", topics.bootstrap, "-o", "json", cwd=tmp_path)
    assert [row["order"] for row in objects(table.stdout)] == ["A-1", "A-2", "A-5", "A-6"]

    send(topics, "shop-orders", SECOND)
    behind = objects(dlog("pipeline", "status", "-o", "json", cwd=shop).stdout)[0]
    assert (told[0]["lag_seconds"], behind["lag"]) == (0, 1)
    assert 0 < behind["lag_seconds"] < 600, "as long as the record has been waiting"

    picture = tmp_path / "lag.png"
    dlog("pipeline", "status", "--plot", picture, cwd=shop)
    assert picture.read_bytes().startswith(b"\x89PNG")

    assert flows["to_dead_letters"]["rows"] == 8
    assert flows["to_dead_letters"]["rows_out"] == 4, "not all that it read"
    assert sum(own_positions(topics).values()) == 8
    dlog("pipeline", "reset", cwd=shop, expected=2)
    dlog("pipeline", "reset", "--yes", cwd=shop)
    assert own_positions(topics) == {}
    told = objects(dlog("pipeline", "status", "-o", "json", cwd=shop).stdout)
    assert (told[0]["state"], told[0]["rows"]) == ("never ran", 0)


def test_a_run_that_fails_says_so_and_the_session_lives_on(
    tmp_path: Path, spark: "SparkSession", topics: Topics
) -> None:
    """Does all in one session: a failing run, the definitions mended, and a run that completes; then it is
    stopped.

    It reads a Python source that its definitions register.  Behind the end of such a run Spark's client finds
    an accumulator of Python's, takes it for an error, and `spark-pipelines run` ends with 1.
    """
    project = tmp_path / "numbers"
    (project / "transformations").mkdir(parents=True)
    (project / "spark-pipeline.yml").write_text(
        f"name: numbers\nstorage: file://{project}/.dlog/storage\n"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
    definitions = project / "transformations" / "numbers.py"
    numbers = NUMBERS.replace("BEGUN", str(int(time.time()) - 1))
    definitions.write_text(numbers + "    return spark.readStream.table('nowhere')\n")

    command = [
        sys.executable,
        "-m",
        "distributedlog.cli.main",
        "pipeline",
        "run",
        "--every",
        "0s",
        *QUICK,
        "-o",
        "json",
    ]
    running = subprocess.Popen(
        command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        failed = json.loads(running.stdout.readline())
        assert failed["state"] == "failed"
        assert "nowhere" in failed["error"]
        refused = dlog("pipeline", "run", cwd=project, expected=3)
        assert "another process" in refused.stderr
        definitions.write_text(numbers + "    return spark.readStream.format('numbers').load()\n")
        while (run := json.loads(running.stdout.readline()))["state"] == "failed":
            assert run["run"] <= 5
        check_runs_are_flat(running)
        # The run holds the project and Derby; whoever reads needs neither.
        command_line = [
            "--pipeline",
            str(project),
            "SELECT id FROM numbers",
            "-o",
            "json",
            "-b",
            topics.bootstrap,
        ]
        asked = CliRunner().invoke(sql, command_line, catch_exceptions=False)
        ids = [row["id"] for row in objects(asked.stdout)]
        assert ids, asked.output
        assert sorted(ids) == list(range(min(ids), min(ids) + len(ids))), "each number once"
        assert running.poll() is None
        assert dlog("pipeline", "reset", "--yes", cwd=project, expected=3).returncode == 3
        running.send_signal(signal.SIGTERM)
        output, errors = running.communicate(timeout=TIMEOUT_SECONDS)
        assert running.returncode == 0, output + errors
    finally:
        running.kill()
        running.wait()
        running.communicate()
    events = [json.loads(line) for line in (project / ".dlog" / "history.jsonl").read_text().splitlines()]
    assert (
        len({event["run"] for event in events if event["type"] == "batch" and event["rows"]}) > RUNS_WATCHED
    )


def check_runs_are_flat(running: "subprocess.Popen[str]") -> None:
    """A run leaves no process behind, and its workers no memory."""
    assert running.stdout is not None
    running.stdout.readline()  # the second one: whatever is kept from run to run has been started now
    before = [each for each in descendants(running.pid) if not each.is_java]
    for _ in range(RUNS_WATCHED):
        assert json.loads(running.stdout.readline())["state"] == "completed"
    after = [each for each in descendants(running.pid) if not each.is_java]
    assert len(after) <= len(before), [each.command for each in after]
    held = [sum(each.resident_bytes for each in seen) for seen in (before, after)]
    assert held[1] <= held[0] + WORKERS_BYTES_MORE_MAX, held


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run",), 1, "there is no pipeline"),
        (("run", "--once", "--every", "1s"), 2, "contradict"),
        (("run", "--every", "soon"), 2, "is no time"),
        (("init", "9"), 2, "is no name"),
        (("init", "x", "--topic", "a b"), 2, "a b"),
        (("status", "-p", "nowhere"), 1, "nowhere"),
    ],
)
def test_wrong_usage_is_one_line_and_a_code(
    tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    told = dlog("pipeline", *arguments, cwd=tmp_path, expected=code)
    assert message in told.stderr
    assert told.stderr.startswith("dlog: ")
    assert told.stderr.count("\n") == 1


@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "sparc://127.0.0.1:7077"])
def test_a_master_that_is_none_or_does_not_answer_is_one_line_and_a_code(tmp_path: Path, master: str) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(f"name: x\nstorage: file://{tmp_path}/.dlog/storage\n")
    started = time.monotonic()
    told = dlog("pipeline", "run", "--master", master, cwd=tmp_path, expected=3)
    assert time.monotonic() - started < SOON_SECONDS, "it took 63 s"
    assert "master of Spark" in told.stderr
    assert told.stderr.count("\n") == 1
    assert not os.path.exists(tmp_path / ".dlog" / "spark.log")


def test_without_a_cluster_it_is_said_before_spark_is_started(tmp_path: Path) -> None:
    dlog("pipeline", "init", "shop", "-b", "127.0.0.1:1", cwd=tmp_path)
    started = time.monotonic()
    told = dlog("pipeline", "run", cwd=tmp_path / "shop", expected=3)
    assert time.monotonic() - started < SOON_SECONDS, "it took 200 s"
    assert "dlog dev" in told.stderr
    assert not os.path.exists(tmp_path / "shop" / ".dlog" / "spark.log")
