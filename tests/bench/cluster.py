"""Three brokers against three of Apache Kafka's on the same machine, in turns, as medians.

Topics have three replicas, and acks=all waits for all of them.  Each partition is asked for at the broker
that leads it; CPU is that of all three processes.  Otherwise it is measured as one broker is (`broker`):
batches encoded beforehand, four connections and partitions, our sync against Kafka's page cache and once
without it.

Three brokers, a load and their disk share the machine's cores: ratios say something, megabytes do not.
Within our own: what acks=all takes on three brokers against one, and what 1,000 idle partitions take away.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from distributedlog.client.admin.admin import NewTopic
from tests.bench.broker import (
    CONNECTIONS,
    LOG_BYTES,
    NO_SYNC,
    PACE,
    ROUNDS,
    SECONDS,
    Case,
    compared,
    median_of,
    offer,
)
from tests.bench.broker_kafka import Kafka, LeftOutError, make_first_topic
from tests.bench.broker_load import Load, Outcome, batch_of
from tests.bench.figures import Figure, Rounds, at_least, at_most
from tests.bench.harness import Bench, Measure
from tests.bench.topics import await_full_isr, delete_topics, leader_ports, make_topics, topic_on
from tests.ports import free_port
from tests.system.dev_cluster import DevCluster

NODES: Final = (1, 2, 3)
REPLICAS: Final = 3
WARM_UP_SECONDS: Final = 15.0
"""How long for each kind of load: three virtual machines compile their code on cores that they share."""
FILL_SECONDS_MAX: Final = 240.0
IDLE_PARTITIONS: Final = 1000
LIKE_WITH_LIKE, WITH_OUR_SYNC = 1.0, 0.6
SLOWER_THAN_ONE: Final = 1.5
BESIDE_IDLE: Final = 0.95

PRODUCED: Final = (
    Case("produce 100 B in 16 KB batches, acks=all, our sync / no sync", 100, 150, 8, acks=-1),
    Case("produce 100 B in 16 KB batches, acks=all, no sync", 100, 150, 8, acks=-1, configs=NO_SYNC),
    Case("produce 1 KB in 16 KB batches, acks=all, our sync / no sync", 1000, 16, 8, acks=-1),
    Case("produce 1 KB in 16 KB batches, acks=all, no sync", 1000, 16, 8, acks=-1, configs=NO_SYNC),
    Case("produce 16 KB, acks=all, our sync / no sync", 16_000, 1, 8, acks=-1),
    Case("produce 16 KB, acks=all, no sync", 16_000, 1, 8, acks=-1, configs=NO_SYNC),
)
WARM_UP: Final = PRODUCED[1::2]
CONSUMED: Final = (Case("consume 1 KB", 1000, 16, 1), Case("consume 16 KB", 16_000, 1, 1))
PACED: Final = (
    Case(f"1 KB at {PACE:,}/s, acks=all, our sync / no sync", 1000, 1, 1, acks=-1),
    Case(f"1 KB at {PACE:,}/s, acks=all, no sync", 1000, 1, 1, acks=-1, configs=NO_SYNC),
)


class OurCluster:
    """`dlog dev`, with three brokers or fewer."""

    name = "dlog"

    def __init__(self, directory: Path, brokers: int = len(NODES)) -> None:
        directory.mkdir(parents=True)
        self.replicas = brokers
        self._dev = DevCluster(
            directory / "ready.json", "--brokers", brokers, "--port", 0, "--no-gateway", "--data-dir",
            directory / "data", "--set", "log.segment.delete.delay.ms=1000",
        )  # fmt: skip
        self._dev.__enter__()

    @property
    def bootstrap(self) -> str:
        return str(self._dev.ready()["bootstrap"])

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(self._dev.pids())

    def stop(self) -> None:
        try:
            self._dev.stop()
        finally:
            self._dev.__exit__(None, None, None)


class KafkaCluster:
    name = "Kafka"
    replicas = REPLICAS

    def __init__(self, directory: Path) -> None:
        control = {node: free_port() for node in NODES}
        self._nodes = [Kafka(directory / str(node), node_id=node, control_ports=control) for node in NODES]
        for node in self._nodes:
            node.start()
        for node in self._nodes:
            make_first_topic(node, f"first-{node.port}")

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{each.port}" for each in self._nodes)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(each.pid for each in self._nodes)

    def stop(self) -> None:
        with ExitStack() as stack:
            for node in self._nodes:
                stack.callback(node.stop)


Cluster = OurCluster | KafkaCluster


def topic_for(cluster: Cluster, case: Case) -> AbstractContextManager[str]:
    """Makes a topic with as many replicas as the cluster has brokers; with configs of our topic alone."""
    configs = case.configs if isinstance(cluster, OurCluster) else None
    return topic_on(cluster.bootstrap, "load", CONNECTIONS, configs, replication_factor=cluster.replicas)


def load_of(case: Case, cluster: Cluster, topic: str, kind: str = "produce") -> Load:
    return Load(
        kind=kind, port=0, pid=0, ports=leader_ports(cluster.bootstrap, topic), pids=cluster.pids,
        topic=topic, record_bytes=case.record_bytes, batch_records=case.batch_records,
        window=case.window, acks=case.acks, rate=PACE, seconds=SECONDS, connections=CONNECTIONS,
    )  # fmt: skip


def in_turns(clusters: list[Cluster], case: Case, kind: str) -> list[list[Outcome]]:
    """Each cluster's outcomes, on a topic of its own in each round."""
    results: list[list[Outcome]] = [[] for _ in clusters]
    for _ in range(ROUNDS):
        for found, cluster in zip(results, clusters, strict=True):
            with topic_for(cluster, case) as topic:
                found.append(offer(load_of(case, cluster, topic, kind)))
    return results


