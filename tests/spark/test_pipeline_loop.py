"""Runs that are not made because nothing is new, with real Spark; what is news of topics, with a broker."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from distributedlog.client.offset_specs import Isolation
from distributedlog.model.errors import UnknownTopicError
from distributedlog.model.ids import TopicPartition
from distributedlog.pipelines.loop.looking import look_at_ends
from distributedlog.pipelines.loop.news import Sight, TopicRead, difference
from distributedlog.pipelines.runner import NOTHING_NEW
from distributedlog.pipelines.status import fold
from distributedlog.spark.source.subscription import Subscription
from tests.spark.loop_stage import DOUBTFUL, order
from tests.spark.topics import Topics

TIMEOUT_SECONDS = 900
SPEC = """\
name: loop
storage: file://{directory}/.dlog/storage
libraries:
  - glob:
      include: transformations/**
configuration:
  dlog.bootstrap: "{bootstrap}"
  dlog.topic: "{topic}"
"""
RAW = """\
from pyspark import pipelines as dp
from pyspark.sql import functions as F


@dp.table
def raw():
    servers = {"kafka.bootstrap.servers": spark.conf.get("dlog.bootstrap"), "startingOffsets": "earliest"}
    read = spark.readStream.format("dlog").options(**servers, subscribe=spark.conf.get("dlog.topic")).load()
    parsed = F.from_json(F.col("value").cast("string"), "country STRING, cents BIGINT, time TIMESTAMP")
    return read.select(parsed.alias("parsed")).select("parsed.*")
"""
TABLES = """\
CREATE STREAMING TABLE minutes AS
SELECT country, window.start AS minute, count(*) AS orders
FROM STREAM raw WATERMARK time DELAY OF INTERVAL 30 SECONDS
GROUP BY country, window(time, '1 minute');
CREATE MATERIALIZED VIEW totals AS SELECT country, sum(cents) AS amount FROM raw GROUP BY country;
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loop")


@pytest.fixture(scope="module")
def said(directory: Path, topics_of_module: Topics) -> list[dict[str, Any]]:
    topics = topics_of_module
    topic = topics.create("looped")
    topics.produce(topic, [order(number, minute=number % 3) for number in range(8)])
    spec = SPEC.format(directory=directory, bootstrap=topics.bootstrap, topic=topic)
    (directory / "spark-pipeline.yml").write_text(spec)
    (directory / "transformations").mkdir()
    (directory / "transformations" / "raw.py").write_text(RAW)
    (directory / "transformations" / "tables.sql").write_text(TABLES)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.loop_stage", str(directory)],
        capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_run_is_made_for_records_and_for_edited_definitions_and_for_nothing_else(
    said: list[dict[str, Any]],
) -> None:
    told = [(each["state"], each["run"]) for each in said if each["how"] == "loop"]
    # What was edited is a comment, so the third run finds nothing; that could not be known before.
    assert told == [
        ("completed", 1),
        (NOTHING_NEW, 1),
        ("completed", 2),
        (NOTHING_NEW, 2),
        ("completed", 3),
        (NOTHING_NEW, 3),
    ]


def test_a_run_that_is_made_all_the_same_changes_nothing(said: list[dict[str, Any]]) -> None:
    first, second, edited, forced = [each for each in said if each.get("state") == "completed"]
    assert forced["how"] == "forced"
    assert forced["batches"] == edited["batches"] == 0
    assert forced["tables"] == edited["tables"] == second["tables"]
    assert len(second["tables"]["minutes"]) > len(first["tables"]["minutes"]), "its record closed windows"
    assert second["tables"]["totals"] != first["tables"]["totals"]


def test_flows_that_may_find_something_without_records_are_known(said: list[dict[str, Any]]) -> None:
    why = {each["of"]: each["why"] for each in said if each["how"] == "doubt"}
    assert why.keys() == DOUBTFUL.keys()
    assert why.pop("plain") is None
    for name, reason in why.items():
        assert reason is not None, name
        assert "more" in reason, name


def test_the_history_says_when_nothing_was_new(directory: Path, said: list[dict[str, Any]]) -> None:
    lines = (directory / ".dlog" / "history.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    looked = [event["run"] for event in events if event["type"] == "idle"]
    assert looked == [1, 2, 3]
    until = max(at for at, event in enumerate(events) if event["type"] == "idle")
    assert fold(events[: until + 1]).is_idle


# --- what is news of topics ----------------------------------------------------------------------


def read_of(topics: Topics, subscription: Subscription, isolation: Isolation) -> TopicRead:
    return TopicRead(topics.bootstrap, subscription, isolation)


def seen(read: TopicRead) -> Sight:
    return Sight({}, look_at_ends([read]))


def test_records_partitions_and_another_topic_of_that_name_are_news(topics: Topics) -> None:
    name = topics.create("news")
    read = read_of(topics, Subscription((name,)), Isolation.READ_COMMITTED)
    before = seen(read)
    assert difference(before, seen(read)) is None
    topics.produce(name, [b"x"])
    after = seen(read)
    assert difference(before, after) is not None
    topics.add_partitions(name, 2)
    assert difference(after, seen(read)) is not None
    topics.delete(name)
    with pytest.raises(UnknownTopicError):
        seen(read)
    topics.create_named(name)
    assert difference(before, seen(read)) is not None, "as empty as it was, and another one"


def test_a_topic_that_a_pattern_finds_is_news(topics: Topics) -> None:
    name = topics.create("patterned")
    read = read_of(topics, Subscription(pattern=f"^{name}"), Isolation.READ_COMMITTED)
    before = seen(read)
    topics.create_named(f"{name}-too")
    assert difference(before, seen(read)) is not None


def test_records_of_a_transaction_are_news_when_it_ends(topics: Topics) -> None:
    name = topics.create("transacted")
    partition = TopicPartition(name, 0)
    committed, uncommitted = (
        read_of(topics, Subscription((name,)), isolation)
        for isolation in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)
    )
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": topics.bootstrap, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(name, b"x", partition=0)
    producer.flush()
    found = look_at_ends([committed, uncommitted])
    assert [found[each].offsets[partition] for each in (committed, uncommitted)] == [0, 1]
    producer.commit_transaction()
    assert look_at_ends([committed])[committed].offsets[partition] > 0
