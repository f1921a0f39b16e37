"""Consumer groups (KIP-848) of real clients: librdkafka with `group.protocol=consumer`."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.ports import free_port
from tests.system.group_load import GroupLoad, judge
from tests.system.server_process import ServerProcess

TOPIC, PARTITIONS, GROUP = "orders", 6, "workers"
SETTINGS = {
    "num.partitions": PARTITIONS,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.session.timeout.ms": 2_000,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "controller.quorum.election.timeout.ms": 400,
}
TIMEOUT_SECONDS = 60.0
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class Members:
    """Consumers of one process, polled in turn; what each was given and had to give up."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.there: dict[str, Consumer] = {}
        self.told: list[str] = []
        self.read = 0
        """Records, by any of them."""

    def start(self, name: str, *topics: str, **more: Any) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": GROUP,
            "client.id": name,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        consumer = Consumer(settings)

        def given(_: Consumer, partitions: list[TopicPartition]) -> None:
            self.told += [f"{name} +{each.topic}-{each.partition}" for each in partitions]

        def taken(_: Consumer, partitions: list[TopicPartition]) -> None:
            self.told += [f"{name} -{each.topic}-{each.partition}" for each in partitions]

        consumer.subscribe(list(topics or (TOPIC,)), on_assign=given, on_revoke=taken)
        self.there[name] = consumer

    def owned(self, name: str) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.there[name].assignment()}

    def poll(self) -> None:
        for consumer in self.there.values():
            message = consumer.poll(0.01)
            if message is not None and message.error() is None:
                self.read += 1

    def poll_until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not happened():
            assert time.monotonic() < deadline, f"{self.counts()}: {self.told[-20:]}"
            self.poll()

    def counts(self) -> list[int]:
        return sorted(len(self.owned(name)) for name in self.there)

    def wait_for_counts(self, *counts: int) -> None:
        """Until everything is shared like this; nothing is anybody else's at the same time."""
        self.poll_until(lambda: self.counts() == sorted(counts))
        owned = [self.owned(name) for name in self.there]
        assert len(set().union(*owned)) == sum(counts), "two owners"

    def stop(self, name: str) -> None:
        self.there.pop(name).close()

    def stop_all(self) -> None:
        for name in list(self.there):
            self.stop(name)


@contextmanager
def members_of(bootstrap: str) -> Iterator[Members]:
    members = Members(bootstrap)
    try:
        yield members
    finally:
        members.stop_all()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("groups") / "node", SETTINGS) as started:
        yield started
        assert started.stop() == 0


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_SECONDS)
    return admin


def shown(admin: AdminClient, group: str) -> Any:
    return admin.describe_consumer_groups([group])[group].result(TIMEOUT_SECONDS)


