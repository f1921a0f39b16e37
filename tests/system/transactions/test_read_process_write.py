"""Read-process-write on three brokers, while client, coordinator and leaders are killed: exactly once.

`DLOG_SOAK=1` makes it ten thousand transactions.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.cimpl import NewTopic

from distributedlog.groups.placement import partition_of
from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import PATIENCE_SECONDS, Replicated, numbered
from tests.system.transactions.transforming import FENCED, SUFFIXES

TRANSACTIONS = 10_000 if os.environ.get("DLOG_SOAK") else 200
PER_TRANSACTION = 5
COUNT = TRANSACTIONS * PER_TRANSACTION
KILLS = 100 if os.environ.get("DLOG_SOAK") else 4


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    directory = tmp_path_factory.mktemp("transactions")
    arguments = ("--brokers", 3, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield Replicated(cluster, directory / "data")


class Flow:
    """The input, the output, and the program between them."""

    def __init__(self, replicated: Replicated, name: str, count: int) -> None:
        self.replicated = replicated
        self.name = name
        self.count = count
        self.source, self.target = f"{name}-in", f"{name}-out"
        admin = replicated.admin
        config = {"min.insync.replicas": "2"}
        topics = [NewTopic(self.source, 1, 3, config=config), NewTopic(self.target, 2, 3, config=config)]
        for created in admin.create_topics(topics).values():
            created.result(60)
        self.values = numbered(0, count)
        assert set(replicated.produce(self.source, self.values)) == {None}

    def start(self) -> "subprocess.Popen[str]":
        arguments = (self.replicated.bootstrap, self.source, self.target, f"{self.name}-group", self.name)
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.system.transactions.transforming",
                *arguments,
                str(self.count),
                str(PER_TRANSACTION),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )

    def read_output(self, partition: int) -> list[bytes]:
        """All that is committed in a partition of the output."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.replicated.bootstrap,
                "group.id": "checker",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        at = TopicPartition(self.target, partition, 0)
        found: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            _, end = consumer.get_watermark_offsets(at, PATIENCE_SECONDS)
            consumer.assign([at])
            # Up to the end: what came twice would stand behind what is wanted.  No message comes for markers.
            position = 0
            while position < end:
                assert time.monotonic() < deadline, f"only {position} of {end} can be read as committed"
                message = consumer.poll(0.5)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    found.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    position = message.offset() or 0
        finally:
            consumer.close()
        return found

    def check_output(self) -> None:
        """The output is what the input says, in order, each exactly once, in both partitions."""
        for partition, suffix in enumerate(SUFFIXES):
            assert self.read_output(partition) == [value + suffix for value in self.values]

    # --- whom to kill --------------------------------------------------------------------------

    def leader_of(self, topic: str, key: str | None = None, partition: int = 0) -> int:
        found = self.replicated.admin.list_topics(topic, timeout=30).topics[topic].partitions
        at = partition if key is None else partition_of(key, len(found))
        return found[at].leader

    def find_victim(self, which: str) -> int:
        """The broker that leads what is to fail; -1 if nobody does now."""
        match which:
            case "coordinator":
                return self.leader_of(TRANSACTIONS_TOPIC, self.name)
            case "group":
                return self.leader_of(OFFSETS_TOPIC, f"{self.name}-group")
            case _:
                return self.leader_of(self.target)

    def kill(self, which: str, chance: random.Random, program: "subprocess.Popen[str]") -> None:
        time.sleep(chance.random() / 20)  # somewhere in a transaction, and not always at its end
        if which == "client":
            program.kill()
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (victim := self.find_victim(which)) < 0:
            assert time.monotonic() < deadline, f"there is no {which}"
            time.sleep(0.05)
        self.replicated.signal(victim, signal.SIGKILL)


def lines_of(stream: IO[str] | None) -> Iterator[str]:
    assert stream is not None
    with stream:
        yield from stream


def test_output_is_what_the_input_says_though_all_are_killed(replicated: Replicated) -> None:
    flow = Flow(replicated, "flow", COUNT)
    chance = random.Random(19)
    victims = ["client", "coordinator", "leader", "group"]
    kills = 0
    next_kill = TRANSACTIONS // KILLS // 2
    transactions = 0
    deadline = time.monotonic() + 60 * PATIENCE_SECONDS
    while True:
        assert time.monotonic() < deadline
        program = flow.start()
        for line in lines_of(program.stdout):
            transactions += line.strip().isdigit()
            if kills < KILLS and transactions >= next_kill:
                flow.kill(victims[kills % len(victims)], chance, program)
                kills += 1
                next_kill += TRANSACTIONS // KILLS
        code = program.wait(PATIENCE_SECONDS)
        if code == 0:
            break
        assert code in (-signal.SIGKILL, FENCED)
    assert kills == KILLS
    flow.check_output()


def test_a_zombie_that_wakes_is_fenced(replicated: Replicated) -> None:
    flow = Flow(replicated, "zombie", 100 * PER_TRANSACTION)
    zombie = flow.start()
    try:
        lines = lines_of(zombie.stdout)
        for _ in range(3):
            next(lines)
        zombie.send_signal(signal.SIGSTOP)
        successor = flow.start()
        output, _ = successor.communicate(timeout=PATIENCE_SECONDS)
        assert successor.returncode == 0, output
        zombie.send_signal(signal.SIGCONT)
        said = list(lines)
        assert zombie.wait(PATIENCE_SECONDS) == FENCED, said
    finally:
        zombie.kill()
        zombie.wait()
    flow.check_output()
