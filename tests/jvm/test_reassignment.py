"""`kafka-reassign-partitions` on three of our brokers: a partition is moved, with its records."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jvm.tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, REASSIGNMENT, TOPICS, KafkaTools
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
