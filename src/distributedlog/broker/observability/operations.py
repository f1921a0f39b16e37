"""The operations listener: a few answers by HTTP/1.1, for Prometheus, load balancers and people.

    GET /metrics        200  Prometheus' text
    GET /health/live    200  the data loop runs (that there is an answer is the answer)
    GET /health/ready   200  the node serves;  503 and why it does not
    another path        404
    another method      405
    not HTTP            400

One request a connection, then it is closed.  Everything a peer can make us hold is bounded: connections in
all and of each address, the bytes and the time of a request's head, the time that sending the response takes,
and that in which a peer that has it may close.  A body is not read.

When there are too many connections, one makes way for the next: of the address that holds most of them, first
who has its response already, then who is slow to ask, then who is slow to take the response, and of these the
oldest.  So nobody who lingers, in whatever way and on however many connections, keeps a load balancer from
learning that the node is well, and who comes from an address of its own does not even feel it.
"""

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple, Protocol

from distributedlog.broker.observability.metrics import Family
from distributedlog.model.errors import ConfigError
from distributedlog.settings.addresses import Endpoint

HEAD_BYTES_MAX: Final = 8 * 1024
CONNECTIONS_MAX: Final = 64
CONNECTIONS_PER_ADDRESS_MAX: Final = 32
BACKLOG_MAX: Final = 256
ACCEPTS_PER_TURN: Final = 8
"""Each takes about as long as a request of a client, and they wait meanwhile."""
REQUEST_SECONDS_MAX: Final = 5.0
RESPONSE_SECONDS_MAX: Final = 10.0
LINGER_SECONDS_MAX: Final = 1.0
LINGER_BYTES_MAX: Final = 64 * 1024
PLAIN: Final = "text/plain; charset=utf-8"
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

logger = logging.getLogger(__name__)

Readiness = Callable[[], str | None]
"""Why the node does not serve; None if it does."""


class HttpResponse(NamedTuple):
    status: int
    body: bytes
    content_type: str = PLAIN


class Metered(Protocol):
    """Who has numbers to tell: a node, or another process that answers Prometheus."""

    def families(self) -> Sequence[Family]: ...


class Phase(IntEnum):
    """What a connection is about, in the order in which they make way for others."""

    RESPONDED = 0
    """It has its response, and is given a moment to close."""
    ASKING = 1
    RESPONDING = 2


class Held:
    """One connection."""

    __slots__ = ("address", "phase", "task")

    def __init__(self, address: str) -> None:
        self.address = address
        self.phase = Phase.ASKING
        self.task: asyncio.Task[None] | None = None


