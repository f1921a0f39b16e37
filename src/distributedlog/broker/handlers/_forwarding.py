"""Asking the controller on behalf of a client, for no longer than the client waits.

Clients say how long an administrative request may take.  Some say zero, or less, and mean "begin, and do not
wait"; since a change takes a few milliseconds, they are answered better by waiting a moment than by an error
that leaves them to guess.  So what a client allows is taken as at least WAIT_MS_MIN, and at most WAIT_MS_MAX.

Who made partitions goes on to use them: they are answered when this broker has made their logs, which takes a
few syncs, but not for all of thousands (LOGS_MS_MAX): who comes too early is told to come again.
"""

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from distributedlog.broker.net.context import RequestContext
from distributedlog.controller.requests import Request
from distributedlog.model.config import MINUTE_MS, SECOND_MS

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

Reply = TypeVar("Reply")

WAIT_MS_MIN: Final = 1 * SECOND_MS
WAIT_MS_MAX: Final = 10 * MINUTE_MS
LOGS_MS_MAX: Final = 1 * SECOND_MS


def bound_timeout_ms(timeout_ms: int) -> int:
    """Returns how much longer than other requests one with this timeout may wait for its response."""
    return max(0, min(timeout_ms, WAIT_MS_MAX))


async def wait_for_logs(services: "Services") -> None:
    """Returns when this broker has made the logs of all partitions in its image, or after LOGS_MS_MAX."""
    made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    services.partitions.when_done(lambda: None if made.done() else made.set_result(None))
    await asyncio.wait([made], timeout=LOGS_MS_MAX / 1000)


async def forward(
    services: "Services", context: RequestContext, request: Request, reply: type[Reply], timeout_ms: int
) -> Reply:
    """The controller's reply, once it can be seen in our image; else the DlogError that it came to."""
    left_ms = context.deadline_ms - services.clock.monotonic_ms()
    wait_ms = min(max(timeout_ms, WAIT_MS_MIN), WAIT_MS_MAX, left_ms)
    response = await services.controller.ask(request, max(1, wait_ms))
    assert isinstance(response, reply), f"{type(request).__name__} got {type(response).__name__}"
    return response
