"""Asking a group's coordinator on behalf of a client.

What is asked is begun in phase one, so that requests of one connection are handled in their order; a reply
that is there at once is answered at once.  When the server itself gives up on a request, the client is told
what it is told of a coordinator that does not answer: clients of groups know no other timeout.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

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

PATIENCE_MS: Final = 30 * MINUTE_MS
"""How long a member may wait for the others of its group, however long its own timeouts are."""
SLICE_GROUPS: Final = 100
GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""Read, delete, describe, and describe and alter settings; without access control all are allowed."""


def ask(
    services: "Services", context: RequestContext, group_id: str, request: Request
) -> "asyncio.Future[Reply]":
    """The reply, once it is committed; else the DlogError to answer with."""
    future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def done(outcome: Outcome[Reply]) -> None:
        if future.done():  # the client is gone
            return
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.value())

    services.groups.submit(group_id, request, context.deadline_ms, done)
    return future


def answer(asked: "asyncio.Future[Reply]", kind: type[R], make: Callable[[R], Message]) -> Answer:
    """The response that `make` makes of the reply, now or later."""
    if asked.done():
        return make(_of_kind(asked.result(), kind))
    return _later(asked, kind, make)


async def _later(asked: "asyncio.Future[Reply]", kind: type[R], make: Callable[[R], Message]) -> Message:
    return make(_of_kind(await asked, kind))


def _of_kind(reply: Reply, kind: type[R]) -> R:
    assert isinstance(reply, kind), f"a reply is a {type(reply).__name__}, not a {kind.__name__}"
    return reply


async def each_reply(asked: "list[asyncio.Future[Reply]]", kind: type[R]) -> list[R | DlogError]:
    """Of requests that stand for themselves: the reply to each, or what it came to."""
    replies = await asyncio.gather(*asked, return_exceptions=True)
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
