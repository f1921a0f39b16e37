"""Asking transaction coordinators: gathered, one request at a time, in words that producers know."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.broker.peers.transaction_verifier import (
    ADD_AGAIN_MS,
    ADD_WAIT_MS,
    QUESTIONS_MAX,
    Purpose,
    Question,
    TransactionVerifier,
    Verdicts,
)
from distributedlog.client.connection import Connection
from distributedlog.controller.records import RegisterBroker
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerUnreachableError, ConnectionLostError
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import TRANSACTIONS_TOPIC
from distributedlog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.simulation.clock import ManualClock
from tests.unit.broker.partition_stage import ME, OTHER, Metadata, StepScheduler, topic_id

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def response_to(
    request: AddPartitionsToTxnRequest, code: ErrorCode = ErrorCode.NONE
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=at, partition_error_code=code)
                            for at in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
    )


class Peer:
    """A coordinator elsewhere, as a connection: requests wait until the test answers them."""

    def __init__(self) -> None:
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.futures: list[asyncio.Future[AddPartitionsToTxnResponse]] = []
        self.is_closed = False

    def version_for(self, request: object) -> int:
        return 5

    async def call(self, request: AddPartitionsToTxnRequest, *_: object, **__: object) -> object:
        self.requests.append(request)
        self.futures.append(asyncio.get_running_loop().create_future())
        return await self.futures[-1]

    @property
    def is_asked(self) -> bool:
        return bool(self.futures) and not self.futures[-1].done()

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.futures[-1].set_result(response_to(self.requests[-1], code))

    def close(self) -> None:
        self.is_closed = True


class Stage:
    def __init__(self, leader: int = OTHER) -> None:
        self.metadata = Metadata()
        for broker_id in (ME, OTHER):
            self.register(broker_id)
        self.metadata.create(TRANSACTIONS_TOPIC, 1, replicas=(leader,), leader=leader)
        self.peer = Peer()
        self.connects = 0
        self.unreachable = False
        self.answers: list[tuple[str, Verdicts]] = []
        self.own: list[tuple[AddPartitionsToTxnRequest, int]] = []
        self.own_codes: list[ErrorCode] = []
        """What the coordinator on this broker says next; NONE when there is nothing left."""
        self.during_own: Callable[[], None] = lambda: None
        self.own_peer: Peer | None = None
        """The coordinator on this broker, if the test is to answer for it."""
        self.clock = clock = ManualClock()
        self.scheduler = StepScheduler(clock)
        self.verifier = TransactionVerifier(
            lambda: self.metadata.image,
            broker_id=ME,
            connect=self._connect,
            ask_self=self._ask_self,
            clock=clock,
            scheduler=self.scheduler,
            timeout_ms=1_000,
        )

    def register(self, broker_id: int, *, fenced: bool = False) -> None:
        self.metadata.apply(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=topic_id(broker_id),
                broker_epoch=broker_id,
                end_points=[],
                features=[],
                rack=None,
                fenced=fenced,
            )
        )

    async def _connect(self, broker_id: int) -> Connection:
        assert broker_id == OTHER
        self.connects += 1
        if self.unreachable:
            raise BrokerUnreachableError("nobody is there")
        if self.peer.is_closed:
            self.peer = Peer()
        return cast(Connection, self.peer)

    async def _ask_self(self, request: AddPartitionsToTxnRequest, version: int) -> AddPartitionsToTxnResponse:
        self.own.append((request, version))
        self.during_own()
        if self.own_peer is not None:
            return cast(AddPartitionsToTxnResponse, await self.own_peer.call(request))
        return response_to(request, self.own_codes.pop(0) if self.own_codes else ErrorCode.NONE)

    def ask(self, name: str = "x", *partitions: TopicPartition, **fields: Any) -> None:
        question = Question(name, 7, 0, Purpose.VERIFY_ABORTABLE, partitions or (T0,))
        question = question._replace(**fields)
        self.verifier.ask(question, lambda verdicts: self.answers.append((name, verdicts)))

    async def turn(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(bounded())


def test_questions_that_come_while_one_is_in_flight_are_gathered() -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask("x")
        await stage.turn()
        stage.ask("y", T0)
        stage.ask("y", T1)
        stage.ask("z", T1)
        await stage.turn()
        assert len(stage.peer.requests) == 1
        stage.peer.answer()
        await stage.turn()
        assert [each.transactional_id for each in stage.peer.requests[1].transactions] == ["y", "z"]
        assert stage.peer.requests[1].transactions[0].topics[0].partitions == [0, 1]
        stage.peer.answer()
        await stage.turn()
        assert [name for name, _ in stage.answers] == ["x", "y", "y", "z"]
        assert all(set(verdicts.values()) == {ErrorCode.NONE} for _, verdicts in stage.answers)
        assert stage.connects == 1

    run(story)


@pytest.mark.parametrize("fields", [{"producer_epoch": 1}, {"purpose": Purpose.ADD}, {"producer_id": 8}])
def test_a_request_has_each_transactional_id_once(fields: dict[str, Any]) -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask("x")
        stage.ask("x", **fields)
        await stage.turn()
        (only,) = stage.peer.requests[0].transactions
        assert (only.producer_epoch, only.producer_id, only.verify_only) == (0, 7, True)
        stage.peer.answer()
        await stage.turn()
        (other,) = stage.peer.requests[1].transactions
        assert (other.producer_epoch, other.producer_id, other.verify_only) != (0, 7, True)
        stage.peer.answer()
        await stage.turn()
        assert len(stage.answers) == 2

    run(story)


@pytest.mark.parametrize(
    ("code", "purpose", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, Purpose.ADD, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, Purpose.VERIFY, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, Purpose.VERIFY_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Purpose.VERIFY, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_a_coordinator_s_code_is_put_into_a_producer_s_words(
    code: ErrorCode, purpose: Purpose, expected: ErrorCode
) -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask("x", purpose=purpose)
        await stage.turn()
        stage.peer.answer(code)
        await stage.turn()
        assert stage.answers == [("x", {T0: expected})]

    run(story)


def test_what_comes_before_the_last_transaction_is_complete_waits_for_that() -> None:
    async def story() -> None:
        stage = Stage(leader=ME)
        stage.own_codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
        stage.ask("x", purpose=Purpose.ADD)
        await stage.turn()
        stage.ask("y", purpose=Purpose.ADD)
        await stage.turn()
        assert stage.answers == [("y", {T0: ErrorCode.NONE})], "who waits holds up nobody else"
        stage.verifier.completed("y")
        await stage.turn()
        assert len(stage.own) == 2, "it is another one that is complete"
        stage.verifier.completed("x")
        await stage.turn()
        assert stage.answers[1:] == [("x", {T0: ErrorCode.NONE})]
        stage.scheduler.advance(ADD_WAIT_MS)
        await stage.turn()
        assert len(stage.own) == 3

    run(story)


def test_what_is_completed_while_it_is_asked_about_is_not_waited_for() -> None:
    async def story() -> None:
        stage = Stage(leader=ME)
        stage.own_codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
        stage.during_own = lambda: stage.verifier.completed("x")
        stage.ask("x", purpose=Purpose.ADD)
        await stage.turn()
        assert stage.answers == [("x", {T0: ErrorCode.NONE})]

    run(story)


def test_a_coordinator_elsewhere_is_asked_again_for_a_while() -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask("x", purpose=Purpose.ADD)
        await stage.turn()
        for asked in range(1, ADD_WAIT_MS // ADD_AGAIN_MS + 1):
            assert len(stage.peer.requests) == asked
            stage.peer.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
            await stage.turn()
            assert stage.answers == []
            stage.scheduler.advance(ADD_AGAIN_MS)
            await stage.turn()
        stage.peer.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        await stage.turn()
        assert stage.answers == [("x", {T0: ErrorCode.CONCURRENT_TRANSACTIONS})]

    run(story)


IDS = st.sampled_from(["x", "y"])
ADDED = st.tuples(st.just("ask"), IDS, st.integers(0, 1), st.sampled_from([Purpose.ADD, Purpose.VERIFY]))
CODES = [ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR]
TOLD = st.tuples(st.just("answer"), st.sampled_from([*CODES, None]))
PASSED = st.tuples(st.just("time"), st.integers(1, 60))
STEPS = ADDED | TOLD | PASSED | st.tuples(st.just("completed"), IDS) | st.tuples(st.just("fenced"))


@given(st.sampled_from([ME, OTHER]), st.lists(STEPS, max_size=40))
def test_everybody_is_told_once_and_no_later_than_when_the_wait_is_over(
    leader: int, steps: list[tuple[Any, ...]]
) -> None:
    """Whether the coordinator is on this broker, or on another one that may be fenced for a moment."""

    async def story() -> None:
        stage = Stage(leader=leader)
        stage.own_peer = Peer()
        asked: list[tuple[int, Purpose]] = []
        told: list[int] = []

        def ask(name: str, epoch: int, purpose: Purpose) -> None:
            number = len(asked)
            asked.append((stage.clock.monotonic_ms(), purpose))

            def answered(verdicts: Verdicts) -> None:
                told.append(number)
                if verdicts[T0] is ErrorCode.CONCURRENT_TRANSACTIONS and purpose is Purpose.ADD:
                    assert stage.clock.monotonic_ms() >= asked[number][0] + ADD_WAIT_MS

            stage.verifier.ask(Question(name, 7, epoch, purpose, (T0,)), answered)

        def peer() -> Peer:
            return stage.peer if leader == OTHER or stage.own_peer is None else stage.own_peer

        for what, *details in steps:
            if what == "ask":
                ask(*details)
            elif what == "completed":
                stage.verifier.completed(*details)
            elif what == "time":
                stage.scheduler.advance(*details)
            elif what == "fenced":
                for is_fenced in (True, False):
                    stage.register(OTHER, fenced=is_fenced)
                    stage.verifier.brokers_changed()
            elif peer().is_asked and details == [None]:
                peer().futures[-1].set_exception(ConnectionLostError("gone"))
            elif peer().is_asked:
                peer().answer(*details)
            await stage.turn()

        for _ in range(ADD_WAIT_MS // ADD_AGAIN_MS + 1):  # from now on they are told at once, and never yes
            while peer().is_asked:
                peer().answer(ErrorCode.CONCURRENT_TRANSACTIONS)
                await stage.turn()
            stage.scheduler.advance(ADD_AGAIN_MS)
            await stage.turn()
        assert sorted(told) == list(range(len(asked)))
        assert not peer().is_asked

    run(story)


def test_a_coordinator_that_hangs_is_waited_for_no_longer_when_it_is_fenced() -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask("early", purpose=Purpose.ADD)
        await stage.turn()
        stage.peer.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        stage.ask("asked")
        await stage.turn()
        stage.ask("next")
        await stage.turn()
        stage.verifier.brokers_changed()
        await stage.turn()
        assert stage.answers == []
        stage.register(OTHER, fenced=True)
        stage.verifier.brokers_changed()
        await stage.turn()
        failed = {T0: ErrorCode.NETWORK_EXCEPTION}
        assert stage.answers == [("asked", failed), ("next", failed), ("early", failed)]
        assert stage.peer.is_closed
        stage.scheduler.advance(ADD_WAIT_MS)
        await stage.turn()
        assert (len(stage.answers), stage.connects) == (3, 1), "each is told once"
        stage.register(OTHER)
        stage.ask("again")
        await stage.turn()
        stage.peer.answer()
        await stage.turn()
        assert stage.answers[3:] == [("again", {T0: ErrorCode.NONE})]

    run(story)


def test_this_broker_waits_for_its_own_coordinator_whatever_the_image_says() -> None:
    async def story() -> None:
        stage = Stage(leader=ME)
        stage.own_peer = Peer()
        stage.ask("x")
        await stage.turn()
        stage.register(ME, fenced=True)
        stage.verifier.brokers_changed()
        stage.own_peer.answer()
        await stage.turn()
        assert stage.answers == [("x", {T0: ErrorCode.NONE})]

    run(story)


def test_nobody_is_asked_again_when_the_broker_stops() -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask("x", purpose=Purpose.ADD)
        await stage.turn()
        stage.peer.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        await stage.turn()
        stage.verifier.close()
        stage.scheduler.advance(ADD_WAIT_MS)
        await stage.turn()
        assert len(stage.peer.requests) == 1

    run(story)


def test_a_partition_that_the_response_does_not_name_is_not_confirmed() -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask("x")
        await stage.turn()
        stage.peer.futures[0].set_result(AddPartitionsToTxnResponse())
        await stage.turn()
        assert stage.answers == [("x", {T0: ErrorCode.UNKNOWN_SERVER_ERROR})]

    run(story)


def test_an_error_of_the_whole_is_that_of_each_partition_and_the_next_one_proves_anew() -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask("x", T0, T1)
        await stage.turn()
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        stage.peer.futures[0].set_result(AddPartitionsToTxnResponse(error_code=code))
        await stage.turn()
        assert stage.answers == [("x", {T0: code, T1: code})]
        stage.ask("x")
        await stage.turn()
        assert stage.connects == 2
        stage.peer.answer()
        await stage.turn()
        assert stage.answers[1] == ("x", {T0: ErrorCode.NONE})

    run(story)


def test_a_coordinator_that_cannot_be_reached_is_asked_again_by_the_next_question() -> None:
    async def story() -> None:
        stage = Stage()
        stage.unreachable = True
        stage.ask("x")
        await stage.turn()
        assert stage.answers == [("x", {T0: ErrorCode.NETWORK_EXCEPTION})]
        stage.unreachable = False
        stage.ask("x")
        await stage.turn()
        stage.peer.futures[0].set_exception(ConnectionLostError("gone"))
        stage.peer.is_closed = True
        await stage.turn()
        assert stage.answers[1] == ("x", {T0: ErrorCode.NETWORK_EXCEPTION})
        stage.ask("x")
        await stage.turn()
        stage.peer.answer()
        await stage.turn()
        assert stage.answers[2] == ("x", {T0: ErrorCode.NONE})

    run(story)


def test_without_a_coordinator_nobody_is_asked() -> None:
    async def story() -> None:
        stage = Stage()
        stage.metadata.change(1, leader=-1)
        stage.ask("x")
        assert stage.answers == [], "not before the call has returned"
        await stage.turn()
        assert stage.answers == [("x", {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE})]

    run(story)


def test_the_coordinator_on_this_broker_is_asked_without_a_connection() -> None:
    async def story() -> None:
        stage = Stage(leader=ME)
        stage.ask("x")
        await stage.turn()
        assert stage.answers == [("x", {T0: ErrorCode.NONE})]
        assert stage.connects == 0
        ((_, version),) = stage.own
        assert version == 5

    run(story)


def test_how_many_wait_is_bounded() -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask("x")
        await stage.turn()
        for number in range(QUESTIONS_MAX + 1):
            stage.ask(f"y{number}")
        await stage.turn()
        assert stage.answers == [(f"y{QUESTIONS_MAX}", {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE})]
        stage.verifier.close()

    run(story)
