"""A pending response: one request whose response cannot be sent yet, from its handler to its connection.

    handler        makes it, returns it, and calls `set_result` or `set_exception` when it knows
    RequestQueue   gives it its place among the requests of its connection, and hears of it at once
    the request    is kept in it only as long as it may yet fail
    the response   stands in it until those before it have left

A handler that returns an awaitable instead gets one all the same (`follow`), and so does a response that was
there at once while an earlier one was not.  So there is one object for a request that waits, and the loop
has nothing to do with it: no future, no callback of the next turn.

What waits on partitions stands in the purgatory besides, as a delayed operation (`replicas.delayed`).  That
one is another object because it is another thing: it knows partitions and offsets, may be one of several, and
belongs to a layer that knows nothing of requests; it calls back the handler, which makes the response.

When nobody waits for the response any more, because its client is gone or its time is over, it is cancelled;
`on_cancel` then gives back at once what was taken for it: otherwise clients that come, wait and go could take
all places in the purgatory.  What it comes to after that is dropped.

Until it `is_applied` the request has had no effect yet, and no request behind it on its connection begins.
A client that leaves meanwhile takes nothing back: it may have asked for no response (acks=0), so the request
still has its effect, and its bytes count as in flight until then.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.outgoing import close_regions
from distributedlog.protocol.codec import Part
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.net.dispatch import Registration


class PendingObserver(Protocol):
    """Who holds its place: the requests of its connection."""

    def on_applied(self, pending: "PendingResponse") -> None: ...

    def on_decided(self, pending: "PendingResponse") -> None: ...


class PendingResponse:
    __slots__ = (
        "_observer", "began", "charged_bytes", "context", "correlation_id", "error", "holds_others",
        "is_applied", "is_cancelled", "is_decided", "is_delayed", "on_cancel", "parts", "registration",
        "request", "response", "throttle_ms",
    )  # fmt: skip

    registration: "Registration"
    context: RequestContext
    correlation_id: int
    began: float

    def __init__(self, *, is_applied: bool = True) -> None:
        self._observer: PendingObserver | None = None
        self.is_applied = is_applied
        self.is_decided = False
        self.is_cancelled = False
        self.is_delayed = False
        """It is counted among the delayed requests."""
        self.holds_others = False
        """Requests behind it wait, unless they are of its kind and pipelined."""
        self.on_cancel: Callable[[], object] | None = None
        self.request: Message | None = None
        self.response: Message | None = None
        self.error: BaseException | None = None
        self.parts: list[Part] = []
        """The encoded response, once there is one."""
        self.charged_bytes = 0
        self.throttle_ms = 0

    # --- for the handler -----------------------------------------------------------------------

    def set_result(self, response: Message | None) -> None:
        """The response is known; None: there is none."""
        if not self.is_cancelled:
            self.response = response
        elif response is not None:
            close_regions(response)
        self._decide()

    def set_exception(self, error: BaseException) -> None:
        """The request failed: it is answered as if the handler had raised this."""
        self.error = error
        self._decide()

    def set_applied(self) -> None:
        """The request has had its effect; only its response waits."""
        if not self.is_applied:
            self.is_applied = True
            if self._observer is not None:
                self._observer.on_applied(self)

    def _decide(self) -> None:
        assert not self.is_decided, "a response is decided once"
        self.is_decided = True
        self.on_cancel = None
        self.set_applied()
        if self._observer is not None and not self.is_cancelled:
            self._observer.on_decided(self)

    # --- for its connection --------------------------------------------------------------------

    def place(
        self,
        observer: PendingObserver,
        registration: "Registration",
        context: RequestContext,
        correlation_id: int,
        began: float,
    ) -> None:
        """Gives it its place: `observer` hears of it from now on."""
        self._observer = observer
        self.registration = registration
        self.context = context
        self.correlation_id = correlation_id
        self.began = began

    def observe(self, observer: PendingObserver) -> None:
        """Has `observer` hear of it, without a place on a connection."""
        self._observer = observer

    def follow(self, future: "asyncio.Future[Message | None]") -> None:
        """Comes to what the future comes to."""
        self.on_cancel = future.cancel
        future.add_done_callback(self._take)

    def _take(self, future: "asyncio.Future[Message | None]") -> None:
        try:
            self.set_result(future.result())
        except (Exception, asyncio.CancelledError) as error:
            self.set_exception(error)

    def cancel(self) -> None:
        """Nobody waits for it any more, and it need not have an effect."""
        self.is_cancelled = True
        on_cancel, self.on_cancel = self.on_cancel, None
        if on_cancel is not None:
            on_cancel()

    def drop_response(self) -> None:
        """Nobody waits for it any more; an effect that it has not had yet, it shall still have."""
        if self.is_applied:
            self.cancel()
        else:
            self.is_cancelled = True
