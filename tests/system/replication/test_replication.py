"""Three brokers hold the same log: what holds when a follower fails, a leader fails, or one comes back."""

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.system.dev_cluster import DevCluster

PATIENCE_SECONDS = 90.0
PRODUCER_SETTINGS = {"acks": "all", "linger.ms": 0, "message.timeout.ms": 60_000, "request.timeout.ms": 5_000}


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Asks the cluster again and again: it has no way to tell us."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Replicated:
    """Three brokers, and a topic `t` of one partition with three replicas, of which two must be in sync."""

    def __init__(self, cluster: DevCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.brokers = {broker["id"]: broker for broker in cluster.ready()["brokers"]}
        self.bootstrap = ",".join(broker["client"] for broker in self.brokers.values())
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.topics = 0

    def create(self, **configs: str) -> str:
        self.topics += 1
        name = f"t{self.topics}"
        topic = NewTopic(name, 1, 3, config={"min.insync.replicas": "2", **configs})
        self.admin.create_topics([topic])[name].result(30)
        wait_until(lambda: len(self.isr(name)) == 3, "all replicas are in sync")
        return name

    def partition(self, topic: str) -> tuple[int, list[int]]:
        """The leader and the ISR, as one of the brokers has them."""
        try:
            metadata = self.admin.list_topics(topic, timeout=10)
        except KafkaException:
            return -1, []
        partitions = metadata.topics[topic].partitions
        return (partitions[0].leader, sorted(partitions[0].isrs)) if 0 in partitions else (-1, [])

    def leader(self, topic: str) -> int:
        wait_until(lambda: self.partition(topic)[0] > 0, "there is a leader")
        return self.partition(topic)[0]

    def isr(self, topic: str) -> list[int]:
        return self.partition(topic)[1]

    def signal(self, broker_id: int, number: signal.Signals) -> None:
        os.kill(self.pid(broker_id), number)

    def pid(self, broker_id: int) -> int:
        return int(next(each["pid"] for each in self.cluster.ready()["brokers"] if each["id"] == broker_id))

    def produce(self, topic: str, values: list[bytes], **settings: object) -> list[object]:
        """The errors, in order; None where a value was acknowledged."""
        producer = Producer({"bootstrap.servers": self.bootstrap, **PRODUCER_SETTINGS, **settings})
        outcomes: dict[bytes, object] = {}

        def delivered(error: KafkaError | None, message: Message) -> None:
            outcomes[message.value() or b""] = None if error is None else error.name()

        for value in values:
            producer.produce(topic, value, partition=0, on_delivery=delivered)
        assert producer.flush(PATIENCE_SECONDS) == 0
        return [outcomes[value] for value in values]

    def read(self, topic: str, count: int) -> list[bytes]:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            while len(found) < count and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    found.append(message.value() or b"")
        finally:
            consumer.close()
        return found

    def logs(self, topic: str) -> list[str]:
        """A digest of the partition's bytes on each broker."""
        return [
            hashlib.sha256(b"".join(each.read_bytes() for each in sorted(folder.glob("*.log")))).hexdigest()
            for folder in sorted(self.directory.glob(f"**/{topic}-0"))
        ]

    def check_identical(self, topic: str) -> None:
        wait_until(
            lambda: len(logs := self.logs(topic)) == 3 and len(set(logs)) == 1, "replicas are the same"
        )


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    directory = tmp_path_factory.mktemp("replicated")
    arguments = ("--brokers", 3, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield Replicated(cluster, directory / "data")


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def test_all_replicas_hold_the_same_bytes(replicated: Replicated) -> None:
    topic = replicated.create()
    assert replicated.produce(topic, numbered(0, 500)) == [None] * 500
    replicated.check_identical(topic)
    assert replicated.read(topic, 500) == numbered(0, 500)


def test_a_follower_fails_and_comes_back(replicated: Replicated) -> None:
    topic = replicated.create()
    leader = replicated.leader(topic)
    follower = next(each for each in replicated.brokers if each != leader)
    replicated.produce(topic, numbered(0, 10))
    replicated.signal(follower, signal.SIGKILL)
    assert replicated.produce(topic, numbered(10, 100)) == [None] * 100
    wait_until(lambda: len(replicated.isr(topic)) == 3, "the follower is in sync again")
    replicated.check_identical(topic)
    assert replicated.read(topic, 110) == numbered(0, 110)


def test_the_leader_fails_and_nothing_acknowledged_is_lost(replicated: Replicated) -> None:
    topic = replicated.create()
    first = replicated.leader(topic)
    assert replicated.produce(topic, numbered(0, 100)) == [None] * 100
    replicated.signal(first, signal.SIGKILL)
    assert replicated.produce(topic, numbered(100, 100), **{"enable.idempotence": True}) == [None] * 100
    wait_until(lambda: len(replicated.isr(topic)) == 3, "the old leader is in sync again")
    replicated.check_identical(topic)
    assert replicated.read(topic, 200) == numbered(0, 200)


def test_a_stale_leader_returns_and_follows(replicated: Replicated) -> None:
    """It is stopped, not killed: when it goes on it believes that it still leads."""
    topic = replicated.create()
    stale = replicated.leader(topic)
    replicated.produce(topic, numbered(0, 10))
    replicated.signal(stale, signal.SIGSTOP)
    try:
        wait_until(lambda: replicated.partition(topic)[0] not in (stale, -1), "another one leads")
        assert replicated.produce(topic, numbered(10, 10)) == [None] * 10
    finally:
        replicated.signal(stale, signal.SIGCONT)
    wait_until(lambda: len(replicated.isr(topic)) == 3, "the stale leader is in sync again")
    replicated.check_identical(topic)
    assert replicated.read(topic, 20) == numbered(0, 20)


def test_without_enough_replicas_acks_all_is_refused_and_the_rest_goes_on(replicated: Replicated) -> None:
    topic = replicated.create(**{"min.insync.replicas": "3"})
    leader = replicated.leader(topic)
    follower = next(each for each in replicated.brokers if each != leader)
    assert replicated.produce(topic, numbered(0, 10)) == [None] * 10
    replicated.signal(follower, signal.SIGSTOP)
    try:
        wait_until(lambda: len(replicated.isr(topic)) == 2, "the follower has left the ISR")
        # librdkafka asks again until its time is over; what it was told stands in what it says of it.
        assert replicated.produce(topic, [b"refused"], retries=0) == ["NOT_ENOUGH_REPLICAS"]
        assert replicated.produce(topic, [b"acks=1"], acks=1) == [None]
        assert replicated.read(topic, 10) == numbered(0, 10)
    finally:
        replicated.signal(follower, signal.SIGCONT)
    wait_until(lambda: len(replicated.isr(topic)) == 3, "all are in sync again")
    assert replicated.produce(topic, [b"taken"]) == [None]
    replicated.check_identical(topic)
    assert replicated.read(topic, 12) == [*numbered(0, 10), b"acks=1", b"taken"]


def test_deleted_records_stay_deleted_after_a_failover(replicated: Replicated) -> None:
    topic = replicated.create()
    replicated.produce(topic, numbered(0, 50))
    wanted = [TopicPartition(topic, 0, 20)]
    replicated.admin.delete_records(wanted)[wanted[0]].result(30)
    replicated.check_identical(topic)
    replicated.signal(replicated.leader(topic), signal.SIGKILL)
    assert replicated.produce(topic, [b"after"]) == [None]
    consumer = Consumer({"bootstrap.servers": replicated.bootstrap, "group.id": "low"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    finally:
        consumer.close()
    assert (low, high) == (20, 51)
