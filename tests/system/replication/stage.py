"""What the tests of replicated clusters share: a cluster of three, and what is asked of it."""

import hashlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.system.dev_cluster import DevCluster

PATIENCE_SECONDS = 90.0
PRODUCER_SETTINGS = {
    "acks": "all",
    "linger.ms": 0,
    "message.timeout.ms": 90_000,
    "request.timeout.ms": 20_000,
    "enable.idempotence": True,  # what takes long on a busy machine is sent again
}


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Asks the cluster again and again: it has no way to tell us."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def create_topic(admin: AdminClient, topic: NewTopic, seconds: float = PATIENCE_SECONDS) -> None:
    """Asks again where a controller that stops leading leaves open whether it is there."""

    def is_there() -> bool:
        try:
            admin.create_topics([topic], request_timeout=seconds)[topic.topic].result(seconds)
        except KafkaException as refusal:
            code = refusal.args[0].code()
            if code not in (KafkaError.NOT_CONTROLLER, KafkaError.TOPIC_ALREADY_EXISTS):
                raise
            return bool(code == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    wait_until(is_there, f"{topic.topic} is created")


class Replicated:
    """Three brokers, and a topic `t` of one partition with three replicas, of which two must be in sync."""

    def __init__(self, cluster: DevCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.brokers = {broker["id"]: broker for broker in cluster.ready()["brokers"]}
        self.bootstrap = ",".join(broker["client"] for broker in self.brokers.values())
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.asker = AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 5_000})
        """Asks another broker soon if one is stopped."""
        self.topics = 0

    def create(self, *replicas: int, **configs: str) -> str:
        """Creates a topic, on all three brokers unless told on which."""
        self.topics += 1
        name = f"t{self.topics}"
        config = {"min.insync.replicas": "2", **configs}
        topic = NewTopic(name, 1, 3, config=config)
        if replicas:
            topic = NewTopic(name, 1, replica_assignment=[list(replicas)], config=config)
        create_topic(self.admin, topic)
        wait_until(lambda: len(self.isr(name)) == (len(replicas) or 3), "all replicas are in sync")
        return name

    def partition(self, topic: str) -> tuple[int, list[int]]:
        """The leader and the ISR, as one of the brokers has them."""
        try:
            metadata = self.asker.list_topics(topic, timeout=5)
        except KafkaException:
            return -1, []
        partitions = metadata.topics[topic].partitions
        return (partitions[0].leader, sorted(partitions[0].isrs)) if 0 in partitions else (-1, [])

    def leader(self, topic: str) -> int:
        wait_until(lambda: self.partition(topic)[0] > 0, "there is a leader")
        return self.partition(topic)[0]

    def isr(self, topic: str) -> list[int]:
        return self.partition(topic)[1]

    def leads(self, broker_id: int, topic: str) -> bool:
        return self.partition(topic)[0] == broker_id

    def wait_for_isr(self, topic: str, isr: list[int]) -> None:
        wait_until(lambda: self.isr(topic) == isr, f"the ISR is {isr}")

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

    def read(self, topic: str, count: int, first_offset: int = 0) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(topic, 0, first_offset)])
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

    def replica(self, broker_id: int, topic: str) -> Path:
        """The directory of a broker's replica."""
        return Path(self.brokers[broker_id]["data_dir"]) / f"{topic}-0"

    def log_of(self, broker_id: int) -> str:
        """What a broker has written to its log."""
        return (self.directory / f"node-{broker_id}.log").read_text(encoding="utf-8")

    def check_identical(self, topic: str, replicas: int = 3) -> None:
        wait_until(
            lambda: len(logs := self.logs(topic)) == replicas and len(set(logs)) == 1, "replicas are the same"
        )


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def flip_bit(path: Path) -> None:
    """Flips a bit in the middle of a file, as a disk does: nobody is told."""
    middle = path.stat().st_size // 2
    with path.open("r+b") as file:
        file.seek(middle)
        byte = file.read(1)[0]
        file.seek(middle)
        file.write(bytes([byte ^ 8]))
