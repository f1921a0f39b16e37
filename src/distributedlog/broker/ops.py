"""The operations listener: a few answers by HTTP/1.1, for Prometheus, load balancers and people.

    GET /metrics        200  Prometheus' text
    GET /health/live    200  the data loop runs (that there is an answer is the answer)
    GET /health/ready   200  the node serves;  503 and why it does not
    another path        404
    another method      405
    not HTTP            400

One request a connection, then it is closed.  Everything a peer can make us hold is bounded: connections, the
bytes and the time of a request's head, and the time that sending the answer takes.  A body is not read.  When
there are too many connections, the one whose head is awaited longest makes way for the next: who talks slowly
on all of them keeps no load balancer from learning that the node is well.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

from distributedlog.broker.addresses import Endpoint
from distributedlog.broker.metrics import BrokerMetrics, Family

HEAD_BYTES_MAX: Final = 8 * 1024
CONNECTIONS_MAX: Final = 64
REQUEST_SECONDS_MAX: Final = 5.0
ANSWER_SECONDS_MAX: Final = 10.0
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


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = PLAIN


class OpsServer:
    """Runs on the data loop."""

    def __init__(
        self,
        metrics: BrokerMetrics,
        readiness: Readiness,
        *,
        connections_max: int = CONNECTIONS_MAX,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> None:
        self._metrics = metrics
        self._readiness = readiness
        self._connections_max = connections_max
        self._request_seconds_max = request_seconds_max
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: dict[asyncio.Task[None], None] = {}
        """Those that await a request's head, the oldest first."""

    async def start(self, endpoint: Endpoint) -> Endpoint:
        """Listens; where, in fact."""
        self._server = await asyncio.start_server(
            self._accept, endpoint.host, endpoint.port, limit=HEAD_BYTES_MAX, backlog=CONNECTIONS_MAX
        )
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
        if len(self._tasks) >= self._connections_max:
            slowest = next(iter(self._listening), None)
            if slowest is None:
                writer.transport.abort()
                return
            self._listening.pop(slowest)
            slowest.cancel()
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        self._listening[task] = None
        task.add_done_callback(self._ended)
        # One that is cancelled before its first step cannot see to it itself.
        task.add_done_callback(lambda _: writer.transport.abort())

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._listening.pop(task, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer_to(reader)
            if answer is not None:
                writer.write(encode_answer(answer))
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    await writer.drain()
                    writer.write_eof()
                async with asyncio.timeout(LINGER_SECONDS_MAX):
                    await _read_away(reader)
        except (OSError, TimeoutError):
            pass  # the peer left, or does not read: there is nobody to tell
        finally:
            writer.transport.abort()

    async def _answer_to(self, reader: asyncio.StreamReader) -> Answer | None:
        """None if the peer left before it had asked for anything."""
        try:
            async with asyncio.timeout(self._request_seconds_max):
                head = await reader.readuntil(b"\r\n\r\n")
            self._listening.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)
        except TimeoutError:
            return Answer(408, b"the request took too long\n")
        except asyncio.IncompleteReadError as broken:
            return Answer(400, b"this is not an HTTP request\n") if broken.partial else None
        except asyncio.LimitOverrunError:
            return Answer(400, b"the request's head is too long\n")
        method, path = parse_head(head)
        if method is None:
            return Answer(400, b"this is not an HTTP request\n")
        if path not in ("/metrics", "/health/live", "/health/ready"):
            return Answer(404, b"there are /metrics, /health/live and /health/ready\n")
        if method != "GET":
            return Answer(405, b"only GET\n")
        try:
            return await self._get(path)
        except Exception:
            logger.exception("%s could not be answered", path)
            return Answer(500, b"an error; the node's log has it\n")

    async def _get(self, path: str) -> Answer:
        if path == "/health/live":
            return Answer(200, b"live\n")
        if path == "/health/ready":
            reason = self._readiness()
            body = json.dumps({"ready": reason is None, "reason": reason}) + "\n"
            return Answer(200 if reason is None else 503, body.encode("utf-8"), "application/json")
        families = self._metrics.families()
        return await asyncio.get_running_loop().run_in_executor(None, _render, families)


async def _read_away(reader: asyncio.StreamReader) -> None:
    """Until the peer has closed: were something unread when we do, it might lose our answer to a reset."""
    left = LINGER_BYTES_MAX
    while left > 0 and (data := await reader.read(HEAD_BYTES_MAX)):
        left -= len(data)


def _render(families: Sequence[Family]) -> Answer:
    from distributedlog.broker.metrics_export import CONTENT_TYPE, render  # slow to import: by who needs it

    return Answer(200, render(families), CONTENT_TYPE)


def parse_head(head: bytes) -> tuple[str | None, str]:
    """Method and path of a request; no method if it is none.  What follows a question mark is dropped."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return None, ""
    method, target = words[0], words[1]
    if not method.isalpha() or not method.isupper() or not target.startswith(b"/"):
        return None, ""
    with contextlib.suppress(UnicodeDecodeError):
        return method.decode("ascii"), target.split(b"?", 1)[0].decode("ascii")
    return None, ""


def encode_answer(answer: Answer) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status} {REASONS[answer.status]}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if answer.status == 405:
        lines.append("Allow: GET")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + answer.body