def saturated(name: str, aim: float, results: list[list[Outcome]]) -> list[Figure]:
    speeds = [median_of(each, lambda outcome: outcome.mb_per_second) for each in results]
    costs = [median_of(each, lambda outcome: outcome.cpu_seconds_per_gb) for each in results]
    return [
        compared(f"{name}: throughput", speeds, "MB/s", at_least, aim),
        compared(f"{name}: CPU of all brokers", costs, "s/GB", at_most, 1.0),
    ]


def produced(clusters: list[Cluster], case: Case) -> list[Figure]:
    aim = LIKE_WITH_LIKE if case.configs else WITH_OUR_SYNC
    return saturated(case.name, aim, in_turns(clusters, case, "produce"))


def consumed(clusters: list[Cluster], case: Case) -> list[Figure]:
    with ExitStack() as stack:
        loads = []
        for cluster in clusters:
            topic = stack.enter_context(topic_for(cluster, case))
            load = load_of(case, cluster, topic)
            offer(replace(load, acks=-1, bytes_max=LOG_BYTES, seconds=FILL_SECONDS_MAX))
            end_offset = LOG_BYTES // len(batch_of(load)) // CONNECTIONS * case.batch_records
            loads.append(replace(load, kind="consume", end_offset=end_offset))
        results: list[list[Outcome]] = [[] for _ in clusters]
        for _ in range(ROUNDS):
            for found, load in zip(results, loads, strict=True):
                found.append(offer(load))
    return saturated(case.name, LIKE_WITH_LIKE, results)


def paced(clusters: list[Cluster], case: Case) -> list[Figure]:
    results = in_turns(clusters, case, "paced")
    p50 = [median_of(each, lambda outcome: outcome.p50_ms) for each in results]
    p99 = [median_of(each, lambda outcome: outcome.p99_ms) for each in results]
    return [
        compared(f"{case.name}: p50", p50, "ms", at_most, 1.0),
        compared(f"{case.name}: p99", p99, "ms", at_most, 1.0),
    ]


# --- within our own ----------------------------------------------------------------------------


def three_against_one(three: OurCluster, directory: Path) -> list[Figure]:
    """What an acknowledgement by all takes on three brokers, against the same on one."""
    one = OurCluster(directory, brokers=1)
    try:
        three_p50, one_p50 = (
            [outcome.p50_ms for outcome in each] for each in in_turns([three, one], PACED[0], "paced")
        )
    finally:
        one.stop()
        shutil.rmtree(directory)
    rounds = Rounds(three_p50, one_p50)
    name = rounds.named("acks=all on three brokers / on one: p50", "ms", 2)
    return [at_most(name, rounds.ratio(), "×", SLOWER_THAN_ONE)]


def beside_idle_partitions(cluster: OurCluster) -> list[Figure]:
    """What a load gets while 1,000 partitions are followed in which nothing happens."""
    case, idle = PRODUCED[3], "idle"
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(ROUNDS):
        with topic_for(cluster, case) as topic:
            await_full_isr(cluster.bootstrap, topic)
            alone.append(offer(load_of(case, cluster, topic)).mb_per_second)
        make_topics(cluster.bootstrap, NewTopic(idle, IDLE_PARTITIONS, REPLICAS))
        try:
            with topic_for(cluster, case) as topic:
                await_full_isr(cluster.bootstrap, idle, topic)
                beside.append(offer(load_of(case, cluster, topic)).mb_per_second)
        finally:
            delete_topics(cluster.bootstrap, idle)
    rounds = Rounds(beside, alone)
    name = rounds.named(f"{case.name}, beside {IDLE_PARTITIONS:,} idle partitions / alone", "MB/s")
    return [at_least(name, rounds.ratio(), "×", BESIDE_IDLE)]


# --- all of it ---------------------------------------------------------------------------------


@contextmanager
def contestants(scratch: Path) -> Iterator[tuple[list[Cluster], list[Figure]]]:
    """Ours and, where it can be had, Kafka's, both running; and what is said of who is not there."""
    with ExitStack() as stack:
        clusters: list[Cluster] = [OurCluster(scratch / "dlog")]
        stack.callback(clusters[0].stop)
        missing: list[Figure] = []
        try:
            kafka = KafkaCluster(scratch / "kafka")
            stack.callback(kafka.stop)
            clusters.append(kafka)
        except LeftOutError as error:
            missing.append(Figure(f"Apache Kafka: left out, {error}", float("nan"), ""))
        yield clusters, missing


def cases(clusters: list[Cluster], ours: OurCluster, scratch: Path) -> Iterator[tuple[str, Measure]]:
    for case in PRODUCED:
        yield case.name, partial(produced, clusters, case)
    for case in CONSUMED:
        yield case.name, partial(consumed, clusters, case)
    for case in PACED:
        yield case.name, partial(paced, clusters, case)
    yield "acks=all on three brokers / on one", partial(three_against_one, ours, scratch / "one")
    yield "beside idle partitions", partial(beside_idle_partitions, ours)


def run(bench: Bench) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="dlog-bench-") as scratch,
        contestants(Path(scratch)) as (clusters, missing),
    ):
        ours = clusters[0]
        assert isinstance(ours, OurCluster)
        for cluster in clusters:
            for case in WARM_UP:
                with topic_for(cluster, case) as topic:
                    offer(replace(load_of(case, cluster, topic), seconds=WARM_UP_SECONDS))
        for name, measure in cases(clusters, ours, Path(scratch)):
            bench.case(name, measure)
        for figure in missing:
            bench.note(figure)
