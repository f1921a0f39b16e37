"""The requests of one connection and their answers: from frames to the parts of responses, in order.

    frame -> header, body -> phase one -> a message ------------------> Outgoing
                                       -> an awaitable: Parked --------^  in the order of the requests
                                       -> None: no answer

`_unanswered` holds the requests whose answers cannot be sent yet, because they or one before them are parked.
While it is empty an answer goes straight to `Outgoing`.  Otherwise it is encoded and takes its place in it.

Bytes of unanswered requests are counted, here for the connection and in `Admission` for the broker.  A frame
above SMALL_FRAME_BYTES_MAX comes with its room reserved; others are charged only if they park: what is
answered at once was never in flight.

Where there are quotas, requests and answers are charged (`tolls`): whoever has to wait is told so in the
answer, and `muted_until_ms` tells the connection to begin nothing more before then.

What a handler does wrong costs its own request, or its connection if there is no form to say so.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.broker.admission import (
    NEVER_MS,
    SMALL_FRAME_BYTES_MAX,
    UNANSWERED_MAX,
    Admission,
    ServerLimits,
)
from distributedlog.broker.complaints import Complaints
from distributedlog.broker.context import ANONYMOUS, RequestContext
from distributedlog.broker.dispatch import CloseConnectionError, Registration, Registrations
from distributedlog.broker.outgoing import Outgoing, close_regions
from distributedlog.broker.quotas import ClientQuotas
from distributedlog.broker.server_metrics import ServerMetrics
from distributedlog.broker.services import Services
from distributedlog.model.config import INT32_MAX
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, OverloadedError, UnsupportedVersionError
from distributedlog.protocol.codec import Part, decode
from distributedlog.protocol.framing import RequestHeader, decode_request_header, encode_response
from distributedlog.protocol.schema import Message
from distributedlog.storage.files import FileRegion

if TYPE_CHECKING:
    from distributedlog.broker.tolls import Toll

logger = logging.getLogger(__name__)

ELEMENTS_MAX: Final = 50_000
"""Of all arrays of one request.  A cluster has at most 16,000 partitions; a request is handled in one go, and
nobody else is served meanwhile."""


class Desk(NamedTuple):
    """What the exchanges of all connections share."""

    services: Services
    handlers: Registrations
    limits: ServerLimits
    admission: Admission
    metrics: ServerMetrics
    complaints: Complaints
    loop: asyncio.AbstractEventLoop
    quotas: ClientQuotas


class Parked:
    """A request whose answer cannot be sent yet."""

    __slots__ = (
        "began",
        "charged",
        "context",
        "correlation_id",
        "future",
        "parts",
        "registration",
        "request",
        "throttle_ms",
    )

    def __init__(
        self, registration: Registration, context: RequestContext, correlation_id: int, began: float
    ) -> None:
        self.registration = registration
        self.context = context
        self.correlation_id = correlation_id
        self.began = began
        self.charged = 0
        self.throttle_ms = 0
        self.request: Message | None = None
        """Kept only where a refusal needs it."""
        self.future: asyncio.Future[Message | None] | None = None
        """The second phase, until it is over."""
        self.parts: list[Part] = []
        """The encoded answer, once there is one."""


class Exchange:
    __slots__ = (
        "_connection_id", "_desk", "_host", "_listener", "_on_ready", "_outgoing", "_toll", "_unanswered",
        "in_flight_bytes", "muted_until_ms", "soonest_deadline_ms",
    )  # fmt: skip

    def __init__(
        self,
        desk: Desk,
        outgoing: Outgoing,
        on_ready: Callable[[], None],
        *,
        listener: str,
        host: str,
        connection_id: int,
    ) -> None:
        self._desk = desk
        self._outgoing = outgoing
        self._on_ready = on_ready
        self._listener = listener
        self._host = host
        self._connection_id = connection_id
        self._unanswered: deque[Parked] = deque()
        self._toll: Toll | None = None
        self.muted_until_ms = 0
        """Before this nothing more is begun: the client has used more than it may."""
        self.in_flight_bytes = 0
        self.soonest_deadline_ms = NEVER_MS
        """No request is past its deadline before this."""

    def __len__(self) -> int:
        """How many requests are unanswered."""
        return len(self._unanswered)

    @property
    def is_full(self) -> bool:
        return (
            self.in_flight_bytes > self._desk.limits.in_flight_bytes_per_connection_max
            or len(self._unanswered) >= UNANSWERED_MAX
        )

    # --- phase one -----------------------------------------------------------------------------

    def handle(self, frame: bytearray, now_ms: int) -> None:
        """Begins the request of a frame.  Raises what must end the connection:
        MalformedMessageError, UnsupportedVersionError, CloseConnectionError."""
        size = len(frame)
        try:
            parked = self._begin(frame, now_ms)
        except BaseException:
            if size > SMALL_FRAME_BYTES_MAX:
                self._desk.admission.unreserve(self._host, size)
            raise
        if parked is not None:
            parked.charged = size
            self.in_flight_bytes += size
            if size <= SMALL_FRAME_BYTES_MAX:
                self._desk.admission.charge(size)
        elif size > SMALL_FRAME_BYTES_MAX:
            self._desk.admission.unreserve(self._host, size)

    def _begin(self, frame: bytearray, now_ms: int) -> Parked | None:
        """What is left to wait for, if anything."""
        desk = self._desk
        header, position = decode_request_header(frame)
        api_key, version, correlation_id, client_id = header
        try:
            registration = desk.handlers[api_key]
        except KeyError:
            return self._answer_unknown(None, header, now_ms)
        if not registration.versions[0] <= version <= registration.versions[1]:
            return self._answer_unknown(registration, header, now_ms)
        request = decode(registration.request, version, frame, position, elements_max=ELEMENTS_MAX)[0]
        desk.metrics.request_received(registration.name, version, len(frame))
        deadline_ms = now_ms + desk.limits.request_ms_max
        if registration.patience_ms is not None:
            deadline_ms += max(0, min(registration.patience_ms(request), INT32_MAX))
        # Past the constructor, which costs several times as much.
        context = tuple.__new__(
            RequestContext,
            (
                ANONYMOUS,
                self._listener,
                client_id,
                self._host,
                self._connection_id,
                version,
                now_ms,
                deadline_ms,
            ),
        )
        began = perf_counter()
        throttle_ms = self._wait_ms(api_key, version, client_id) if desk.quotas.is_on else 0
        try:
            if throttle_ms:
                raise OverloadedError(f"this client has used its quota: it may go on in {throttle_ms} ms")
            answer = registration.handle(desk.services, request, context)
        except CloseConnectionError:
            raise
        except Exception as error:
            answer = self._refusal(registration, request, context, error)
        if desk.quotas.is_on and not throttle_ms:
            throttle_ms = self._charge_request(request, client_id, len(frame), perf_counter() - began)
        if isinstance(answer, Message):
            parts = self._encode(registration, request, context, correlation_id, began, answer, throttle_ms)
            if not self._unanswered:
                self._outgoing.add(parts)
                return None
            parked = Parked(registration, context, correlation_id, began)
            parked.parts = parts
            self._unanswered.append(parked)
            return parked
        if answer is None:
            desk.metrics.request_answered(registration.name, perf_counter() - began, 0)
            return None
        parked = Parked(registration, context, correlation_id, began)
        parked.throttle_ms = throttle_ms
        parked.request = None if registration.refuse is None else request
        self._park(parked, answer)
        return parked

    def _answer_unknown(
        self, registration: Registration | None, header: RequestHeader, now_ms: int
    ) -> Parked | None:
        if registration is None or registration.unknown is None:
            raise UnsupportedVersionError(
                f"version {header.api_version} of the API with key {header.api_key} is not served"
            )
        context = RequestContext(
            ANONYMOUS, self._listener, header.client_id, self._host, self._connection_id, 0, now_ms, now_ms
        )
        parts = encode_response(registration.unknown(), 0, header.correlation_id)
        if not self._unanswered:
            self._outgoing.add(parts)
            return None
        parked = Parked(registration, context, header.correlation_id, 0.0)
        parked.parts = parts
        self._unanswered.append(parked)
        return parked

    # --- phase two -----------------------------------------------------------------------------

    def _park(self, parked: Parked, answer: Awaitable[Message | None]) -> None:
        parked.future = future = asyncio.ensure_future(answer, loop=self._desk.loop)
        self._unanswered.append(parked)
        self.soonest_deadline_ms = min(self.soonest_deadline_ms, parked.context.deadline_ms)
        self._desk.metrics.parked(1)
        future.add_done_callback(self._on_done)

    def _on_done(self, _: object) -> None:
        self._on_ready()

    def collect(self) -> None:
        """Hands on the answers that are ready and whose turn it is."""
        unanswered = self._unanswered
        while unanswered:
            parked = unanswered[0]
            if parked.future is not None:
                if not parked.future.done():
                    return
                self._end_phase_two(parked, parked.future)
            unanswered.popleft()
            self._settle(parked)
            self._outgoing.add(parked.parts)

    def _end_phase_two(self, parked: Parked, future: "asyncio.Future[Message | None]") -> None:
        parked.future = None
        self._desk.metrics.parked(-1)
        registration = parked.registration
        try:
            answer = future.result()
        except CloseConnectionError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            answer = self._refusal(registration, parked.request, parked.context, error)
        if answer is None:
            self._desk.metrics.request_answered(registration.name, perf_counter() - parked.began, 0)
            return
        parked.parts = self._encode(
            registration,
            parked.request,
            parked.context,
            parked.correlation_id,
            parked.began,
            answer,
            parked.throttle_ms,
        )

    def _settle(self, parked: Parked) -> None:
        self.in_flight_bytes -= parked.charged
        if parked.charged > SMALL_FRAME_BYTES_MAX:
            self._desk.admission.unreserve(self._host, parked.charged)
        else:
            self._desk.admission.release(parked.charged)

    def expire(self, now_ms: int) -> int:
        """Refuses what is past its deadline.  When to look again.

        Raises CloseConnectionError if that cannot be said in the API's words.
        """
        soonest_ms = NEVER_MS
        for parked in self._unanswered:
            future = parked.future
            if future is None or future.done():
                continue
            if parked.context.deadline_ms <= now_ms:
                self._abandon(parked, future)
                self._time_out(parked, now_ms)
            else:
                soonest_ms = min(soonest_ms, parked.context.deadline_ms)
        self.soonest_deadline_ms = soonest_ms
        return soonest_ms

    def _time_out(self, parked: Parked, now_ms: int) -> None:
        waited_ms = now_ms - parked.context.received_ms
        error = TimeoutError(f"it was not answered in {waited_ms} ms")
        answer = self._refusal(parked.registration, parked.request, parked.context, error)
        parked.parts = self._encode(
            parked.registration, parked.request, parked.context, parked.correlation_id, parked.began, answer
        )
        self._on_ready()

    def _abandon(self, parked: Parked, future: "asyncio.Future[Message | None]") -> None:
        """Waits no longer; what it may yet come to is thrown away."""
        parked.future = None
        self._desk.metrics.parked(-1)
        future.remove_done_callback(self._on_done)
        future.cancel()
        future.add_done_callback(_discard)

    def close(self) -> None:
        """Cancels what is parked and lets go of everything."""
        while self._unanswered:
            parked = self._unanswered.popleft()
            if parked.future is not None:
                self._abandon(parked, parked.future)
            for part in parked.parts:
                if isinstance(part, FileRegion):
                    part.close()
            self._settle(parked)
        self._on_ready = _nobody

    # --- answers -------------------------------------------------------------------------------

    def _encode(
        self,
        registration: Registration,
        request: Message | None,
        context: RequestContext,
        correlation_id: int,
        began: float,
        answer: Message,
        throttle_ms: int = 0,
    ) -> list[Part]:
        try:
            parts = encode_response(answer, context.api_version, correlation_id)
            if self._desk.quotas.is_on:
                throttle_ms = max(throttle_ms, self._charge_answer(registration, context, parts))
            if throttle_ms:
                parts = encode_throttled(answer, context.api_version, correlation_id, throttle_ms)
        except Exception as error:
            close_regions(answer)
            bug = RuntimeError(f"an answer that cannot be written: {error}")
            answer = self._refusal(registration, request, context, bug)
            parts = encode_response(answer, context.api_version, correlation_id)
        code = answer.error_code if registration.has_error_code else 0  # type: ignore[attr-defined]
        self._desk.metrics.request_answered(registration.name, perf_counter() - began, code)
        return parts

    # --- quotas --------------------------------------------------------------------------------

    def _tolls(self) -> "Toll":
        if self._toll is None:
            from distributedlog.broker.tolls import Toll  # most brokers have no quotas

            self._toll = Toll(self._desk.quotas, ANONYMOUS)
        return self._toll

    def _wait_ms(self, api_key: int, version: int, client_id: str | None) -> int:
        """How long a request must wait before it may be handled at all."""
        now_ms = self._desk.services.clock.monotonic_ms()
        return self._mute(now_ms, self._tolls().refusal_ms(api_key, version, client_id, now_ms))

    def _charge_request(self, request: Message, client_id: str | None, size: int, seconds: float) -> int:
        services = self._desk.services
        now_ms = services.clock.monotonic_ms()
        image = services.metadata.image
        throttle_ms = self._tolls().charge_request(
            request, client_id, image, size=size, seconds=seconds, now_ms=now_ms
        )
        return self._mute(now_ms, throttle_ms)

    def _charge_answer(self, registration: Registration, context: RequestContext, parts: list[Part]) -> int:
        now_ms = self._desk.services.clock.monotonic_ms()
        size = sum(map(len, parts))
        return self._mute(
            now_ms, self._tolls().charge_answer(registration.api, context.client_id, size, now_ms)
        )

    def _mute(self, now_ms: int, throttle_ms: int) -> int:
        if throttle_ms:
            self.muted_until_ms = max(self.muted_until_ms, now_ms + throttle_ms)
        return throttle_ms

    # --- refusals ------------------------------------------------------------------------------

    def _refusal(
        self,
        registration: Registration,
        request: Message | None,
        context: RequestContext,
        error: BaseException,
    ) -> Message:
        if isinstance(error, DlogError):
            code = error.code
        elif isinstance(error, TimeoutError | asyncio.CancelledError):
            code = ErrorCode.REQUEST_TIMED_OUT
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if self._desk.complaints.about(self._host, f"{registration.name} failed", repr(error)):
                logger.error("%s v%d failed", registration.name, context.api_version, exc_info=error)
        refusal = registration.refusal(request, context, code, str(error))
        if refusal is None:
            raise CloseConnectionError(f"{registration.name} cannot be answered with {code.name}: {error}")
        return refusal


def encode_throttled(answer: Message, version: int, correlation_id: int, throttle_ms: int) -> list[Part]:
    """The answer, with how long its client is to wait, where it has a field for that.  Answers may be shared
    by several clients, so it is as it was afterwards."""
    if not hasattr(answer, "throttle_time_ms"):
        return encode_response(answer, version, correlation_id)
    before = answer.throttle_time_ms
    answer.throttle_time_ms = throttle_ms
    try:
        return encode_response(answer, version, correlation_id)
    finally:
        answer.throttle_time_ms = before


def _nobody() -> None:
    """Told instead of a connection that has ended."""


def _discard(future: "asyncio.Future[Message | None]") -> None:
    """Of a second phase that nobody waits for."""
    if future.cancelled() or future.exception() is not None:
        return
    answer = future.result()
    if answer is not None:
        close_regions(answer)
