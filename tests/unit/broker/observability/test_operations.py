"""The operations listener: what it answers, and that nobody can make it hold more than a little."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

import pytest

from distributedlog.broker.observability.metrics import BrokerMetrics, FamilyKind, one
from distributedlog.broker.observability.operations import HEAD_BYTES_MAX, OperationsServer, Readiness
from distributedlog.model.errors import ConfigError
from distributedlog.settings.addresses import Endpoint

ANY_PORT = Endpoint("127.0.0.1", 0)
TIMEOUT_SECONDS = 10


class Response:
    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("ascii").split("\r\n")
        self.status = int(lines[0].split(" ")[1]) if data else 0
        self.headers = dict(line.lower().split(": ", 1) for line in lines[1:])


async def exchange(endpoint: Endpoint, request: bytes, *, end: bool = False) -> Response:
    """Sends bytes, and everything that comes back until the connection is closed."""
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        writer.write(request)
        if end:
            writer.write_eof()
        return Response(await until_closed(reader))
    finally:
        await hang_up(writer)


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """What came before the end, which may be a reset."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def serving(
    story: Callable[[Endpoint], Awaitable[None]],
    *,
    metrics: BrokerMetrics | None = None,
    readiness: Readiness = lambda: None,
    connections_max: int = 8,
    connections_per_address_max: int = 8,
    request_seconds_max: float = TIMEOUT_SECONDS,
) -> None:
    async def run() -> None:
        server = OperationsServer(
            metrics or BrokerMetrics(),
            readiness,
            connections_max=connections_max,
            connections_per_address_max=connections_per_address_max,
            request_seconds_max=request_seconds_max,
        )
        endpoint = await server.start(ANY_PORT)
        try:
            await story(endpoint)
        finally:
            await server.stop()

    asyncio.run(run())


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_metrics_are_prometheus_text() -> None:
    metrics = BrokerMetrics()
    metrics.request_received("Fetch", 4, 1)

    async def story(endpoint: Endpoint) -> None:
        answer = await exchange(endpoint, get("/metrics?name=x"))
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert int(answer.headers["content-length"]) == len(answer.body)
        assert answer.headers["connection"] == "close"
        assert b'dlog_requests_total{api="Fetch"} 1.0' in answer.body

    serving(story, metrics=metrics)


def test_health_says_whether_the_node_lives_and_whether_it_serves() -> None:
    why: list[str | None] = ["starting"]

    async def story(endpoint: Endpoint) -> None:
        assert (await exchange(endpoint, get("/health/live"))).status == 200
        not_yet = await exchange(endpoint, get("/health/ready"))
        assert not_yet.status == 503
        assert json.loads(not_yet.body) == {"ready": False, "reason": "starting"}
        why[0] = None
        ready = await exchange(endpoint, get("/health/ready"))
        assert ready.status == 200
        assert json.loads(ready.body) == {"ready": True, "reason": None}

    serving(story, readiness=lambda: why[0])


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/"), 404),
        (get("/metrics/"), 404),
        (get("/../etc/passwd"), 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"HEAD /health/live HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET /metrics HTTP/2\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"get /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01 tls \r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /" + b"x" * HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 400),
        (b"X" * (HEAD_BYTES_MAX * 4), 400),
    ],
)
def test_whatever_is_asked_there_is_one_clean_answer(request_bytes: bytes, status: int) -> None:
    async def story(endpoint: Endpoint) -> None:
        answer = await exchange(endpoint, request_bytes)
        assert answer.status == status
        if status == 405:
            assert answer.headers["allow"] == "get"
        assert (await exchange(endpoint, get("/health/live"))).status == 200

    serving(story)


def test_half_a_request_is_told_so_and_none_at_all_is_left_in_peace() -> None:
    async def story(endpoint: Endpoint) -> None:
        assert (await exchange(endpoint, b"GET /met", end=True)).status == 400
        assert (await exchange(endpoint, b"", end=True)).status == 0

    serving(story)


def test_one_who_takes_too_long_is_cut() -> None:
    async def story(endpoint: Endpoint) -> None:
        assert (await exchange(endpoint, b"GET /metrics HT")).status == 408

    serving(story, request_seconds_max=0.01)


def test_no_more_connections_are_held_than_allowed_and_the_slowest_makes_way() -> None:
    async def story(endpoint: Endpoint) -> None:
        held = [await asyncio.open_connection(endpoint.host, endpoint.port) for _ in range(2)]
        try:
            assert (await exchange(endpoint, get("/health/live"))).status == 200
            assert await until_closed(held[0][0]) == b"", "the oldest of those that have not asked"
            held[1][1].write(get("/health/live"))
            assert (await until_closed(held[1][0])).startswith(b"HTTP/1.1 200")
        finally:
            for _, writer in held:
                await hang_up(writer)

    serving(story, connections_max=2)


