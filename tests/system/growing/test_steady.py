"""Balancing that goes on moves what is skewed, stands down while a broker is gone, and ends at once."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from distributedlog.cli.main import main
from distributedlog.client.admin.blocking import BlockingAdmin
from tests.system.replication.stage import PATIENCE_SECONDS, PRODUCER_SETTINGS, Replicated, wait_until

DEFAULTS = {"--every": "1s", "--measure": "0", "--throttle": "20000000", "--timeout": "5"}
SLOW = 20_000
"""Bytes in a second by which what is moved in these tests does not arrive before they end."""


class Balancing:
    """`dlog cluster balance --every 1s` as a process; its lines as they come."""

    def __init__(self, bootstrap: str, **options: str) -> None:
        given = DEFAULTS | {f"--{name}": value for name, value in options.items()}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "distributedlog.cli.main", "cluster", "balance", "-b", bootstrap),
                *(each for pair in given.items() for each in pair),
                *("-o", "json"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def wait_for(self, event: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            left = max(0.0, deadline - time.monotonic())
            told: dict[str, Any] = json.loads(self._lines.get(timeout=left))
            if told["event"] == event:
                return told

    def end(self, number: signal.Signals) -> int:
        """Sends a signal; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def check_no_restart_begins(replicated: Replicated, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--yes", "--bootstrap", replicated.bootstrap, "--command", "kill {id}")
    assert main(["cluster", "restart", "--rolling", *at]) == 1
    assert "lack replicas in sync: nothing is restarted" in capsys.readouterr().err


def test_it_balances_stands_down_resumes_and_ends(
    replicated: Replicated, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"min.insync.replicas": "1"}
    topic = NewTopic("led-by-one", 30, replica_assignment=[[1, 2, 3]] * 30, config=config)
    balancing = Balancing(replicated.bootstrap)
    try:
        balancing.wait_for("started")
        replicated.admin.create_topics([topic])["led-by-one"].result(PATIENCE_SECONDS)
        planned = balancing.wait_for("planned")
        assert planned["leaderships"] > 0
        balancing.wait_for("balanced")
        replicated.signal(3, signal.SIGSTOP)
        try:
            reason = balancing.wait_for("stands_down")["reason"]
            assert "brokers are fenced: 3" in reason or "not in sync" in reason
            replicated.wait_for_isr("led-by-one", [1, 2])
            check_no_restart_begins(replicated, capsys)
        finally:
            replicated.signal(3, signal.SIGCONT)
        balancing.wait_for("balanced")
        assert balancing.end(signal.SIGINT) == 0
        balancing.wait_for("stopped")
    finally:
        balancing.close()
    with BlockingAdmin(replicated.bootstrap) as admin:
        wait_until(lambda: admin.list_fenced_brokers() == (), "all take part again")
        led = [
            each.leader_id
            for (found,) in [admin.describe_topics(["led-by-one"])]
            for each in found.partitions
        ]
    assert all(led.count(broker) >= 5 for broker in (1, 2, 3)), led


@contextmanager
def balancing(replicated: Replicated, **options: str) -> Iterator[Balancing]:
    process = Balancing(replicated.bootstrap, **options)
    try:
        process.wait_for("started")
        yield process
    finally:
        process.close()


@pytest.fixture(name="skewed", scope="module")
def skewed_topic(replicated: Replicated) -> str:
    """A topic that lies on brokers 1 and 2 alone, too large to be moved soon within SLOW."""
    config = {"min.insync.replicas": "1"}
    topic = NewTopic("lies-on-two", 4, replica_assignment=[[1, 2], [2, 1]] * 2, config=config)
    replicated.admin.create_topics([topic])["lies-on-two"].result(PATIENCE_SECONDS)
    producer = Producer({"bootstrap.servers": replicated.bootstrap, **PRODUCER_SETTINGS, "linger.ms": 20})
    for number in range(80):
        producer.produce("lies-on-two", os.urandom(100_000), partition=number % 4)
        producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return "lies-on-two"


def is_moving(replicated: Replicated) -> bool:
    with BlockingAdmin(replicated.bootstrap) as admin:
        return bool(admin.list_reassignments())


def check_nothing_is_left(replicated: Replicated, topic: str) -> None:
    with BlockingAdmin(replicated.bootstrap) as admin:
        assert not admin.list_reassignments()

        def is_unthrottled() -> bool:
            return not [
                each for each in admin.topic_configs(topic) or () if "throttled" in each.name and each.value
            ]

        wait_until(is_unthrottled, "who is asked has heard that nothing is throttled")
        wait_until(lambda: lies_on_two(admin, topic), "it is as it was")


def lies_on_two(admin: BlockingAdmin, topic: str) -> bool:
    (found,) = admin.describe_topics([topic])
    return all(sorted(each.replicas) == [1, 2] for each in found.partitions)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_signal_ends_it_while_it_measures_and_while_it_rests(
    replicated: Replicated, number: signal.Signals
) -> None:
    with balancing(replicated, measure="10m") as process:
        assert process.end(number) == 0
    with balancing(replicated, every="10m") as process:
        process.wait_for("balanced")
        assert process.end(number) == 0
        process.wait_for("stopped")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_signal_while_it_begins_a_batch_or_moves_it_leaves_nothing_behind(
    replicated: Replicated, skewed: str, number: signal.Signals
) -> None:
    with balancing(replicated, throttle=str(SLOW)) as process:
        process.wait_for("planned")
        assert process.end(number) == 0
        process.wait_for("stopped")
    check_nothing_is_left(replicated, skewed)
    with balancing(replicated, throttle=str(SLOW)) as process:
        wait_until(lambda: is_moving(replicated), "a batch is under way")
        assert process.end(number) == 0
        assert process.wait_for("cancelled")["partitions"] > 0
    check_nothing_is_left(replicated, skewed)


def test_it_ends_though_the_cluster_does_not_answer_and_says_that_moves_are_left(
    replicated: Replicated, skewed: str
) -> None:
    for is_told_twice in (False, True):
        with balancing(replicated, throttle=str(SLOW), timeout="600" if is_told_twice else "1") as process:
            wait_until(lambda: is_moving(replicated), "a batch is under way")
            with all_paused(replicated):
                process.process.send_signal(signal.SIGTERM)
                if is_told_twice:
                    process.wait_for("stopping")
                    process.process.send_signal(signal.SIGTERM)
                assert process.wait_for("left")["partitions"] > 0
                assert process.process.wait(PATIENCE_SECONDS) == 1
        assert main(["cluster", "reassign", "--cancel", "--bootstrap", replicated.bootstrap]) == 0
        check_nothing_is_left(replicated, skewed)


def test_a_signal_is_heeded_though_the_cluster_answers_only_later(
    replicated: Replicated, skewed: str
) -> None:
    with balancing(replicated, throttle=str(SLOW), timeout="60") as process:
        wait_until(lambda: is_moving(replicated), "a batch is under way")
        with all_paused(replicated):
            process.process.send_signal(signal.SIGINT)
            process.wait_for("stopping")
        assert process.process.wait(PATIENCE_SECONDS) == 0
    check_nothing_is_left(replicated, skewed)


@contextmanager
def all_paused(replicated: Replicated) -> Iterator[None]:
    for each in replicated.brokers:
        replicated.signal(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in replicated.brokers:
            replicated.signal(each, signal.SIGCONT)
