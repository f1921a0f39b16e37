"""confluent-kafka's consumer as a member of a group: BOOTSTRAP TOPIC PARTITIONS GROUP.MEMBER.STRATEGY.

It tells what it is assigned, in which generation; what it polls; and what it has committed, which it reads
back whenever it is assigned something.  With the strategy `consumer` it speaks the protocol of KIP-848, in
which an epoch is what a generation is.
"""

import struct
import sys
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.reliability.history import Place, Seen
from tests.reliability.journal import Journal
from tests.reliability.programs.calm import IS_CALM, note_error
from tests.reliability.programs.librdkafka import COMMON
from tests.reliability.programs.stopping import step_until_stopped
from tests.reliability.programs.values import from_bytes

SESSION_MS, POLL_INTERVAL_MS = (30_000, 60_000) if IS_CALM else (2_000, 3_000)
"""Short, so that members are often taken for dead; where all is calm they are not to be."""
HEARTBEAT_MS = 300
POLL_SECONDS = 0.2
ASK_SECONDS = 5.0
RECORDS_MAX = 200
PASSING = (
    KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR, KafkaError._TRANSPORT, KafkaError._WAIT_COORD,
)  # fmt: skip
"""What a commit that nobody waits for may meet whenever members come or a coordinator moves: librdkafka tries
it again two times only, and Java's commitAsync never, since the next commit goes further anyway."""
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
        self.error: KafkaError | None = None
        """What a commit has failed with."""
        self.read: dict[Place, int] = {}
        """The offsets up to which what was polled waits to be committed."""
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": self.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 1_000,
            "on_commit": self.committed,
            **COMMON,
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
        try:
            found = consumer.committed(partitions, timeout=ASK_SECONDS)
        except KafkaException as error:  # nobody to ask just now
            self.met("committed offsets", error.args[0])
            note_error(error)
            return
        for each in found:
            self.told(each, invoked_ns)

    def met(self, doing: str, error: KafkaError) -> None:
        self.journal.met(doing, error.name(), error.code())

    def told(self, position: TopicPartition, invoked_ns: int) -> None:
        if position.error is not None:
            self.met("committed offset", position.error)
        elif position.offset >= 0:
            place = Place(position.topic, position.partition)
            self.journal.told(place, self.group, position.offset, invoked_ns)

    def step(self) -> None:
        invoked_ns = time.monotonic_ns()
        messages = self.consumer.consume(RECORDS_MAX, POLL_SECONDS)
        if self.error is not None:
            note_error(self.error)
            self.error = None
        records: dict[Place, list[Seen]] = defaultdict(list)
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            error = message.error()
            if error is not None:
                self.met("poll", error)
                note_error(error)
            else:
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
        invoked_ns = time.monotonic_ns()
        try:
            self.consumer.commit(offsets=positions, asynchronous=True)
        except KafkaException as error:  # nobody to ask just now
            self.met("commit", error.args[0])
            note_error(error)
        else:
            self.committing_ns = invoked_ns

    def committed(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        """A fenced one is read again by somebody."""
        invoked_ns, self.committing_ns = self.committing_ns, None
        assert invoked_ns is not None
        if error is not None:
            self.met("commit", error)
            if error.code() not in PASSING:
                self.error = error  # raised from here it would be lost
        for each in positions if error is None else ():
            self.told(each, invoked_ns)


def main() -> None:
    bootstrap, topic, _, name = sys.argv[1:]
    member = GroupMember(bootstrap, topic, name)
    step_until_stopped(member.step)
    member.consumer.close()


if __name__ == "__main__":
    main()
