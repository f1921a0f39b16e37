"""Asking transaction coordinators: gathered, one request at a time, in words that producers know."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from distributedlog.broker.peers.transaction_verifier import (
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
from tests.unit.broker.partition_stage import ME, OTHER, Metadata, topic_id

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

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.futures[-1].set_result(response_to(self.requests[-1], code))

    def close(self) -> None:
        self.is_closed = True


class Stage:
    def __init__(self, leader: int = OTHER) -> None:
        self.metadata = Metadata()
        for broker_id in (ME, OTHER):
            self.metadata.apply(
                RegisterBroker(
                    broker_id=broker_id,
                    incarnation_id=topic_id(broker_id),
                    broker_epoch=broker_id,
                    end_points=[],
                    features=[],
                    rack=None,
                    fenced=False,
                )
            )
        self.metadata.create(TRANSACTIONS_TOPIC, 1, replicas=(leader,), leader=leader)
        self.peer = Peer()
        self.connects = 0
        self.unreachable = False
        self.answers: list[tuple[str, Verdicts]] = []
        self.own: list[tuple[AddPartitionsToTxnRequest, int]] = []
        self.verifier = TransactionVerifier(
            lambda: self.metadata.image,
            broker_id=ME,
            connect=self._connect,
            ask_self=self._ask_self,
            timeout_ms=1_000,
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
        return response_to(request)

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
        (ErrorCode.CONCURRENT_TRANSACTIONS, Purpose.ADD, ErrorCode.CONCURRENT_TRANSACTIONS),
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
