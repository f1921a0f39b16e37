"""Order, waiting and errors on one connection."""

import asyncio
import logging
import random

import pytest

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import CloseConnectionError, HandlerResponse
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import StaleBrokerEpochError
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.protocol.schema import Message
from tests.unit.broker.server_stage import Later, Network, answer, asked


def test_a_handler_is_told_who_asks_from_where_and_until_when(network: Network) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            client = await stage.connect()
            other = await stage.connect()
            assert await client.ask(correlation_id=7) == (7, 0)
            await other.ask()
            context = stage.contexts[0]
            assert context.principal == "User:ANONYMOUS"
            assert context.listener == "PLAINTEXT"
            assert context.client_id == "tester"
            assert context.client_host == "127.0.0.1"
            assert context.api_version == 3
            assert context.deadline_ms == context.received_ms + 30_000
            assert stage.contexts[1].connection_id != context.connection_id

    network.run(story())


def test_a_hundred_requests_at_once_are_answered_in_order_whatever_order_they_end_in(
    network: Network,
) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            stage.reply = later = Later()
            client = await stage.connect()
            await client.send(b"".join(asked(str(number), number) for number in range(100)))
            await stage.counts.until(lambda: stage.counts.delayed_now == 100)
            assert stage.begun == [str(number) for number in range(100)]
            order = list(range(100))
            random.Random(5).shuffle(order)
            for number in order:
                later.come(str(number), number % 10)
                await asyncio.sleep(0)
            assert [await client.answer() for _ in range(100)] == [(n, n % 10) for n in range(100)]

    network.run(story())


def test_answers_that_are_there_at_once_wait_for_the_delayed_one_before_them(network: Network) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            later = Later()
            stage.reply = lambda request, context: (
                later(request, context) if request.group_id == "slow" else answer(0)
            )
            client = await stage.connect()
            await client.send(asked("slow", 1) + asked("quick", 2) + asked("quick", 3))
            await stage.counts.until(lambda: len(stage.begun) == 3)
            assert stage.counts.out_bytes == 0
            later.come("slow")
            assert [(await client.answer())[0] for _ in range(3)] == [1, 2, 3]

    network.run(story())


def test_a_delayed_request_holds_up_no_other_connection(network: Network) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            later = Later()
            stage.reply = lambda request, context: (
                later(request, context) if request.group_id == "slow" else answer(0)
            )
            waiting, quick = await stage.connect(), await stage.connect()
            await waiting.send(asked("slow"))
            await stage.counts.until(lambda: stage.counts.delayed_now == 1)
            assert await quick.ask("quick", 9) == (9, 0)
            later.come("slow", 4)
            assert await waiting.answer() == (0, 4)

    network.run(story())


def test_a_coroutine_is_as_good_as_a_future(network: Network) -> None:
    async def story() -> None:
        async def slowly() -> Message | None:
            await asyncio.sleep(0)
            return answer(3)

        async with network.stage() as stage:
            stage.reply = lambda request, context: slowly()
            client = await stage.connect()
            assert await client.ask(correlation_id=5) == (5, 3)

    network.run(story())


def test_a_request_without_an_answer_does_not_disturb_the_order(network: Network) -> None:
    async def story() -> None:
        async def nothing() -> Message | None:
            return None

        def reply(request: HeartbeatRequest, context: RequestContext) -> HandlerResponse:
            if request.group_id == "none":
                return None
            return nothing() if request.group_id == "later none" else answer(0)

        async with network.stage() as stage:
            stage.reply = reply
            client = await stage.connect()
            names = ["none", "a", "later none", "none", "b", "later none"]
            await client.send(b"".join(asked(name, number) for number, name in enumerate(names)))
            await client.send(asked("end", 99))
            assert [(await client.answer())[0] for _ in range(3)] == [1, 4, 99]

    network.run(story())


def test_a_client_that_goes_away_cancels_what_it_waited_for(network: Network) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            stage.reply = later = Later()
            client = await stage.connect()
            await client.send(asked("a") + asked("b"))
            await stage.counts.until(lambda: stage.counts.delayed_now == 2)
            assert stage.server.in_flight_bytes > 0
            client.close()
            await stage.counts.until_closed("client gone")
            assert all(future.cancelled() for future in later.futures.values())
            assert stage.counts.delayed_now == 0
            assert stage.server.in_flight_bytes == 0

    network.run(story())


# --- errors ------------------------------------------------------------------------------------


def raising(error: BaseException) -> HandlerResponse:
    raise error


async def raising_later(error: BaseException) -> Message | None:
    raise error


@pytest.mark.parametrize("phase", [raising, raising_later], ids=["phase one", "phase two"])
def test_an_error_of_ours_is_answered_with_its_code_and_the_connection_lives(
    phase: object, network: Network
) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            stage.reply = lambda request, context: phase(StaleBrokerEpochError("old"))  # type: ignore[operator]
            client = await stage.connect()
            assert await client.ask(correlation_id=1) == (1, ErrorCode.STALE_BROKER_EPOCH)
            assert await client.ask(correlation_id=2) == (2, ErrorCode.STALE_BROKER_EPOCH)
            assert stage.counts.answered == [("Heartbeat", ErrorCode.STALE_BROKER_EPOCH)] * 2

    network.run(story())


@pytest.mark.parametrize("phase", [raising, raising_later], ids=["phase one", "phase two"])
def test_a_bug_in_a_handler_is_logged_once_and_answered(
    phase: object, caplog: pytest.LogCaptureFixture, network: Network
) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            stage.reply = lambda request, context: phase(KeyError("a bug"))  # type: ignore[operator]
            client = await stage.connect()
            for number in range(3):
                assert await client.ask(correlation_id=number) == (number, ErrorCode.UNKNOWN_SERVER_ERROR)

    with caplog.at_level(logging.ERROR, "distributedlog.broker.net.request_queue"):
        network.run(story())
    assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [True]


def test_an_answer_that_cannot_be_written_is_a_bug_too(network: Network) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            stage.reply = lambda request, context: HeartbeatResponse(error_code=1 << 40)
            client = await stage.connect()
            assert await client.ask(correlation_id=1) == (1, ErrorCode.UNKNOWN_SERVER_ERROR)

    network.run(story())


@pytest.mark.parametrize("phase", [raising, raising_later], ids=["phase one", "phase two"])
def test_a_handler_may_hang_up_after_what_came_before_was_answered(phase: object, network: Network) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            stage.reply = lambda request, context: (
                phase(CloseConnectionError("acks 0"))  # type: ignore[operator]
                if request.group_id == "end"
                else answer(0)
            )
            client = await stage.connect()
            await client.send(asked("a", 1) + asked("end", 2) + asked("never", 3))
            assert await client.answer() == (1, 0)
            assert await client.is_cut()
            await stage.counts.until_closed("refused")

    network.run(story())


def test_a_handler_that_answers_with_no_answer_at_all_ends_only_its_own_connection(network: Network) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            healthy = await stage.connect()
            stage.reply = lambda request, context: 5  # type: ignore[assignment, return-value]
            client = await stage.connect()
            await client.send(asked())
            assert await client.is_cut()
            stage.reply = lambda request, context: answer(0)
            assert await healthy.ask(correlation_id=8) == (8, 0)

    network.run(story())
