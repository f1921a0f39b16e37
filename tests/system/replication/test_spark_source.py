"""What a task of the Spark source meets on three brokers: racks, a leader that dies, any replica's files."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from distributedlog.client.admin.admin import NewTopic
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.model.errors import ConfigError
from distributedlog.spark.connections import close_connections
from distributedlog.spark.segments.source import SegmentReader, segment_offsets
from distributedlog.spark.source.batch_reader import BatchReader
from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import wait_until
from tests.system.replication.test_three_brokers import bytes_out, describe

RACKS = {1: "a", 2: "b", 3: "c"}
CHECKPOINT_MS = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    directory: Path = tmp_path_factory.mktemp("source")
    arguments = ("--brokers", 3, "--port", 0, "--racks", "a,b,c", "--no-gateway")
    settings = ("--set", f"replica.high.watermark.checkpoint.interval.ms={CHECKPOINT_MS}")
    with DevCluster(directory / "ready.json", *arguments, *settings) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def no_connections_left() -> Iterator[None]:
    yield
    close_connections()


class Here:
    """A topic of one partition, with all replicas in sync."""

    def __init__(self, cluster: DevCluster, topic: str) -> None:
        self._cluster = cluster
        self.bootstrap = str(cluster.ready()["bootstrap"])
        self.topic = topic
        self.options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}
        with BlockingAdmin(self.bootstrap) as admin:
            admin.create_topic(NewTopic(topic, 1))
        self.wait_for_all()

    @property
    def brokers(self) -> dict[int, dict[str, Any]]:
        """What the cluster says of them now: one that was killed has another process."""
        return {each["id"]: each for each in self._cluster.ready()["brokers"]}

    def wait_for_all(self) -> None:
        with BlockingAdmin(self.bootstrap) as admin:
            wait_until(lambda: len(describe(admin, self.topic).partitions[0].isr) == 3, "all are in sync")

    @property
    def leader(self) -> int:
        with BlockingAdmin(self.bootstrap) as admin:
            return int(describe(admin, self.topic).partitions[0].leader_id)

    def producer(self, **settings: str) -> confluent_kafka.Producer:
        told = {"bootstrap.servers": self.bootstrap, "acks": "all"}
        return confluent_kafka.Producer(told | {name.replace("_", "."): it for name, it in settings.items()})

    def fill(self, count: int) -> list[bytes]:
        producer = self.producer(batch_size="4000")
        values = [b"%d" % number for number in range(count)]
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(60) == 0
        return values


def rows(reader: BatchReader | SegmentReader) -> list[tuple[int, bytes]]:
    """Reads as Spark does: what the driver plans, and each task of it."""
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [
        (offset, value)
        for batch in batches
        for offset, value in zip(
            batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True
        )
    ]


def test_a_task_reads_in_its_rack_and_from_the_leader_where_that_replica_is_away(cluster: DevCluster) -> None:
    here = Here(cluster, "racked")
    expected = list(enumerate(here.fill(50)))
    near, away = (each for each in here.brokers if each != here.leader)
    leader = here.brokers[here.leader]

    def leader_is_left_alone() -> bool:
        before = bytes_out(leader, here.topic)
        assert rows(BatchReader({**here.options, "kafka.client.rack": RACKS[near]})) == expected
        return bytes_out(leader, here.topic) == before

    wait_until(leader_is_left_alone, "all comes from the follower, once it knows what is committed")
    assert bytes_out(here.brokers[near], here.topic) > 0
    os.kill(here.brokers[away]["pid"], signal.SIGSTOP)  # the leader names it still
    try:
        impatient = {**here.options, "kafka.request.timeout.ms": "500"}
        assert rows(BatchReader({**impatient, "kafka.client.rack": RACKS[away]})) == expected
    finally:
        os.kill(here.brokers[away]["pid"], signal.SIGCONT)
    here.wait_for_all()


def test_a_leader_that_dies_in_the_middle_of_a_read_is_not_noticed(cluster: DevCluster) -> None:
    here = Here(cluster, "led")
    expected = list(enumerate(here.fill(12_000)))
    reader = BatchReader({**here.options, "kafka.max.partition.fetch.bytes": "20000"})
    (task,) = reader.partitions()
    reading = reader.read(task)
    seen = [next(reading)]
    assert seen[0].num_rows < len(expected) / 2
    os.kill(here.brokers[here.leader]["pid"], signal.SIGKILL)
    seen += reading
    found = [
        each
        for batch in seen
        for each in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ]
    assert found == expected
    here.wait_for_all()


def test_every_replicas_files_give_what_is_committed_and_nothing_else(cluster: DevCluster) -> None:
    here = Here(cluster, "filed")
    producer = here.producer(transactional_id="writer")
    producer.init_transactions(60)
    for number, ends in enumerate(("commit", "abort", "commit", "nothing")):
        producer.begin_transaction()
        for row in range(3):
            producer.produce(here.topic, f"{ends}-{number}.{row}".encode(), partition=0)
        assert producer.flush(60) == 0
        if ends == "commit":
            producer.commit_transaction(60)
        elif ends == "abort":
            producer.abort_transaction(60)
    here.fill(5)  # behind a transaction that is open: not to be read either
    expected = [(at, b"commit-0.%d" % at) for at in range(3)]
    expected += [(8 + at, b"commit-2.%d" % at) for at in range(3)]
    assert rows(BatchReader(here.options)) == expected
    for broker in here.brokers.values():
        options = {"segments": str(broker["data_dir"]), "subscribe": here.topic}
        everything = {**options, "isolation.level": "read_uncommitted"}
        wait_until(lambda told=everything: _count(told) == 4 * 3 + 5, "its high watermark is written down")  # type: ignore[misc]
        assert rows(SegmentReader(options)) == expected
        bounds = json.loads(segment_offsets(str(broker["data_dir"]), subscribe=here.topic))
        assert bounds[here.topic] == {"0": 12}, "the first offset of the open transaction"
    producer.abort_transaction(60)


def _count(options: dict[str, str]) -> int | None:
    """None: the broker, which may have just started, has not written down how far the partition goes."""
    try:
        return len(rows(SegmentReader(options)))
    except ConfigError as unknown:
        if "is not known" not in str(unknown):
            raise
        return None
