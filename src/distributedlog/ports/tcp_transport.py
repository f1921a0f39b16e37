"""The transport port over TCP, on an asyncio loop.

Each node dials every peer it has something for and only sends there; what it receives comes over
connections that others dialled.

    hello    "DLT1" | sender's node id i32
    message  length u32 | bytes

A message to a peer that cannot be reached is dropped, as the port allows; the next one tries again once the
pause is over.  Messages to a peer that reads slowly wait in a queue of bounded bytes, the oldest dropped
first: whoever needs an answer asks again anyway.  There is no authentication here, so it is for loopback and
private networks.
"""

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import Mapping

from distributedlog.ports.randomness import Randomness
from distributedlog.ports.transport import Receive

MAGIC = b"DLT1"
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
QUEUE_BYTES_MAX = 64 * 1024 * 1024
CONNECT_TIMEOUT_SECONDS = 2.0
PAUSE_MS = (20, 500)

_HELLO = struct.Struct(">4si")
_LENGTH = struct.Struct(">I")

Address = tuple[str, int]


class TcpTransport:
    """Call everything on the loop's thread, `send` and `on_receive` included."""

    def __init__(self, node_id: int, peers: Mapping[int, Address], randomness: Randomness) -> None:
        self.peers = dict(peers)
        """Where the others are; may be changed at any time."""
        self._node_id = node_id
        self._randomness = randomness
        self._receive: Receive | None = None
        self._server: asyncio.Server | None = None
        self._outbound: dict[int, _Outbound] = {}
        self._inbound: set[asyncio.StreamWriter] = set()
        self._closed = False

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> Address:
        """Begins to receive; the address it is reached at."""
        self._server = await asyncio.start_server(self._serve, host, port)
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        return bound_host, bound_port

    def on_receive(self, receive: Receive) -> None:
        self._receive = receive

    def send(self, node_id: int, message: bytes) -> None:
        if self._closed or node_id not in self.peers:
            return
        if len(message) > MESSAGE_BYTES_MAX:
            raise ValueError(f"a message of {len(message)} bytes is over the {MESSAGE_BYTES_MAX} allowed")
        outbound = self._outbound.get(node_id)
        if outbound is None:
            outbound = self._outbound[node_id] = _Outbound()
        outbound.add(message)
        if outbound.task is None:
            outbound.task = asyncio.get_running_loop().create_task(self._deliver(node_id, outbound))

    def close(self) -> None:
        """Nothing is sent or received from here on."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        for outbound in self._outbound.values():
            if outbound.task is not None:
                outbound.task.cancel()
        for writer in self._inbound:
            writer.close()

    # --- out -----------------------------------------------------------------------------------

    async def _deliver(self, node_id: int, outbound: "_Outbound") -> None:
        """Connects, sends while there is something to send, and after a failure pauses and drops."""
        while not self._closed:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                    _, writer = await asyncio.open_connection(*self.peers[node_id])
            except (OSError, TimeoutError, KeyError):
                await asyncio.sleep(self._randomness.between(*PAUSE_MS) / 1000)
                outbound.clear()
                await outbound.wait()
                continue
            try:
                writer.write(_HELLO.pack(MAGIC, self._node_id))
                while True:
                    message = await outbound.take()
                    writer.write(_LENGTH.pack(len(message)))
                    writer.write(message)
                    await writer.drain()
            except OSError:
                continue
            finally:
                writer.close()

    # --- in ------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._inbound.add(writer)
        try:
            magic, sender = _HELLO.unpack(await reader.readexactly(_HELLO.size))
            while magic == MAGIC:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if length > MESSAGE_BYTES_MAX:
                    return
                message = await reader.readexactly(length)
                if self._closed:
                    return
                if self._receive is not None:
                    self._receive(sender, message)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self._inbound.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


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
        while not self._messages:
            self._filled.clear()
            await self._filled.wait()

    async def take(self) -> bytes:
        await self.wait()
        message = self._messages.popleft()
        self._bytes -= len(message)
        return message

    def clear(self) -> None:
        self._messages.clear()
        self._bytes = 0
