"""Messages that the network has kept: what a proxy holds back and lets go later changes nothing.

A client's EndTxn, records and offsets reach the broker when the transaction they belong to has ended and the
next one is open; a coordinator's marker reaches a leader when the coordinator is dead, the next one has
written that marker, and another transaction is open.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributedlog import Consumer, Producer, TopicPartition
from distributedlog.client.connection import connect
from distributedlog.groups.placement import partition_of
from distributedlog.model.error_codes import ErrorCode
from distributedlog.replication.contract import Isolation
from tests.chaos.cluster import PATIENCE_SECONDS, TRANSACTIONS_PARTITIONS, Cluster
from tests.chaos.network import Network
from tests.ports import free_port
from tests.system.server_process import ServerProcess
from tests.system.transactions.test_protocol import TIMEOUT_MS, RawProducer

CLIENT, BROKER = 1, 2
TOPIC = "kept"
SENT_SECONDS = 0.5
"""How long a coordinator may take to send a marker that the proxy keeps: nobody tells when it has."""
ASKS = 20
"""How often the leader is asked whether what is late has changed anything."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with ServerProcess(tmp_path, {}) as node:
        yield str(node.facts["client"])
        assert node.stop() == 0


def test_what_a_client_sent_before_changes_nothing_in_its_next_transaction(address: str) -> None:
    host, _, port = address.rpartition(":")
    listening = {CLIENT: free_port(), BROKER: int(port)}
    with Network([CLIENT, BROKER], listening, listening) as network:
        asyncio.run(_send_late(network, host, int(port), network.data_ports[CLIENT, BROKER]))


async def _send_late(network: Network, host: str, port: int, port_of_proxy: int) -> None:
    direct = await connect(host, port, timeout_ms=TIMEOUT_MS)
    kept = await connect(host, port_of_proxy, timeout_ms=TIMEOUT_MS)
    try:
        producer, late = RawProducer(direct, "late"), RawProducer(kept, "late")
        await producer.begin()
        late.producer_id, late.epoch = producer.producer_id, producer.epoch
        assert await late.produce(0) is ErrorCode.NONE
        network.cut([(CLIENT, BROKER)])
        messages = [
            asyncio.create_task(each)
            for each in (late.produce(1), late.commit_offset(7), late.end(commit=True, epoch=late.epoch))
        ]
        await asyncio.sleep(0)  # all are sent, and kept
        assert await producer.end(commit=False) is ErrorCode.NONE
        await producer.until_stable()
        assert await producer.produce(0) is ErrorCode.NONE
        assert await producer.commit_offset(3) is ErrorCode.NONE
        open_since = await producer.list_end(Isolation.READ_COMMITTED)
        end = await producer.list_end(Isolation.READ_UNCOMMITTED)
        network.join([(CLIENT, BROKER)])
        told = await asyncio.gather(*messages)
        assert told[0] is ErrorCode.INVALID_PRODUCER_EPOCH
        assert told[1] is ErrorCode.INVALID_PRODUCER_EPOCH
        assert told[2] is not ErrorCode.NONE
        assert await producer.list_end(Isolation.READ_COMMITTED) == open_since, "it is still open"
        assert await producer.list_end(Isolation.READ_UNCOMMITTED) == end, "nothing came to it"
        assert await producer.end(commit=True) is ErrorCode.NONE
        assert await producer.until_stable() == end + 1
        assert await producer.fetch_offset() == 3
    finally:
        kept.close()
        direct.close()


@pytest.mark.timeout(300)
def test_a_marker_of_a_dead_coordinator_does_not_end_a_later_transaction(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3, {"broker.session.timeout.ms": 2_000}) as cluster:
        cluster.create_topic(TOPIC, 3, 3, {"min.insync.replicas": "2"})
        with Producer(cluster.bootstrap, transactional_id=TOPIC) as producer:
            producer.init_transactions()
            coordinator, place = _far_from_its_coordinator(cluster)
            leader = cluster.leader(TOPIC, place.partition)
            assert leader is not None
            producer.begin_transaction()  # so that the coordinator is connected with the leader
            producer.send(TOPIC, "zeroth", partition=place.partition).result(PATIENCE_SECONDS)
            producer.commit_transaction()
            assert _read(cluster, place, 1) == [b"zeroth"]
            producer.begin_transaction()
            producer.send(TOPIC, "first", partition=place.partition).result(PATIENCE_SECONDS)
            cluster.network.cut([(coordinator, leader)])
            producer.commit_transaction()  # it is decided, and the marker is on its way
            time.sleep(SENT_SECONDS)
            cluster.brokers[coordinator].kill()
            producer.begin_transaction()  # the next coordinator has written the marker when this is served
            producer.send(TOPIC, "second", partition=place.partition).result(PATIENCE_SECONDS)
            assert _read(cluster, place, 2) == [b"zeroth", b"first"]
            cluster.network.join([(coordinator, leader)])
            for _ in range(ASKS):
                assert _committed_end(cluster, place) == 4, "the second is open"
                time.sleep(0.02)
            producer.abort_transaction()
            producer.begin_transaction()
            producer.send(TOPIC, "third", partition=place.partition).result(PATIENCE_SECONDS)
            producer.commit_transaction()
        assert _read(cluster, place, 3) == [b"zeroth", b"first", b"third"]


@pytest.mark.timeout(300)
def test_a_marker_does_not_wait_for_a_leader_that_is_frozen(tmp_path: Path) -> None:
    """It would for ten minutes, if nobody heard that another leads by now."""
    settings = {"broker.session.timeout.ms": 5_000, "request.timeout.ms": 600_000}
    with Cluster(tmp_path, 3, settings) as cluster:
        cluster.create_topic(TOPIC, 3, 3, {"min.insync.replicas": "2"})
        with Producer(cluster.bootstrap, transactional_id=TOPIC) as producer:
            producer.init_transactions()
            _, place = _far_from_its_coordinator(cluster)
            leader = cluster.leader(TOPIC, place.partition)
            assert leader is not None
            for value in ("first", "second"):  # with the first the coordinator is connected with the leader
                producer.begin_transaction()
                producer.send(TOPIC, value, partition=place.partition).result(PATIENCE_SECONDS)
                if value == "second":
                    assert _read(cluster, place, 1) == [b"first"]
                    cluster.brokers[leader].pause()
                producer.commit_transaction()
            assert _read(cluster, place, 2) == [b"first", b"second"]
            cluster.brokers[leader].go_on()


def _far_from_its_coordinator(cluster: Cluster) -> tuple[int, TopicPartition]:
    """The coordinator, and a partition that another broker leads."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        coordinator = cluster.transaction_coordinator(partition_of(TOPIC, TRANSACTIONS_PARTITIONS))
        for partition in range(3):
            leader = cluster.leader(TOPIC, partition)
            if None not in (coordinator, leader) and leader != coordinator:
                assert coordinator is not None
                return coordinator, TopicPartition(TOPIC, partition)
    raise AssertionError("everything is led by one broker")


def _committed_end(cluster: Cluster, place: TopicPartition) -> int:
    with Consumer(cluster.bootstrap, isolation_level="read_committed") as consumer:
        return consumer.end_offsets([place])[place]


def _read(cluster: Cluster, place: TopicPartition, count: int) -> list[bytes | None]:
    """So many records as they are committed, and what else there is up to the end."""
    found: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    with Consumer(cluster.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        while time.monotonic() < deadline:
            found += [each.value for each in consumer.poll(100)]
            if len(found) >= count and consumer.position(place) >= consumer.end_offsets([place])[place]:
                break
    return found
