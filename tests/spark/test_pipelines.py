"""`dlog pipeline` as people call it: projects that it writes, run by processes of their own.

What a run leaves is read through `dlog sql`, in this process's own session where that is enough.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from distributedlog.spark.session import QUICK_START
from tests.spark.topics import Topics

PATIENCE_SECONDS = 300
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
        return {"at": 0}

    def latestOffset(self):
        return {"at": 1}

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
        cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    if expected is not None:
        assert done.returncode == expected, done.stdout + done.stderr
    return done


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
    dlog("pipeline", "init", "shop", "--topic", "shop-orders", "-b", topics.bootstrap, cwd=tmp_path)
    shop = tmp_path / "shop"
    topics.create_named("shop-orders", partitions=2)
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

    picture = tmp_path / "lag.png"
    dlog("pipeline", "status", "--plot", picture, cwd=shop)
    assert picture.read_bytes().startswith(b"\x89PNG")

    dlog("pipeline", "reset", cwd=shop, expected=2)
    dlog("pipeline", "reset", "--yes", cwd=shop)
    told = objects(dlog("pipeline", "status", "-o", "json", cwd=shop).stdout)
    assert (told[0]["state"], told[0]["rows"]) == ("never ran", 0)


def test_a_run_that_fails_says_so_and_the_session_lives_on(tmp_path: Path) -> None:
    """In one session: a failing run, the definitions mended, and a run that completes; then it is stopped.

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
    definitions.write_text(NUMBERS + "    return spark.readStream.table('nowhere')\n")

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
        definitions.write_text(NUMBERS + "    return spark.readStream.format('numbers').load()\n")
        while (run := json.loads(running.stdout.readline()))["state"] == "failed":
            assert run["run"] <= 5
        assert dlog("pipeline", "reset", "--yes", cwd=project, expected=3).returncode == 3
        running.send_signal(signal.SIGTERM)
        output, errors = running.communicate(timeout=PATIENCE_SECONDS)
        assert running.returncode == 0, output + errors
    finally:
        running.kill()
        running.wait()
        running.communicate()
    events = [json.loads(line) for line in (project / ".dlog" / "history.jsonl").read_text().splitlines()]
    assert {event["run"] for event in events if event["type"] == "batch" and event["rows"] == 1} != set()


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
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
    tmp_path: Path, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    told = dlog("pipeline", *arguments, cwd=tmp_path, expected=code)
    assert complaint in told.stderr
    assert told.stderr.startswith("dlog: ")
    assert told.stderr.count("\n") == 1


def test_without_a_cluster_it_is_said_before_spark_is_started(tmp_path: Path) -> None:
    dlog("pipeline", "init", "shop", "-b", "127.0.0.1:1", cwd=tmp_path)
    told = dlog("pipeline", "run", cwd=tmp_path / "shop", expected=3)
    assert "dlog dev" in told.stderr
    assert not os.path.exists(tmp_path / "shop" / ".dlog" / "spark.log")
