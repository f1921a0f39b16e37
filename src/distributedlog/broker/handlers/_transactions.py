"""Submitting requests of clients to the coordinator of a transactional id.

A request is submitted in the first phase, so that requests of one connection are handled in their order.
Clients of early versions know no PRODUCER_FENCED: they get INVALID_PRODUCER_EPOCH for it, as from Kafka.
"""

import asyncio
from typing import TYPE_CHECKING, TypeVar

from distributedlog.broker.net.context import RequestContext
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidProducerEpochError, ProducerFencedError
from distributedlog.ports.executor import Outcome
from distributedlog.transactions.requests import Reply, Request

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

R = TypeVar("R")


def submit(
    services: "Services", context: RequestContext, transactional_id: str, request: Request
) -> "asyncio.Future[Reply]":
    """Submits at once; the future gets the reply once it is committed, or a DlogError."""
    future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    services.transactions.submit(transactional_id, request, context.deadline_ms, FutureReply(future))
    return future


class FutureReply:
    """The callback that hands an outcome to a future, unless nobody waits for that any more."""

    __slots__ = ("_future",)

    def __init__(self, future: "asyncio.Future[Reply]") -> None:
        self._future = future

    def __call__(self, outcome: Outcome[Reply]) -> None:
        if self._future.done():  # the client is gone
            return
        if outcome.error is not None:
            self._future.set_exception(outcome.error)
        else:
            self._future.set_result(outcome.value())


async def expect(
    future: "asyncio.Future[Reply]", kind: type[R], context: RequestContext, *, knows_fenced_since: int = 0
) -> R:
    """Returns the reply; a client below that version gets another error for PRODUCER_FENCED."""
    try:
        reply = await future
    except ProducerFencedError as error:
        if context.api_version >= knows_fenced_since:
            raise
        raise InvalidProducerEpochError(str(error)) from error
    assert isinstance(reply, kind), f"a reply is a {type(reply).__name__}, not a {kind.__name__}"
    return reply


async def gather(futures: "list[asyncio.Future[Reply]]") -> list[Reply | DlogError]:
    """Awaits replies to requests that stand for themselves: a reply or an error for each."""
    found: list[Reply | DlogError] = []
    for each in await asyncio.gather(*futures, return_exceptions=True):
        if isinstance(each, BaseException) and not isinstance(each, DlogError):
            raise each
        found.append(each)
    return found


def to_transaction_error(code: ErrorCode) -> ErrorCode:
    """Returns the error code that transactional producers know for this one."""
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.REQUEST_TIMED_OUT else code
