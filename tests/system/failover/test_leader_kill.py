"""The leader of a partition is killed under load, and started again: what a producer and a reader see of it.

Three brokers, one partition, `acks=all`.  A producer sends a record every few milliseconds; the gap is the
longest time between two acknowledgements around a kill.  Whoever leads is killed, now and then the active
controller.  Every record that was acknowledged is there, once and in order.

`DLOG_SOAK=1` makes it a hundred kills instead of three.  The gaps are printed, and not judged: how long
something takes says much about the machine.
"""

import os
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import PRODUCER_SETTINGS, Replicated, wait_until
from tests.system.test_controller_failover import active_controller

SOAK = os.environ.get("DLOG_SOAK") == "1"
KILLS = 100 if SOAK else 3
PAUSE_SECONDS = 0.005
SETTLE_RECORDS = 50
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    directory: Path = tmp_path_factory.mktemp("failover")
    arguments = ("--brokers", 3, "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield Replicated(cluster, directory)


class Load:
    """Sends numbers one after the other, and notes when each is acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER_SETTINGS})
        self._topic = topic
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[bytes] = []
        self.times: list[float] = []
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
            self._producer.produce(self._topic, b"%08d" % number, partition=0, on_delivery=self._delivered)
            number += 1
            self._producer.poll(PAUSE_SECONDS)
        assert self._producer.flush(90) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error.name())
        else:
            self.acknowledged.append(message.value() or b"")
            self.times.append(time.monotonic())

    def wait_for_more(self) -> None:
        wanted = len(self.times) + SETTLE_RECORDS
        wait_until(lambda: len(self.times) >= wanted, "records are acknowledged")

    def gap_since(self, start: float) -> float:
        """The longest time without an acknowledgement, from before `start` on."""
        times = list(self.times)
        return max(after - before for before, after in pairwise(times) if after >= start)


def test_a_leader_that_is_killed_is_followed_by_another(
    replicated: Replicated, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = replicated.create()
    gaps: dict[bool, list[float]] = {False: [], True: []}
    returns: list[float] = []
    with Load(replicated.bootstrap, topic) as load:
        load.wait_for_more()
        for _ in range(KILLS):
            leader = replicated.leader(topic)
            is_controller = active_controller(replicated.cluster)["id"] == leader
            killed = time.monotonic()
            replicated.signal(leader, signal.SIGKILL)
            wait_until(lambda gone=leader: replicated.partition(topic)[0] not in (-1, gone), "another leads")  # type: ignore[misc]
            load.wait_for_more()
            gaps[is_controller].append(load.gap_since(killed))
            replicated.cluster.wait_for(f"node {leader} serves on")
            wait_until(lambda: replicated.isr(topic) == [1, 2, 3], "all replicas are in sync")
            returns.append(time.monotonic() - killed)
    assert load.errors == []
    found = replicated.read(topic, len(load.acknowledged))
    assert found == sorted(set(found)), "a record is there twice, or out of order"
    assert set(load.acknowledged) <= set(found), "an acknowledged record is lost"
    with capsys.disabled():
        print(f"\nleader killed: gap {spell(gaps[False])}; leader and controller: {spell(gaps[True])}")
        print(f"all in sync again after {spell(returns)}")


def spell(seconds: list[float]) -> str:
    seen = sorted(seconds)
    if not seen:
        return "never"
    p99 = seen[min(len(seen) - 1, len(seen) * 99 // 100)]
    return f"p50 {statistics.median(seen):.2f} s, p99 {p99:.2f} s of {len(seen)}"
