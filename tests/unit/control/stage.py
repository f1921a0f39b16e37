"""Real servers and channels on loopback; nothing sleeps, everything is awaited with a bound."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

from distributedlog.control.channels import ControllerChannelPool
from distributedlog.control.contract import (
    ControllerReply,
    ControllerService,
    Identity,
    MetadataSink,
    MetadataSource,
)
from distributedlog.control.credentials import Credentials
from distributedlog.control.server import ControlServer
from distributedlog.control.transport import GrpcTransport
from distributedlog.control.unproven import NOBODY, UnprovenMembers
from distributedlog.controller.requests import HeartbeatRequest, Request
from distributedlog.model.cluster_secret import ClusterSecrets
from distributedlog.ports.executor import Done, Outcome
from tests.simulation.clock import SeededRandomness

CLUSTER = "a-cluster"
HOST = "127.0.0.1"
A_REQUEST = HeartbeatRequest(broker_id=9, broker_epoch=2, metadata_offset=3)
SECRETS = ClusterSecrets((b"s" * 32,))
NOWHERE = (HOST, 1)
VOTERS = (1, 2, 3)


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Nothing may be left over: no exception that nobody saw, no task still running."""
    unseen: list[dict[str, Any]] = []

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
        async with asyncio.timeout(30):
            await story()
        gc.collect()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if left:
            await asyncio.wait(left, timeout=5)
        assert not [task for task in left if not task.done()]

    asyncio.run(bounded())
    gc.collect()
    assert not unseen


class Controller:
    """Keeps what it is asked until told what to answer."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[Request, int, Done[ControllerReply]]] = asyncio.Queue()

    def submit(self, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        self.asked.put_nowait((request, timeout_ms, done))


class Log:
    """A metadata source: entries that are in it, and those to come."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.snapshots: list[tuple[int, bytes]] = []
        self.sinks: list[MetadataSink] = []
        self.watched_from: list[int] = []
        self.watched = asyncio.Event()

    def watch(self, from_offset: int, sink: MetadataSink) -> Callable[[], None]:
        self.watched_from.append(from_offset)
        for offset, data in self.snapshots:
            sink.handle_snapshot(data, offset)
        for offset, payload in self.entries:
            if offset >= from_offset:
                sink.handle_entry(payload, offset)
        self.sinks.append(sink)
        self.watched.set()
        return lambda: self.sinks.remove(sink)

    def append(self, offset: int, payload: bytes) -> None:
        self.entries.append((offset, payload))
        for sink in list(self.sinks):
            sink.handle_entry(payload, offset)


class Seen:
    """A metadata sink that can be awaited."""

    def __init__(self) -> None:
        self.everything: list[tuple[str, int, bytes]] = []
        self._changed = asyncio.Event()
        self.batches = 0

    def handle_snapshot(self, data: bytes, offset: int) -> None:
        self.everything.append(("snapshot", offset, data))

    def handle_entry(self, payload: bytes, offset: int) -> None:
        self.everything.append(("entry", offset, payload))

    def on_batch(self) -> None:
        self.batches += 1
        self._changed.set()

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offset, _ in self.everything]

    async def until(self, offset: int) -> None:
        while not self.everything or self.everything[-1][1] < offset:
            self._changed.clear()
            await self._changed.wait()


def credentials(
    node_id: int,
    cluster_id: str = CLUSTER,
    *,
    secrets: ClusterSecrets = SECRETS,
    roles: str = "broker,controller",
    unproven: UnprovenMembers = NOBODY,
) -> Credentials:
    return Credentials(Identity(cluster_id, node_id), roles, lambda: secrets, unproven)


class Node:
    """A control server with what stands behind it."""

    def __init__(
        self,
        node_id: int,
        *,
        cluster_id: str = CLUSTER,
        controller: ControllerService | None = None,
        metadata: MetadataSource | None = None,
        stream_life_s: float = 600,
        secrets: ClusterSecrets = SECRETS,
        unproven: UnprovenMembers = NOBODY,
    ) -> None:
        self.node_id = node_id
        own = credentials(node_id, cluster_id, secrets=secrets, unproven=unproven)
        self.transport = GrpcTransport(
            own,
            {voter: NOWHERE for voter in VOTERS if voter != node_id},
            randomness=SeededRandomness(node_id),
            stream_life_s=stream_life_s,
        )
        self.inbox: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self.transport.on_receive(lambda sender, message: self.inbox.put_nowait((sender, message)))
        self.refused: list[tuple[str, str, str]] = []
        self.server = ControlServer(
            own,
            transport=self.transport,
            controller=controller,
            metadata=metadata,
            refused=lambda *what: self.refused.append(what),
        )
        self.port = 0

    async def start(self, port: int = 0) -> "Node":
        self.port = await self.server.start(HOST, port)
        return self

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    async def stop(self, grace_s: float = 0.0) -> None:
        await self.server.stop(grace_s)
        self.transport.close()
        await self.transport.closed()


def pool_to(
    *nodes: Node, node_id: int = 9, cluster_id: str = CLUSTER, secrets: ClusterSecrets = SECRETS
) -> ControllerChannelPool:
    peers = {node.node_id: node.address for node in nodes}
    own = credentials(node_id, cluster_id, secrets=secrets)
    return ControllerChannelPool(own, peers, randomness=SeededRandomness(1))


def ask(
    pool: ControllerChannelPool, node_id: int, request: Request = A_REQUEST, timeout_ms: int = 10_000
) -> "asyncio.Future[Outcome[ControllerReply]]":
    answered: asyncio.Future[Outcome[ControllerReply]] = asyncio.get_running_loop().create_future()
    pool.call(node_id, request, timeout_ms, answered.set_result)
    assert not answered.done()  # never from within the call
    return answered
