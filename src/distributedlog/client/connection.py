"""One connection to one broker, on an asyncio loop.

    connecting --(TCP)--> greeting --(ApiVersions)--> open --(close, loss, timeout, nonsense)--> closed

**Greeting.**  ApiVersions goes out in the newest form both may know (3).  A broker that does not have it
answers UNSUPPORTED_VERSION with a body of version 0, in which it may say what it does have: that, or else
version 0, is asked for next.  From then on a request travels in the highest version that both sides have.

**Requests are pipelined.**  `submit` writes at once and in order, and gives a future; a broker answers in
order too: one with another correlation id than the oldest open request means that the stream is broken.
A request that was cancelled still has its place in that order; its response is dropped when it comes.

**Nothing waits for ever.**  Each request has its timeout.  The first one that passes closes the connection,
as what stands behind it in the order could not be answered either: that request fails with
`RequestTimedOutError`, the others with `ConnectionLostError`.  What had been sent may or may not be done.

**Sizes.**  A frame that claims more than `frame_bytes_max` closes the connection before memory is taken; at
most `IN_FLIGHT_MAX` requests are open at once.  Payloads of responses are views of the frame they came in.
"""

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast

from distributedlog._version import __version__
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    DlogError,
    MalformedMessageError,
    OverloadedError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from distributedlog.protocol.api_keys import SOFTWARE_NAME, ApiKey
from distributedlog.protocol.framing import (
    FRAME_BYTES_MAX,
    FrameReader,
    decode_correlation_id,
    decode_response,
    encode_request,
)
from distributedlog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from distributedlog.protocol.schema import Message, VersionRange

M = TypeVar("M", bound=Message)

GREETING_VERSION: Final = 3
IN_FLIGHT_MAX: Final = 1000
UNSENT_BYTES_HIGH: Final = 4 * 1024 * 1024
_ERROR_CODE_AT: Final = 4
"""The place behind the correlation id: an ApiVersions response begins with its error code in every
version."""


class _Open(NamedTuple):
    """A request without its response yet."""

    correlation_id: int
    response: type[Message]
    version: int
    future: "asyncio.Future[Any]"
    timer: asyncio.TimerHandle
    sent_s: float


