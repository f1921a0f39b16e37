"""The data plane's own small parts: what clients are told to connect to, how syncs are timed, what a scrape
shows.  That it serves is shown by real processes in tests/system."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from distributedlog.broker.cluster.lease_grant import NO_LEASE, LeaseGrant
from distributedlog.broker.coordination.lease import CoordinatorLease
from distributedlog.broker.data_plane import BLOCKING_THREADS, DataPlane, advertised
from distributedlog.broker.net.descriptors import DescriptorBudget
from distributedlog.broker.observability.metrics import BrokerMetrics
from distributedlog.broker.peers.late_verifier import LateVerifier
from distributedlog.controller.records import RegisterBroker, TopicCreated
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.executor import SystemExecutor
from distributedlog.settings.addresses import Endpoint
from distributedlog.settings.loading import load_settings
from tests.simulation.clock import SeededRandomness
from tests.simulation.net.channel import MemoryAcceptor
from tests.unit.broker.partition_stage import OTHER, Metadata, topic_id
from tests.unit.broker.server_stage import SECRET_HOLDER

FOR_EVER_MS = 1 << 60


def test_a_port_that_was_chosen_free_is_advertised_as_what_it_became() -> None:
    given = {"listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:19092", "advertised.listeners": "IN://localhost:0,OUT://kafka.example:443"}  # fmt: skip  # noqa: E501
    bound = {"IN": Endpoint("127.0.0.1", 4711), "OUT": Endpoint("127.0.0.1", 19092)}
    told = advertised(load_settings(None, given, {}), bound)
    assert [(each.name, each.host, each.port) for each in told] == [
        ("IN", "localhost", 4711),
        ("OUT", "kafka.example", 443),
    ]


def make_plane(directory: Path, metrics: BrokerMetrics) -> DataPlane:
    return DataPlane(
        load_settings(None, {"log.dirs": str(directory / "data")}, {}),
        asyncio.get_running_loop(),
        disk=SystemDisk(),
        clock=SystemClock(),
        randomness=SeededRandomness(1),
        metrics=metrics,
        secrets=SECRET_HOLDER.secrets,
        failed=lambda error: pytest.fail(str(error)),
        executor=SystemExecutor(threads=BLOCKING_THREADS),
        acceptor=MemoryAcceptor(asyncio.get_running_loop()),
        descriptors=DescriptorBudget(100, 100),
        draw=os.urandom,
    )


def test_who_asks_coordinators_is_told_of_other_brokers(tmp_path: Path) -> None:
    class Verifier(LateVerifier):
        changes = 0

        def brokers_changed(self) -> None:
            self.changes += 1

    async def story() -> list[int]:
        plane = make_plane(tmp_path, BrokerMetrics())
        verifier = plane._verifier = Verifier(lambda: pytest.fail("nobody needs it"))
        metadata, counts = Metadata(), []
        registered = RegisterBroker(
            broker_id=OTHER, incarnation_id=topic_id(1), broker_epoch=1, end_points=[], features=[], rack=None
        )
        for record in (TopicCreated(name="t", topic_id=topic_id(7)), registered):
            old = metadata.image
            plane._image_changed(old, metadata.apply(record))
            counts.append(verifier.changes)
        plane.close(broker_epoch=-1, cleanly=True)
        return counts

    assert asyncio.run(story()) == [0, 1]


def test_a_lease_ends_no_isolation_before_what_was_taken_from_the_broker_is_applied_here(
    tmp_path: Path,
) -> None:
    ends: list[int] = []

    async def story() -> None:
        plane, metadata = make_plane(tmp_path, BrokerMetrics()), Metadata()
        plane._services = SimpleNamespace(metadata=metadata)  # type: ignore[assignment]
        plane._isolation = SimpleNamespace(take_lease=lambda end_ms, _: ends.append(end_ms))  # type: ignore[assignment]
        plane._lease = CoordinatorLease(
            lambda: metadata.image,
            clock=SystemClock(),
            scheduler=plane._scheduler,
            tell_applied=lambda offset, is_urgent: None,
            await_settled=lambda offset: None,
        )
        for name in ("before the first lease", "t"):
            old = metadata.image
            image = metadata.apply(TopicCreated(name=name, topic_id=topic_id(len(name))))
            plane._image_changed(old, image)
            if name != "t":
                plane.take_lease(LeaseGrant(FOR_EVER_MS, lease_offset=image.offset + 1))
        plane.close(broker_epoch=-1, cleanly=True)

    asyncio.run(story())
    assert ends == [NO_LEASE.end_ms, FOR_EVER_MS]


def test_a_scrape_shows_the_partitions(tmp_path: Path) -> None:
    async def story() -> dict[str, float]:
        metrics = BrokerMetrics()
        plane = make_plane(tmp_path, metrics)
        values = {
            family.name: sample.value
            for family in metrics.families()
            for sample in family.samples
            if family.name.startswith("dlog_partitions") and isinstance(sample.value, (int, float))
        }
        plane.close(broker_epoch=-1, cleanly=True)
        return values

    assert asyncio.run(story()) == {
        "dlog_partitions": 0,
        "dlog_partitions_leading": 0,
        "dlog_partitions_unavailable": 0,
    }
