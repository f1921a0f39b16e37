"""Brokers that lead are killed, or stopped, again and again under load: how long a producer gets nothing.

Three brokers, a topic of three partitions, each of which another broker prefers to lead, `acks=all`.  One
producer sends numbers to all three, every few milliseconds.  The gap of a fault is the longest time between
two acknowledgements of a partition that the broker led.  A broker that is killed stays down until another
leads; then `dlog dev`, which was stopped for so long, starts it again, all replicas come to be in sync, and
each broker leads what it prefers to lead.

    leader       SIGKILL of a broker that leads, and is not the active controller
    controller   SIGKILL of the broker that leads and is the active controller
    stop         SIGSTOP of a broker that leads, until another leads in its place
    twice        SIGKILL of a broker that leads, and as soon as another leads, of that one, too

Every number that was acknowledged is there once, and those of a partition are in order.
"""

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from distributedlog.client.admin.blocking import BlockingAdmin
from tests.system.replication.stage import PATIENCE_SECONDS, PRODUCER_SETTINGS, Replicated, wait_until
from tests.system.test_controller_failover import active_controller

KINDS = ("leader", "controller", "stop", "twice")
PAUSE_SECONDS = 0.005
SETTLE_RECORDS = 50
ASSIGNMENT = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
STOPPED_PRODUCER = {"request.timeout.ms": 1_000, "socket.timeout.ms": 2_000}
"""The client gives up soon under SIGSTOP: a broker that is stopped answers nothing."""


@dataclass(slots=True)
class Found:
    """What a run has found."""

    gaps: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    acknowledged: int = 0

    def __str__(self) -> str:
        return f"gap {spell(self.gaps)}; all in sync again after {spell(self.returns)}"


