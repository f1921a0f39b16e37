"""A throttle of moves ends with them, cancelled or refused ones too; who leaves a throttled move is told."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from distributedlog.cli.main import main
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.admin.configs import ConfigSource, of_broker
from distributedlog.model.ids import TopicPartition
from tests.system.dev_cluster import heeding_interrupts
from tests.system.replication.stage import PATIENCE_SECONDS, PRODUCER_SETTINGS, Replicated, wait_until

SLOW = 10_000
"""Bytes in a second by which what is moved in these tests does not arrive before they end."""
INTERRUPTED = 130


@pytest.fixture(name="admin")
def open_admin(replicated: Replicated) -> Iterator[BlockingAdmin]:
    with BlockingAdmin(replicated.bootstrap) as admin:
        yield admin
        admin.alter_reassignments(dict.fromkeys(admin.list_reassignments()))
    assert main(["cluster", "reassign", "--unthrottle", "--bootstrap", replicated.bootstrap]) == 0


def make_topic(replicated: Replicated) -> str:
    """Makes a topic on broker 1 that takes long to copy within SLOW."""
    topic = replicated.create(1, **{"min.insync.replicas": "1"})
    producer = Producer({"bootstrap.servers": replicated.bootstrap, **PRODUCER_SETTINGS})
    for _ in range(20):
        producer.produce(topic, os.urandom(100_000), partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return topic


def write_plan(path: Path, **targets: list[int]) -> str:
    partitions = [{"topic": each, "partition": 0, "replicas": targets[each]} for each in targets]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}), encoding="utf-8")
    return str(path)


def throttled_lists(admin: BlockingAdmin, topic: str) -> list[str]:
    """Leaders and followers of a topic that are throttled."""
    entries = {each.name: each.value or "" for each in admin.topic_configs(topic) or ()}
    return [value for name, value in entries.items() if name.endswith("throttled.replicas") and value]


def throttled_brokers(admin: BlockingAdmin) -> list[int]:
    return [
        broker
        for broker in admin.describe_cluster().brokers
        for each in admin.describe_configs(of_broker(broker)) or ()
        if each.name == "follower.replication.throttled.rate" and each.source == ConfigSource.BROKER
    ]


def check_throttled(admin: BlockingAdmin, topic: str, lists: list[str]) -> None:
    wait_until(lambda: throttled_lists(admin, topic) == lists, f"who is asked has {lists} of {topic}")


def check_brokers_throttled(admin: BlockingAdmin, brokers: list[int]) -> None:
    wait_until(lambda: sorted(throttled_brokers(admin)) == brokers, f"brokers {brokers} have a rate")


def test_cancelling_ends_the_throttles_unless_they_are_to_be_preserved(
    replicated: Replicated, admin: BlockingAdmin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("cluster", "reassign", "--bootstrap", replicated.bootstrap)
    first, second = make_topic(replicated), make_topic(replicated)
    plan = write_plan(tmp_path / "plan.json", **{first: [2], second: [3]})
    assert main([*at, "--plan", plan, "--throttle", str(SLOW), "--no-wait"]) == 0
    assert len(admin.list_reassignments()) == 2
    one = write_plan(tmp_path / "one.json", **{first: [2]})

    assert main([*at, "--plan", one, "--cancel", "--preserve-throttles"]) == 0
    check_throttled(admin, first, ["0:2", "0:1"])
    capsys.readouterr()
    assert main([*at, "--plan", one, "--cancel"]) == 1, "it is not moved any more"
    assert "brokers stay throttled: 1 other moves are under way" in capsys.readouterr().err
    check_throttled(admin, first, [])
    check_throttled(admin, second, ["0:3", "0:1"])
    assert throttled_brokers(admin)

    assert main([*at, "--cancel"]) == 0
    check_throttled(admin, second, [])
    check_brokers_throttled(admin, [])
    assert main([*at, "--preserve-throttles"]) == 2, "it says nothing by itself"


def test_what_is_refused_is_not_throttled_and_what_moves_is_waited_for(
    replicated: Replicated, admin: BlockingAdmin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("cluster", "reassign", "--bootstrap", replicated.bootstrap)
    moved, refused = make_topic(replicated), make_topic(replicated)
    plan = write_plan(tmp_path / "plan.json", **{moved: [2], refused: [1, 77]})
    assert main([*at, "--plan", plan, "--throttle", str(SLOW), "--no-wait"]) == 1
    assert "1 moves begun, 1 refused" in capsys.readouterr().out
    check_throttled(admin, refused, [])
    check_throttled(admin, moved, ["0:2", "0:1"])
    check_brokers_throttled(admin, [1, 2])
    assert main([*at, "--cancel"]) == 0

    assert main([*at, "--plan", plan, "--throttle", "100000000"]) == 1
    assert "1 moves have ended" in capsys.readouterr().out
    check_throttled(admin, moved, [])
    check_brokers_throttled(admin, [])
    assert TopicPartition(moved, 0) not in admin.list_reassignments()


def test_whoever_leaves_a_throttled_move_is_told_that_the_throttle_stays(
    replicated: Replicated, admin: BlockingAdmin, tmp_path: Path
) -> None:
    topic = make_topic(replicated)
    plan = write_plan(tmp_path / "plan.json", **{topic: [3]})
    command = ("cluster", "reassign", "--bootstrap", replicated.bootstrap, "--plan", plan)
    with heeding_interrupts():
        process = subprocess.Popen(
            [sys.executable, "-m", "distributedlog.cli.main", *command, "--throttle", str(SLOW)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        wait_until(lambda: bool(admin.list_reassignments()), "the move is under way")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == INTERRUPTED
    assert "stay throttled" in said
    assert "dlog cluster reassign --unthrottle" in said
    check_throttled(admin, topic, ["0:3", "0:1"])
    assert list(admin.list_reassignments()) == [TopicPartition(topic, 0)]
