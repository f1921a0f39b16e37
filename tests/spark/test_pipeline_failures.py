"""What runs say of what is wrong, and what a full refresh does: with real Spark, in one session."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from distributedlog.pipelines.project import make_project
from tests.spark.topics import Topics

TIMEOUT_SECONDS = 300
ORDERS = [
    {
        "order": f"A-{number}",
        "customer": "c",
        "country": "NO",
        "cents": 100,
        "time": f"2026-01-31T{hour}:00:05Z",
    }
    for number, hour in enumerate(("12", "12", "13", "14"))
]
WINDOWS = {"NO": 3}
"""The last hour waits for newer records."""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, topics_of_module: Topics) -> dict[str, Any]:
    """What each step of the stage said, by its name."""
    topics = topics_of_module
    # The project says two partitions.  A name of its own: a worker may come back to this module.
    topic = topics.create("staged", partitions=1)
    topics.produce(topic, [json.dumps(order).encode() for order in ORDERS])
    parent = str(tmp_path_factory.mktemp("stage"))
    project = make_project(parent, "shop", topic=topic, bootstrap=topics.bootstrap)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.pipeline_stage", project.directory],
        capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    events = (Path(project.directory) / ".dlog" / "history.jsonl").read_text().splitlines()
    return {
        "topic": topic,
        "warnings": [step["message"] for step in steps if step["step"] == "warning"],
        "events": [json.loads(line) for line in events],
        **{step["step"]: step for step in steps},
    }


def test_a_topic_with_fewer_partitions_than_the_project_says_is_told(said: dict[str, Any]) -> None:
    assert f"topic {said['topic']} has 1 of the 2 partitions" in said["warnings"][0]
    assert said["first"]["state"] == "completed"


def test_the_cause_is_told_with_file_and_line_and_without_the_plan(said: dict[str, Any]) -> None:
    error = said["column"]["error"]
    assert error.startswith("flow orders (transformations/orders.py:")
    assert "`custmer` cannot be resolved. Did you mean" in error
    assert "upstream" not in error
    assert "Project" not in error


def test_what_is_wrong_in_sql_is_told_with_a_mark(said: dict[str, Any]) -> None:
    error = said["sql column"]["error"]
    assert error.startswith(
        "flow orders_per_minute (transformations/orders_per_minute.sql:5): [UNRESOLVED_COLUMN"
    )
    assert error.endswith("\n  contry,\n  ^")
    error = said["syntax"]["error"]
    assert error.startswith("transformations/orders_per_minute.sql:4: [PARSE_SYNTAX_ERROR]")
    assert error.endswith("SELEC\n^^^")


def test_a_flow_that_fails_while_it_runs_is_told_with_its_cause(said: dict[str, Any]) -> None:
    error = said["while it runs"]["error"]
    assert error.startswith("flow orders (transformations/orders.py:"), error
    assert "): [" in error.splitlines()[0], error
    assert "[USER_RAISED_EXCEPTION] order" in error
    assert "more than" not in error
    assert "runId" not in error


def test_what_is_wrong_in_python_is_told_with_its_line(said: dict[str, Any]) -> None:
    place, _, reason = said["python"]["error"].partition(": ")
    assert place.startswith("transformations/orders.py:")
    assert reason == "NameError: name 'undefined_name' is not defined\ntext = undefined_name"


def test_a_type_that_changed_is_told_by_table_and_column(said: dict[str, Any]) -> None:
    error = said["type"]["error"]
    assert "table orders: column cents is BIGINT in the table, and STRING in its definition" in error
    assert "--full-refresh orders" in error
    assert "(transformations/orders.py:" in error
    assert said["invalid"]["problems"] == error.splitlines()


def test_a_missing_topic_is_told_soon_with_its_flow(said: dict[str, Any]) -> None:
    assert "flow orders_raw (transformations/orders.py:" in said["no topic"]["error"]
    assert "there is no topic 'nowhere'; make it (dlog topic create nowhere)" in said["no topic"]["error"]
    assert said["no topic"]["milliseconds"] < 20_000, "it took 39 s"


def test_a_full_refresh_counts_nothing_twice(said: dict[str, Any]) -> None:
    assert said["no table"]["state"] == "refused"
    assert "no table oders: did you mean orders" in said["no table"]["error"]
    assert said["first"]["windows"] == WINDOWS
    assert said["refresh"]["windows"] == WINDOWS
    assert said["next"]["state"] == "completed"
    assert said["next"]["windows"] == WINDOWS
    assert "made anew as well, because they read it: orders_per_minute" in said["warnings"]


def test_a_look_says_what_would_run(said: dict[str, Any]) -> None:
    assert said["valid"]["problems"] == []
    assert {name.rsplit(".", 1)[-1]: inputs for name, inputs in said["valid"]["flows"].items()} == {
        "orders_raw": [],
        "orders_parsed": ["spark_catalog.default.orders_raw"],
        "orders": ["orders_parsed"],
        "to_dead_letters": ["orders_parsed"],
        "orders_per_minute": ["spark_catalog.default.orders"],
        "to_per_minute": ["spark_catalog.default.orders_per_minute"],
    }


def test_rows_read_and_rows_written_are_counted_apart(said: dict[str, Any]) -> None:
    batches = [event for event in said["events"] if event["type"] == "batch" and event["run"] == 1]
    rows = {flow: [0, 0] for flow in {batch["flow"] for batch in batches}}
    for batch in batches:
        rows[batch["flow"]][0] += batch["rows"]
        rows[batch["flow"]][1] += batch["rows_out"]
    assert rows["orders_raw"] == [4, 4]
    assert rows["to_dead_letters"] == [4, 0], "all four were orders"
    assert rows["orders_per_minute"] == [4, 2]
    assert rows["to_per_minute"] == [2, 2]
