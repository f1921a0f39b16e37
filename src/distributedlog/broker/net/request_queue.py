"""The requests of one connection and their responses: from frames to the parts of responses, in order.

    frame -> header, body -> first phase -> a message ----------------------> Outgoing
                                         -> PendingResponse, awaitable ------^  in the order of the requests
                                         -> None: no response

`_unanswered` holds the requests whose responses cannot be sent yet, because they or one before them wait.
While it is empty a response goes straight to `Outgoing`.  Otherwise it is encoded and takes its place in it.

Requests are handled as if one after the other.  A request begins when the responses of all before it on its
connection are decided; they may still be queued.  So who creates a topic and asks for metadata behind it, or
appends and asks for the end, sees what came before.  These need not wait:

    Produce behind Produce, OffsetCommit behind OffsetCommit, TxnOffsetCommit behind TxnOffsetCommit
    anything behind a Fetch that waits for data: what it changes (a replica fetch moves the high watermark)
    is done before it waits

But a Produce that waits *before* its append (`PendingResponse.is_applied`) holds back everything behind it,
and a client that leaves meanwhile takes nothing back: what it sent before is handled (`has_unapplied`).
Frames that are held back stay with the connection (`can_begin`), which reads no further then.

Bytes of unanswered requests are counted, here for the connection and in `Admission` for the broker.  A frame
above SMALL_FRAME_BYTES_MAX comes with its room reserved; others are charged only if they wait: what is
answered at once was never in flight.

Where there are quotas, requests and responses are charged (`request_charges`): a client that is throttled
finds that in its response, and `muted_until_ms` has the connection begin nothing more before then.

What a handler does wrong costs its own request, or its connection if there is no form to say so.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from distributedlog.broker.net.admission import (
    NEVER_MS,
    SMALL_FRAME_BYTES_MAX,
    UNANSWERED_MAX,
)
from distributedlog.broker.net.context import ANONYMOUS, ConnectionSession, RequestContext
from distributedlog.broker.net.dispatch import CloseConnectionError, Order, Registration
from distributedlog.broker.net.outgoing import Outgoing, close_regions
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.net.processor import Processor
from distributedlog.model.config import INT32_MAX
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, OverloadedError, UnsupportedVersionError
from distributedlog.protocol.codec import Part, decode
from distributedlog.protocol.framing import RequestHeader, decode_request_header, encode_response
from distributedlog.protocol.schema import Message
from distributedlog.storage.files import FileRegion

if TYPE_CHECKING:
    from distributedlog.broker.quotas.request_charges import RequestCharges

logger = logging.getLogger(__name__)

ELEMENTS_MAX: Final = 50_000
"""Elements in all arrays of one request.  A cluster has at most 16,000 partitions; a request is handled in
one go, and nobody else is served meanwhile."""


class RequestQueue:
    """The requests of one connection that are in flight, in their order."""

    __slots__ = (
        "_charges", "_connection_id", "_host", "_is_closed", "_listener", "_on_ready", "_outgoing",
        "_processor", "_unanswered", "_unapplied", "_undecided", "in_flight_bytes",
        "muted_until_ms", "session", "soonest_deadline_ms",
    )  # fmt: skip

    def __init__(
        self,
        processor: Processor,
        outgoing: Outgoing,
        on_ready: Callable[[], None],
        *,
        listener: str,
        host: str,
        connection_id: int,
    ) -> None:
        self._processor = processor
        self._outgoing = outgoing
        self._on_ready = on_ready
        self._listener = listener
        self._host = host
        self._connection_id = connection_id
        self.session = ConnectionSession()
        """What was proved by requests of this connection."""
        self._unanswered: deque[PendingResponse] = deque()
        self._undecided: dict[int, int] = {}
        """How many requests that hold others back are undecided, by API key."""
        self._unapplied = 0
        """How many requests have had no effect yet."""
        self._is_closed = False
        self._charges: RequestCharges | None = None
        self.muted_until_ms = 0
        """Until then nothing more is begun: the client has used more than it may."""
        self.in_flight_bytes = 0
        self.soonest_deadline_ms = NEVER_MS
        """No request is past its deadline before this."""

    def __len__(self) -> int:
        """How many requests are unanswered."""
        return len(self._unanswered)

    @property
    def is_full(self) -> bool:
        return (
            self.in_flight_bytes > self._processor.limits.in_flight_bytes_per_connection_max
            or len(self._unanswered) >= UNANSWERED_MAX
        )

    @property
    def has_unapplied(self) -> bool:
        """A request has had no effect yet, and shall have it whether or not its client is still there."""
        return self._unapplied > 0

    def can_begin(self, frame: bytearray) -> bool:
        """Nothing before it on the connection holds back the request of this frame."""
        if not self._undecided:
            return True
        if self._unapplied or len(self._undecided) > 1:
            return False
        api_key = int.from_bytes(frame[:2], "big")
        return api_key in self._undecided and self._processor.handlers[api_key].order is Order.PIPELINED

    # --- the first phase -----------------------------------------------------------------------------

    def handle(self, frame: bytearray, now_ms: int) -> None:
        """Begins the request of a frame.  Raises what must end the connection:
        MalformedMessageError, UnsupportedVersionError, CloseConnectionError."""
        size = len(frame)
        try:
            pending = self._begin(frame, now_ms)
        except BaseException:
            if size > SMALL_FRAME_BYTES_MAX:
                self._processor.admission.unreserve(self._host, size)
            raise
        if pending is not None:
            pending.charged_bytes = size
            self.in_flight_bytes += size
            if size <= SMALL_FRAME_BYTES_MAX:
                self._processor.admission.charge(size)
        elif size > SMALL_FRAME_BYTES_MAX:
            self._processor.admission.unreserve(self._host, size)

    def _begin(self, frame: bytearray, now_ms: int) -> PendingResponse | None:
        """What is left to wait for, if anything."""
        processor = self._processor
        header, position = decode_request_header(frame)
        api_key, version, correlation_id, client_id = header
        try:
            registration = processor.handlers[api_key]
        except KeyError:
            return self._respond_unsupported(None, header, now_ms)
        if not registration.versions[0] <= version <= registration.versions[1]:
            return self._respond_unsupported(registration, header, now_ms)
        request = decode(registration.request, version, frame, position, elements_max=ELEMENTS_MAX)[0]
        processor.metrics.request_received(registration.name, version, len(frame))
        deadline_ms = now_ms + processor.limits.request_ms_max
        if registration.timeout_ms is not None:
            deadline_ms += max(0, min(registration.timeout_ms(request), INT32_MAX))
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
                self.session,
            ),
        )
        began = processor.timer()
        is_charged = processor.quotas.is_on and self.session.broker is None
        throttle_ms = self._throttle_before_ms(api_key, version, client_id) if is_charged else 0
        try:
            if throttle_ms:
                raise OverloadedError(f"this client has used its quota: it may go on in {throttle_ms} ms")
            response = registration.handle(processor.services, request, context)
        except CloseConnectionError:
            raise
        except Exception as error:
            response = self._make_error_response(registration, request, context, error)
        if is_charged and not throttle_ms:
            throttle_ms = self._charge_request(request, client_id, len(frame), processor.timer() - began)
        if isinstance(response, Message):
            parts = self._encode(registration, request, context, correlation_id, began, response, throttle_ms)
            if not self._unanswered:
                self._outgoing.add(parts)
                return None
            return self._queue_parts(parts, registration, context, correlation_id, began)
        if response is None:
            processor.metrics.request_answered(registration.name, processor.timer() - began, 0)
            return None
        if isinstance(response, PendingResponse):
            pending = response
        else:
            pending = PendingResponse()
            pending.follow(asyncio.ensure_future(response, loop=processor.loop))
        pending.place(self, registration, context, correlation_id, began)
        pending.request = request
        pending.throttle_ms = throttle_ms
        self._delay(pending)
        return pending

    def _queue_parts(
        self,
        parts: list[Part],
        registration: Registration,
        context: RequestContext,
        correlation_id: int,
        began: float,
    ) -> PendingResponse:
        """Puts a response that is here behind those that are not."""
        pending = PendingResponse()
        pending.place(self, registration, context, correlation_id, began)
        pending.parts = parts
        self._unanswered.append(pending)
        return pending

    def _respond_unsupported(
        self, registration: Registration | None, header: RequestHeader, now_ms: int
    ) -> PendingResponse | None:
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
        return self._queue_parts(parts, registration, context, header.correlation_id, 0.0)

    # --- phase two -----------------------------------------------------------------------------

    def _delay(self, pending: PendingResponse) -> None:
        self._unanswered.append(pending)
        self.soonest_deadline_ms = min(self.soonest_deadline_ms, pending.context.deadline_ms)
        pending.is_delayed = True
        self._processor.metrics.requests_delayed(1)
        if pending.is_decided:  # by its handler, before it had its place
            self._on_ready()
            return
        if pending.registration.order is not Order.OVERTAKEN:
            pending.holds_others = True
            api_key = pending.registration.api
            self._undecided[api_key] = self._undecided.get(api_key, 0) + 1
        if not pending.is_applied:
            self._unapplied += 1

    def on_applied(self, pending: PendingResponse) -> None:
        """It has had its effect: those behind it that may be pipelined go on."""
        self._unapplied -= 1
        if self._is_closed:
            self._settle(pending)
        self._on_ready()

    def on_decided(self, pending: PendingResponse) -> None:
        """Its response is known, though others may have to leave before it."""
        self._let_others_begin(pending)
        self._on_ready()

    def _let_others_begin(self, pending: PendingResponse) -> None:
        if pending.holds_others:
            pending.holds_others = False
            api_key = pending.registration.api
            self._undecided[api_key] -= 1
            if not self._undecided[api_key]:
                del self._undecided[api_key]

    def collect(self) -> None:
        """Hands on the responses that are ready and whose turn it is."""
        unanswered = self._unanswered
        while unanswered:
            pending = unanswered[0]
            if pending.is_delayed:
                if not pending.is_decided:
                    return
                self._end_phase_two(pending)
            unanswered.popleft()
            self._settle(pending)
            self._outgoing.add(pending.parts)

    def _end_phase_two(self, pending: PendingResponse) -> None:
        self._end_delay(pending)
        if isinstance(pending.error, CloseConnectionError):
            raise pending.error
        if pending.error is not None:
            self._fail(pending, pending.error)
        elif pending.response is not None:
            self._respond(pending, pending.response)
        else:
            seconds = self._processor.timer() - pending.began
            self._processor.metrics.request_answered(pending.registration.name, seconds, 0)

    def _end_delay(self, pending: PendingResponse) -> None:
        pending.is_delayed = False
        self._processor.metrics.requests_delayed(-1)

    def _fail(self, pending: PendingResponse, error: BaseException) -> None:
        registration, request, context = pending.registration, pending.request, pending.context
        assert request is not None
        self._respond(pending, self._make_error_response(registration, request, context, error))

    def _respond(self, pending: PendingResponse, response: Message) -> None:
        request, pending.request, pending.response = pending.request, None, None
        assert request is not None
        pending.parts = self._encode(
            pending.registration,
            request,
            pending.context,
            pending.correlation_id,
            pending.began,
            response,
            pending.throttle_ms,
        )

    def _settle(self, pending: PendingResponse) -> None:
        charged_bytes = pending.charged_bytes
        self.in_flight_bytes -= charged_bytes
        if charged_bytes > SMALL_FRAME_BYTES_MAX:
            self._processor.admission.unreserve(self._host, charged_bytes)
        else:
            self._processor.admission.release(charged_bytes)

    def expire(self, now_ms: int) -> int:
        """Refuses what is past its deadline.  When to look again.

        Raises CloseConnectionError if that cannot be said in the API's words.
        """
        soonest_ms = NEVER_MS
        for pending in self._unanswered:
            if not pending.is_delayed or pending.is_decided:
                continue
            if pending.context.deadline_ms <= now_ms:
                self._abandon(pending)
                waited_ms = now_ms - pending.context.received_ms
                self._fail(pending, TimeoutError(f"it was not answered in {waited_ms} ms"))
                self._on_ready()
            else:
                soonest_ms = min(soonest_ms, pending.context.deadline_ms)
        self.soonest_deadline_ms = soonest_ms
        return soonest_ms

    def _abandon(self, pending: PendingResponse) -> None:
        """Waits no longer; what it may yet come to is dropped, and it has no effect if it has had none."""
        self._end_delay(pending)
        pending.cancel()
        self._let_others_begin(pending)
        pending.set_applied()

    def close(self) -> None:
        """Cancels what is in flight and lets go of everything, but for what is yet to have its effect."""
        self._is_closed = True
        self._on_ready = _ignore
        while self._unanswered:
            pending = self._unanswered.popleft()
            if pending.is_delayed:
                self._end_delay(pending)
                pending.drop_response()
                if pending.response is not None:
                    close_regions(pending.response)
            for part in pending.parts:
                if isinstance(part, FileRegion):
                    part.close()
            if pending.is_applied:
                self._settle(pending)

    # --- responses -------------------------------------------------------------------------------

    def _encode(
        self,
        registration: Registration,
        request: Message,
        context: RequestContext,
        correlation_id: int,
        began: float,
        response: Message,
        throttle_ms: int = 0,
    ) -> list[Part]:
        try:
            parts = encode_response(response, context.api_version, correlation_id)
            if self._processor.quotas.is_on and self.session.broker is None:
                throttle_ms = max(throttle_ms, self._charge_response(registration, context, parts))
            if throttle_ms:
                parts = encode_throttled(response, context.api_version, correlation_id, throttle_ms)
        except Exception as error:
            close_regions(response)
            bug = RuntimeError(f"a response that cannot be written: {error}")
            response = self._make_error_response(registration, request, context, bug)
            parts = encode_response(response, context.api_version, correlation_id)
        code = response.error_code if registration.has_error_code else 0  # type: ignore[attr-defined]
        self._processor.metrics.request_answered(registration.name, self._processor.timer() - began, code)
        return parts

    # --- quotas --------------------------------------------------------------------------------

    def _get_charges(self) -> "RequestCharges":
        if self._charges is None:
            from distributedlog.broker.quotas.request_charges import (
                RequestCharges,  # most brokers have no quotas
            )

            self._charges = RequestCharges(self._processor.quotas, ANONYMOUS)
        return self._charges

    def _throttle_before_ms(self, api_key: int, version: int, client_id: str | None) -> int:
        """How long a request must wait before it may be handled at all."""
        now_ms = self._processor.services.clock.monotonic_ms()
        return self._mute(now_ms, self._get_charges().throttle_before_ms(api_key, version, client_id, now_ms))

    def _charge_request(self, request: Message, client_id: str | None, size: int, seconds: float) -> int:
        services = self._processor.services
        now_ms = services.clock.monotonic_ms()
        image = services.metadata.image
        throttle_ms = self._get_charges().charge_request(
            request, client_id, image, size=size, seconds=seconds, now_ms=now_ms
        )
        return self._mute(now_ms, throttle_ms)

    def _charge_response(self, registration: Registration, context: RequestContext, parts: list[Part]) -> int:
        now_ms = self._processor.services.clock.monotonic_ms()
        size = sum(map(len, parts))
        return self._mute(
            now_ms, self._get_charges().charge_response(registration.api, context.client_id, size, now_ms)
        )

    def _mute(self, now_ms: int, throttle_ms: int) -> int:
        if throttle_ms:
            self.muted_until_ms = max(self.muted_until_ms, now_ms + throttle_ms)
        return throttle_ms

    # --- error responses ------------------------------------------------------------------------------

    def _make_error_response(
        self,
        registration: Registration,
        request: Message,
        context: RequestContext,
        error: BaseException,
    ) -> Message:
        if isinstance(error, DlogError):
            code = error.code
        elif isinstance(error, TimeoutError | asyncio.CancelledError):
            code = ErrorCode.REQUEST_TIMED_OUT
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if self._processor.limited_log.warn(self._host, f"{registration.name} failed", repr(error)):
                logger.error("%s v%d failed", registration.name, context.api_version, exc_info=error)
        error_response = registration.make_error_response(request, context, code, str(error))
        if error_response is None:
            raise CloseConnectionError(f"{registration.name} cannot be answered with {code.name}: {error}")
        return error_response


def encode_throttled(response: Message, version: int, correlation_id: int, throttle_ms: int) -> list[Part]:
    """The response, with how long its client is to wait, where it has a field for that.  Responses may be
    shared by several clients, so it is as it was afterwards."""
    if not hasattr(response, "throttle_time_ms"):
        return encode_response(response, version, correlation_id)
    before = response.throttle_time_ms
    response.throttle_time_ms = throttle_ms
    try:
        return encode_response(response, version, correlation_id)
    finally:
        response.throttle_time_ms = before


def _ignore() -> None:
    """Told instead of a connection that has ended."""
