"""Submitting requests of clients to the coordinator of a group.

A request is submitted in the first phase, so that requests of one connection are handled in their order; a
reply that is there at once becomes the response at once.  When the server itself gives up on a request, the
client gets the error of a coordinator that is not available: clients of groups know no other timeout.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse
from distributedlog.controller.features import GROUP_FEATURE, has_consumer_groups
from distributedlog.groups.requests import Reply, Request
from distributedlog.model.config import MINUTE_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, UnsupportedVersionError
from distributedlog.ports.executor import Outcome
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

R = TypeVar("R")
T = TypeVar("T")

REBALANCE_TIMEOUT_MS_MAX: Final = 30 * MINUTE_MS
"""How long a member may wait for the others of its group, however long its own timeouts are."""
SLICE_GROUPS: Final = 100
GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""Read, delete, describe, and describe and alter settings; without access control all are allowed."""


class PendingReply:
    """The reply of a coordinator to a submitted request: it is called with the outcome, and can be awaited.

    A reply that is there at once costs no future; one that comes later costs one, and no task.
    """

    __slots__ = ("_future", "_make", "outcome")

    def __init__(self) -> None:
        self.outcome: Outcome[Reply] | None = None
        self._future: asyncio.Future[Any] | None = None
        self._make: Callable[[Reply], Any] = _return_as_is

    def __call__(self, outcome: Outcome[Reply]) -> None:
        self.outcome = outcome
        if self._future is not None and not self._future.done():  # else the client is gone
            self._settle(self._future, outcome)

    def as_future(self, make: Callable[[Reply], T]) -> "asyncio.Future[T]":
        """Returns a future of what `make` makes of the reply, once it is committed; it may end with a
        DlogError."""
        self._make = make
        self._future = asyncio.get_running_loop().create_future()
        if self.outcome is not None:
            self._settle(self._future, self.outcome)
        return self._future

    def _settle(self, future: "asyncio.Future[Any]", outcome: Outcome[Reply]) -> None:
        try:
            future.set_result(self._make(outcome.value()))
        except Exception as error:
            future.set_exception(error)

    def __await__(self) -> Generator[Any, None, Reply]:
        return self.as_future(_return_as_is).__await__()


def _return_as_is(reply: Reply) -> Reply:
    return reply


def submit(services: "Services", context: RequestContext, group_id: str, request: Request) -> PendingReply:
    pending = PendingReply()
    services.groups.submit(group_id, request, context.deadline_ms, pending)
    return pending


def respond(pending: PendingReply, kind: type[R], make: Callable[[R], Message]) -> HandlerResponse:
    """Returns the response that `make` makes of the reply, or a future of it."""
    if pending.outcome is not None:
        return make(_check_kind(pending.outcome.value(), kind))
    return pending.as_future(lambda reply: make(_check_kind(reply, kind)))


def _check_kind(reply: Reply, kind: type[R]) -> R:
    assert isinstance(reply, kind), f"a reply is a {type(reply).__name__}, not a {kind.__name__}"
    return reply


async def gather_replies(pending: list[PendingReply], kind: type[R]) -> list[R | DlogError]:
    """Awaits the replies to requests that stand for themselves: a reply or an error for each."""
    replies = await asyncio.gather(
        *(each.as_future(_return_as_is) for each in pending), return_exceptions=True
    )
    found: list[R | DlogError] = []
    for reply in replies:
        if isinstance(reply, DlogError):
            found.append(reply)
        elif isinstance(reply, BaseException):
            raise reply
        else:
            found.append(_check_kind(reply, kind))
    return found


async def describe_each(
    services: "Services",
    context: RequestContext,
    group_ids: Iterable[str],
    make: Callable[[str], Request],
    kind: type[R],
) -> AsyncIterator[tuple[str, R | DlogError]]:
    """Yields each group once, with its reply or error.  Others are served between slices of them."""
    distinct = iter(dict.fromkeys(group_ids))
    while names := list(itertools.islice(distinct, SLICE_GROUPS)):
        pending = [submit(services, context, name, make(name)) for name in names]
        for name, reply in zip(names, await gather_replies(pending, kind), strict=True):
            yield name, reply
        await asyncio.sleep(0)


def check_consumer_groups(services: "Services") -> None:
    """Raises UnsupportedVersionError if the cluster has no consumer groups."""
    if not has_consumer_groups(services.metadata.image.features):
        raise UnsupportedVersionError(f"the cluster has no consumer groups: {GROUP_FEATURE} is below 1")


def to_group_error(code: ErrorCode) -> ErrorCode:
    """Returns the error code that clients of groups know for this one."""
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.REQUEST_TIMED_OUT else code