class OperationsServer:
    """Runs on the data loop."""

    def __init__(
        self,
        metrics: Metered,
        readiness: Readiness,
        *,
        connections_max: int = CONNECTIONS_MAX,
        connections_per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> None:
        self._metrics = metrics
        self._readiness = readiness
        self._connections_max = connections_max
        self._connections_per_address_max = connections_per_address_max
        self._request_seconds_max = request_seconds_max
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: dict[Held, None] = {}
        """All connections but those that have to make way, the oldest first."""

    async def start(self, endpoint: Endpoint) -> Endpoint:
        """Listens; where, in fact.  ConfigError if it cannot."""
        try:
            self._server = await asyncio.start_server(
                self._accept, endpoint.host, endpoint.port, limit=HEAD_BYTES_MAX, backlog=ACCEPTS_PER_TURN
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {endpoint}: {_spelled(error)}; choose another address for metrics and"
                " health"
            ) from error
        for listening in self._server.sockets:
            # asyncio accepts as many in a turn of the loop as the kernel may hold back: here that is more.
            with socket.socket(fileno=os.dup(listening.fileno())) as same:
                same.listen(BACKLOG_MAX)
        bound = self._server.sockets[0].getsockname()
        return Endpoint(bound[0], bound[1])

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if server is not None:
            await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        held = Held(str(peer[0]) if peer else "")
        self._make_way(held.address)
        held.task = task = asyncio.get_running_loop().create_task(self._serve(held, reader, writer))
        self._held[held] = None
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, held))
        # One that is cancelled before its first step cannot see to it itself.
        task.add_done_callback(lambda _: writer.transport.abort())

    def _make_way(self, address: str) -> None:
        """Ends a connection if one more of this address would be too many."""
        counts = Counter(held.address for held in self._held)
        if counts[address] >= self._connections_per_address_max:
            greediest = address
        elif len(self._held) >= self._connections_max:
            greediest = max(counts, key=counts.__getitem__)
        else:
            return
        # The first of the equals is the oldest.
        slowest = min((held for held in self._held if held.address == greediest), key=lambda held: held.phase)
        del self._held[slowest]
        if slowest.task is not None:
            slowest.task.cancel()

    def _ended(self, held: Held, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._held.pop(held, None)

    async def _serve(self, held: Held, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            response = await self._response_to(held, reader)
            if response is not None:
                writer.transport.set_write_buffer_limits(0)  # to drain is to have handed on everything
                writer.write(encode_response(response))
                async with asyncio.timeout(RESPONSE_SECONDS_MAX):
                    await writer.drain()
                    writer.write_eof()
                held.phase = Phase.RESPONDED
                async with asyncio.timeout(LINGER_SECONDS_MAX):
                    await _read_away(reader)
        except (OSError, TimeoutError):
            pass  # the peer left, or does not read: there is nobody to tell
        finally:
            writer.transport.abort()

    async def _response_to(self, held: Held, reader: asyncio.StreamReader) -> HttpResponse | None:
        """Returns the response, or None if the peer left before it had asked for anything."""
        try:
            async with asyncio.timeout(self._request_seconds_max):
                head = await reader.readuntil(b"\r\n\r\n")
            held.phase = Phase.RESPONDING
        except TimeoutError:
            return HttpResponse(408, b"the request took too long\n")
        except asyncio.IncompleteReadError as broken:
            return HttpResponse(400, b"this is not an HTTP request\n") if broken.partial else None
        except asyncio.LimitOverrunError:
            return HttpResponse(400, b"the request's head is too long\n")
        method, path = parse_head(head)
        if method is None:
            return HttpResponse(400, b"this is not an HTTP request\n")
        if path not in ("/metrics", "/health/live", "/health/ready"):
            return HttpResponse(404, b"there are /metrics, /health/live and /health/ready\n")
        if method != "GET":
            return HttpResponse(405, b"only GET\n")
        try:
            return await self._get(path)
        except Exception:
            logger.exception("%s could not be answered", path)
            return HttpResponse(500, b"an error; the node's log has it\n")

    async def _get(self, path: str) -> HttpResponse:
        if path == "/health/live":
            return HttpResponse(200, b"live\n")
        if path == "/health/ready":
            reason = self._readiness()
            body = json.dumps({"ready": reason is None, "reason": reason}) + "\n"
            return HttpResponse(200 if reason is None else 503, body.encode("utf-8"), "application/json")
        families = self._metrics.families()
        return await asyncio.get_running_loop().run_in_executor(None, _render, families)


async def _read_away(reader: asyncio.StreamReader) -> None:
    """Reads until the peer has closed: were something unread when we do, it might lose our response to a
    reset."""
    left = LINGER_BYTES_MAX
    while left > 0 and (data := await reader.read(HEAD_BYTES_MAX)):
        left -= len(data)


def _render(families: Sequence[Family]) -> HttpResponse:
    from distributedlog.broker.observability.metrics_export import (  # slow to import: by who needs it
        CONTENT_TYPE,
        render,
    )

    return HttpResponse(200, render(families), CONTENT_TYPE)


def parse_head(head: bytes) -> tuple[str | None, str]:
    """Returns method and path of a request; no method if it is none.  What follows a question mark is
    dropped."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return None, ""
    method, target = words[0], words[1]
    if not method.isalpha() or not method.isupper() or not target.startswith(b"/"):
        return None, ""
    with contextlib.suppress(UnicodeDecodeError):
        return method.decode("ascii"), target.split(b"?", 1)[0].decode("ascii")
    return None, ""


def encode_response(response: HttpResponse) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {REASONS[response.status]}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if response.status == 405:
        lines.append("Allow: GET")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + response.body


def _spelled(error: OSError) -> str:
    """Returns the system's own words: asyncio has them in a longer way."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror)
