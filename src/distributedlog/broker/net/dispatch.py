"""Dispatch: from an API and its version to the function that serves it.

A module of `broker/handlers/`, one per API and named like it, registers its function:

    @handles(FetchRequest, versions=(4, 18), timeout_ms=lambda request: request.max_wait_ms)
    def fetch(services: Services, request: FetchRequest, context: RequestContext) -> HandlerResponse: ...

Handling has two phases.  The function itself is the first phase: it runs at once, in the order in which
requests came on their connection, and must not wait.  What must wait returns a `PendingResponse` or an
awaitable; it is phase two, and holds up no other connection.  Which requests behind it on its own connection
may begin meanwhile stands in `request_queue`.  Responses leave in the order of requests.

    what it returns or raises     what the client gets
    a message                     the message
    a pending response            what it comes to, by these same rules
    an awaitable                  the same
    None                          nothing, and its turn is over (Produce with acks 0)
    CloseConnectionError          the connection is closed (Produce with acks 0 that failed)
    DlogError                     a response of the API with the error's code, see `error_responses`
    any other exception           the same with UNKNOWN_SERVER_ERROR, and a traceback in the log
    a version not registered      the connection is closed, unless the API has a response for that (`unknown`)

A handler that waits lets go of the request if its payload is large: views of the records keep the whole frame
alive.  What the client no longer waits for (gone, or past its deadline) is cancelled.

What ApiVersions answers is derived from `net/served.py`, the table of all modules: a module is imported
on the first request of its API.
"""

import importlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.error_responses import derive_error_response
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.net.served import SERVED, Served
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.registry import api_of
from distributedlog.protocol.schema import Message, VersionRange

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

R = TypeVar("R", bound=Message)

HandlerResponse = Message | PendingResponse | Awaitable[Message | None] | None
Handle = Callable[["Services", R, RequestContext], HandlerResponse]
MakeErrorResponse = Callable[[R, RequestContext, ErrorCode, str], Message]
RequestTimeout = Callable[[R], int]
TranslateError = Callable[[ErrorCode], ErrorCode]


class CloseConnectionError(Exception):
    """Raised by a handler where the protocol leaves no other response than to hang up."""


class Order(Enum):
    """What a request whose response is undecided means for those behind it on its connection."""

    STRICT = 0
    """They wait."""
    PIPELINED = 1
    """They wait, but for those of the same API."""
    OVERTAKEN = 2
    """They do not wait: what it changes is done before it waits, as the high watermark by a replica fetch."""


class RequestError(DlogError):
    """Raised by a handler where all of a request fails with a code that has no class of its own."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code  # type: ignore[misc]


class Registration(NamedTuple):
    """One API as it is served here."""

    api: ApiKey
    name: str
    """The name in metrics: Fetch, ApiVersions."""
    request: type[Message]
    response: type[Message]
    versions: VersionRange
    advertised_from: int
    """The lowest version that ApiVersions names; below `versions` only to please clients that look for it."""
    handle: Handle[Any]
    unknown: Callable[[], Message] | None
    """Makes the response, of version 0, to a version that is not served."""
    error_response: MakeErrorResponse[Any] | None
    timeout_ms: RequestTimeout[Any] | None
    to_error_code: TranslateError | None
    order: Order
    has_error_code: bool
    """The response has a code for the whole, in some version at least."""

    def make_error_response(
        self, request: Message, context: RequestContext, code: ErrorCode, text: str
    ) -> Message | None:
        """The response that says that all of the request failed; None if the API has no form for it."""
        if self.to_error_code is not None:
            code = self.to_error_code(code)
        if self.error_response is not None:
            return self.error_response(request, context, code, text)
        return derive_error_response(request, context.api_version, code, text)


class AdvertisedRange(NamedTuple):
    api_key: int
    low: int
    high: int


class Registrations(dict[int, Registration]):
    """Registrations by API key.  One that is served but not imported yet is imported when it is looked up."""

    def __init__(self, served: Mapping[int, Served]) -> None:
        super().__init__()
        self._served = served

    def __missing__(self, key: int) -> Registration:
        importlib.import_module(f"{HANDLERS_PACKAGE}.{self._served[key].module}")
        return self[key]


class Handlers:
    """Which API is served by what."""

    def __init__(self, served: Mapping[int, Served] | None = None) -> None:
        self.served: dict[int, Served] = dict(served or {})
        self.by_key = Registrations(self.served)

    def handles(
        self,
        request: type[R],
        *,
        versions: VersionRange,
        advertised_from: int | None = None,
        unknown: Callable[[], Message] | None = None,
        error_response: MakeErrorResponse[R] | None = None,
        timeout_ms: RequestTimeout[R] | None = None,
        to_error_code: TranslateError | None = None,
        order: Order = Order.STRICT,
    ) -> Callable[[Handle[R]], Handle[R]]:
        """Registers the decorated function.

        `error_response` makes the response to a request that failed as a whole, where it cannot be derived
        from the schema (`error_responses`); `to_error_code` puts a code into the API's own words first.
        `timeout_ms` is how long the request itself allows its response to wait, beyond what every request
        may take.
        """
        api = api_of(request.api_key)
        low, high = versions
        if api.request is not request or not request.versions[0] <= low <= high <= request.versions[1]:
            raise ValueError(f"{request.__name__} has no versions {low} to {high}")
        if api.key in self.by_key:
            raise ValueError(f"{request.__name__} is handled twice")

        def register(handle: Handle[R]) -> Handle[R]:
            declared = Served(handle.__module__.rpartition(".")[2], low, high, advertised_from)
            if self.served.setdefault(api.key, declared) != declared:
                raise ValueError(
                    f"{request.__name__} is {declared}, but the table says {self.served[api.key]}"
                )
            self.by_key[api.key] = Registration(
                api=api.key,
                name=request.__name__.removesuffix("Request"),
                request=request,
                response=api.response,
                versions=versions,
                advertised_from=low if advertised_from is None else advertised_from,
                handle=handle,
                unknown=unknown,
                error_response=error_response,
                timeout_ms=timeout_ms,
                to_error_code=to_error_code,
                order=order,
                has_error_code=any(each.name == "error_code" for each in api.response.fields),
            )
            return handle

        return register

    def advertised(self) -> Iterator[AdvertisedRange]:
        """What ApiVersions says, in the order of keys."""
        for key in sorted(self.served):
            _, low, high, advertised_from = self.served[key]
            yield AdvertisedRange(key, low if advertised_from is None else advertised_from, high)

    def load(self) -> Iterator[Registration]:
        """All of them; between one and the next the caller may do something else."""
        for key in self.served:
            yield self.by_key[key]


HANDLERS_PACKAGE: Final = "distributedlog.broker.handlers"
HANDLERS = Handlers(SERVED)
handles = HANDLERS.handles


def load_handlers() -> Handlers:
    """All handlers of this broker, imported."""
    for _ in HANDLERS.load():
        pass
    return HANDLERS
