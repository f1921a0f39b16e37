"""Requests of a broker to itself: the same handlers, as proved as over a connection."""

import asyncio

import pytest

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, Handlers
from distributedlog.broker.net.local_requests import LocalRequests
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.services import Services
from distributedlog.model.errors import InvalidRequestError, UnsupportedVersionError
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.settings.node_settings import NodeSettings
from tests.unit.broker.server_stage import bare_services

SETTINGS = NodeSettings()
REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Stage:
    def __init__(self) -> None:
        self.handlers = Handlers()
        self.contexts: list[RequestContext] = []
        self.pending = PendingResponse()
        self.handlers.handles(HeartbeatRequest, versions=(0, 4))(self._handle)
        self.answer: HandlerResponse | Exception = HeartbeatResponse()
        self.local = LocalRequests(bare_services(SETTINGS), self.handlers, lambda: 17)

    def _handle(
        self, services: Services, request: HeartbeatRequest, context: RequestContext
    ) -> HandlerResponse:
        assert request is REQUEST
        self.contexts.append(context)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def ask(self, timeout_ms: int = 60_000) -> HeartbeatResponse:
        return asyncio.run(self.local.ask(REQUEST, HeartbeatResponse, 4, timeout_ms))


def test_the_handler_knows_which_broker_asks() -> None:
    stage = Stage()
    assert stage.ask() is stage.answer
    (context,) = stage.contexts
    assert context.broker == (SETTINGS.node_id, 17)
    assert context.api_version == 4


def test_a_response_that_has_to_wait_is_waited_for() -> None:
    async def story() -> None:
        stage = Stage()
        stage.answer = stage.pending
        asking = asyncio.ensure_future(stage.local.ask(REQUEST, HeartbeatResponse, 4, 60_000))
        await asyncio.sleep(0)
        assert not asking.done()
        response = HeartbeatResponse()
        stage.pending.set_result(response)
        assert await asking is response

    asyncio.run(story())


def test_an_awaitable_is_waited_for() -> None:
    async def later() -> HeartbeatResponse:
        await asyncio.sleep(0)
        return HeartbeatResponse(error_code=3)

    stage = Stage()
    stage.answer = later()
    assert stage.ask().error_code == 3


def test_an_error_of_the_whole_is_raised() -> None:
    stage = Stage()
    stage.answer = InvalidRequestError("no")
    with pytest.raises(InvalidRequestError):
        stage.ask()
    stage.answer = stage.pending
    stage.pending.set_exception(InvalidRequestError("no"))
    with pytest.raises(InvalidRequestError):
        stage.ask()


def test_what_is_not_answered_in_time_is_cancelled() -> None:
    stage = Stage()
    stage.answer = stage.pending
    with pytest.raises(TimeoutError):
        stage.ask(timeout_ms=1)
    assert stage.pending.is_cancelled


def test_an_api_that_is_not_served_is_said_to_be_so() -> None:
    local = LocalRequests(bare_services(SETTINGS), Handlers(), lambda: 1)
    with pytest.raises(UnsupportedVersionError):
        asyncio.run(local.ask(REQUEST, HeartbeatResponse, 4, 1_000))