class Lingerers:
    """Connections that stay, each in its own way; a context manager."""

    def __init__(self, endpoint: Endpoint, address: str = "127.0.0.1") -> None:
        self._endpoint = endpoint
        self._address = address
        self.held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def add(self, sent: bytes, count: int, *, takes: bool = False) -> None:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(
                self._endpoint.host, self._endpoint.port, local_addr=(self._address, 0), limit=1024
            )
            writer.write(sent)
            self.held.append((reader, writer))
            if takes:
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")

    async def __aenter__(self) -> "Lingerers":
        return self

    async def __aexit__(self, *_: object) -> None:
        for held in self.held:
            await hang_up(held[1])


def much() -> BrokerMetrics:
    """Metrics that no socket takes at once."""
    metrics = BrokerMetrics()
    families = [one(FamilyKind.GAUGE, f"dlog_{number}", "x" * 10_000, number) for number in range(2_000)]
    metrics.add_source(lambda: families)
    return metrics


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"], ids=["the same address", "another address"])
@pytest.mark.parametrize(
    ("sent", "takes"),
    [
        (b"", False),
        (b"GET /health/live HT", False),
        (get("/health/live"), True),
        (get("/metrics"), False),
    ],
    ids=["ask nothing", "ask slowly", "have their response and stay", "do not take it"],
)
def test_whoever_lingers_others_are_answered(sent: bytes, takes: bool, address: str) -> None:
    async def story(endpoint: Endpoint) -> None:
        async with Lingerers(endpoint, address) as lingerers:
            await lingerers.add(sent, 8, takes=takes)
            for _ in range(5):
                assert (await exchange(endpoint, get("/health/live"))).status == 200
                await lingerers.add(sent, 3, takes=takes)

    serving(story, metrics=much())


def test_who_has_its_response_makes_way_before_who_asks_and_who_asks_before_who_is_answered() -> None:
    async def story(endpoint: Endpoint) -> None:
        async with Lingerers(endpoint) as lingerers:
            await lingerers.add(get("/metrics"), 1)  # it does not take it
            await lingerers.add(b"GET /health/live HT", 1)
            await lingerers.add(get("/health/live"), 1, takes=True)
            (taking, _), (asking, _), (responded, _) = lingerers.held
            await lingerers.add(b"", 1)
            assert await until_closed(responded) == b"live\n"
            await lingerers.add(b"", 1)
            assert await until_closed(asking) == b""
            assert (await taking.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")

    serving(story, connections_max=3, metrics=much())


def test_the_address_that_holds_most_makes_way() -> None:
    async def story(endpoint: Endpoint) -> None:
        async with Lingerers(endpoint) as modest, Lingerers(endpoint, "127.0.0.2") as greedy:
            await modest.add(b"GET /health/live HTTP", 2)
            await greedy.add(b"", 6)
            await greedy.add(b"", 6)
            for reader, writer in modest.held:
                writer.write(b"/1.1\r\n\r\n")
                assert (await until_closed(reader)).startswith(b"HTTP/1.1 200")

    serving(story, connections_max=8)


def test_an_address_holds_no_more_than_its_share_though_others_hold_nothing() -> None:
    async def story(endpoint: Endpoint) -> None:
        async with Lingerers(endpoint) as lingerers:
            await lingerers.add(b"", 4)
            for reader, _ in lingerers.held[:2]:
                assert await until_closed(reader) == b""

    serving(story, connections_per_address_max=2)


def test_an_error_inside_is_an_answer_and_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str | None:
        raise RuntimeError("the probe is broken")

    async def story(endpoint: Endpoint) -> None:
        assert (await exchange(endpoint, get("/health/ready"))).status == 500

    serving(story, readiness=broken)
    assert "the probe is broken" in caplog.text


def test_an_address_that_others_listen_on_is_refused_in_one_plain_line() -> None:
    async def story(endpoint: Endpoint) -> None:
        said = f"^cannot listen on {endpoint}: Address already in use; choose another address"
        with pytest.raises(ConfigError, match=said):
            await OperationsServer(BrokerMetrics(), lambda: None).start(endpoint)

    serving(story)


def test_stopping_ends_connections_that_still_wait() -> None:
    async def run() -> None:
        server = OperationsServer(BrokerMetrics(), lambda: None)
        endpoint = await server.start(ANY_PORT)
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(b"GET /metr")
        await writer.drain()
        assert (await exchange(endpoint, get("/health/live"))).status == 200
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await server.stop()
            assert await until_closed(reader) == b""
        await hang_up(writer)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(endpoint.host, endpoint.port)

    asyncio.run(run())
