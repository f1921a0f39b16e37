"""Groups of every kind of client and every strategy: killed, stopped, too slow, doubled; new partitions."""

import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.system.group_load import GroupLoad, judge
from tests.system.server_process import ServerProcess

TOPIC, PARTITIONS = "orders", 6
TIMEOUT_SECONDS = 60.0
SETTINGS = {
    "num.partitions": PARTITIONS,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 8,
    "controller.quorum.election.timeout.ms": 400,
}
GENERATION_AT = len(b"CGMDv2:")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(Path(tmp_path_factory.mktemp("members")) / "node", SETTINGS) as node:
        yield node.facts["client"]
        assert node.stop() == 0


# --- as processes, under load ------------------------------------------------------------------


@pytest.mark.timeout(180)
def test_members_of_kafkajs_come_go_and_are_killed(bootstrap: str, tmp_path: Path) -> None:
    group, topic = "kafkajs", "of-kafkajs"
    with GroupLoad(bootstrap, topic, PARTITIONS, tmp_path) as load:
        load.start("producing", "p1")
        load.wait_for(acks=1)
        names = [f"{group}.m{at}.theirs" for at in range(3)]
        for name in names:
            load.start("grouping_kafkajs", name)
        load.wait_for_owners(*names, least=2)
        load.kill(names[0])
        load.wait_for_owners(*names[1:], least=3)
        load.leave(names[1])
        load.wait_for_owners(names[2], least=6)
        judge(load, bootstrap, group, topic, PARTITIONS)


@pytest.mark.timeout(180)
def test_sticky_members_of_two_clients_go_on_while_one_is_stopped_and_one_dozes(
    bootstrap: str, tmp_path: Path
) -> None:
    """Stopped: its session ends.  Dozing: it is alive, and beyond its poll interval.  Both come back, find
    that others own what they had, and commit nothing of it."""
    group, topic = "sticky", "of-sticky"
    with GroupLoad(bootstrap, topic, PARTITIONS, tmp_path) as load:
        load.start("producing", "p1")
        load.wait_for(acks=1)
        names = [f"{group}.m{at}.sticky" for at in range(3)]
        for program, name in zip(
            ("grouping_python", "grouping_asyncio", "grouping_python"), names, strict=True
        ):
            load.start(program, name)
        load.wait_for_owners(*names, least=2)
        load.stop_still(names[0])
        load.wait_for_owners(*names[1:], least=3)
        load.go_on(names[0])
        load.wait_for_owners(*names, least=2)
        load.doze(names[2], 6)
        load.wait_for_owners(*names[:2], least=3)
        load.wait_for_owners(*names, least=2)
        judge(load, bootstrap, group, topic, PARTITIONS)


@pytest.mark.timeout(180)
def test_a_member_of_librdkafka_that_polls_too_seldom_is_out_until_it_polls_again(
    bootstrap: str, tmp_path: Path
) -> None:
    group, topic = "slow", "of-slow"
    with GroupLoad(bootstrap, topic, PARTITIONS, tmp_path) as load:
        load.start("producing", "p1")
        load.wait_for(acks=1)
        names = [f"{group}.m{at}.roundrobin" for at in range(2)]
        for name in names:
            load.start("grouping", name)
        load.wait_for_owners(*names, least=3)
        load.doze(names[0], 6)
        load.wait_for_owners(names[1], least=6)
        load.wait_for_owners(*names, least=3)
        judge(load, bootstrap, group, topic, PARTITIONS)


# --- in this process ---------------------------------------------------------------------------


