"""Nothing of one loop is touched from the other: what crosses is immutable, or posted.

A whole node runs, is administered, written to, read, scraped and stopped, while every access to a field of an
object that belongs to one of the loops is watched.  Methods may be named from anywhere (they are posted);
what they touch when they are called shows on which thread that was.
"""

import asyncio
import threading
import traceback
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from distributedlog.broker.bridge import MetadataView
from distributedlog.broker.cluster.forwarding import ControllerForwarder
from distributedlog.broker.cluster.lifecycle import BrokerLifecycle
from distributedlog.broker.cluster.metadata import MetadataReplica
from distributedlog.broker.cluster.raft_driver import RaftDriver
from distributedlog.broker.control_plane import ControlPlane
from distributedlog.broker.coordination.controller_driver import ControllerDriver
from distributedlog.broker.coordination.producer_ids import ProducerIds
from distributedlog.broker.data_plane import DataPlane
from distributedlog.broker.net.server import KafkaServer
from distributedlog.broker.node import EXIT_OK, Node
from distributedlog.broker.observability.metrics import BrokerMetrics
from distributedlog.broker.ready import ReadyReport
from distributedlog.broker.replicas.faults import ReplicaFaults
from distributedlog.broker.replicas.maintenance import LogMaintenance
from distributedlog.broker.replicas.partitions import PartitionSet
from distributedlog.client.admin.admin import Admin, NewTopic
from distributedlog.client.producer import Producer
from distributedlog.records.record import Record
from distributedlog.settings.loading import load_settings
from tests.unit.broker.node_stage import TIMEOUT_SECONDS

CONTROL_THREAD: Final = "dlog-control"
OF_CONTROL: Final[tuple[type, ...]] = (
    ControlPlane, BrokerLifecycle, ControllerDriver, ControllerForwarder, MetadataReplica, RaftDriver,
)  # fmt: skip
OF_DATA: Final[tuple[type, ...]] = (
    DataPlane, PartitionSet, LogMaintenance, ReplicaFaults, MetadataView, KafkaServer, BrokerMetrics,
    ProducerIds,
)  # fmt: skip


class Watch:
    """Notes who touches a field on the wrong thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.violations: set[str] = set()
        self.touched: set[type] = set()
        data_thread = threading.current_thread()
        for kind in OF_CONTROL:
            self._guard(monkeypatch, kind, lambda thread: thread is data_thread and _is_control_running())
        for kind in OF_DATA:
            self._guard(monkeypatch, kind, lambda thread: thread.name == CONTROL_THREAD)

    def _guard(
        self, monkeypatch: pytest.MonkeyPatch, kind: type, is_wrong: Callable[[threading.Thread], bool]
    ) -> None:
        plain: Callable[[object, str], Any] = vars(kind).get("__getattribute__", object.__getattribute__)

        def touch(watched: object, name: str) -> Any:
            value = plain(watched, name)
            self.touched.add(kind)
            if not callable(value) and not name.startswith("__") and is_wrong(threading.current_thread()):
                where = traceback.extract_stack(limit=3)[-2]
                self.violations.add(f"{kind.__name__}.{name} at {where.filename}:{where.lineno}")
            return value

        monkeypatch.setattr(kind, "__getattribute__", touch)


def _is_control_running() -> bool:
    return any(thread.name == CONTROL_THREAD for thread in threading.enumerate())


async def use_node(directory: Path) -> None:
    free = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory / "data")}
    free |= {f"{plane}.listener": "127.0.0.1:0" for plane in ("control", "ops")}
    loop = asyncio.get_running_loop()
    node = Node(load_settings(None, free, {}), loop)
    ready: asyncio.Future[ReadyReport] = loop.create_future()
    running = asyncio.create_task(node.run(ready.set_result))
    report = await asyncio.wait_for(ready, TIMEOUT_SECONDS)
    assert report.client is not None
    async with Admin.connect(report.client) as admin:
        await admin.create_topic(NewTopic("orders", 2, 1))
        await admin.describe_quorum()
        async with Producer(admin.cluster) as producer:
            await producer.send("orders", Record(b"one"))
        await admin.delete_topics(["orders"])
    metrics = await loop.run_in_executor(None, _scrape, f"http://{report.ops}/metrics")
    assert b"dlog_metadata_offset" in metrics
    node.stop()
    assert await asyncio.wait_for(running, TIMEOUT_SECONDS) == EXIT_OK


def _scrape(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as response:
        content = response.read()
        assert isinstance(content, bytes)
        return content


def test_no_loop_touches_what_is_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    asyncio.run(use_node(tmp_path))
    assert watch.violations == set()
    assert watch.touched == {*OF_CONTROL, *OF_DATA}, "whoever is not touched at all is not watched"


def test_a_field_of_the_control_loop_that_the_data_loop_reads_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(monkeypatch)
    why_not_ready = Node._why_not_ready

    def careless(node: Node) -> str | None:
        assert node._control.broker_epoch >= -1
        return why_not_ready(node)

    monkeypatch.setattr(Node, "_warn_of_settings", careless)
    asyncio.run(use_node(tmp_path))
    assert any("ControlPlane.broker_epoch" in each for each in watch.violations)
