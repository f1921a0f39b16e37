"""confluent-kafka's consumer as a member of a group: BOOTSTRAP TOPIC PARTITIONS GROUP.MEMBER.STRATEGY.

It tells what it is assigned, in which generation; what it polls; and what it has committed, which it reads
back whenever it is assigned something.  With the strategy `consumer` it speaks the protocol of KIP-848, in
which an epoch is what a generation is.
"""

import contextlib
import struct
import sys
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.reliability.history import Place, Seen
from tests.reliability.journal import Journal
from tests.reliability.programs.stopping import stopping
from tests.reliability.programs.values import from_bytes

SESSION_MS = 2_000
POLL_INTERVAL_MS = 3_000
HEARTBEAT_MS = 300
POLL_SECONDS = 0.2
ASK_SECONDS = 5.0
RECORDS_MAX = 200
GENERATION_AT = len(b"CGMDv2:")


def protocol(strategy: str) -> dict[str, Any]:
    if strategy == "consumer":
        return {"group.protocol": "consumer"}
    return {
        "partition.assignment.strategy": strategy,
        "session.timeout.ms": SESSION_MS,
        "max.poll.interval.ms": POLL_INTERVAL_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }


class GroupMember:
    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.group, _, strategy = name.split(".")
        self.journal = Journal(name)
        self.seat = 0
        self.committing_ns: int | None = None
        """When the commit that is not answered yet was asked for."""
        self.read: dict[Place, int] = {}
        """The offsets up to which what was polled waits to be committed."""
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": self.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 1_000,
            "on_commit": self.committed,
            "log_level": 0,
            **protocol(strategy),
        }
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic], on_assign=self.assigned)

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.seat += 1
        self.read.clear()  # somebody else may have gone further meanwhile
        (generation,) = struct.unpack_from("=i", consumer.consumer_group_metadata(), GENERATION_AT)
        for each in partitions:
            self.journal.owned(self.group, generation, Place(each.topic, each.partition))
        invoked_ns = time.monotonic_ns()
        with contextlib.suppress(KafkaException):  # nobody to ask just now
            for each in consumer.committed(partitions, timeout=ASK_SECONDS):
                self.told(each, invoked_ns)

    def told(self, position: TopicPartition, invoked_ns: int) -> None:
        if position.error is None and position.offset >= 0:
            place = Place(position.topic, position.partition)
            self.journal.told(place, self.group, position.offset, invoked_ns)

    def step(self) -> None:
        invoked_ns = time.monotonic_ns()
        messages = self.consumer.consume(RECORDS_MAX, POLL_SECONDS)
        records: dict[Place, list[Seen]] = defaultdict(list)
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if message.error() is None:
                assert topic is not None
                assert partition is not None
                assert offset is not None
                records[Place(topic, partition)].append(Seen(offset, from_bytes(message.value() or b"")))
        for place, seen in records.items():
            self.journal.poll(place, self.seat, seen, invoked_ns)
            self.read[place] = seen[-1].offset + 1
        if self.read and self.committing_ns is None:
            self.commit()

    def commit(self) -> None:
        """Not waited for: librdkafka 2.16 waits for ever if it loses its last broker meanwhile.  But one at a
        time: it tries a commit again after a later one has succeeded, and so goes back by itself."""
        positions = [TopicPartition(*place, offset) for place, offset in self.read.items()]
        self.read.clear()
        with contextlib.suppress(KafkaException):  # nobody to ask just now
            invoked_ns = time.monotonic_ns()
            self.consumer.commit(offsets=positions, asynchronous=True)
            self.committing_ns = invoked_ns

    def committed(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        """A fenced one is read again by somebody."""
        invoked_ns, self.committing_ns = self.committing_ns, None
        assert invoked_ns is not None
        for each in positions if error is None else ():
            self.told(each, invoked_ns)


def main() -> None:
    bootstrap, topic, _, name = sys.argv[1:]
    member, stop = GroupMember(bootstrap, topic, name), stopping()
    while not stop.is_set():
        member.step()
        stop.doze()
    member.consumer.close()


if __name__ == "__main__":
    main()
