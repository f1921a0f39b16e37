"""All brokers of a cluster are killed at once, with many partitions, and started again.

Records are acknowledged by acks=all in every partition before; a second round is sent as soon as all brokers
are killed.  The figure is the time from the start of the brokers until every partition has acknowledged
one of the second round.  Then all is read: what was acknowledged is there, once and in order.
"""

import os
import signal
import time
from collections import defaultdict
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.system.replication.stage import Replicated, create_topic, wait_until

TIMEOUT_SECONDS = 240.0
RECORDS = 2
PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 20,
    "message.timeout.ms": int(TIMEOUT_SECONDS * 1000),
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


@dataclass(slots=True)
class Outcome:
    partitions: int
    serving_seconds: float
    """Until all brokers say that they serve."""
    writing_seconds: float
    """Until every partition has acknowledged a record."""

    def __str__(self) -> str:
        return (
            f"{self.partitions} partitions of 3 replicas: all serve after {self.serving_seconds:.1f} s, "
            f"every partition is written after {self.writing_seconds:.1f} s"
        )


class Rounds:
    """Sends records to all partitions, and knows which were acknowledged when."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
        self._topic = topic
        self._partitions = partitions
        self.acknowledged: dict[int, list[bytes]] = defaultdict(list)
        self.errors: list[str] = []

    def send(self, value: bytes) -> None:
        for partition in range(self._partitions):
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)

    def wait(self) -> None:
        assert self._producer.flush(TIMEOUT_SECONDS) == 0, "not everything was acknowledged"
        assert self.errors == []

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        assert partition is not None
        if error is not None:
            self.errors.append(error.name())
        else:
            self.acknowledged[partition].append(message.value() or b"")


def kill_all(replicated: Replicated, partitions: int) -> Outcome:
    replicated.topics += 1
    name = f"many{replicated.topics}"
    topic = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})
    create_topic(replicated.admin, topic, TIMEOUT_SECONDS)
    rounds = Rounds(replicated.bootstrap, name, partitions)
    for number in range(RECORDS):
        rounds.send(b"before-%d" % number)
    rounds.wait()
    starter, pids = replicated.cluster.process, replicated.cluster.pids()
    starter.send_signal(signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    starter.send_signal(signal.SIGCONT)
    begun = time.monotonic()
    rounds.send(b"after")
    for _ in pids:
        replicated.cluster.wait_for("serves on")
    serving = time.monotonic() - begun
    rounds.wait()
    writing = time.monotonic() - begun
    check(replicated.bootstrap, name, rounds)
    wait_until(lambda: replicated.isr(name) == [1, 2, 3], "the first partition is in sync")
    return Outcome(partitions, serving, writing)


def check(bootstrap: str, topic: str, rounds: Rounds) -> None:
    """Reads all partitions to the last record that was acknowledged: all are there, once and in order."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    )
    wanted = {partition: list(values) for partition, values in rounds.acknowledged.items()}
    found: dict[int, list[bytes]] = {partition: [] for partition in wanted}
    missing = sum(map(len, wanted.values()))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in wanted])
    deadline = time.monotonic() + TIMEOUT_SECONDS
    try:
        while missing > 0 and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 1.0):
                assert message.error() is None, message.error()
                partition = message.partition()
                assert partition is not None
                found[partition].append(message.value() or b"")
                missing -= 1
    finally:
        consumer.close()
    wrong = {each: (found[each], values) for each, values in wanted.items() if found[each] != values}
    assert not wrong, f"{len(wrong)} partitions are not as acknowledged: {dict(list(wrong.items())[:3])}"
