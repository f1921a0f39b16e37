"""The end of a sink's batch is answered when all of it can be seen, by whoever coordinates it then."""

import asyncio
from collections.abc import Awaitable, Callable

from distributedlog.model.errors import (
    CoordinatorNotAvailableError,
    InvalidTransactionStateError,
    NotCoordinatorError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.executor import Outcome
from distributedlog.statemachine import Producer
from distributedlog.transactions.requests import AddRequest, Reply
from distributedlog.transactions.sinks.query import sink_id_of
from distributedlog.transactions.sinks.requests import SinkEnd, SinkEnded, SinkJoin, SinkJoined
from tests.unit.broker.transaction_stage import DEADLINE_MS, TIMEOUT_MS, TRANSACTIONS_NUMBER, TransactionStage

QUERY = "orders"
SINK_ID = sink_id_of(QUERY)
Story = Callable[[TransactionStage], Awaitable[None]]


def tell(story: Story) -> None:
    async def run() -> None:
        stage = TransactionStage()
        await stage.settle()
        try:
            await story(stage)
        finally:
            stage.coordinators.close()

    asyncio.run(run())


async def join(stage: TransactionStage) -> Producer:
    reply = await stage.ask(SinkJoin(QUERY, 7, 0, "0-0", TIMEOUT_MS), SINK_ID)
    assert isinstance(reply, SinkJoined)
    added = await stage.ask(
        AddRequest(SINK_ID, reply.producer, frozenset({TopicPartition("t", 0)}), 2), SINK_ID
    )
    assert added is None
    return reply.producer


def end(stage: TransactionStage, winner: Producer) -> list[Outcome[Reply]]:
    outcomes: list[Outcome[Reply]] = []
    deadline_ms = stage.stage.clock.monotonic_ms() + DEADLINE_MS
    request = SinkEnd(QUERY, 7, 0, frozenset({winner}))
    stage.coordinators.submit(SINK_ID, request, deadline_ms, outcomes.append)
    return outcomes


def test_the_answer_waits_for_the_last_marker_and_comes_to_everyone() -> None:
    async def story(stage: TransactionStage) -> None:
        winner = await join(stage)
        stage.leaders.is_reachable = False
        first, second = end(stage, winner), end(stage, winner)
        await stage.settle()
        assert first == second == []
        stage.leaders.is_reachable = True
        await stage.advance(2_000)
        assert [each.value() for each in (*first, *second)] == [SinkEnded(), SinkEnded()]
        assert stage.leaders.written == [(winner.producer_id, 1, True, "t", 0)]
        third = end(stage, winner)
        await stage.settle()
        assert [each.value() for each in third] == [SinkEnded()]
        assert len(stage.leaders.written) == 1

    tell(story)


def test_after_a_crash_the_next_coordinator_answers_the_same() -> None:
    async def story(stage: TransactionStage) -> None:
        winner = await join(stage)
        stage.leaders.is_reachable = False
        waiting = end(stage, winner)
        await stage.settle()
        stage.restart()
        assert [type(each.error) for each in waiting] == [NotCoordinatorError]
        await stage.settle()
        again = end(stage, winner)
        stage.leaders.is_reachable = True
        await stage.advance(2_000)
        assert [each.value() for each in again] == [SinkEnded()]
        assert {marker[:3] for marker in stage.leaders.written} == {(winner.producer_id, 1, True)}

    tell(story)


def test_who_waits_where_nobody_leads_any_more_is_told() -> None:
    async def story(stage: TransactionStage) -> None:
        winner = await join(stage)
        stage.leaders.is_reachable = False
        waiting = end(stage, winner)
        await stage.settle()
        stage.metadata.remove(TRANSACTIONS_NUMBER)
        stage.stage.apply()
        await stage.settle()
        (outcome,) = waiting
        assert isinstance(outcome.error, NotCoordinatorError | CoordinatorNotAvailableError)

    tell(story)


def test_a_wrong_winner_is_an_error_and_all_is_aborted() -> None:
    async def story(stage: TransactionStage) -> None:
        winner = await join(stage)
        refused = end(stage, Producer(winner.producer_id, 9))
        await stage.settle()
        assert isinstance(refused[0].error, InvalidTransactionStateError)
        assert stage.leaders.written == [(winner.producer_id, 1, False, "t", 0)]

    tell(story)
