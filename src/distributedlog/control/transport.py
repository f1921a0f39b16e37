"""Messages of consensus between nodes: the transport port over gRPC.

Each node keeps one stream open to every peer that it has something for, and only sends on it; what it
receives comes on streams that others opened (see services.py).

    peer's queue -> task: connect, authenticate, hello, message, message ...   it grew old -> the next stream
                          |-> no connection, or it broke: pause with jitter, drop what waits, try again
                          |-> refused (another cluster or node, a newer version, no proof): say so once, pause
                              longer
                          |-> it knows our session no more: authenticate anew

A message to a peer that cannot be reached is dropped, as the port allows: whoever needs an answer asks
again, and an old message is worth little.  Messages to a peer that reads slowly wait in a queue of bounded
bytes, the oldest dropped first.  A stream has a deadline, so that none that hangs lives for ever, and is
replaced well before it.  A peer that died without a word is found by gRPC's pings.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc
from grpc.aio import AioRpcError, Channel, StreamUnaryMultiCallable

from distributedlog.control.connections import Address, Connections, connected
from distributedlog.control.credentials import EXCHANGE, Credentials
from distributedlog.model.errors import ClusterAuthorizationError, DlogError
from distributedlog.ports.randomness import Randomness
from distributedlog.ports.transport import Receive

RAFT_MESSAGE_BYTES_MAX: Final = 15 * 1024 * 1024
QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
STREAM_LIFE_S: Final = 600.0
STREAM_DEADLINE_S: Final = 660.0
CLOSE_TIMEOUT_S: Final = 1.0
PAUSE_MS: Final = (20, 200)
PAUSE_REFUSED_MS: Final = (500, 1_500)

_REFUSALS: Final = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)
_BROKEN: Final = (AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError)
_log = logging.getLogger(__name__)


class GrpcTransport:
    """Call everything on the control loop, `send` and `on_receive` included."""

    def __init__(
        self,
        credentials: Credentials,
        peers: Mapping[int, Address],
        *,
        randomness: Randomness,
        stream_life_s: float = STREAM_LIFE_S,
    ) -> None:
        self.identity = credentials.identity
        self._connections = Connections(credentials, peers)
        self._randomness = randomness
        self._stream_life_s = stream_life_s
        self._receive: Receive | None = None
        self._outbound: dict[int, _Outbound] = {}
        self._warned: set[tuple[int, str]] = set()
        self._closed = False

    @property
    def peers(self) -> dict[int, Address]:
        """Where the others are; may be changed at any time."""
        return self._connections.peers

    def on_receive(self, receive: Receive) -> None:
        self._receive = receive

    def deliver(self, sender: int, message: bytes) -> None:
        """A message came in on a stream that the control server took."""
        if self._receive is not None and not self._closed:
            self._receive(sender, message)

    def send(self, node_id: int, message: bytes) -> None:
        if self._closed or node_id not in self.peers:
            return
        if len(message) > RAFT_MESSAGE_BYTES_MAX:
            self._warn_once(
                node_id, f"a message of {len(message)} bytes is over the {RAFT_MESSAGE_BYTES_MAX} allowed"
            )
            return
        outbound = self._outbound.get(node_id)
        if outbound is None:
            outbound = self._outbound[node_id] = _Outbound()
            outbound.task = asyncio.get_running_loop().create_task(self._deliver_all(node_id, outbound))
        outbound.add(message)

    def close(self) -> None:
        """Nothing is sent or received from here on."""
        self._closed = True
        for outbound in self._outbound.values():
            if outbound.task is not None:
                outbound.task.cancel()

    async def closed(self) -> None:
        """Waits until everything that `close` ended has ended."""
        tasks = [outbound.task for outbound in self._outbound.values() if outbound.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connections.close()

    # --- one peer ------------------------------------------------------------------------------

    async def _deliver_all(self, node_id: int, outbound: "_Outbound") -> None:
        while not self._closed:
            await outbound.wait()
            channel = self._connections.channel(node_id)
            pause_ms: tuple[int, int] | None = PAUSE_MS
            try:
                if channel is not None and await connected(channel):
                    pause_ms = await self._stream(node_id, outbound, channel)
            except DlogError as refused:  # no session, and nothing was sent
                pause_ms = PAUSE_MS
                if isinstance(refused, ClusterAuthorizationError):
                    pause_ms = PAUSE_REFUSED_MS
                    self._warn_once(node_id, str(refused))
            except Exception:  # whatever it is, this peer must be tried again
                _log.exception("sending to node %d failed", node_id)
            if pause_ms is not None:
                await asyncio.sleep(self._randomness.between(*pause_ms) / 1000)
                outbound.clear()

    async def _stream(self, node_id: int, outbound: "_Outbound", channel: Channel) -> tuple[int, int] | None:
        """Sends until the stream ends; how long to pause then, None: not at all."""
        from distributedlog.control._generated.raft_pb2 import RaftFrame  # a node alone has no peers
        from distributedlog.control.conversion.envelope import header

        exchange: StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(
            EXCHANGE, request_serializer=None, response_deserializer=None
        )
        session = await self._connections.session(node_id, channel)
        call = exchange(timeout=STREAM_DEADLINE_S, metadata=session.metadata(EXCHANGE))
        try:
            hello = RaftFrame(hello=header(self.identity, node_id))
            await call.write(hello.SerializeToString())
            sent = await self._send_all(outbound, call, lambda: self._connections.channel(node_id) is channel)
            if not call.done():
                await call.done_writing()
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await call
                return None
            return await self._pause_after(node_id, channel, call, sent)
        except _BROKEN:
            return await self._pause_after(node_id, channel, call, 0) if call.done() else PAUSE_MS
        except TimeoutError:
            return None
        finally:
            call.cancel()

    async def _pause_after(
        self, node_id: int, channel: Channel, call: Any, sent: int
    ) -> tuple[int, int] | None:
        """A stream was ended by the other side."""
        code = await call.code()
        if code not in _REFUSALS:
            self._connections.forget_session(channel)  # the next connection needs another
            return None if sent else PAUSE_MS
        self._warn_once(node_id, await call.details())
        return PAUSE_REFUSED_MS

    async def _send_all(self, outbound: "_Outbound", call: Any, current: Callable[[], bool]) -> int:
        """Sends until the stream is broken, grew old, or leads to where the peer is no more; returns how many
        were sent."""
        from distributedlog.control._generated.raft_pb2 import RaftFrame

        end = asyncio.get_running_loop().time() + self._stream_life_s
        sent = 0
        while True:
            try:
                async with asyncio.timeout_at(end):
                    await outbound.wait()
            except TimeoutError:
                return sent
            if call.done() or not current():
                return sent
            await call.write(RaftFrame(message=outbound.take()).SerializeToString())
            sent += 1

    def _warn_once(self, node_id: int, reason: str) -> None:
        """Logs a warning once for each node and reason, for as long as this process lives."""
        warning = (node_id, reason[:300])
        if warning not in self._warned and len(self._warned) < 1_000:
            self._warned.add(warning)
            _log.warning("node %d does not take our messages: %s", *warning)


class _Outbound:
    """What waits for one peer, bounded in bytes."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()

    def add(self, message: bytes) -> None:
        self._messages.append(message)
        self._bytes += len(message)
        while self._bytes > QUEUE_BYTES_MAX:
            self._bytes -= len(self._messages.popleft())
        self._filled.set()

    async def wait(self) -> None:
        """Waits until there is something to take."""
        while not self._messages:
            self._filled.clear()
            await self._filled.wait()

    def take(self) -> bytes:
        message = self._messages.popleft()
        self._bytes -= len(message)
        return message

    def clear(self) -> None:
        self._messages.clear()
        self._bytes = 0
