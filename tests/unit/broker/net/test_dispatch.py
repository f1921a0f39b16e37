"""The registry, what is derived from it, and error responses that every API can be answered with."""

import pkgutil
from typing import Any

import pytest

from distributedlog.broker import handlers as handlers_package
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import (
    AdvertisedRange,
    Handlers,
    load_handlers,
)
from distributedlog.broker.net.served import Served
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import UnsupportedVersionError
from distributedlog.protocol.messages.fetch import FetchRequest
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from distributedlog.protocol.schema import Message

CONTEXT = RequestContext("User:ANONYMOUS", "PLAINTEXT", None, "127.0.0.1", 1, 5, 0, 0)


def unserved(services: Any, request: Any, context: Any) -> None:
    raise AssertionError("nobody asks")


def test_what_is_registered_is_what_is_advertised_in_the_order_of_keys() -> None:
    handlers = Handlers()
    handlers.handles(HeartbeatRequest, versions=(0, 4))(unserved)
    handlers.handles(FetchRequest, versions=(4, 17), advertised_from=2)(unserved)
    assert list(handlers.advertised()) == [AdvertisedRange(1, 2, 17), AdvertisedRange(12, 0, 4)]
    assert handlers.by_key[12].name == "Heartbeat"
    assert handlers.by_key[12].response is HeartbeatResponse


@pytest.mark.parametrize("versions", [(0, 5), (-1, 4), (3, 2)])
def test_versions_that_the_messages_do_not_have_cannot_be_promised(versions: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest has no versions"):
        Handlers().handles(HeartbeatRequest, versions=versions)


def test_an_api_is_handled_once_and_by_its_request() -> None:
    handlers = Handlers()
    handlers.handles(HeartbeatRequest, versions=(0, 4))(unserved)
    with pytest.raises(ValueError, match="twice"):
        handlers.handles(HeartbeatRequest, versions=(0, 4))
    with pytest.raises(ValueError, match="HeartbeatResponse"):
        handlers.handles(HeartbeatResponse, versions=(0, 4))
    with pytest.raises(UnsupportedVersionError):
        handlers.handles(Message, versions=(0, 0))


def test_a_module_is_imported_when_its_api_is_looked_up_and_nothing_else_is() -> None:
    handlers = Handlers({12: Served("heartbeat", 0, 4), 99: Served("no_such_module", 0, 0)})
    assert list(handlers.advertised()) == [AdvertisedRange(12, 0, 4), AdvertisedRange(99, 0, 0)]
    with pytest.raises(ModuleNotFoundError):
        handlers.by_key[99]
    with pytest.raises(KeyError):
        handlers.by_key[98]


def test_a_module_that_registers_otherwise_than_it_is_listed_is_refused() -> None:
    handlers = Handlers({12: Served("test_dispatch", 0, 3)})
    with pytest.raises(ValueError, match="but the table says"):
        handlers.handles(HeartbeatRequest, versions=(0, 4))(unserved)
    handlers.handles(HeartbeatRequest, versions=(0, 3))(unserved)


def test_every_module_of_the_handlers_serves_the_api_it_is_named_after() -> None:
    served = {registration.name for registration in load_handlers().by_key.values()}
    modules = [
        module.name
        for module in pkgutil.iter_modules(handlers_package.__path__)
        if not module.name.startswith("_")
    ]
    assert {name.title().replace("_", "") for name in modules} == served
    assert load_handlers() is load_handlers()


# --- error responses ----------------------------------------------------------------------------------


def test_an_api_without_a_code_for_the_whole_refuses_in_its_own_words_if_it_has_any() -> None:
    handlers = Handlers()
    handlers.handles(
        ListOffsetsRequest,
        versions=(1, 5),
        error_response=lambda request, context, code, text: ListOffsetsResponse(
            topics=[], throttle_time_ms=int(code)
        ),
    )(unserved)
    registration = handlers.by_key[2]
    request = ListOffsetsRequest(replica_id=-1, topics=[])
    error_response = registration.make_error_response(request, CONTEXT, ErrorCode.NOT_CONTROLLER, "moved")
    assert error_response == ListOffsetsResponse(topics=[], throttle_time_ms=int(ErrorCode.NOT_CONTROLLER))
