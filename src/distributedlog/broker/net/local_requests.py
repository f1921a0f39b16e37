"""Requests that this broker sends to itself, where it would send them to another one otherwise.

What brokers ask of each other (markers, verification of transactions) is asked of the broker itself as well.
It goes to the same handler, without bytes and without a connection, and as proved as if it came over one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from distributedlog.broker.net.context import ANONYMOUS, ConnectionSession, RequestContext
from distributedlog.broker.net.dispatch import Handlers
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.peers.authentication import BrokerIdentity
from distributedlog.model.errors import UnsupportedVersionError
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

R = TypeVar("R", bound=Message)

LOCAL_HOST: Final = "127.0.0.1"
NO_CONNECTION: Final = -1


class LocalRequests:
    """The broker as its own client, on the data loop."""

    def __init__(self, services: "Services", handlers: Handlers, broker_epoch: Callable[[], int]) -> None:
        self._services = services
        self._handlers = handlers
        self._listener = services.settings.listeners[0].name
        self._broker_id = services.settings.node_id
        self._broker_epoch = broker_epoch

    async def ask(self, request: Message, response: type[R], version: int, timeout_ms: int) -> R:
        """Returns the response.  Raises a DlogError if the request as a whole failed, or TimeoutError."""
        api_key = ApiKey(request.api_key)
        if api_key not in self._handlers.served:
            raise UnsupportedVersionError(f"this broker does not serve {api_key.name}")
        registration = self._handlers.by_key[api_key]
        session = ConnectionSession()
        session.broker = BrokerIdentity(self._broker_id, self._broker_epoch())
        now_ms = self._services.clock.monotonic_ms()
        context = RequestContext(
            ANONYMOUS,
            self._listener,
            f"broker-{self._broker_id}",
            LOCAL_HOST,
            NO_CONNECTION,
            version,
            now_ms,
            now_ms + timeout_ms,
            session,
        )
        handled = registration.handle(self._services, request, context)
        if not isinstance(handled, Message):
            async with asyncio.timeout(timeout_ms / 1000):
                handled = await _wait_for(handled)
        assert isinstance(handled, response)
        return handled


async def _wait_for(handled: PendingResponse | Awaitable[Message | None] | None) -> Message | None:
    if not isinstance(handled, PendingResponse):
        return None if handled is None else await handled
    try:
        return await _Observer(handled).future
    except asyncio.CancelledError:
        handled.cancel()
        raise


class _Observer:
    """Waits for a pending response in the place of a connection."""

    def __init__(self, pending: PendingResponse) -> None:
        self.future: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        pending.observe(self)
        if pending.is_decided:
            self.on_decided(pending)

    def on_applied(self, pending: PendingResponse) -> None:
        return None

    def on_decided(self, pending: PendingResponse) -> None:
        if self.future.done():
            return
        if pending.error is not None:
            self.future.set_exception(pending.error)
        else:
            self.future.set_result(pending.response)
