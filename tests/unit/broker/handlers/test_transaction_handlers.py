"""The APIs of transactions in every version, over their bytes, on a real coordinator."""

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

import pytest

from distributedlog.broker.net.context import ANONYMOUS, ConnectionSession, RequestContext
from distributedlog.broker.peers.authentication import BrokerIdentity
from distributedlog.groups.placement import partition_of
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from distributedlog.protocol.codec import decode_all, encode_bytes, join_parts
from distributedlog.protocol.framing import decode_response, encode_response
from distributedlog.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from distributedlog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from distributedlog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from distributedlog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from distributedlog.protocol.schema import Message
from distributedlog.statemachine import Producer
from distributedlog.transactions.transaction import TransactionState
from tests.unit.broker.handlers.admin_stage import registration_of, versions_of
from tests.unit.broker.partition_stage import ME
from tests.unit.broker.server_stage import bare_services
from tests.unit.broker.transaction_stage import FIRST_PRODUCER_ID, ID, TIMEOUT_MS, TransactionStage

R = TypeVar("R", bound=Message)
CLIENT_ADDS = [each for each in versions_of(AddPartitionsToTxnRequest) if each < 4]
OFFSETS_NUMBER = 52


class TransactionBroker:
    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.stage = TransactionStage()
        self.runner.run(self.stage.settle())
        self.services = bare_services(self.stage.stage.settings, self.stage.stage.clock)
        self.services.metadata = self.stage.metadata
        self.services.transactions = self.stage.coordinators

    def ask(self, request: Message, version: int, response: type[R], *, as_broker: bool = False) -> R:
        return self.runner.run(self._ask(request, version, response, as_broker))

    async def _ask(self, request: Message, version: int, response: type[R], as_broker: bool) -> R:
        registration = registration_of(request)
        received = decode_all(type(request), version, bytearray(encode_bytes(request, version)))
        session = ConnectionSession()
        if as_broker:
            session.broker = BrokerIdentity(ME, 1)
        deadline_ms = self.stage.stage.clock.monotonic_ms() + 30_000
        context = RequestContext(ANONYMOUS, "L", "client", "127.0.0.1", 7, version, 0, deadline_ms, session)
        try:
            answer = registration.handle(self.services, received, context)
            if isinstance(answer, Awaitable):
                waiting = asyncio.ensure_future(answer)
                await self.stage.settle()
                answer = await waiting
        except DlogError as error:
            answer = registration.make_error_response(received, context, error.code, str(error))
        assert isinstance(answer, Message)
        return decode_response(response, version, join_parts(encode_response(answer, version, 5))[4:])[1]

    # --- a client ------------------------------------------------------------------------------

    def init(self, version: int = 5, *, transactional_id: str = ID, **more: Any) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS, **more
        )
        return self.ask(request, version, InitProducerIdResponse)

    def producer(self) -> Producer:
        response = self.init()
        assert response.error_code == ErrorCode.NONE
        return Producer(response.producer_id, response.producer_epoch)

    def add(self, producer: Producer, *names: str, version: int = 3) -> dict[TopicPartition, ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=topics(*names),
        )
        return read(self.ask(request, version, AddPartitionsToTxnResponse).results_by_topic_v3_and_below)

    def end(self, producer: Producer, committed: bool = True, version: int = 5) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )
        return self.ask(request, version, EndTxnResponse)


def topics(*names: str) -> list[AddPartitionsToTxnTopic]:
    found: dict[str, list[int]] = {}
    for name in names:
        topic, partition = name.rsplit("-", 1)
        found.setdefault(topic, []).append(int(partition))
    return [AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in found.items()]


def read(results: list[AddPartitionsToTxnTopicResult]) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in results
        for each in topic.results_by_partition
    }


@pytest.fixture
def broker() -> Iterator[TransactionBroker]:
    made = TransactionBroker()
    with made.runner:
        yield made
        made.stage.coordinators.close()