def wait_for_members(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(shown(admin, GROUP).members) != count:
        assert time.monotonic() < deadline, shown(admin, GROUP).members


@pytest.mark.timeout(300)
def test_members_come_go_stand_still_and_are_killed_and_so_is_their_coordinator(tmp_path: Path) -> None:
    settings = {**SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with ServerProcess(tmp_path / "node", settings) as node:
        bootstrap = node.facts["client"]
        with GroupLoad(bootstrap, TOPIC, PARTITIONS, tmp_path) as load:
            load.start("producing", "p1")
            load.wait_for(acks=1)
            names = [f"{GROUP}.m{at}.consumer" for at in range(4)]
            for number, name in enumerate(names):
                load.start("grouping", name)
                load.wait_for(1, names[: number + 1])
            load.kill(names[0])
            load.wait_for(1, names[1:])
            assert node.stop(signal.SIGKILL) == -signal.SIGKILL
            node.restart()
            load.wait_for(1, names[1:])
            load.stop_still(names[1])
            wait_for_members(bootstrap, 2)
            load.wait_for(1, names[2:])
            load.go_on(names[1])
            wait_for_members(bootstrap, 3)
            load.wait_for(1, names[1:])
            load.leave(names[1])
            load.wait_for(1, names[2:])
            judge(load, bootstrap, GROUP, TOPIC, PARTITIONS)
        assert node.stop() == 0


@pytest.mark.timeout(120)
def test_one_to_ten_members_share_what_there_is(node: ServerProcess) -> None:
    bootstrap = node.facts["client"]
    admin = create(bootstrap, "many", 20)
    with members_of(bootstrap) as members:
        for at in range(10):
            members.start(f"m{at}", "many", group_id="many-readers")
            if at in (0, 1, 4):
                members.wait_for_counts(*(20 // (at + 1) for _ in range(at + 1)))
        members.wait_for_counts(*[2] * 10)
        described = shown(admin, "many-readers")
        assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
        assert sorted(len(each.assignment.topic_partitions) for each in described.members) == [2] * 10
        for at in range(0, 10, 2):
            members.stop(f"m{at}")
        members.wait_for_counts(*[4] * 5)
        admin.create_partitions([NewPartitions("many", 25)])["many"].result(TIMEOUT_SECONDS)
        members.wait_for_counts(*[5] * 5)
    listed = admin.list_consumer_groups().result(TIMEOUT_SECONDS)
    assert ("many-readers", ConsumerGroupState.EMPTY, ConsumerGroupType.CONSUMER) in {
        (each.group_id, each.state, each.type) for each in listed.valid
    }
    admin.delete_consumer_groups(["many-readers"])["many-readers"].result(TIMEOUT_SECONDS)


@pytest.mark.timeout(120)
def test_a_static_member_that_restarts_causes_no_rebalance(node: ServerProcess) -> None:
    bootstrap = node.facts["client"]
    create(bootstrap, "static")
    with members_of(bootstrap) as members:
        for name in ("i0", "i1"):
            members.start(name, "static", group_id="static-readers", group_instance_id=name)
        members.wait_for_counts(3, 3)
        first, second = members.owned("i0"), members.owned("i1")
        members.told.clear()
        members.stop("i1")
        taken = [told for told in members.told if told.startswith("i1 -")]
        assert len(taken) == 3, "what a static member gives up when it ends"
        members.told.clear()
        members.start("i1", "static", group_id="static-readers", group_instance_id="i1")
        members.wait_for_counts(3, 3)
        assert (members.owned("i0"), members.owned("i1")) == (first, second)
        assert not [told for told in members.told if told.startswith("i0")], "the other heard nothing of it"


@pytest.mark.timeout(120)
def test_a_pattern_follows_topics_that_come_and_go(node: ServerProcess) -> None:
    bootstrap = node.facts["client"]
    admin = create(bootstrap, "sales-eu", 2)
    with members_of(bootstrap) as members:
        members.start("m0", "^sales-.*", group_id="sales-readers")
        members.wait_for_counts(2)
        create(bootstrap, "sales-us", 2)
        create(bootstrap, "returns-us", 2)
        members.wait_for_counts(4)
        assert {topic for topic, _ in members.owned("m0")} == {"sales-eu", "sales-us"}
        admin.delete_topics(["sales-eu"])["sales-eu"].result(TIMEOUT_SECONDS)
        members.wait_for_counts(2)
        assert {topic for topic, _ in members.owned("m0")} == {"sales-us"}


@pytest.mark.timeout(120)
def test_a_group_moves_to_the_new_protocol_and_back_while_it_works(node: ServerProcess) -> None:
    bootstrap = node.facts["client"]
    admin = create(bootstrap, "moving")
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce("moving", b"v", partition=partition)
    producer.flush()
    classic = {"group_protocol": "classic", "session_timeout_ms": 2_000, "heartbeat_interval_ms": 100}
    group = {"group_id": "movers"}

    def kind() -> ConsumerGroupType:
        found: ConsumerGroupType = shown(admin, "movers").type
        return found

    with members_of(bootstrap) as members:
        members.start("old", "moving", **group, **classic)
        members.start("older", "moving", **group, **classic, partition_assignment_strategy="range,roundrobin")
        members.wait_for_counts(3, 3)
        assert kind() == ConsumerGroupType.CLASSIC
        members.poll_until(lambda: members.read == PARTITIONS)
        for member in members.there.values():
            member.commit(asynchronous=False)
        members.start("new", "moving", **group)
        members.wait_for_counts(2, 2, 2)
        assert kind() == ConsumerGroupType.CONSUMER
        members.stop("new")
        members.wait_for_counts(3, 3)
        assert kind() == ConsumerGroupType.CLASSIC
        members.stop_all()
        members.start("new", "moving", **group)
        members.wait_for_counts(6)
        assert kind() == ConsumerGroupType.CONSUMER
    positions = Consumer({"bootstrap.servers": bootstrap, "group.id": "movers", "log_level": 0})
    places = [TopicPartition("moving", partition) for partition in range(PARTITIONS)]
    found = positions.committed(places, timeout=TIMEOUT_SECONDS)
    positions.close()
    assert [each.offset for each in found] == [1] * PARTITIONS, "positions stay through every move"
    assert members.read == PARTITIONS, "and so nothing is read twice"