class Connection:
    """Made by `connect`.  Everything is called on the loop it was made on."""

    def __init__(self, wire: "_Wire", label: str, client_id: str) -> None:
        self.label = label
        """The broker's address, for messages."""
        self.versions: Mapping[int, VersionRange] = MappingProxyType({})
        """What the broker speaks, by api key."""
        self.features: Mapping[str, int] = MappingProxyType({})
        """The levels of the cluster's features, as this broker knows them."""
        self._wire = wire
        self._client_id = client_id

    @property
    def is_closed(self) -> bool:
        return self._wire.failure is not None

    @property
    def in_flight(self) -> int:
        return len(self._wire.open)

    @property
    def silent_s(self) -> float:
        """How long the oldest open request is without its response."""
        waiting = self._wire.open
        return asyncio.get_running_loop().time() - waiting[0].sent_s if waiting else 0.0

    def version_for(self, request: type[Message], at_most: int | None = None) -> int:
        """The highest version that we and the broker have.  Raises `UnsupportedVersionError` if none is."""
        first, last = request.versions
        theirs = self.versions.get(request.api_key)
        if theirs is None:
            name = ApiKey(request.api_key).name
            raise UnsupportedVersionError(f"the broker at {self.label} does not serve {name}")
        version = min(last, theirs[1], last if at_most is None else at_most)
        if version < max(first, theirs[0]):
            name = ApiKey(request.api_key).name
            raise UnsupportedVersionError(
                f"the broker at {self.label} serves {name} in versions {theirs[0]} to {theirs[1]}, "
                f"and this client has {first} to {last if at_most is None else min(last, at_most)}"
            )
        return version

    def serves(self, request: type[Message]) -> bool:
        try:
            self.version_for(request)
        except UnsupportedVersionError:
            return False
        return True

    def submit(
        self, request: Message, response: type[M], *, timeout_ms: int, version: int | None = None
    ) -> "asyncio.Future[M]":
        """Sends at once; the future gets the response, or the reason why there is none."""
        assert response.api_key == request.api_key
        if version is None:
            version = self.version_for(type(request))
        return self._wire.request(request, response, version, self._client_id, timeout_ms)

    async def call(
        self, request: Message, response: type[M], *, timeout_ms: int, version: int | None = None
    ) -> M:
        return await self.submit(request, response, timeout_ms=timeout_ms, version=version)

    def send(self, request: Message, *, version: int | None = None) -> None:
        """Sends what gets no response: a Produce with acks 0."""
        if version is None:
            version = self.version_for(type(request))
        self._wire.send(request, version, self._client_id)

    async def drain(self) -> None:
        """Waits until what was sent has mostly left: for those who send much."""
        await self._wire.drain()

    def close(self) -> None:
        """Closes at once; open requests fail with `ConnectionLostError`."""
        self._wire.fail(ConnectionLostError(f"the connection to {self.label} was closed"))

    async def wait_closed(self) -> None:
        await asyncio.shield(self._wire.closed)

    async def greet(self, timeout_ms: int) -> None:
        """Learns what the broker speaks."""
        version = GREETING_VERSION
        response = await self._ask_versions(version, timeout_ms)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = [each.max_version for each in response.api_keys if each.api_key == ApiKey.API_VERSIONS]
            version = min(max(offered, default=0), GREETING_VERSION - 1)
            response = await self._ask_versions(max(version, 0), timeout_ms)
        if response.error_code != ErrorCode.NONE:
            raise BrokerUnreachableError(
                f"the broker at {self.label} does not say what it speaks (error {response.error_code})"
            )
        ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self.versions = MappingProxyType(ranges)
        levels = {each.name: each.max_version_level for each in response.finalized_features}
        self.features = MappingProxyType(levels)

    async def _ask_versions(self, version: int, timeout_ms: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        return await self.call(request, ApiVersionsResponse, timeout_ms=timeout_ms, version=version)


async def connect(
    host: str,
    port: int,
    *,
    client_id: str = "dlog",
    timeout_ms: int = 10_000,
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> Connection:
    """A connection that has learnt what the broker speaks.

    Raises `BrokerUnreachableError`: nobody listens, nobody answers in time, or it is not Kafka's protocol.
    """
    label = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    loop = asyncio.get_running_loop()
    wire: _Wire | None = None
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, wire = await loop.create_connection(
                lambda: _Wire(label, frame_bytes_max), host, port, happy_eyeballs_delay=_race_delay_s(host)
            )
            connection = Connection(wire, label, client_id)
            await connection.greet(timeout_ms)
            return connection
    except (TimeoutError, RequestTimedOutError) as error:
        doing = "connect" if wire is None else "say what it speaks"
        reason: Exception = BrokerUnreachableError(f"{label} did not {doing} within {timeout_ms} ms")
        raise _abandoned(wire, reason) from error
    except OSError as error:
        reason = BrokerUnreachableError(f"{label} cannot be reached: {_spelled(error)}")
        raise _abandoned(wire, reason) from error
    except UnicodeError as error:  # of a label that is empty, or too long
        reason = BrokerUnreachableError(f"{label} cannot be reached: no host can have such a name")
        raise _abandoned(wire, reason) from error
    except (ConnectionLostError, MalformedMessageError) as error:
        reason = BrokerUnreachableError(f"what listens at {label} does not answer as a Kafka broker: {error}")
        raise _abandoned(wire, reason) from error
    except BaseException as error:
        _abandoned(wire, error)
        raise


def _race_delay_s(host: str) -> float | None:
    """A name may stand for several addresses, of which the first to answer is taken; an address is one.
    (Whoever gives up such a race leaves sockets open in some versions of Python.)"""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host.partition("%")[0])
            return None
    return 0.25


def _abandoned(wire: "_Wire | None", reason: BaseException) -> BaseException:
    if wire is not None:
        wire.fail(ConnectionLostError(f"the connection to {wire.label} was given up"))
    return reason


def _spelled(error: OSError) -> str:
    """Returns the system's own words: asyncio has them in a longer way."""
    return (
        os.strerror(error.errno)
        if error.errno is not None and error.errno > 0
        else error.strerror or str(error)
    )


class _Wire(asyncio.BufferedProtocol):
    """Frames in and out, and which answer belongs to which request."""

    def __init__(self, label: str, frame_bytes_max: int) -> None:
        self.label = label
        self.open: deque[_Open] = deque()
        self.failure: DlogError | None = None
        """Why the connection is closed; None while it is open."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = FrameReader(frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._next_id = 0
        self._muted_until_s = 0.0
        """The broker reads nothing from us before this: we have used more than our quota."""
        self._resumed: asyncio.Future[None] | None = None

    # --- out -----------------------------------------------------------------------------------

    def request(
        self, request: Message, response: type[M], version: int, client_id: str, timeout_ms: int
    ) -> "asyncio.Future[M]":
        if len(self.open) >= IN_FLIGHT_MAX:
            raise OverloadedError(f"{IN_FLIGHT_MAX} requests to {self.label} are without answer yet")
        correlation_id = self.send(request, version, client_id)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[M] = loop.create_future()
        timer = loop.call_later(timeout_ms / 1000, self._time_out, future, request, timeout_ms)
        self.open.append(_Open(correlation_id, response, version, future, timer, loop.time()))
        return future

    def send(self, request: Message, version: int, client_id: str) -> int:
        if self.failure is not None or self._transport is None:
            raise ConnectionLostError(f"there is no connection to {self.label} any more")
        correlation_id = self._next_id
        parts = encode_request(request, version, correlation_id, client_id)
        self._next_id = (correlation_id + 1) & 0x7FFF_FFFF
        self._transport.writelines(cast(list[bytes], parts))
        return correlation_id

    async def drain(self) -> None:
        if self._resumed is not None:
            await asyncio.shield(self._resumed)
        if self.failure is not None:
            raise self.failure

    def _time_out(self, future: "asyncio.Future[Any]", request: Message, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        muted_s = self._muted_until_s - loop.time()
        if muted_s > 0:  # it has not been looked at yet, and that is no fault of the broker's
            loop.call_later(muted_s + timeout_ms / 1000, self._time_out, future, request, timeout_ms)
            return
        if all(each.future is not future for each in self.open):
            return  # it was answered after such a delay
        name = ApiKey(request.api_key).name
        late = RequestTimedOutError(f"{self.label} did not answer {name} within {timeout_ms} ms")
        if not future.done():
            future.set_exception(late)
        self.fail(ConnectionLostError(f"the connection to {self.label} was given up: {late}"))

    def fail(self, reason: DlogError) -> None:
        """Closes; whoever waits is told the reason."""
        if self.failure is not None:
            return
        self.failure = reason
        if self._transport is not None:
            self._transport.abort()
        self._release_writers()
        while self.open:
            waiting = self.open.popleft()
            waiting.timer.cancel()
            if not waiting.future.done():
                waiting.future.set_exception(reason)

    # --- in ------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.buffer_updated(nbytes):
                self._answer(frame)
            if self._reader.failure is not None:
                raise self._reader.failure
        except MalformedMessageError as error:
            self.fail(error)

    def _answer(self, frame: bytearray) -> None:
        if self.failure is not None:
            return
        correlation_id = decode_correlation_id(frame)
        if not self.open or self.open[0].correlation_id != correlation_id:
            raise MalformedMessageError(f"{self.label} answered what was not asked ({correlation_id})")
        waiting = self.open.popleft()
        waiting.timer.cancel()
        try:
            response = (
                _denied_greeting(waiting, frame)
                or decode_response(waiting.response, waiting.version, frame)[1]
            )
        except MalformedMessageError as error:
            if not waiting.future.done():
                waiting.future.set_exception(error)
            raise
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            until_s = asyncio.get_running_loop().time() + throttle_ms / 1000
            self._muted_until_s = max(self._muted_until_s, until_s)
        if not waiting.future.done():
            waiting.future.set_result(response)

    # --- the transport -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        if self.failure is not None:
            self._transport.abort()

    def eof_received(self) -> bool:
        self.fail(ConnectionLostError(f"{self.label} closed the connection"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        why = f": {exc}" if exc is not None else ""
        self.fail(ConnectionLostError(f"the connection to {self.label} was lost{why}"))
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._resumed = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        self._release_writers()

    def _release_writers(self) -> None:
        resumed, self._resumed = self._resumed, None
        if resumed is not None and not resumed.done():
            resumed.set_result(None)


def _denied_greeting(waiting: _Open, frame: bytearray) -> ApiVersionsResponse | None:
    """A broker that lacks the version of an ApiVersions request answers in version 0, or nearly so."""
    if waiting.response is not ApiVersionsResponse:
        return None
    code = int.from_bytes(frame[_ERROR_CODE_AT : _ERROR_CODE_AT + 2], "big", signed=True)
    if code != ErrorCode.UNSUPPORTED_VERSION:
        return None
    try:
        return decode_response(ApiVersionsResponse, 0, frame)[1]
    except MalformedMessageError:  # some put the rest in the form of the version that they do not have
        return ApiVersionsResponse(error_code=code, api_keys=[])