class Members:
    """Consumers of librdkafka, polled in turn: who owns what, by generation."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 100,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
            **settings,
        }
        self._topic = topic
        self.consumers: dict[str, Consumer] = {}
        self._instances: dict[str, str] = {}
        self.owned: dict[str, set[int]] = defaultdict(set)
        self.owners: dict[tuple[int, int], str] = {}
        self.assignments = 0
        self.errors: list[tuple[str, int]] = []

    def add(self, name: str, **settings: Any) -> None:
        if "group.instance.id" in settings:
            self._instances[name] = settings["group.instance.id"]
        consumer = Consumer({**self._settings, **settings})
        consumer.subscribe(
            [self._topic],
            on_assign=lambda which, given: self._assigned(name, which, given),
            on_revoke=lambda _, taken: self._revoked(name, taken),
            on_lost=lambda _, taken: self._revoked(name, taken),
        )
        self.consumers[name] = consumer

    def _assigned(self, name: str, consumer: Consumer, given: list[TopicPartition]) -> None:
        self.assignments += 1
        (generation,) = struct.unpack_from("=i", consumer.consumer_group_metadata(), GENERATION_AT)
        for each in given:
            self.owned[name].add(each.partition)
        who = self._instances.get(name, name)  # a static member stays the same over restarts
        for partition in self.owned[name]:
            owner = self.owners.setdefault((generation, partition), who)
            assert owner == who, f"{partition} in generation {generation}: {owner} and {who}"

    def _revoked(self, name: str, taken: list[TopicPartition]) -> None:
        self.owned[name] -= {each.partition for each in taken}

    def poll(self) -> None:
        for name, consumer in list(self.consumers.items()):
            message = consumer.poll(0.01)
            if message is not None and (error := message.error()) is not None:
                self.errors.append((name, error.code()))

    def poll_until_shared(self, partitions: int) -> None:
        """Until everybody owns his share, and all is owned."""
        least = partitions // len(self.consumers)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            self.poll()
            shares = [self.owned[name] for name in self.consumers]
            counted = sum(map(len, shares))
            if counted == partitions == len(set().union(*shares)) and min(map(len, shares)) >= least:
                return
            assert time.monotonic() < deadline, f"owned: {dict(self.owned)}"

    def close(self, *names: str) -> None:
        for name in names or list(self.consumers):
            self.consumers.pop(name).close()
            self.owned.pop(name, None)


def made(bootstrap: str, topic: str, partitions: int) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(TIMEOUT_SECONDS)
    return topic


@pytest.mark.timeout(180)
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_one_to_ten_members_share_what_there_is(bootstrap: str, strategy: str) -> None:
    """One, ten at once, five of them gone: each time everything is owned, once, and shared evenly."""
    topic = made(bootstrap, f"shared-{strategy}", 20)
    members = Members(bootstrap, f"ten-{strategy}", topic, **{"partition.assignment.strategy": strategy})
    members.add("m0")
    members.poll_until_shared(20)
    for number in range(1, 10):
        members.add(f"m{number}")
    members.poll_until_shared(20)
    members.close(*(f"m{number}" for number in range(5)))
    members.poll_until_shared(20)
    members.close()
    assert len({generation for generation, _ in members.owners}) >= 3


@pytest.mark.timeout(120)
def test_members_see_new_partitions_and_a_topic_that_comes_again_starts_anew(bootstrap: str) -> None:
    topic = made(bootstrap, "growing", 2)
    members = Members(bootstrap, "growers", topic)
    members.add("m0")
    members.add("m1")
    members.poll_until_shared(2)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_partitions([NewPartitions(topic, 6)]).values():
        future.result(TIMEOUT_SECONDS)
    members.poll_until_shared(6)
    place = TopicPartition(topic, next(iter(members.owned["m0"])), 5)
    members.consumers["m0"].commit(offsets=[place], asynchronous=False)
    members.close()
    for future in admin.delete_topics([topic]).values():
        future.result(TIMEOUT_SECONDS)
    made(bootstrap, topic, 6)
    again = Consumer({"bootstrap.servers": bootstrap, "group.id": "growers"})
    (found,) = again.committed([TopicPartition(topic, place.partition)], timeout=TIMEOUT_SECONDS)
    assert found.offset < 0, "another topic of the same name has nothing to do with it"
    again.close()


@pytest.mark.timeout(120)
def test_a_duplicate_instance_fences_the_first(bootstrap: str) -> None:
    topic = made(bootstrap, "fencing", 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"v")
    assert producer.flush(TIMEOUT_SECONDS) == 0
    members = Members(bootstrap, "fenced", topic)
    members.add("first", **{"group.instance.id": "i0"})
    members.poll_until_shared(2)
    assert members.assignments == 1
    members.add("second", **{"group.instance.id": "i0"})
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while ("first", KafkaError._FATAL) not in members.errors:
        assert time.monotonic() < deadline, members.errors
        members.poll()
    assert members.owned["second"] == {0, 1}
    assert len({generation for generation, _ in members.owners}) == 1, "it was no rebalance"
    members.close()
