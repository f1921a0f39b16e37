"""Three brokers hold the same log: what holds when a follower fails, a leader fails, or one comes back."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import Replicated, flip_bit, numbered, wait_until

ONCE = {"enable.idempotence": False, "retries": 0}


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    directory = tmp_path_factory.mktemp("replicated")
    arguments = ("--brokers", 3, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    settings = ("--set", "broker.session.timeout.ms=5000")  # some tests wait until a broker counts as gone
    with DevCluster(directory / "ready.json", *arguments, *settings) as cluster:
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


def test_the_leader_fails_before_replication_and_what_only_it_had_is_gone(replicated: Replicated) -> None:
    topic = replicated.create()
    first = replicated.leader(topic)
    followers = [each for each in replicated.brokers if each != first]
    assert replicated.produce(topic, numbered(0, 20)) == [None] * 20
    for each in followers:
        replicated.signal(each, signal.SIGSTOP)
    try:
        # A fetch that waits at the leader is answered with the first; nobody fetches the second.
        for value in (b"perhaps", b"only here"):
            assert replicated.produce(topic, [value], **ONCE, acks=1) == [None]
        replicated.signal(first, signal.SIGKILL)
    finally:
        for each in followers:
            replicated.signal(each, signal.SIGCONT)
    wait_until(lambda: replicated.partition(topic)[0] in followers, "a follower leads")
    assert replicated.produce(topic, numbered(20, 20)) == [None] * 20
    wait_until(lambda: len(replicated.isr(topic)) == 3, "the old leader is in sync again")
    replicated.check_identical(topic)
    found = [value for value in replicated.read(topic, 40) if value != b"perhaps"]
    assert found == numbered(0, 40)[: len(found)]


def test_the_leader_fails_after_replication_and_nothing_acknowledged_is_lost(replicated: Replicated) -> None:
    topic = replicated.create()
    first = replicated.leader(topic)
    assert replicated.produce(topic, numbered(0, 100)) == [None] * 100
    replicated.signal(first, signal.SIGKILL)
    assert replicated.produce(topic, numbered(100, 100)) == [None] * 100
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
        assert replicated.produce(topic, [b"refused"], **ONCE) == ["NOT_ENOUGH_REPLICAS"]
        assert replicated.produce(topic, [b"acks=1"], **ONCE, acks=1) == [None]
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
    replicated.admin.delete_records(wanted)[wanted[0]].result(60)
    replicated.check_identical(topic)
    replicated.signal(replicated.leader(topic), signal.SIGKILL)
    assert replicated.produce(topic, [b"after"]) == [None]
    consumer = Consumer({"bootstrap.servers": replicated.bootstrap, "group.id": "low"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    finally:
        consumer.close()
    assert (low, high) == (20, 51)


def test_an_empty_disk_rejoins_and_counts_for_nothing_before_it_has_all(replicated: Replicated) -> None:
    """It is the leader's, and not even the checkpoints are left that would tell what it had."""
    topic = replicated.create()
    assert replicated.produce(topic, numbered(0, 100)) == [None] * 100
    leader = replicated.leader(topic)
    replicated.signal(leader, signal.SIGSTOP)
    shutil.rmtree(replicated.replica(leader, topic))
    for each in Path(replicated.brokers[leader]["data_dir"]).glob("*-checkpoint*"):
        each.unlink()
    replicated.signal(leader, signal.SIGKILL)
    assert replicated.produce(topic, numbered(100, 100)) == [None] * 100
    wait_until(lambda: len(replicated.isr(topic)) == 3, "the empty replica is in sync again")
    replicated.check_identical(topic)
    assert replicated.read(topic, 200) == numbered(0, 200)


def test_a_follower_that_is_sent_what_is_corrupt_makes_its_leader_hand_over(replicated: Replicated) -> None:
    """The segment is the active one, which no scrub reads; only who begins anew asks for its beginning."""
    topic = replicated.create()
    assert replicated.produce(topic, numbered(0, 100)) == [None] * 100
    leader = replicated.leader(topic)
    follower = next(each for each in replicated.brokers if each != leader)
    replicated.signal(follower, signal.SIGSTOP)
    flip_bit(replicated.replica(leader, topic) / "00000000000000000000.log")
    shutil.rmtree(replicated.replica(follower, topic))
    replicated.signal(follower, signal.SIGKILL)
    wait_until(lambda: replicated.partition(topic)[0] not in (leader, -1), "another one leads")
    wait_until(lambda: len(replicated.isr(topic)) == 3, "all are in sync again")
    replicated.check_identical(topic)
    assert replicated.produce(topic, numbered(100, 10)) == [None] * 10
    assert replicated.read(topic, 110) == numbered(0, 110)


# --- the last replica standing -------------------------------------------------------------------


class LastStanding(NamedTuple):
    """Two topics on two brokers: the second one falls silent, the first one goes on alone, and falls silent
    when the second is back.  One of the topics allows an unclean election."""

    clean: str
    unclean: str
    first: int
    second: int
    acknowledged_alone: list[object]
    clean_leaders: set[int]
    """Who led the one that allows no unclean election, until the other had another leader."""
    clean_isr: list[int]
    after_election: list[object]


@pytest.fixture(scope="module")
def last_standing(replicated: Replicated) -> LastStanding:
    first, second = sorted(replicated.brokers)[:2]
    alone = {"min.insync.replicas": "1"}
    clean = replicated.create(first, second, **alone)
    unclean = replicated.create(first, second, **alone, **{"unclean.leader.election.enable": "true"})
    for topic in (clean, unclean):
        assert replicated.produce(topic, numbered(0, 10)) == [None] * 10
        assert replicated.leader(topic) == first
    replicated.signal(second, signal.SIGSTOP)
    try:
        for topic in (clean, unclean):
            replicated.wait_for_isr(topic, [first])
        alone_outcomes = [
            outcome for topic in (clean, unclean) for outcome in replicated.produce(topic, [b"alone"])
        ]
        replicated.signal(first, signal.SIGSTOP)
    finally:
        replicated.signal(second, signal.SIGCONT)
    leaders: set[int] = set()
    try:

        def other_leads() -> bool:
            leaders.add(replicated.partition(clean)[0])
            return replicated.leads(second, unclean)

        wait_until(other_leads, "the second leads where it may")
        after = replicated.produce(unclean, [b"after"])
        clean_isr = replicated.isr(clean)
        leaders.add(replicated.partition(clean)[0])
    finally:
        replicated.signal(first, signal.SIGCONT)
    for topic in (clean, unclean):
        replicated.wait_for_isr(topic, [first, second])
    return LastStanding(clean, unclean, first, second, alone_outcomes, leaders, clean_isr, after)


def test_the_last_replica_standing_goes_on_where_one_is_enough(last_standing: LastStanding) -> None:
    assert last_standing.acknowledged_alone == [None, None]


def test_without_unclean_election_there_is_no_leader_until_the_last_one_is_back(
    replicated: Replicated, last_standing: LastStanding
) -> None:
    assert last_standing.second not in last_standing.clean_leaders
    assert last_standing.second not in last_standing.clean_isr
    replicated.check_identical(last_standing.clean, 2)
    assert replicated.read(last_standing.clean, 11) == [*numbered(0, 10), b"alone"]


def test_an_unclean_election_that_is_allowed_loses_what_only_the_last_one_had(
    replicated: Replicated, last_standing: LastStanding
) -> None:
    assert last_standing.after_election == [None]
    replicated.check_identical(last_standing.unclean, 2)
    assert replicated.read(last_standing.unclean, 11) == [*numbered(0, 10), b"after"]
