"""A Kafka server on the loop of the test, handlers that the test directs, and clients on real sockets.

`MEMORY` is the same without sockets and in virtual time.
"""

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, cast

from distributedlog.broker.cluster.metadata import MetadataReplica
from distributedlog.broker.net.acceptor import Acceptor
from distributedlog.broker.net.admission import ServerLimits
from distributedlog.broker.net.channel import SocketChannel
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, Handlers, Order
from distributedlog.broker.net.server import KafkaServer
from distributedlog.broker.peers.authentication import SecretHolder
from distributedlog.broker.quotas.client_quotas import ClientQuotas
from distributedlog.broker.services import Services
from distributedlog.model.cluster_secret import ClusterSecrets
from distributedlog.ports.clock import Clock, SystemClock
from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import FrameReader, decode_response, encode_request
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.protocol.schema import Message
from distributedlog.settings.addresses import Listener
from distributedlog.settings.node_settings import NodeSettings
from tests.simulation.net.channel import WINDOW_BYTES, MemoryAcceptor, MemoryChannel
from tests.simulation.net.virtual_loop import VirtualClock, VirtualLoop

SECONDS_MAX = 120
PATIENT = ServerLimits(tick_ms=5)


def run(story: Coroutine[Any, Any, None]) -> None:
    """Runs a test's story; one that hangs fails."""
    asyncio.run(_bounded(story))


