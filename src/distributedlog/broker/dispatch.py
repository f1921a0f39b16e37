"""From an API and its version to the function that serves it.

A module of `broker/handlers/`, one per API and named like it, registers its function:

    @handles(FetchRequest, versions=(4, 17), patience_ms=lambda request: request.max_wait_ms)
    def fetch(services: Services, request: FetchRequest, context: RequestContext) -> Answer: ...

Handling has two phases.  The function itself is phase one: it runs at once, in the order in which requests
came on their connection, and must not wait.  What must wait returns an awaitable; it is phase two, and holds
up neither other connections nor phase one of the requests behind it.  Answers leave in the order of requests.

    what it returns or raises     what the client gets
    a message                     the message
    an awaitable                  what it comes to, by these same rules
    None                          nothing, and its turn is over (Produce with acks 0)
    CloseConnectionError          the connection is closed (Produce with acks 0 that failed)
    DlogError                     a response of the API with the error's code, see `refusal`
    any other exception           the same with UNKNOWN_SERVER_ERROR, and a traceback in the log
    a version not registered      the connection is closed, unless the API has an answer for that (`unknown`)

A handler that waits lets go of the request if its payload is large: views of the records keep the whole frame
alive.  An awaitable that the client no longer waits for (gone, or past its deadline) is cancelled.

What ApiVersions answers is derived from `handlers/_served.py`, the table of all modules: a module is imported
on the first request of its API.
"""

import importlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from distributedlog.broker.context import RequestContext
from distributedlog.broker.handlers._served import SERVED, Served
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import Array, Blob, Fixed, Kind, Nullable, Text
from distributedlog.protocol.registry import api_of
from distributedlog.protocol.schema import Message, VersionRange

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

R = TypeVar("R", bound=Message)

Answer = Message | Awaitable[Message | None] | None
Handle = Callable[["Services", R, RequestContext], Answer]
Refuse = Callable[[R, RequestContext, ErrorCode, str], Message]
Patience = Callable[[R], int]


class CloseConnectionError(Exception):
    """Raised by a handler where the protocol leaves no other answer than to hang up."""


class Registration(NamedTuple):
    """One API as it is served here."""

    api: ApiKey
    name: str
    """As it appears in metrics: Fetch, ApiVersions."""
    request: type[Message]
    response: type[Message]
    versions: VersionRange
    advertised_from: int
    """The lowest version that ApiVersions names; below `versions` only to please clients that look for it."""
    handle: Handle[Any]
    unknown: Callable[[], Message] | None
    """Makes the answer, of version 0, to a version that is not served."""
    refuse: Refuse[Any] | None
    patience_ms: Patience[Any] | None
    has_error_code: bool
    """The response has a code for the whole."""

    def refusal(
        self, request: Message | None, context: RequestContext, code: ErrorCode, text: str
    ) -> Message | None:
        """The response that says that all of the request failed; None if the API has no form for it."""
        if self.refuse is not None and request is not None:
            return self.refuse(request, context, code, text)
        return plain_refusal(self.response, context.api_version, code)


class AdvertisedRange(NamedTuple):
    api_key: int
    low: int
    high: int


class Registrations(dict[int, Registration]):
    """By API key; what is looked up and served, but not imported yet, is imported.  Else a KeyError."""

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
        refuse: Refuse[R] | None = None,
        patience_ms: Patience[R] | None = None,
    ) -> Callable[[Handle[R]], Handle[R]]:
        """Registers the decorated function.

        `refuse` makes the response to a request that failed as a whole, where the response has no error code
        of its own.  `patience_ms` is how long the request itself allows its answer to wait, beyond what every
        request may take.
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
                refuse=refuse,
                patience_ms=patience_ms,
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


# --- refusals ----------------------------------------------------------------------------------


def plain_refusal(response: type[Message], api_version: int, code: ErrorCode) -> Message | None:
    """An otherwise empty response with this code; None if this version has no code for the whole."""
    by_name = {each.name: each for each in response.fields}
    error_code = by_name.get("error_code")
    if error_code is None or not error_code.is_in(api_version):
        return None
    values: Mapping[str, Any] = {
        each.name: _nothing(each.kind, api_version) for each in response.fields if each.is_required
    }
    return response(**{**values, "error_code": int(code)})


def _nothing(kind: Kind[Any], api_version: int) -> Any:
    """The emptiest value of a kind."""
    if isinstance(kind, Nullable):
        return None if kind.since <= api_version else _nothing(kind.of, api_version)
    if isinstance(kind, Array):
        return []
    if isinstance(kind, Fixed):
        return kind.zero
    return "" if isinstance(kind, Text) else b"" if isinstance(kind, Blob) else None
