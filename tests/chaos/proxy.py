"""The network between brokers: a process through which every connection from one broker to another goes.

    python -m tests.chaos.proxy SOURCE,TARGET,LISTEN_PORT,TARGET_PORT …

Commands come on stdin, one to a line; each is answered by a line on stdout when it holds.

    cut A B           bytes from A to B are held back, whoever opened the connection; B to A they still go
    flap A B SECONDS  the same, but for every other so many seconds
    join A B          what was held back goes on, as if it had been sent again

Where either way is cut no connection is opened: it seems to be, and stays silent.  The end of a connection is
held back as its bytes are.  Where nobody listens behind a port, nobody listens at it either, so that a broker
that is dead refuses connections here too; that is seen by trying, when a connection has ended or was refused.
"""

import asyncio
import contextlib
import os
import sys
from typing import NamedTuple

CHUNK_BYTES_MAX = 256 * 1024
PROBE_SECONDS = 0.1
Way = tuple[int, int]


class Gates:
    """From whom to whom bytes go."""

    def __init__(self) -> None:
        self._gates: dict[Way, asyncio.Event] = {}
        self._flapping: dict[Way, asyncio.Task[None]] = {}

    def __getitem__(self, way: Way) -> asyncio.Event:
        if way not in self._gates:
            self._gates[way] = asyncio.Event()
            self._gates[way].set()
        return self._gates[way]

    def obey(self, command: str, way: Way, seconds: float = 0.0) -> None:
        if flapping := self._flapping.pop(way, None):
            flapping.cancel()
        if command == "join":
            self[way].set()
            return
        self[way].clear()
        if command == "flap":
            self._flapping[way] = asyncio.create_task(self._flap(way, seconds))

    async def _flap(self, way: Way, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            self[way].set()
            await asyncio.sleep(seconds)
            self[way].clear()


class Ends(NamedTuple):
    source: int
    target: int
    listen_port: int
    target_port: int


class Link:
    """All connections that one broker opens to one port of another."""

    def __init__(self, ends: Ends, gates: Gates) -> None:
        self._ends = ends
        self._there, self._back = gates[ends.source, ends.target], gates[ends.target, ends.source]
        self._server: asyncio.Server | None = None
        self._probing = False

    async def listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(
                self._serve, "127.0.0.1", self._ends.listen_port, limit=CHUNK_BYTES_MAX
            )

    def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._there.wait()
        await self._back.wait()
        try:
            beyond = await asyncio.open_connection("127.0.0.1", self._ends.target_port, limit=CHUNK_BYTES_MAX)
        except OSError:
            writer.close()
        else:
            await asyncio.gather(pump(reader, beyond[1], self._there), pump(beyond[0], writer, self._back))
        await self._probe()

    async def _probe(self) -> None:
        """Listens only while somebody does behind it, or while nobody could tell."""
        if self._probing:
            return
        self._probing = True
        while self._there.is_set() and self._back.is_set():
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._ends.target_port)
            except OSError:
                self._refuse()
                await asyncio.sleep(PROBE_SECONDS)
            else:
                writer.close()
                break
        self._probing = False
        await self.listen()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    """Passes bytes on, and their end, while the gate is open."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES_MAX):
            await gate.wait()
            writer.write(data)
            await writer.drain()
    await gate.wait()
    writer.close()


async def main() -> None:
    gates = Gates()
    links = [Link(Ends(*map(int, text.split(","))), gates) for text in sys.argv[1:]]
    for link in links:
        await link.listen()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command, source, target, *seconds = line.split()
        gates.obey(command, (int(source), int(target)), *map(float, seconds))
        print("done", flush=True)
    os._exit(0)  # whoever started it is gone, and nobody waits for what is under way


if __name__ == "__main__":
    asyncio.run(main())
