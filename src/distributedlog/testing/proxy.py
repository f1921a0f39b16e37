"""A network that can fail, between a test's clients and its brokers: a proxy in a thread of this process.

Each broker has a link: a port that clients are told, and one behind it at which the broker listens for them.
Brokers reach each other beside it.

| fault        | what clients see                                                                          |
|--------------|-------------------------------------------------------------------------------------------|
| `cut`        | silence: bytes are held back both ways, connections stay open, new ones answer nothing    |
| `mend`       | what was held back goes on, as if it had been sent again                                  |
| `delay`      | every byte comes so much later, both ways; 0: at once again                               |
| `disconnect` | all connections break in the middle of whatever they carry                                |

Where nobody listens behind a link, nobody listens at it either, so that a broker that is dead refuses
connections here, too.  A link's ports are bound for as long as it lives, and given to nobody else.

A direction of a connection holds at most `CHUNKS_HELD_MAX` chunks; then the sender has to wait.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final

from distributedlog.client.faces.loop_thread import LoopThread

LOOPBACK: Final = "127.0.0.1"
CHUNK_BYTES_MAX: Final = 64 * 1024
CHUNKS_HELD_MAX: Final = 64
PROBE_S: Final = 0.05
NO_LINGERING: Final = struct.pack("ii", 1, 0)

_Held = asyncio.Queue[tuple[float, bytes]]


class Link:
    """The way of all clients to one broker.  Used on the proxy's loop, but for the ports."""

    def __init__(self) -> None:
        self._reserved = [_reserve(), _reserve()]
        self.port, self.target_port = (int(each.getsockname()[1]) for each in self._reserved)
        self.delay_s = 0.0
        self.is_whole = asyncio.Event()
        self.is_whole.set()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self._probing: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, LOOPBACK, self.port, limit=CHUNK_BYTES_MAX, start_serving=True
        )

    async def close(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
        if self._server is not None:
            self._server.close()
        self.disconnect()
        tasks = list(self._serving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self._reserved:
            each.close()

    def disconnect(self) -> None:
        for writer in self._open:
            with contextlib.suppress(OSError):  # its other end is told, and not that this was the end
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._open.add(writer)
        try:
            await self.is_whole.wait()
            await self._join(reader, writer)
        except asyncio.CancelledError:
            return  # by `close`; asyncio's streams would take it for a failure
        finally:
            self._open.discard(writer)
            self._serving.discard(task)
            writer.transport.abort()
            if self._probing is None or self._probing.done():
                self._probing = asyncio.create_task(self._probe())

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            beyond = await asyncio.open_connection(LOOPBACK, self.target_port, limit=CHUNK_BYTES_MAX)
        except OSError:
            return
        self._open.add(beyond[1])
        try:
            ways = (self._pass_on(reader, beyond[1]), self._pass_on(beyond[0], writer))
            await asyncio.gather(*ways)
        finally:
            self._open.discard(beyond[1])
            beyond[1].transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes bytes on, and their end, in time and while the link is whole."""
        held: _Held = asyncio.Queue(CHUNKS_HELD_MAX)
        reading = asyncio.create_task(self._take(reader, held))
        clock = asyncio.get_running_loop().time
        try:
            while True:
                due_s, chunk = await held.get()
                if due_s > clock():
                    await asyncio.sleep(due_s - clock())
                await self.is_whole.wait()
                if not chunk:
                    writer.close()
                    return
                writer.write(chunk)
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
        finally:
            reading.cancel()

    async def _take(self, reader: asyncio.StreamReader, held: _Held) -> None:
        clock, chunk = asyncio.get_running_loop().time, b"?"
        while chunk:
            try:
                chunk = await reader.read(CHUNK_BYTES_MAX)
            except ConnectionError:
                chunk = b""
            await held.put((clock() + self.delay_s, chunk))

    async def _probe(self) -> None:
        """Listens only while somebody does behind the link."""
        while True:
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, self.target_port)
            except OSError:
                if self._server is not None:
                    self._server.close()
                    self._server = None
                await asyncio.sleep(PROBE_S)
            else:
                writer.transport.abort()
                break
        if self._server is None:
            await self.listen()


def _reserve() -> socket.socket:
    """A port of its own: bound and not listened at, so that only who asks for it by its number gets it."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.bind((LOOPBACK, 0))
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return bound


class Proxy:
    """The links to the brokers 1 to `brokers`."""

    def __init__(self, brokers: int) -> None:
        self._thread = LoopThread("dlog-test-proxy")
        self._links: Sequence[Link] = self._thread.run(_make(brokers))

    @property
    def ports(self) -> list[tuple[int, int]]:
        """The port that clients are told, and the one at which the broker listens, of each."""
        return [(each.port, each.target_port) for each in self._links]

    def cut(self, node_id: int) -> None:
        self._thread.run(_call(self._links[node_id - 1].is_whole.clear))

    def mend(self, node_id: int) -> None:
        self._thread.run(_call(self._links[node_id - 1].is_whole.set))

    def delay(self, node_id: int, milliseconds: int) -> None:
        self._links[node_id - 1].delay_s = milliseconds / 1000

    def disconnect(self, node_id: int) -> None:
        self._thread.run(_call(self._links[node_id - 1].disconnect))

    def close(self) -> None:
        self._thread.run(_close(self._links))
        self._thread.stop()


async def _make(brokers: int) -> list[Link]:
    links = [Link() for _ in range(brokers)]
    for each in links:
        await each.listen()
    return links


async def _call(what: Any) -> None:
    what()


async def _close(links: Sequence[Link]) -> None:
    for each in links:
        await each.close()
