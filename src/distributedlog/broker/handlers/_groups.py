"""Asking a group's coordinator on behalf of a client.

What is asked is begun in phase one, so that requests of one connection are handled in their order; a reply
that is there at once is answered at once.  When the server itself gives up on a request, the client is told
what it is told of a coordinator that does not answer: clients of groups know no other timeout.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer
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

PATIENCE_MS: Final = 30 * MINUTE_MS
"""How long a member may wait for the others of its group, however long its own timeouts are."""
SLICE_GROUPS: Final = 100
GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""Read, delete, describe, and describe and alter settings; without access control all are allowed."""


class Asked:
    """A coordinator has been asked.  This is whom it tells, and where the reply is waited for.

    A reply that is there at once costs no future; one that comes later costs one, and no task.
    """

    __slots__ = ("_future", "_make", "outcome")

    def __init__(self) -> None:
        self.outcome: Outcome[Reply] | None = None
        self._future: asyncio.Future[Any] | None = None
        self._make: Callable[[Reply], Any] = _as_it_is

    def __call__(self, outcome: Outcome[Reply]) -> None:
        self.outcome = outcome
        if self._future is not None and not self._future.done():  # else the client is gone
            self._settle(self._future, outcome)

    def later(self, make: Callable[[Reply], T]) -> "asyncio.Future[T]":
        """What `make` makes of the reply, once it is committed; else the DlogError to answer with."""
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
        return self.later(_as_it_is).__await__()


def _as_it_is(reply: Reply) -> Reply:
    return reply


def ask(services: "Services", context: RequestContext, group_id: str, request: Request) -> Asked:
    asked = Asked()
    services.groups.submit(group_id, request, context.deadline_ms, asked)
    return asked


def answer(asked: Asked, kind: type[R], make: Callable[[R], Message]) -> Answer:
    """The response that `make` makes of the reply, now or later."""
    if asked.outcome is not None:
        return make(_of_kind(asked.outcome.value(), kind))
    return asked.later(lambda reply: make(_of_kind(reply, kind)))


def _of_kind(reply: Reply, kind: type[R]) -> R:
    assert isinstance(reply, kind), f"a reply is a {type(reply).__name__}, not a {kind.__name__}"
    return reply


async def each_reply(asked: list[Asked], kind: type[R]) -> list[R | DlogError]:
    """Of requests that stand for themselves: the reply to each, or what it came to."""
    replies = await asyncio.gather(*(each.later(_as_it_is) for each in asked), return_exceptions=True)
    found: list[R | DlogError] = []
    for reply in replies:
        if isinstance(reply, DlogError):
            found.append(reply)
        elif isinstance(reply, BaseException):
            raise reply
        else:
            found.append(_of_kind(reply, kind))
    return found


async def describe_each(
    services: "Services",
    context: RequestContext,
    group_ids: Iterable[str],
    make: Callable[[str], Request],
    kind: type[R],
) -> AsyncIterator[tuple[str, R | DlogError]]:
    """Each group once, with the reply or what it came to.  Others are served between slices of them."""
    distinct = iter(dict.fromkeys(group_ids))
    while names := list(itertools.islice(distinct, SLICE_GROUPS)):
        asked = [ask(services, context, name, make(name)) for name in names]
        for name, reply in zip(names, await each_reply(asked, kind), strict=True):
            yield name, reply
        await asyncio.sleep(0)


def check_consumer_groups(services: "Services") -> None:
    """Whether the cluster has them."""
    if not has_consumer_groups(services.metadata.image.features):
        raise UnsupportedVersionError(f"the cluster has no consumer groups: {GROUP_FEATURE} is below 1")


def told(code: ErrorCode) -> ErrorCode:
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.REQUEST_TIMED_OUT else code
