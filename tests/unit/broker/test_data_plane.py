"""The data plane's own small parts: what clients are told to connect to, how syncs are timed, what a scrape
shows.  That it serves is shown by real processes in tests/system."""

import asyncio
import os
from pathlib import Path

import pytest

from distributedlog.broker.data_plane import BLOCKING_THREADS, DataPlane, advertised
from distributedlog.broker.net.descriptors import DescriptorBudget
from distributedlog.broker.observability.metrics import BrokerMetrics
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.executor import SystemExecutor
from distributedlog.settings.addresses import Endpoint
from distributedlog.settings.loading import load_settings
from tests.simulation.clock import SeededRandomness
from tests.simulation.net.channel import MemoryAcceptor
from tests.unit.broker.server_stage import SECRET_HOLDER


def test_a_port_that_was_chosen_free_is_advertised_as_what_it_became() -> None:
    given = {"listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:19092", "advertised.listeners": "IN://localhost:0,OUT://kafka.example:443"}  # fmt: skip  # noqa: E501
    bound = {"IN": Endpoint("127.0.0.1", 4711), "OUT": Endpoint("127.0.0.1", 19092)}
    told = advertised(load_settings(None, given, {}), bound)
    assert [(each.name, each.host, each.port) for each in told] == [
        ("IN", "localhost", 4711),
        ("OUT", "kafka.example", 443),
    ]


def test_a_scrape_shows_the_partitions(tmp_path: Path) -> None:
    async def story() -> dict[str, float]:
        metrics = BrokerMetrics()
        plane = DataPlane(
            load_settings(None, {"log.dirs": str(tmp_path / "data")}, {}),
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
