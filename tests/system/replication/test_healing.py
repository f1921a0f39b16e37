"""A flipped bit in a segment: the replica heals by itself, and a leader hands over first."""

import re
import urllib.request
from collections.abc import Iterator

import pytest

from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import Replicated, flip_bit, wait_until
from tests.system.server_process import dlog

SCRUB = ("log.scrub.interval.ms=500", "log.scrub.io.max.bytes.per.second=1000000000")
FIRST_SEGMENT = "00000000000000000000.log"
SEGMENT_BYTES = 1024 * 1024
VALUE_BYTES = 16 * 1024
VALUES = 150
"""Two sealed segments and an active one."""


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    directory = tmp_path_factory.mktemp("healing")
    arguments = ("--brokers", 3, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    settings = [part for each in SCRUB for part in ("--set", each)]
    with DevCluster(directory / "ready.json", *arguments, *settings) as cluster:
        yield Replicated(cluster, directory / "data")


def fill(replicated: Replicated, *replicas: int) -> tuple[str, list[bytes]]:
    topic = replicated.create(*replicas, **{"segment.bytes": str(SEGMENT_BYTES)})
    values = [b"%06d" % number + b"x" * VALUE_BYTES for number in range(VALUES)]
    assert replicated.produce(topic, values) == [None] * VALUES
    replicated.check_identical(topic, len(replicas) or 3)
    return topic, values


def metric(replicated: Replicated, broker_id: int, name: str) -> float:
    ops = replicated.brokers[broker_id]["ops"]
    with urllib.request.urlopen(f"http://{ops}/metrics", timeout=30) as response:
        found = re.search(
            rf"^{re.escape(name)}(?:_total)? ([0-9.e+]+)$", response.read().decode(), re.MULTILINE
        )
    assert found is not None, name
    return float(found[1])


def wait_until_healed(replicated: Replicated, topic: str, broker_id: int, healed_before: float) -> None:
    wait_until(
        lambda: metric(replicated, broker_id, "dlog_replicas_healed") > healed_before, "it is in sync again"
    )
    replicated.check_identical(topic)
    kept = list((replicated.replica(broker_id, topic) / "quarantine").glob("*.log"))
    assert [each.name for each in kept] == [FIRST_SEGMENT]


def test_a_replica_with_a_flipped_bit_heals(replicated: Replicated) -> None:
    topic, values = fill(replicated)
    leader = replicated.leader(topic)
    follower = next(each for each in replicated.brokers if each != leader)
    healed = metric(replicated, follower, "dlog_replicas_healed")
    flip_bit(replicated.replica(follower, topic) / FIRST_SEGMENT)
    wait_until_healed(replicated, topic, follower, healed)
    assert replicated.leader(topic) == leader
    assert replicated.produce(topic, [b"after"]) == [None]
    assert replicated.read(topic, VALUES + 1) == [*values, b"after"]


def test_a_leader_with_a_flipped_bit_hands_over_and_heals(replicated: Replicated) -> None:
    topic, values = fill(replicated)
    leader = replicated.leader(topic)
    healed = metric(replicated, leader, "dlog_replicas_healed")
    flip_bit(replicated.replica(leader, topic) / FIRST_SEGMENT)
    wait_until(lambda: replicated.partition(topic)[0] not in (leader, -1), "another one leads")
    assert replicated.produce(topic, [b"meanwhile"]) == [None]
    wait_until_healed(replicated, topic, leader, healed)
    wait_until(lambda: len(replicated.isr(topic)) == 3, "all are in sync again")
    assert replicated.read(topic, VALUES + 1) == [*values, b"meanwhile"]


def test_the_only_replica_serves_what_is_sound_and_health_says_so(replicated: Replicated) -> None:
    broker_id = min(replicated.brokers)
    topic, values = fill(replicated, broker_id)
    flip_bit(replicated.replica(broker_id, topic) / FIRST_SEGMENT)
    wait_until(
        lambda: metric(replicated, broker_id, 'dlog_replica_faults{fault="corrupt"}') == 1, "it is found"
    )
    assert replicated.partition(topic) == (broker_id, [broker_id])
    assert replicated.produce(topic, [b"after"]) == [None]
    assert replicated.read(topic, 11, first_offset=VALUES - 10) == [*values[-10:], b"after"]
    health = dlog("cluster", "health", "--bootstrap", replicated.bootstrap)
    assert health.returncode == 1
    assert "corrupt_replica" in health.stdout or "is corrupt on broker" in health.stdout
    assert f"{topic}-0 is corrupt, and no other replica is in sync" in replicated.log_of(broker_id)