class Load:
    """Sends numbers one after the other, and notes when each is acknowledged."""

    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, object]) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER_SETTINGS, **settings})
        self._topic = topic
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        partitions = range(len(ASSIGNMENT))
        self.acknowledged: dict[int, list[int]] = {each: [] for each in partitions}
        self.times: dict[int, list[float]] = {each: [] for each in partitions}
        self.errors: list[str] = []

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ends.is_set():
            partition = number % len(ASSIGNMENT)
            try:
                self._producer.produce(
                    self._topic, b"%d" % number, partition=partition, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                pass  # nothing is acknowledged: there is no room for more
            self._producer.poll(PAUSE_SECONDS)
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        assert partition is not None
        if error is not None:
            self.errors.append(error.name())
        else:
            self.acknowledged[partition].append(int(message.value() or b""))
            self.times[partition].append(time.monotonic())

    def wait_for_more(self) -> None:
        wanted = {each: len(times) + SETTLE_RECORDS for each, times in self.times.items()}
        wait_until(
            lambda: all(len(self.times[each]) >= count for each, count in wanted.items()),
            "records are acknowledged",
        )

    def gap_since(self, start: float, partitions: list[int]) -> float:
        """The longest time without an acknowledgement of one of these, from before `start` on."""
        return max(
            after - before
            for each in partitions
            for before, after in pairwise(list(self.times[each]))
            if after >= start
        )


class Kills:
    """Makes faults of one kind."""

    def __init__(self, replicated: Replicated, kind: str) -> None:
        self.replicated = replicated
        self.kind = kind
        self.found = Found()
        self.topic = self.create_topic()
        wait_until(lambda: self._all_in_sync(), "all replicas are in sync")

    def create_topic(self) -> str:
        self.replicated.topics += 1
        name = f"t{self.replicated.topics}"
        topic = NewTopic(
            name, len(ASSIGNMENT), replica_assignment=[list(each) for each in ASSIGNMENT],
            config={"min.insync.replicas": "2"},
        )  # fmt: skip
        self.replicated.admin.create_topics([topic])[name].result(PATIENCE_SECONDS)
        return name

    def leaders(self) -> dict[int, int]:
        """The leader of each partition, as one of the brokers has it."""
        return {each: leader for each, (leader, _) in self._partitions().items()}

    def _partitions(self) -> dict[int, tuple[int, list[int]]]:
        try:
            metadata = self.replicated.asker.list_topics(self.topic, timeout=5).topics[self.topic]
        except KafkaException:
            return {}
        return {each: (found.leader, sorted(found.isrs)) for each, found in metadata.partitions.items()}

    def _all_in_sync(self) -> bool:
        return [isr for _, isr in self._partitions().values()] == [[1, 2, 3]] * len(ASSIGNMENT)

    def run(self, count: int, note: Callable[[str], None] = lambda text: None) -> Found:
        settings = STOPPED_PRODUCER if self.kind == "stop" else {}
        with Load(self.replicated.bootstrap, self.topic, settings) as load:
            load.wait_for_more()
            for number in range(count):
                gap, back = self._strike(load)
                self.found.gaps.append(gap)
                self.found.returns.append(back)
                busy = os.getloadavg()[0]
                note(f"{number + 1:4d}  gap {gap:.2f} s, back after {back:.2f} s, load {busy:.1f}")
        assert load.errors == []
        self.found.acknowledged = sum(map(len, load.acknowledged.values()))
        self._check(load)
        return self.found

    def _strike(self, load: Load) -> tuple[float, float]:
        self._balance()
        victim = self._victim()
        led = [each for each, leader in self.leaders().items() if leader == victim]
        assert led, f"broker {victim} leads nothing"
        load.wait_for_more()
        began = time.monotonic()
        killed: list[int] = []
        if self.kind == "stop":
            self.replicated.signal(victim, signal.SIGSTOP)
            self._wait_for_other(led, victim)
        else:
            killed = self._kill(victim, led)
        load.wait_for_more()
        gap = load.gap_since(began, led)
        if self.kind == "stop":
            self.replicated.signal(victim, signal.SIGCONT)
        self._wait_for_all(killed)
        return gap, time.monotonic() - began

    def _kill(self, victim: int, led: list[int]) -> list[int]:
        """Kills it, and with `twice` its successor; those that were killed."""
        killed = [victim]
        starter = self.replicated.cluster.process
        starter.send_signal(signal.SIGSTOP)
        try:
            self.replicated.signal(victim, signal.SIGKILL)
            self._wait_for_other(led, victim)
            if self.kind == "twice":
                killed.append(self.leaders()[led[0]])
                self.replicated.signal(killed[-1], signal.SIGKILL)
        finally:
            starter.send_signal(signal.SIGCONT)
        return killed

    def _victim(self) -> int:
        controller = int(active_controller(self.replicated.cluster)["id"])
        if self.kind == "controller":
            return controller
        others = [int(each) for each in self.replicated.brokers if each != controller]
        return others[len(self.found.gaps) % len(others)]

    def _wait_for_other(self, led: list[int], victim: int) -> None:
        def is_led() -> bool:
            leaders = self.leaders()
            return all(leaders.get(each, -1) not in (-1, victim) for each in led)

        wait_until(is_led, "others lead")

    def _wait_for_all(self, killed: list[int]) -> None:
        for _ in killed:
            self.replicated.cluster.wait_for("serves on")
        wait_until(self._all_in_sync, "all replicas are in sync")

    def _balance(self) -> None:
        """Each broker leads what it prefers to lead."""
        with BlockingAdmin(self.replicated.bootstrap) as admin:

            def is_balanced() -> bool:
                if self.leaders() == {each: replicas[0] for each, replicas in enumerate(ASSIGNMENT)}:
                    return True
                admin.elect_leaders(None)
                return False

            wait_until(is_balanced, "the preferred replicas lead")

    def _check(self, load: Load) -> None:
        """Reads all: nothing acknowledged is missing, nothing is there twice, all is in order."""
        for partition, acknowledged in load.acknowledged.items():
            found = read_numbers(self.replicated.bootstrap, self.topic, partition)
            assert found == sorted(set(found)), f"of partition {partition} a record is there twice, or late"
            missing = set(acknowledged) - set(found)
            assert not missing, f"{len(missing)} acknowledged records of partition {partition} are lost"


def read_numbers(bootstrap: str, topic: str, partition: int) -> list[int]:
    """All values of a partition, from its start to the end that its leader tells."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    place = TopicPartition(topic, partition, 0)
    found: list[int] = []
    try:
        bounds = consumer.get_watermark_offsets(place, timeout=PATIENCE_SECONDS, cached=False)
        assert bounds is not None
        consumer.assign([place])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found) < bounds[1] and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 1.0):
                assert message.error() is None, message.error()
                found.append(int(message.value() or b""))
    finally:
        consumer.close()
    assert len(found) == bounds[1], f"{len(found)} of {bounds[1]} records were read"
    return found


def spell(seconds: list[float]) -> str:
    seen = sorted(seconds)
    if not seen:
        return "never"
    p99 = seen[min(len(seen) - 1, len(seen) * 99 // 100)]
    return f"p50 {statistics.median(seen):.2f} s, p99 {p99:.2f} s, worst {seen[-1]:.2f} s of {len(seen)}"
