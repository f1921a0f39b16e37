"""Kafka's own tools move a partition with its records, throttled, cancel a move, and elect who is to lead."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jvm.tools import (
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    ELECTION,
    LOG_DIRS,
    PRODUCER_PERF,
    REASSIGNMENT,
    TOPICS,
    KafkaTools,
)
from tests.system.dev_cluster import DevCluster

TOPIC = "moved"
RECORDS = 50
MOVED_SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    """The tools, told of three brokers."""
    directory = tmp_path_factory.mktemp("three")
    arguments = ("--brokers", 3, "--port", 0, "--no-gateway", "--data-dir", directory / "data")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield KafkaTools(str(cluster.ready()["bootstrap"]), directory)
        assert cluster.stop() == 0


def test_a_partition_is_moved_verified_and_none_is_left_to_list_or_cancel(
    three: KafkaTools, tmp_path: Path
) -> None:
    three.run(TOPICS, "--create", "--topic", TOPIC, "--replica-assignment", "1:2")
    three.run(CONSOLE_PRODUCER, "--topic", TOPIC, sent="".join(f"{at}\n" for at in range(RECORDS)))
    plan = tmp_path / "plan.json"
    move = {"topic": TOPIC, "partition": 0, "replicas": [3, 2]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}), encoding="utf-8")
    file = ("--reassignment-json-file", plan)
    assert "Successfully started" in three.run(REASSIGNMENT, *file, "--execute")
    give_up = time.monotonic() + MOVED_SECONDS_MAX
    while "is completed" not in (said := three.run(REASSIGNMENT, *file, "--verify", "--preserve-throttles")):
        assert time.monotonic() < give_up, said
    assert "No partition reassignments found" in three.run(REASSIGNMENT, "--list")
    three.run(REASSIGNMENT, *file, "--cancel", "--preserve-throttles")
    assert "Replicas: 3,2" in three.run(TOPICS, "--describe", "--topic", TOPIC)
    read = three.run(CONSOLE_CONSUMER, "--topic", TOPIC, "--from-beginning", "--max-messages", RECORDS)
    assert read.split() == [str(at) for at in range(RECORDS)]


def test_a_throttle_is_set_and_removed_when_the_move_has_ended(three: KafkaTools, tmp_path: Path) -> None:
    topic = "throttled"
    three.run(TOPICS, "--create", "--topic", topic, "--replica-assignment", "1:2")
    three.run(CONSOLE_PRODUCER, "--topic", topic, sent="".join(f"{at}\n" for at in range(RECORDS)))
    plan = tmp_path / "plan.json"
    move = {"topic": topic, "partition": 0, "replicas": [1, 3]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}), encoding="utf-8")
    file = ("--reassignment-json-file", plan)
    said = three.run(REASSIGNMENT, *file, "--execute", "--throttle", "1000000")
    assert "throttle limit was set to 1000000 B/s" in said
    shown = three.run(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "follower.replication.throttled.replicas=0:3" in shown
    shown = three.run(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "3")
    assert "follower.replication.throttled.rate=1000000" in shown
    give_up = time.monotonic() + MOVED_SECONDS_MAX
    while "is completed" not in (said := three.run(REASSIGNMENT, *file, "--verify")):
        assert time.monotonic() < give_up, said
    assert "Clearing topic-level throttles" in said
    for kind, name in (("topics", topic), ("brokers", "3")):
        shown = three.run(CONFIGS, "--describe", "--entity-type", kind, "--entity-name", name)
        assert "replication.throttled" not in shown
    assert "Replicas: 1,3" in three.run(TOPICS, "--describe", "--topic", topic)


def test_a_throttled_move_under_way_is_listed_and_cancelled_with_its_throttles(
    three: KafkaTools, tmp_path: Path
) -> None:
    topic = "cancelled"
    three.run(TOPICS, "--create", "--topic", topic, "--replica-assignment", "1:2")
    three.run(
        PRODUCER_PERF, "--topic", topic, "--num-records", 80, "--record-size", 100_000, "--throughput", -1
    )
    plan = tmp_path / "plan.json"
    move = {"topic": topic, "partition": 0, "replicas": [3, 1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}), encoding="utf-8")
    file = ("--reassignment-json-file", plan)
    three.run(REASSIGNMENT, *file, "--execute", "--throttle", "10000")
    assert "cancelled-0: replicas: 3,1,2. adding: 3. removing: 2." in three.run(REASSIGNMENT, "--list")
    said = three.run(REASSIGNMENT, *file, "--cancel")
    assert "Successfully cancelled partition reassignment for: cancelled-0" in said
    assert "Clearing topic-level throttles" in said
    assert "No partition reassignments found" in three.run(REASSIGNMENT, "--list")
    for kind, name in (("topics", topic), ("brokers", "1"), ("brokers", "3")):
        shown = three.run(CONFIGS, "--describe", "--entity-type", kind, "--entity-name", name)
        assert "replication.throttled" not in shown
    described = three.run(TOPICS, "--describe", "--topic", topic)
    assert "Replicas: 1,2" in described
    assert "Leader: 1" in described


def test_the_preferred_leader_is_elected_where_another_replica_leads(
    three: KafkaTools, tmp_path: Path
) -> None:
    topic = "reordered"
    three.run(TOPICS, "--create", "--topic", topic, "--replica-assignment", "2:3")
    plan = tmp_path / "plan.json"
    order = {"topic": topic, "partition": 0, "replicas": [3, 2]}
    plan.write_text(json.dumps({"version": 1, "partitions": [order]}), encoding="utf-8")
    three.run(REASSIGNMENT, "--reassignment-json-file", plan, "--execute")
    described = three.run(TOPICS, "--describe", "--topic", topic)
    assert "Replicas: 3,2" in described
    assert "Leader: 2" in described, "another order copies nothing, and changes no leader"
    chosen = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    said = three.run(ELECTION, *chosen)
    assert "Successfully completed leader election (PREFERRED) for partitions reordered-0" in said
    assert "Leader: 3" in three.run(TOPICS, "--describe", "--topic", topic)


def test_who_leads_already_is_not_elected_and_every_broker_tells_its_directories(three: KafkaTools) -> None:
    topic = "led"
    three.run(TOPICS, "--create", "--topic", topic, "--replica-assignment", "2:3")
    chosen = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    said = three.run(ELECTION, *chosen)
    assert "Valid replica already elected for partitions led-0" in said
    told = json.loads(three.run(LOG_DIRS, "--describe", "--topic-list", topic).splitlines()[-1])
    held = {
        broker["broker"]: [
            each["partition"] for directory in broker["logDirs"] for each in directory["partitions"]
        ]
        for broker in told["brokers"]
    }
    assert held == {1: [], 2: ["led-0"], 3: ["led-0"]}
