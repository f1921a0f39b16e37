"""A Kafka server on the loop of the test, handlers that the test directs, and clients on real sockets."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from distributedlog.broker.addresses import Listener
from distributedlog.broker.admission import ServerLimits
from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, Handlers
from distributedlog.broker.metadata import MetadataReplica
from distributedlog.broker.quotas import ClientQuotas
from distributedlog.broker.server import KafkaServer
from distributedlog.broker.services import Services
from distributedlog.broker.settings import NodeSettings
from distributedlog.ports.clock import Clock, SystemClock
from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import FrameReader, decode_response, encode_request
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.protocol.schema import Message

SECONDS_MAX = 20
PATIENT = ServerLimits(tick_ms=5)


def run(story: Coroutine[Any, Any, None]) -> None:
    """Runs a test's story; one that hangs fails."""

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await story

    asyncio.run(bounded())


def settings_on(*names: str) -> NodeSettings:
    return NodeSettings(listeners=tuple(Listener(name, "127.0.0.1", 0) for name in names or ("PLAINTEXT",)))


class HurriedClock(SystemClock):
    """The system's, and ahead of it by as much as a test says has passed."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


def bare_services(settings: NodeSettings, clock: Clock | None = None) -> Services:
    """For handlers that use none of it but the clock; the cluster is empty."""
    nothing = cast(Any, None)
    return Services(
        settings=settings,
        clock=clock or SystemClock(),
        metadata=MetadataReplica(),
        controller=nothing,
        partitions=nothing,
        delayed=nothing,
        fetch_sessions=nothing,
        producer_ids=nothing,
        groups=nothing,
        metrics=nothing,
    )


class Counts:
    """Metrics as plain lists."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[tuple[str, str]] = []
        self.received: list[tuple[str, int, int]] = []
        self.answered: list[tuple[str, int]] = []
        self.out_bytes = 0
        self.parked_now = 0
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

    def parked(self, delta: int) -> None:
        self.parked_now += delta
        self._look()


Reply = Callable[[HeartbeatRequest, RequestContext], Answer]


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
    ) -> None:
        self.reply: Reply = lambda request, context: answer(0)
        self.begun: list[str] = []
        self.contexts: list[RequestContext] = []
        self.counts = Counts()
        self.clients: list[Client] = []
        self.handlers = handlers or Handlers()
        self.handlers.handles(HeartbeatRequest, versions=(0, 3))(self._handle)
        settings = settings_on(*names)
        self.server = KafkaServer(
            settings,
            bare_services(settings, clock),
            asyncio.get_running_loop(),
            handlers=self.handlers,
            metrics=self.counts,
            limits=limits,
            warmer=warmer,
            quotas=quotas,
        )
        self.server.start()

    def _handle(self, services: Services, request: HeartbeatRequest, context: RequestContext) -> Answer:
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
        assert self.counts.parked_now == 0
        assert len(self.counts.opened) == len(self.counts.closed)

    async def connect(self, listener: str = "PLAINTEXT", **options: int) -> "Client":
        client = Client(**options)
        self.clients.append(client)
        await client.connect(self.server.addresses[listener].port)
        return client


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

    async def frame(self) -> bytearray:
        while not self._frames:
            received = await self._loop.sock_recv(self.socket, 1 << 20)
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
            while await self._loop.sock_recv(self.socket, 1 << 20):
                pass
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()


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
