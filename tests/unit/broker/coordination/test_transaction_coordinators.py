"""Transaction coordinators on real partitions: decisions, markers, crashes, changes of leader."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from distributedlog.broker.coordination.host import Host
from distributedlog.broker.coordination.transaction_coordinators import NOTE_AGAIN_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    DlogError,
    LoadInProgressError,
    NotCoordinatorError,
    OverloadedError,
    ProducerFencedError,
    RequestTimedOutError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import TRANSACTIONS_TOPIC
from distributedlog.ports.executor import Outcome
from distributedlog.statemachine import Producer
from distributedlog.transactions.requests import (
    AddRequest,
    DescribeReply,
    DescribeRequest,
    EndRequest,
    InitRequest,
    ListRequest,
    Reply,
)
from distributedlog.transactions.transaction import TransactionState
from tests.unit.broker.partition_stage import OTHER
from tests.unit.broker.transaction_stage import (
    DEADLINE_MS,
    FIRST_PRODUCER_ID,
    ID,
    TIMEOUT_MS,
    TRANSACTIONS_NUMBER,
    TransactionStage,
)

PARTITIONS = frozenset({TopicPartition("t", 0), TopicPartition("t", 2)})
Story = Callable[[TransactionStage], Awaitable[None]]


def told(story: Story) -> Callable[[], None]:
    """Runs a story on a stage of its own."""

    def run() -> None:
        async def tell() -> None:
            stage = TransactionStage()
            await stage.settle()
            try:
                await story(stage)
            finally:
                stage.coordinators.close()

        asyncio.run(tell())

    run.__name__, run.__doc__ = story.__name__, story.__doc__
    return run


async def begin(stage: TransactionStage) -> Producer:
    producer = await stage.producer_of(InitRequest(ID, TIMEOUT_MS))
    assert await stage.ask(AddRequest(ID, producer, PARTITIONS)) is None
    return producer


@told
async def test_a_transaction_is_committed_and_its_markers_written(stage: TransactionStage) -> None:
    producer = await begin(stage)
    assert producer == Producer(FIRST_PRODUCER_ID, 0)
    assert stage.completed == []
    await stage.producer_of(EndRequest(ID, producer, True))
    assert stage.completed == [TransactionState.COMPLETE_COMMIT], "the next one can begin at once"
    assert sorted(stage.leaders.written) == [
        (FIRST_PRODUCER_ID, 0, True, "t", 0),
        (FIRST_PRODUCER_ID, 0, True, "t", 2),
    ]
    assert stage.found().state is TransactionState.COMPLETE_COMMIT
    assert stage.sender.waiting_count == 0


@told
async def test_a_coordinator_that_is_killed_leaves_its_work_to_the_next(stage: TransactionStage) -> None:
    producer = await begin(stage)
    stage.leaders.is_reachable = False
    await stage.producer_of(EndRequest(ID, producer, True))
    stage.restart()
    await stage.settle()
    assert stage.found().state is TransactionState.PREPARE_COMMIT
    stage.leaders.is_reachable = True
    await stage.advance(2_000)
    assert stage.found().state is TransactionState.COMPLETE_COMMIT
    assert {marker[2] for marker in stage.leaders.written} == {True}


@told
async def test_what_was_open_at_a_crash_times_out(stage: TransactionStage) -> None:
    await begin(stage)
    stage.restart()
    await stage.settle()
    await stage.advance(TIMEOUT_MS)
    assert stage.found().state is TransactionState.COMPLETE_ABORT
    assert {marker[1:3] for marker in stage.leaders.written} == {(1, False)}


@told
async def test_a_new_producer_is_told_to_wait_until_the_transaction_before_is_aborted(
    stage: TransactionStage,
) -> None:
    first = await begin(stage)
    stage.leaders.is_reachable = False
    for _ in range(2):
        assert isinstance(await stage.ask(InitRequest(ID, TIMEOUT_MS)), ConcurrentTransactionsError)
    stage.leaders.is_reachable = True
    await stage.advance(2_000)
    assert await stage.producer_of(InitRequest(ID, TIMEOUT_MS)) == Producer(first.producer_id, 2)
    assert isinstance(await stage.ask(EndRequest(ID, first, True)), ProducerFencedError)


@told
async def test_who_leads_no_more_cancels_its_markers(stage: TransactionStage) -> None:
    producer = await begin(stage)
    stage.leaders.is_reachable = False
    await stage.producer_of(EndRequest(ID, producer, True))
    assert stage.sender.waiting_count == 2
    stage.metadata.remove(TRANSACTIONS_NUMBER)
    stage.stage.apply()
    await stage.settle()
    assert stage.sender.waiting_count == 0
    stage.leaders.is_reachable = True
    await stage.advance(5_000)
    assert not stage.leaders.written


@told
async def test_others_coordinate_what_is_led_elsewhere(stage: TransactionStage) -> None:
    stage.metadata.change(TRANSACTIONS_NUMBER, leader=OTHER)
    stage.stage.apply()
    await stage.settle()
    names = [f"id-{number}" for number in range(20)]
    replies = [await stage.ask(InitRequest(name, TIMEOUT_MS), name) for name in names]
    refused = [reply for reply in replies if isinstance(reply, DlogError)]
    assert 0 < len(refused) < len(names)
    assert all(isinstance(each, NotCoordinatorError) for each in refused)


@told
async def test_without_a_lease_nothing_is_verified(stage: TransactionStage) -> None:
    await begin(stage)
    reply = await stage.ask(DescribeRequest(ID))
    assert isinstance(reply, DescribeReply)
    stage.stage.clock.advance(1 << 62)
    assert isinstance(await stage.ask(DescribeRequest(ID)), NotCoordinatorError)


@told
async def test_that_markers_are_written_is_noted_however_often_that_is_refused(
    stage: TransactionStage,
) -> None:
    """An event that a full coordinator refuses must not leave the transaction undecided for ever."""
    producer = await begin(stage)
    refusals = 3
    original = Host.submit

    def submit(self, request, deadline_ms, done):  # type: ignore[no-untyped-def]
        nonlocal refusals
        if type(request).__name__ == "MarkersWrittenRequest" and refusals:
            refusals -= 1
            return self._begin(_refuse, done)
        return original(self, request, deadline_ms, done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Host, "submit", submit)
        await stage.producer_of(EndRequest(ID, producer, True))
        assert stage.found().state is TransactionState.PREPARE_COMMIT
        for _ in range(4):
            await stage.advance(NOTE_AGAIN_MS)
    assert refusals == 0
    assert stage.found().state is TransactionState.COMPLETE_COMMIT


@told
async def test_that_markers_were_written_is_not_noted_of_a_later_transaction(stage: TransactionStage) -> None:
    """The note was taken, and only its outcome came too late: the next transaction of the same producer,
    whose markers are not written yet, must not be completed by it."""
    producer = await begin(stage)
    original = Host.submit
    is_late = True

    def submit(self, request, deadline_ms, done):  # type: ignore[no-untyped-def]
        nonlocal is_late
        if type(request).__name__ == "MarkersWrittenRequest" and is_late:
            is_late = False
            late = Outcome[Any](error=RequestTimedOutError("it took too long"))
            return original(self, request, deadline_ms, lambda _: done(late))
        return original(self, request, deadline_ms, done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Host, "submit", submit)
        await stage.producer_of(EndRequest(ID, producer, True))
    assert stage.found().state is TransactionState.COMPLETE_COMMIT
    assert await stage.ask(AddRequest(ID, producer, PARTITIONS)) is None
    stage.leaders.decide = lambda partition: ErrorCode.NOT_LEADER_OR_FOLLOWER
    await stage.producer_of(EndRequest(ID, producer, True))
    await stage.advance(NOTE_AGAIN_MS)
    assert stage.found().state is TransactionState.PREPARE_COMMIT


def _refuse() -> int:
    raise OverloadedError("full")


@told
async def test_a_topic_that_is_not_there_has_no_coordinator(stage: TransactionStage) -> None:
    stage.metadata.remove(TRANSACTIONS_NUMBER)
    stage.stage.apply()
    await stage.settle()
    assert isinstance(await stage.ask(ListRequest()), CoordinatorNotAvailableError)


@told
async def test_a_coordinator_whose_log_is_being_made_is_loading(stage: TransactionStage) -> None:
    stage.metadata.remove(TRANSACTIONS_NUMBER)
    stage.stage.apply()
    await stage.settle()
    stage.metadata.create(TRANSACTIONS_TOPIC, TRANSACTIONS_NUMBER + 1, 1)
    assert isinstance(await stage.ask(ListRequest()), LoadInProgressError)
    assert not stage.coordinators.is_loading


@told
async def test_a_failed_producer_id_is_asked_for_again_by_the_client(stage: TransactionStage) -> None:
    async def none() -> int:
        raise OverloadedError("the controller is busy")

    for each in stage.coordinators.all_active():
        each._new_producer_id = none
    reply = await stage.ask(InitRequest(ID, TIMEOUT_MS))
    assert isinstance(reply, LoadInProgressError)
    assert reply.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@told
async def test_who_needs_a_producer_id_is_answered_if_the_coordinator_ends_in_the_same_turn(
    stage: TransactionStage,
) -> None:
    outcomes: list[Outcome[Reply]] = []
    stage.coordinators.submit(ID, InitRequest(ID, TIMEOUT_MS), DEADLINE_MS, outcomes.append)
    assert outcomes == [], "a producer id is being fetched"
    stage.metadata.remove(TRANSACTIONS_NUMBER)
    stage.stage.apply()
    await stage.settle()
    assert [type(each.error) for each in outcomes] == [NotCoordinatorError]


@told
async def test_a_producer_id_that_ends_in_a_defect_is_answered_too(stage: TransactionStage) -> None:
    async def fail() -> int:
        raise ValueError("a defect")

    for each in stage.coordinators.all_active():
        each._new_producer_id = fail
    outcomes: list[Outcome[Reply]] = []
    stage.coordinators.submit(ID, InitRequest(ID, TIMEOUT_MS), DEADLINE_MS, outcomes.append)
    await stage.settle()
    assert [type(each.error) for each in outcomes] == [ValueError]
