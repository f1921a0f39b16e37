"""The reply of a coordinator, from the one that gives it to the one that waits."""

import asyncio

import pytest

from distributedlog.broker.handlers._groups import PendingReply, gather_replies, respond
from distributedlog.groups.requests import CommitReply, LeaveReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import NotCoordinatorError
from distributedlog.ports.executor import Outcome
from distributedlog.protocol.messages.heartbeat import HeartbeatResponse

REPLY = CommitReply((ErrorCode.NONE,))
RESPONSE = HeartbeatResponse(error_code=7)


def response(reply: CommitReply) -> HeartbeatResponse:
    assert reply is REPLY
    return RESPONSE


def test_a_reply_that_is_there_is_answered_at_once() -> None:
    pending = PendingReply()
    pending(Outcome(REPLY))
    assert respond(pending, CommitReply, response) is RESPONSE


def test_a_refusal_that_is_there_is_raised_at_once() -> None:
    pending = PendingReply()
    pending(Outcome(error=NotCoordinatorError("elsewhere")))
    with pytest.raises(NotCoordinatorError):
        respond(pending, CommitReply, response)


def test_a_reply_that_comes_later_is_answered_then() -> None:
    async def story() -> None:
        pending = PendingReply()
        waiting = respond(pending, CommitReply, response)
        assert isinstance(waiting, asyncio.Future)
        pending(Outcome(REPLY))
        assert waiting.result() is RESPONSE, "in the same turn of the loop"

    asyncio.run(story())


def test_a_refusal_or_a_mistake_that_comes_later_is_raised_for_who_waits() -> None:
    async def story() -> None:
        refused, mistaken = PendingReply(), PendingReply()
        waiting = [respond(each, CommitReply, response) for each in (refused, mistaken)]
        refused(Outcome(error=NotCoordinatorError("elsewhere")))
        mistaken(Outcome(LeaveReply(())))
        for each, expected in zip(waiting, (NotCoordinatorError, AssertionError), strict=True):
            assert isinstance(each, asyncio.Future)
            with pytest.raises(expected):
                await each

    asyncio.run(story())


def test_nobody_is_told_who_has_gone() -> None:
    async def story() -> None:
        pending = PendingReply()
        waiting = respond(pending, CommitReply, response)
        assert isinstance(waiting, asyncio.Future)
        waiting.cancel()
        pending(Outcome(REPLY))
        assert waiting.cancelled()

    asyncio.run(story())


def test_of_several_each_has_its_reply_or_its_refusal() -> None:
    async def story() -> None:
        error = NotCoordinatorError("elsewhere")
        pending = [PendingReply() for _ in range(3)]
        pending[0](Outcome(REPLY))
        waiting = asyncio.ensure_future(gather_replies(pending, CommitReply))
        await asyncio.sleep(0)
        pending[2](Outcome(REPLY))
        pending[1](Outcome(error=error))
        assert await waiting == [REPLY, error, REPLY]

    asyncio.run(story())


def test_one_that_is_awaited_gives_the_reply_as_it_is() -> None:
    async def story() -> None:
        pending = PendingReply()
        asyncio.get_running_loop().call_soon(lambda: pending(Outcome(REPLY)))
        assert await pending is REPLY

    asyncio.run(story())
