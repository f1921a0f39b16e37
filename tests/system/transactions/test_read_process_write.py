"""Read-process-write on three brokers, while clients, coordinators and leaders are killed: exactly once.

Every client that has transactions is at work, each with a transactional id, topics and a group of its own,
side by side: most of the time goes by while brokers fail over, and they share that.  Each client is killed in
the middle at least once.  `DLOG_SOAK=1` makes it ten thousand transactions and a hundred kills, and brings
Kafka's own Java clients by Maven, where it can; `DLOG_TRANSACTIONS` any other number.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.cimpl import NewTopic

from distributedlog.groups.placement import partition_of
from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.bench.broker_kafka import LeftOutError
from tests.reliability.programs.java.compiled import are_in_place, compile_programs
from tests.reliability.programs.values import as_bytes, from_bytes
from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import PATIENCE_SECONDS, Replicated, numbered
from tests.system.transactions.transforming import FENCED, SUFFIXES

SOAK = bool(os.environ.get("DLOG_SOAK"))
TRANSACTIONS = int(os.environ.get("DLOG_TRANSACTIONS", "10000" if SOAK else "1000"))
SHARES = {"confluent": 0.4, "own": 0.3, "aiokafka": 0.1, "kafka-python": 0.1, "kafkajs": 0.1}
SHARES_WITH_JAVA = {**SHARES, "confluent": 0.3, "own": 0.2, "java": 0.2}
"""How many of the transactions are whose: the others take longer for one."""
PER_TRANSACTION = 5
BROKER_KILLS = 80 if SOAK else 3
CLIENT_KILLS = 4 if SOAK else 1
"""How often each client is killed."""
KAFKAJS = "kafkajs"
HERE = Path(__file__).parent
MODULES = HERE.parents[1] / "compat" / "broker" / "kafkajs" / "node_modules"


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    directory = tmp_path_factory.mktemp("transactions")
    arguments = ("--brokers", 3, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield Replicated(cluster, directory / "data")


class Flow:
    """The input, the output, and the program between them, of one kind of client."""

    def __init__(self, replicated: Replicated, kind: str, name: str, count: int) -> None:
        self.replicated = replicated
        self.kind = kind
        self.name = name
        self.count = count
        self.source, self.target = f"{name}-in", f"{name}-out"
        admin = replicated.admin
        config = {"min.insync.replicas": "2"}
        topics = [NewTopic(self.source, 1, 3, config=config), NewTopic(self.target, 2, 3, config=config)]
        for created in admin.create_topics(topics).values():
            created.result(60)
        self.said: list[str] = []
        """What its programs said."""
        self.values = [number.decode() for number in numbered(0, count)]
        assert set(replicated.produce(self.source, [as_bytes(each) for each in self.values])) == {None}

    def start(self) -> "subprocess.Popen[str]":
        program = [sys.executable, "-m", "tests.system.transactions.transforming", self.kind]
        if self.kind == KAFKAJS:
            program = ["node", str(HERE / "transforming_kafkajs.js")]
        names = (self.replicated.bootstrap, self.source, self.target, f"{self.name}-group", self.name)
        return subprocess.Popen(
            [*program, *names, str(self.count), str(PER_TRANSACTION)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NODE_PATH": str(MODULES)},
        )

    def read_output(self, partition: int) -> list[str]:
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
        found: list[str] = []
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
                    found.append(from_bytes(message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    position = message.offset() or 0
        finally:
            consumer.close()
        return found

    def check_output(self) -> None:
        """The output is what the input says, in order, each exactly once, in both partitions."""
        for partition, suffix in enumerate(SUFFIXES):
            found, wanted = self.read_output(partition), [value + suffix for value in self.values]
            assert found == wanted, f"{self.name} said {self.said}"

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


BROKERS = ("coordinator", "leader", "group")


class Killing:
    """Counts the transactions of all flows, and after so many of them kills a broker that the flow needs; and
    of each flow by itself, after which its program is killed."""

    def __init__(self) -> None:
        self._chance = random.Random(19)
        self._lock = threading.Lock()
        self._transactions = 0
        self.broker_kills = 0
        self._by_flow: Counter[str] = Counter()
        self.client_kills: Counter[str] = Counter()

    def committed(self, flow: Flow, program: "subprocess.Popen[str]") -> None:
        """A program has committed one; it, or somebody that it needs, is killed now if one is due."""
        with self._lock:
            self._transactions += 1
            self._by_flow[flow.name] += 1
            if self.broker_kills < _due(self._transactions, TRANSACTIONS, BROKER_KILLS):
                flow.kill(BROKERS[self.broker_kills % len(BROKERS)], self._chance, program)
                self.broker_kills += 1
            of_flow = flow.count // PER_TRANSACTION
            if self.client_kills[flow.name] < _due(self._by_flow[flow.name], of_flow, CLIENT_KILLS):
                flow.kill("client", self._chance, program)
                self.client_kills[flow.name] += 1


def _due(count: int, of: int, kills: int) -> int:
    """How many kills are due after so many transactions.  All are before the end: who is killed may not have
    told of its last one."""
    share = of * 9 // (10 * kills)
    return min((count + share // 2) // share, kills)


def transform(flow: Flow, killing: Killing) -> None:
    """Has all of a flow transformed; a program that was killed, or fenced, is started again."""
    deadline = time.monotonic() + 60 * PATIENCE_SECONDS
    while True:
        assert time.monotonic() < deadline
        program = flow.start()
        for line in lines_of(program.stdout):
            if line.strip().isdigit():
                killing.committed(flow, program)
            flow.said.append(line.strip())
        code = program.wait(PATIENCE_SECONDS)
        flow.said.append(f"ended with {code}")
        if code == 0:
            return
        assert code in (-signal.SIGKILL, FENCED)


def shares() -> dict[str, float]:
    """Java's have a part in the long form, where their jars can be had."""
    if not SOAK:
        return SHARES
    try:
        compile_programs()
    except LeftOutError as reason:
        print(f"Java's clients are left out: {reason}")
        return SHARES
    return SHARES_WITH_JAVA


def test_output_is_what_the_input_says_though_all_are_killed(replicated: Replicated) -> None:
    flows = [
        Flow(replicated, kind, f"flow-{kind}", round(TRANSACTIONS * share) * PER_TRANSACTION)
        for kind, share in shares().items()
    ]
    killing = Killing()
    with ThreadPoolExecutor(len(flows)) as threads:
        for done in [threads.submit(transform, flow, killing) for flow in flows]:
            done.result()
    assert killing.broker_kills == BROKER_KILLS
    assert all(killing.client_kills[flow.name] == CLIENT_KILLS for flow in flows)
    for flow in flows:
        flow.check_output()


@pytest.mark.parametrize("kind", ["confluent", "own", *(["java"] if SOAK and are_in_place() else [])])
def test_a_zombie_that_wakes_is_fenced(replicated: Replicated, kind: str) -> None:
    flow = Flow(replicated, kind, f"zombie-{kind}", 100 * PER_TRANSACTION)
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