# --- InitProducerId ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions_of(InitProducerIdRequest))
def test_a_transactional_producer_gets_its_id_and_ever_higher_epochs(
    broker: TransactionBroker, version: int
) -> None:
    for epoch in range(2):
        response = broker.init(version)
        assert response.error_code == ErrorCode.NONE
        assert (response.producer_id, response.producer_epoch) == (FIRST_PRODUCER_ID, epoch)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_fenced_producer_is_told_so_in_words_that_it_knows(broker: TransactionBroker, version: int) -> None:
    broker.producer()
    broker.producer()
    response = broker.init(version, producer_id=FIRST_PRODUCER_ID, producer_epoch=0)
    known = version >= 4
    assert response.error_code == (ErrorCode.PRODUCER_FENCED if known else ErrorCode.INVALID_PRODUCER_EPOCH)


def test_a_timeout_that_is_too_long_or_an_id_that_is_empty_is_refused(broker: TransactionBroker) -> None:
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=2**31 - 1)
    response = broker.ask(request, 5, InitProducerIdResponse)
    assert response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert broker.init(transactional_id="").error_code == ErrorCode.INVALID_REQUEST


# --- AddPartitionsToTxn, AddOffsetsToTxn -------------------------------------------------------


@pytest.mark.parametrize("version", CLIENT_ADDS)
def test_a_client_adds_partitions_all_or_none(broker: TransactionBroker, version: int) -> None:
    producer = broker.producer()
    answered = broker.add(producer, "t-0", "t-7", "gone-0", f"{TRANSACTIONS_TOPIC}-0", version=version)
    assert answered == {
        TopicPartition("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        TopicPartition("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        TopicPartition("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        TopicPartition(TRANSACTIONS_TOPIC, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert broker.stage.found().state is TransactionState.EMPTY
    assert set(broker.add(producer, "t-0", "t-1", version=version).values()) == {ErrorCode.NONE}
    assert len(broker.stage.found().partitions) == 2
    older = Producer(producer.producer_id, producer.producer_epoch - 1)
    expected = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.add(older, "t-0", version=version) == {TopicPartition("t", 0): expected}


def transaction(
    producer: Producer, *names: str, verify_only: bool, transactional_id: str = ID
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        topics=topics(*names),
    )


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_and_verify_for_many_transactions_at_once(
    broker: TransactionBroker, version: int
) -> None:
    producer = broker.producer()
    broker.add(producer, "t-0")
    request = AddPartitionsToTxnRequest(
        transactions=[
            transaction(producer, "t-0", "t-1", verify_only=True),
            transaction(producer, "t-0", verify_only=True, transactional_id="other"),
        ]
    )
    response = broker.ask(request, version, AddPartitionsToTxnResponse, as_broker=True)
    found = {each.transactional_id: read(each.topic_results) for each in response.results_by_transaction}
    assert response.error_code == ErrorCode.NONE
    assert found == {
        ID: {
            TopicPartition("t", 0): ErrorCode.NONE,
            TopicPartition("t", 1): ErrorCode.TRANSACTION_ABORTABLE,
        },
        "other": {TopicPartition("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    }
    adds = AddPartitionsToTxnRequest(transactions=[transaction(producer, "t-1", verify_only=False)])
    response = broker.ask(adds, version, AddPartitionsToTxnResponse, as_broker=True)
    assert read(response.results_by_transaction[0].topic_results) == {TopicPartition("t", 1): ErrorCode.NONE}
    assert len(broker.stage.found().partitions) == 2


@pytest.mark.parametrize("version", [4, 5])
def test_nobody_else_may_ask_for_the_transactions_of_others(broker: TransactionBroker, version: int) -> None:
    producer = broker.producer()
    request = AddPartitionsToTxnRequest(transactions=[transaction(producer, "t-0", verify_only=False)])
    response = broker.ask(request, version, AddPartitionsToTxnResponse)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert broker.stage.found().state is TransactionState.EMPTY


@pytest.mark.parametrize("version", versions_of(AddOffsetsToTxnRequest))
def test_the_offsets_of_a_group_are_the_partition_that_keeps_it(
    broker: TransactionBroker, version: int
) -> None:
    broker.stage.metadata.create(OFFSETS_TOPIC, OFFSETS_NUMBER, 5)
    producer = broker.producer()
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer.producer_id, producer_epoch=0, group_id="g"
    )
    assert broker.ask(request, version, AddOffsetsToTxnResponse).error_code == ErrorCode.NONE
    assert broker.stage.found().partitions == {TopicPartition(OFFSETS_TOPIC, partition_of("g", 5))}
    request.producer_epoch = 4
    expected = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.ask(request, version, AddOffsetsToTxnResponse).error_code == expected
    request.group_id = ""
    assert broker.ask(request, version, AddOffsetsToTxnResponse).error_code == ErrorCode.INVALID_GROUP_ID


# --- EndTxn ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions_of(EndTxnRequest))
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_is_ended_in_every_version(
    broker: TransactionBroker, version: int, committed: bool
) -> None:
    producer = broker.producer()
    broker.add(producer, "t-0")
    response = broker.end(producer, committed, version)
    assert response.error_code == ErrorCode.NONE
    epoch = 1 if version >= 5 else 0
    assert (response.producer_id, response.producer_epoch) == (
        (producer.producer_id, epoch) if version >= 5 else (-1, -1)
    )
    assert broker.stage.leaders.written == [(producer.producer_id, epoch, committed, "t", 0)]
    wanted = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    assert broker.stage.found().state is wanted
    older = Producer(producer.producer_id, -1)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.end(older, committed, version).error_code == fenced


# --- looking -----------------------------------------------------------------------------------


def test_transactions_are_described(broker: TransactionBroker) -> None:
    producer = broker.producer()
    broker.add(producer, "t-2", "t-0")
    request = DescribeTransactionsRequest(transactional_ids=[ID, "other", ""])
    states = broker.ask(request, 0, DescribeTransactionsResponse).transaction_states
    assert [(each.transactional_id, ErrorCode(each.error_code)) for each in states] == [
        (ID, ErrorCode.NONE),
        ("other", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
    ]
    found = states[0]
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", TIMEOUT_MS)
    assert (found.producer_id, found.producer_epoch) == producer
    assert [(each.topic, each.partitions) for each in found.topics] == [("t", [0, 2])]
    assert found.transaction_start_time_ms == broker.stage.found().start_ms


@pytest.mark.parametrize("version", versions_of(ListTransactionsRequest))
def test_transactions_are_listed(broker: TransactionBroker, version: int) -> None:
    producer = broker.producer()
    broker.add(producer, "t-0")
    broker.init(transactional_id="other")

    def listed(*states: str, **more: object) -> tuple[list[tuple[str, str]], list[str], int]:
        fields = {"state_filters": list(states), "producer_id_filters": [], **more}
        response = broker.ask(ListTransactionsRequest(**fields), version, ListTransactionsResponse)  # type: ignore[arg-type]
        found = [(each.transactional_id, each.transaction_state) for each in response.transaction_states]
        return sorted(found), response.unknown_state_filters, response.error_code

    both = [("other", "Empty"), (ID, "Ongoing")]
    assert listed() == (both, [], ErrorCode.NONE)
    assert listed("Ongoing", "Nonsense", "Dead") == ([(ID, "Ongoing")], ["Nonsense"], ErrorCode.NONE)
    assert listed("Nonsense") == ([], ["Nonsense"], ErrorCode.NONE)
    assert listed(producer_id_filters=[producer.producer_id]) == ([(ID, "Ongoing")], [], ErrorCode.NONE)
    if version >= 1:
        assert listed(duration_filter=0) == ([(ID, "Ongoing")], [], ErrorCode.NONE)
        assert listed(duration_filter=10**9) == ([], [], ErrorCode.NONE)
    if version >= 2:
        assert listed(transactional_id_pattern="oth.*")[0] == [("other", "Empty")]
        assert listed(transactional_id_pattern="(")[2] == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_while_a_partition_is_loading_the_list_is_not_complete(broker: TransactionBroker) -> None:
    broker.producer()
    coordinator = next(broker.stage.coordinators.all_active())
    coordinator.host.runtime.leadership_lost()
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    response = broker.ask(request, 2, ListTransactionsResponse)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert response.transaction_states == []