async def _bounded(story: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        await story


def run_virtually(story: Coroutine[Any, Any, None]) -> None:
    """Runs a test's story in virtual time; one that hangs fails at once."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story)


def settings_on(*names: str) -> NodeSettings:
    return NodeSettings(listeners=tuple(Listener(name, "127.0.0.1", 0) for name in names or ("PLAINTEXT",)))


class HurriedClock(SystemClock):
    """The system's, and ahead of it by as much as a test says has passed."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


SECRET_HOLDER = SecretHolder("cluster", 1, lambda: ClusterSecrets((bytes(range(32)),)), os.urandom)


def bare_services(settings: NodeSettings, clock: Clock | None = None) -> Services:
    """Returns services for handlers that use none of it but the clock; the cluster is empty."""
    nothing = cast(Any, None)
    return Services(
        settings=settings,
        clock=clock or SystemClock(),
        metadata=MetadataReplica(),
        controller=nothing,
        partitions=nothing,
        purgatory=nothing,
        searches=nothing,
        preparations=nothing,
        fetch_sessions=nothing,
        replication_quotas=nothing,
        producer_ids=nothing,
        groups=nothing,
        transactions=nothing,
        transaction_verifier=nothing,
        metrics=nothing,
        secret_holder=SECRET_HOLDER,
    )


def unwatched(ours: socket.socket) -> SocketChannel:
    """A channel that nobody asks whether it is ready."""
    return SocketChannel(ours, cast(asyncio.AbstractEventLoop, None))


class Counts:
    """Metrics as plain lists."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[tuple[str, str]] = []
        self.received: list[tuple[str, int, int]] = []
        self.answered: list[tuple[str, int]] = []
        self.out_bytes = 0
        self.delayed_now = 0
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def _look(self) -> None:
        for condition, future in self._waiting:
            if condition() and not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for counts to say so."""
        if not condition():
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((condition, future))
            await future

    async def until_closed(self, reason: str, times: int = 1) -> None:
        await self.until(lambda: [why for _, why in self.closed].count(reason) >= times)

    def connection_opened(self, listener: str) -> None:
        self.opened.append(listener)
        self._look()

    def connection_closed(self, listener: str, reason: str) -> None:
        self.closed.append((listener, reason))
        self._look()

    def request_received(self, api: str, version: int, size: int) -> None:
        self.received.append((api, version, size))
        self._look()

    def request_answered(self, api: str, seconds: float, error_code: int) -> None:
        assert seconds >= 0
        self.answered.append((api, error_code))
        self._look()

    def bytes_out(self, n: int) -> None:
        self.out_bytes += n
        self._look()

    def requests_delayed(self, delta: int) -> None:
        self.delayed_now += delta
        self._look()


Reply = Callable[[HeartbeatRequest, RequestContext], HandlerResponse]


class Stage:
    """`Heartbeat` is handled as the test says: `reply` gets each request.  The group id is free text."""

    def __init__(
        self,
        limits: ServerLimits = PATIENT,
        handlers: Handlers | None = None,
        *names: str,
        warmer: Any = None,
        clock: Clock | None = None,
        quotas: ClientQuotas | None = None,
        order: Order = Order.PIPELINED,
    ) -> None:
        self.reply: Reply = lambda request, context: answer(0)
        self.begun: list[str] = []
        self.contexts: list[RequestContext] = []
        self.counts = Counts()
        self.clients: list[Client] = []
        self.handlers = handlers or Handlers()
        self.handlers.handles(HeartbeatRequest, versions=(0, 3), order=order)(self._handle)
        settings = settings_on(*names)
        self.acceptor = self._make_acceptor(*names)
        self.server = KafkaServer(
            settings,
            bare_services(settings, clock or self._make_clock()),
            asyncio.get_running_loop(),
            acceptor=self.acceptor,
            handlers=self.handlers,
            metrics=self.counts,
            limits=limits,
            warmer=warmer,
            quotas=quotas,
        )
        self.server.start()

    def _handle(
        self, services: Services, request: HeartbeatRequest, context: RequestContext
    ) -> HandlerResponse:
        self.begun.append(request.group_id)
        self.contexts.append(context)
        return self.reply(request, context)

    async def __aenter__(self) -> "Stage":
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()
        await self.server.stop(0)
        assert self.server.connections == 0
        assert self.server.in_flight_bytes == 0
        assert self.counts.delayed_now == 0
        assert len(self.counts.opened) == len(self.counts.closed)

    def _make_acceptor(self, *names: str) -> Acceptor | None:
        """The server makes its own."""

    def _make_clock(self) -> Clock:
        return SystemClock()

    async def connect(self, listener: str = "PLAINTEXT", **options: int) -> "Client":
        client = Client(**options)
        self.clients.append(client)
        await client.connect(self.server.addresses[listener].port)
        return client


class MemoryStage(Stage):
    """The same on channels in memory, with small windows and partial sends, on a loop in virtual time."""

    def _make_acceptor(self, *names: str) -> Acceptor:
        return MemoryAcceptor(asyncio.get_running_loop(), names or ("PLAINTEXT",))

    def _make_clock(self) -> Clock:
        return VirtualClock(asyncio.get_running_loop())

    async def connect(self, listener: str = "PLAINTEXT", **options: int) -> "MemoryClient":
        assert isinstance(self.acceptor, MemoryAcceptor)
        window_bytes = options.get("receive_bytes", WINDOW_BYTES)
        chance = random.Random(options.get("seed", len(self.clients)))
        client = MemoryClient(self.acceptor.connect(listener, window_bytes=window_bytes, chance=chance))
        self.clients.append(client)
        return client


class Network(NamedTuple):
    """What a test of connections runs on."""

    stage: type[Stage]
    run: Callable[[Coroutine[Any, Any, None]], None]


NETWORKS = {"sockets": Network(Stage, run), "memory": Network(MemoryStage, run_virtually)}


def answer(error_code: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error_code)


def asked(group_id: str = "g", correlation_id: int = 0, version: int = 3) -> bytes:
    """A Heartbeat as it travels."""
    request = HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m")
    return join_parts(encode_request(request, version, correlation_id, "tester"))


class Client:
    """A socket, and nothing that would wait or retry for the test."""

    def __init__(self, receive_bytes: int = 0) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._reader = FrameReader()
        self._frames: list[bytearray] = []
        self._loop = asyncio.get_running_loop()

    async def connect(self, port: int) -> None:
        await self._loop.sock_connect(self.socket, ("127.0.0.1", port))

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    async def receive(self, bytes_max: int = 1 << 20) -> bytes:
        """What is here, once something is; nothing at the end of the stream."""
        return await self._loop.sock_recv(self.socket, bytes_max)

    async def frame(self) -> bytearray:
        while not self._frames:
            received = await self.receive()
            if not received:
                raise EOFError
            self._frames += self._reader.receive(received)
        return self._frames.pop(0)

    async def answer(self) -> tuple[int, int]:
        """The correlation id and the error code of the next answer to a Heartbeat."""
        correlation_id, message = decode_response(HeartbeatResponse, 3, await self.frame())
        return correlation_id, message.error_code

    async def ask(self, group_id: str = "g", correlation_id: int = 0) -> tuple[int, int]:
        await self.send(asked(group_id, correlation_id))
        return await self.answer()

    async def is_cut(self) -> bool:
        """Waits for the end of the stream, throwing away what comes before it."""
        try:
            while await self.receive():
                pass
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()


class MemoryClient(Client):
    """The same on a channel in memory."""

    def __init__(self, channel: MemoryChannel) -> None:
        super().__init__()
        self.socket.close()
        self.channel = channel

    async def send(self, data: bytes) -> None:
        while data:
            try:
                data = data[self.channel.send([data]) :]
            except BlockingIOError:
                await self._until(self.channel.notify_writable)

    async def receive(self, bytes_max: int = 1 << 20) -> bytes:
        buffer = bytearray(min(bytes_max, WINDOW_BYTES))
        while True:
            try:
                return bytes(buffer[: self.channel.receive_into(buffer)])
            except BlockingIOError:
                await self._until(self.channel.notify_readable)

    async def _until(self, notify: Callable[[Callable[[], None] | None], None]) -> None:
        ready = self._loop.create_future()
        notify(lambda: None if ready.done() else ready.set_result(None))
        try:
            await ready
        finally:
            notify(None)

    def close(self) -> None:
        self.channel.close()


class Later:
    """Answers that come when the test says, each by the group id of its request."""

    def __init__(self) -> None:
        self.futures: dict[str, asyncio.Future[Message | None]] = {}

    def __call__(self, request: HeartbeatRequest, context: RequestContext) -> Awaitable[Message | None]:
        future: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self.futures[request.group_id] = future
        return future

    def come(self, group_id: str, error_code: int = 0) -> None:
        self.futures[group_id].set_result(answer(error_code))
