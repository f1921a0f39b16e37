"""Three brokers as `dlog dev` starts them: everything is replicated, and consumers read in their own rack."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from distributedlog.client.admin.admin import NewTopic
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.view import TopicView
from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import wait_until

RACKS = {1: "a", 2: "b", 3: "c"}
RECORDS = 50


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    directory: Path = tmp_path_factory.mktemp("three")
    arguments = ("--brokers", 3, "--port", 0, "--racks", "a,b,c", "--no-gateway", "--no-restart")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield cluster


def describe(admin: BlockingAdmin, name: str) -> TopicView:
    """Whoever is asked may not have heard of a new topic yet."""
    found: list[TopicView] = []

    def is_found() -> bool:
        found[:] = [each for each in admin.list_topics(with_internal=True) if each.name == name]
        return bool(found)

    wait_until(is_found, f"{name} is known")
    return found[0]


def bytes_out(broker: dict[str, str], topic: str) -> float:
    with urllib.request.urlopen(f"http://{broker['ops']}/metrics", timeout=30) as answer:
        found = re.search(
            rf'^dlog_topic_bytes_out_total{{topic="{topic}"}} (\S+)$', answer.read().decode(), re.M
        )
    return 0.0 if found is None else float(found[1])


def send(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(60) == 0


def read(bootstrap: str, topic: str, **settings: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"readers-of-{topic}", **settings})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen: list[bytes | None] = []
        while len(seen) < RECORDS:
            messages = consumer.consume(RECORDS, 60)
            assert messages, f"{len(seen)} came"
            for message in messages:
                assert message.error() is None, message.error()
                seen.append(message.value())
        wait_until(lambda: has_committed(consumer), "the coordinator has loaded")
        return seen
    finally:
        consumer.close()


def has_committed(consumer: Consumer) -> bool:
    """The first commit of a cluster may find its coordinator loading, and librdkafka leaves that to us."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        return False
    return True


