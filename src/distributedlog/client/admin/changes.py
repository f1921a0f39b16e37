"""Asking for changes: which failures of one may be followed by another try.

A change is tried again only if nothing was done for sure: nobody was asked for it yet, or it was not the
controller.
After a lost connection or a timeout it is the caller who decides, because a second try would report its own
first one as somebody else's.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from distributedlog.client.errors import UNKNOWN_OUTCOME, as_error_code, code_of, error_from, is_retriable
from distributedlog.client.metadata import Cluster
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, UnknownTopicError
from distributedlog.protocol.schema import Message

M = TypeVar("M", bound=Message)

_BEFORE_ANYTHING: Final = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE}
)
"""Failures of a change before anything was done."""


async def ask_controller(
    cluster: Cluster, request: Message, response: type[M], codes: Callable[[M], Iterable[int]]
) -> M:
    """Returns the controller's response to a change.  `codes` are those of the whole and of each item.

    The request is expected to let the broker wait for as long as `request_timeout_ms` by itself.
    """

    is_asked = False

    async def attempt() -> M:
        nonlocal is_asked
        is_asked = False
        connection = await cluster.controller()
        is_asked = True
        reply = await cluster.call(connection, request, response, cluster.options.request_timeout_ms)
        _raise_if_not_controller(codes(reply))
        return reply

    def is_worth_waiting(error: DlogError) -> bool:
        return nothing_was_done(error) if is_asked else is_retriable(error)

    return await cluster.retrying(attempt, is_worth_waiting=is_worth_waiting)


def nothing_was_done(error: DlogError) -> bool:
    return not isinstance(error, UNKNOWN_OUTCOME) and code_of(error) in _BEFORE_ANYTHING


def may_pass(error: DlogError) -> bool:
    """Returns whether to retry, as for all other requests, but that a topic which is not there is reported at
    once: whoever administers it has misspelled it more often than just created it."""
    return is_retriable(error) and not isinstance(error, UnknownTopicError)


def _raise_if_not_controller(codes: Iterable[int]) -> None:
    """Raises if another broker is the controller: then nothing was done, for any of the items."""
    if any(as_error_code(code) is ErrorCode.NOT_CONTROLLER for code in codes):
        raise error_from(ErrorCode.NOT_CONTROLLER, "the broker that was asked")


def outcome(number: int, about: str, message: str | None = None) -> DlogError | None:
    """Returns what became of one item: None if it was done, or the reason why not."""
    return None if number == ErrorCode.NONE else error_from(number, about, message)
