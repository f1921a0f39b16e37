"""Transactions: adding to them, ending them, and looking at them, in good order and out of it."""

from typing import Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from distributedlog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from distributedlog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from distributedlog.protocol.messages.end_txn import EndTxnRequest
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.list_transactions import ListTransactionsRequest
from tests.compat.differential.asking import Conversation
from tests.compat.differential.registry import probe

INIT_VERSION: Final = 4
TIMEOUT_MS: Final = 60_000


def init(of: Conversation, transactional_id: str) -> InitProducerIdResponse:
    """A producer that has the id, once there is a coordinator that answers, and one for another id."""
    of.call(FindCoordinatorRequest(key=transactional_id, key_type=1), 3, FindCoordinatorResponse)
    asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
    other = DescribeTransactionsRequest(transactional_ids=[of.name("other")])
    of.call_until(
        other,
        0,
        DescribeTransactionsResponse,
        lambda answer: answer.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    )
    return of.call_until(
        asked, INIT_VERSION, InitProducerIdResponse, lambda answer: answer.error_code == ErrorCode.NONE
    )


@probe(AddPartitionsToTxnRequest, until=3)
def added_partitions(of: Conversation, version: int) -> None:
    name, topic = of.name("tx"), of.topic()
    producer = init(of, name)

    def ask(label: str, *topics: str, producer_id: int | None = None, epoch: int = 0, tx: str = name) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=tx,
            v3_and_below_producer_id=producer.producer_id if producer_id is None else producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=each, partitions=[0]) for each in topics],
        )
        of.ask(label, request, version)

    ask("a partition", topic.name)
    ask("again", topic.name)
    ask("one that is not there", of.name("gone"))
    ask("another epoch", topic.name, epoch=5)
    ask("another id", topic.name, producer_id=99)
    ask("another transactional id", topic.name, tx=of.name("other"))
    ask("an empty transactional id", topic.name, tx="")


@probe(AddOffsetsToTxnRequest)
def added_offsets(of: Conversation, version: int) -> None:
    name = of.name("tx")
    producer = init(of, name)

    def ask(label: str, group: str, epoch: int = 0, tx: str = name) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=tx, producer_id=producer.producer_id, producer_epoch=epoch, group_id=group
        )
        of.ask(label, request, version)

    ask("a group", of.name("g"))
    ask("again", of.name("g"))
    ask("another epoch", of.name("g"), epoch=7)
    ask("another transactional id", of.name("g"), tx=of.name("other"))


@probe(EndTxnRequest)
def ends(of: Conversation, version: int) -> None:
    name = of.name("tx")
    producer = init(of, name)

    def ask(label: str, committed: bool, epoch: int = 0, tx: str = name) -> None:
        request = EndTxnRequest(
            transactional_id=tx, producer_id=producer.producer_id, producer_epoch=epoch, committed=committed
        )
        of.ask(label, request, version)

    ask("a commit of nothing", True)
    ask("another epoch", True, epoch=9)
    ask("another transactional id", True, tx=of.name("other"))
    ask("an empty transactional id", True, tx="")


@probe(DescribeTransactionsRequest)
def described(of: Conversation, version: int) -> None:
    name = of.name("tx")
    init(of, name)
    request = DescribeTransactionsRequest(transactional_ids=[name, of.name("other"), ""])
    of.ask("one that is there, and others", request, version)


@probe(ListTransactionsRequest)
def listed(of: Conversation, version: int) -> None:
    init(of, of.name("tx"))
    request = ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"], producer_id_filters=[987654321])
    of.ask("of a producer that is not there, and a state that is none", request, version)
