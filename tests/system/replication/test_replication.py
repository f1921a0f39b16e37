"""Three brokers hold the same log: what holds when a follower fails, a leader fails, or one comes back."""

import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import Replicated, numbered, wait_until


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    directory = tmp_path_factory.mktemp("replicated")
    arguments = ("--brokers", 3, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield Replicated(cluster, directory / "data")


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