def health(bootstrap: str) -> dict[str, object]:
    ran = subprocess.run(
        [sys.executable, "-m", "distributedlog.cli.main", "cluster", "health", "-o", "json"],
        env={**os.environ, "DLOG_BOOTSTRAP": bootstrap},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if not ran.stdout.strip():
        return {"exit code": ran.returncode, "output": ran.stderr}
    found = json.loads(ran.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found | {"exit code": ran.returncode, "output": ran.stdout}


def test_everything_is_replicated_without_being_asked_for(cluster: DevCluster) -> None:
    bootstrap = cluster.ready()["bootstrap"]
    send(bootstrap, "first-use")
    assert read(bootstrap, "first-use", **{"auto.offset.reset": "earliest"})
    with BlockingAdmin(bootstrap) as admin:
        for name in ("first-use", "__consumer_offsets"):
            assert {len(each.replicas) for each in describe(admin, name).partitions} == {3}
        settings = {each.name: each.value for each in admin.topic_configs("first-use") or ()}
    assert settings["min.insync.replicas"] == "2"
    wait_until(lambda: health(bootstrap)["state"] == "well", "all is in sync")


def test_a_consumer_reads_from_the_follower_in_its_rack(cluster: DevCluster) -> None:
    facts = cluster.ready()
    bootstrap, brokers = facts["bootstrap"], {each["id"]: each for each in facts["brokers"]}
    with BlockingAdmin(bootstrap) as admin:
        admin.create_topic(NewTopic("near", 1))
        wait_until(lambda: len(describe(admin, "near").partitions[0].isr) == 3, "all are in sync")
        leader = describe(admin, "near").partitions[0].leader_id
    send(bootstrap, "near")
    followers = [each for each in brokers if each != leader]
    for follower in followers:
        assert bytes_out(brokers[follower], "near") == 0
        expected = [str(number).encode() for number in range(RECORDS)]
        assert read(bootstrap, "near", **{"client.rack": RACKS[follower]}) == expected
        assert bytes_out(brokers[follower], "near") > 0


class NearReader:
    """A consumer in the rack of a broker, from the beginning of a partition on."""

    def __init__(self, bootstrap: str, topic: str, rack: str, isolation: str) -> None:
        self.values: list[bytes | None] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"near-{topic}-{isolation}",
                "client.rack": rack,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def read_to(self, offset: int) -> list[bytes | None]:
        """Returns all that it has read when what it may read ends there, which takes a follower a while."""
        end = -1
        while end < offset:
            message = self._consumer.poll(60)
            assert message is not None, f"the end is {end}, and stays there"
            error = message.error()
            if error is None:
                self.values.append(message.value())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                end = message.offset() or 0
        assert end == offset
        return self.values

    def close(self) -> None:
        self._consumer.close()


def test_what_is_committed_is_read_from_a_follower_up_to_its_last_stable_offset(cluster: DevCluster) -> None:
    facts, topic = cluster.ready(), "near-committed"
    bootstrap, brokers = facts["bootstrap"], {each["id"]: each for each in facts["brokers"]}
    with BlockingAdmin(bootstrap) as admin:
        admin.create_topic(NewTopic(topic, 1))
        wait_until(lambda: len(describe(admin, topic).partitions[0].isr) == 3, "all are in sync")
        leader = describe(admin, topic).partitions[0].leader_id
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    for value, end in (
        (b"committed", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
        (b"open", None),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        if end is not None:
            end(60)
    follower = next(each for each in brokers if each != leader)

    def is_sent_by_the_follower(isolation: str, end: int, *values: bytes) -> bool:
        """A reader may be sent back to the leader on a busy machine; what it reads is the same."""
        before = bytes_out(brokers[follower], topic)
        with closing(NearReader(bootstrap, topic, RACKS[follower], isolation)) as reader:
            assert reader.read_to(end) == list(values)
        return bytes_out(brokers[follower], topic) > before

    def check(isolation: str, end: int, *values: bytes) -> None:
        wait_until(lambda: is_sent_by_the_follower(isolation, end, *values), "the follower sends it")

    check("read_uncommitted", 5, b"committed", b"aborted", b"open")
    check("read_committed", 4, b"committed")
    with closing(NearReader(bootstrap, topic, RACKS[follower], "read_committed")) as reader:
        assert reader.read_to(4) == [b"committed"]
        producer.commit_transaction(60)
        assert reader.read_to(6) == [b"committed", b"open"]
    check("read_committed", 6, b"committed", b"open")


def test_partitions_that_are_short_of_replicas_are_listed_with_the_reason(cluster: DevCluster) -> None:
    facts = cluster.ready()
    bootstrap = facts["bootstrap"]
    listing = [sys.executable, "-m", "distributedlog.cli.main", "topic", "list", "-o", "json"]
    environment = {**os.environ, "DLOG_BOOTSTRAP": bootstrap}

    def listed(*flags: str) -> list[dict[str, object]]:
        ran = subprocess.run(
            [*listing, *flags], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return [json.loads(line) for line in ran.stdout.splitlines()]

    with BlockingAdmin(bootstrap) as admin:
        admin.create_topic(NewTopic("short", 1, configs={"min.insync.replicas": "3"}))
        wait_until(lambda: len(describe(admin, "short").partitions[0].isr) == 3, "all are in sync")
        leader = describe(admin, "short").partitions[0].leader_id
        stopped = next(each for each in facts["brokers"] if each["id"] != leader)
        os.kill(stopped["pid"], signal.SIGKILL)
        wait_until(lambda: len(describe(admin, "short").partitions[0].isr) == 2, "it is fenced")
        (found,) = [each for each in listed("--under-min-isr") if each["topic"] == "short"]
        assert (found["leader"], found["why"]) == (leader, f"broker {stopped['id']} is not in the cluster")
