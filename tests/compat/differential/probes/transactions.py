"""Transactions: adding to them, ending them, and looking at them, in good order and out of it."""

from typing import Any, Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from distributedlog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from distributedlog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from distributedlog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.list_transactions import ListTransactionsRequest
from distributedlog.protocol.messages.produce import ProduceResponse
from tests.compat.differential.asking import Conversation, Topic
from tests.compat.differential.building import batch_of, fetch, list_offsets, produce
from tests.compat.differential.registry import probe

INIT_VERSION: Final = 4
ADD_VERSION: Final = 3
PRODUCE_VERSION: Final = 11
"""The last in which a partition must have been added before."""
FETCH_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 7
EPOCH_PER_TRANSACTION_SINCE: Final = 5
"""The version of EndTxn and TxnOffsetCommit from which every transaction has an epoch of its own."""
READ_COMMITTED: Final = 1
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


def begin(
    of: Conversation,
    name: str,
    producer: InitProducerIdResponse,
    topic: Topic,
    *,
    epoch: int | None = None,
    sequence: int = 0,
) -> None:
    """A transaction of three records, in one partition that was added to it."""
    epoch = producer.producer_epoch if epoch is None else epoch
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic.name, partitions=[0])],
    )

    def is_added(answer: AddPartitionsToTxnResponse) -> bool:
        (found,) = answer.results_by_topic_v3_and_below
        return found.results_by_partition[0].partition_error_code == ErrorCode.NONE

    assert is_added(of.call_until(add, ADD_VERSION, AddPartitionsToTxnResponse, is_added)), "not added"
    batch = batch_of(
        of,
        producer_id=producer.producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    request = produce(topic, batch, transactional_id=name)
    (written,) = of.call(request, PRODUCE_VERSION, ProduceResponse).responses
    assert written.partition_responses[0].error_code == ErrorCode.NONE, written


def wait_for_state(of: Conversation, name: str, *states: str) -> None:
    """Until the coordinator says that the transaction is so."""

    def is_so(answer: DescribeTransactionsResponse) -> bool:
        return answer.transaction_states[0].transaction_state in states

    request = DescribeTransactionsRequest(transactional_ids=[name])
    assert is_so(of.call_until(request, 0, DescribeTransactionsResponse, is_so)), f"{name} is not {states}"


def ask_what_is_read(of: Conversation, label: str, topic: Topic) -> None:
    committed = fetch(topic, isolation_level=READ_COMMITTED)
    of.ask(f"{label}, read committed", committed, FETCH_VERSION)
    of.ask(f"{label}, read uncommitted", fetch(topic), FETCH_VERSION)
    end = list_offsets(topic.name, [-1], isolation_level=READ_COMMITTED)
    of.ask(f"{label}, last stable offset", end, LIST_OFFSETS_VERSION)


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


@probe(AddPartitionsToTxnRequest, until=3)
def added_where_something_is_wrong(of: Conversation, version: int) -> None:
    name, topic = of.name("tx"), of.topic(2)
    producer = init(of, name)

    def ask(label: str, *partitions: tuple[str, list[int]]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=each, partitions=which) for each, which in partitions
            ],
        )
        of.ask(label, request, version)

    ask("no topic")
    ask("a topic without partitions", (topic.name, []))
    ask("one that is there beside one that is not", (topic.name, [0, 7]))
    ask("a negative partition", (topic.name, [-1]))
    ask("a partition twice", (topic.name, [1, 1]))
    ask("a topic of groups", ("__consumer_offsets", [0]))
    ask("a name that is none", ("a/b", [0]))
    of.ask("what was added", DescribeTransactionsRequest(transactional_ids=[name]), 0)


@probe(AddPartitionsToTxnRequest, since=4)
def added_by_brokers(of: Conversation, version: int) -> None:
    name, topic = of.name("tx"), of.topic(2)
    producer = init(of, name)

    def transaction(*partitions: int, tx: str = name, **more: Any) -> AddPartitionsToTxnTransaction:
        fields: dict[str, Any] = {
            "transactional_id": tx,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "topics": [AddPartitionsToTxnTopic(name=topic.name, partitions=list(partitions))],
        }
        return AddPartitionsToTxnTransaction(**(fields | more))

    def ask(label: str, *transactions: AddPartitionsToTxnTransaction) -> None:
        of.ask(label, AddPartitionsToTxnRequest(transactions=list(transactions)), version)

    ask("none")
    ask("verified, not added", transaction(0, verify_only=True))
    ask("added", transaction(0))
    ask("verified", transaction(0, verify_only=True))
    ask("verified, one of two", transaction(0, 1, verify_only=True))
    ask("two, one of another epoch", transaction(0), transaction(0, tx=of.name("other"), producer_epoch=3))


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
    ask("an empty transactional id", of.name("g"), tx="")
    ask("an empty group", "")


@probe(EndTxnRequest)
def whole_transactions(of: Conversation, version: int) -> None:
    """One commits, one aborts; each end is asked for again when it is done, and the other end too."""
    name, topic = of.name("tx"), of.topic()
    producer = init(of, name)
    epoch = producer.producer_epoch

    def ask(label: str, committed: bool, of_epoch: int) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=of_epoch,
            committed=committed,
        )
        answer = of.ask(label, request, version)
        assert isinstance(answer, EndTxnResponse)
        return answer

    for label, committed, done in (("commit", True, "CompleteCommit"), ("abort", False, "CompleteAbort")):
        begin(of, name, producer, topic, epoch=epoch, sequence=0 if committed else _next_sequence(version))
        ask_what_is_read(of, f"before the {label}", topic)
        ended = ask(label, committed, epoch)
        wait_for_state(of, name, done)
        ask(f"{label}, again", committed, epoch)
        ask(f"{label}, then the other end", not committed, epoch)
        ask(f"{label}, an epoch that is to come", committed, epoch + 7)
        ask_what_is_read(of, f"after the {label}", topic)
        epoch = ended.producer_epoch if version >= EPOCH_PER_TRANSACTION_SINCE else epoch
    of.ask("described", DescribeTransactionsRequest(transactional_ids=[name]), 0)


def _next_sequence(version: int) -> int:
    """What the second batch of three begins with: with a new epoch sequences begin anew."""
    return 0 if version >= EPOCH_PER_TRANSACTION_SINCE else 3


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
    ask("an abort of nothing", False)
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


@probe(DescribeTransactionsRequest)
def described_while_open(of: Conversation, version: int) -> None:
    name, topic = of.name("tx"), of.topic()
    begin(of, name, init(of, name), topic)
    of.ask("with a partition", DescribeTransactionsRequest(transactional_ids=[name]), version)
    of.ask("twice", DescribeTransactionsRequest(transactional_ids=[name, name]), version)
    of.ask("none", DescribeTransactionsRequest(transactional_ids=[]), version)


@probe(ListTransactionsRequest)
def listed_while_open(of: Conversation, version: int) -> None:
    name, topic = of.name("tx"), of.topic()
    producer = init(of, name)
    begin(of, name, producer, topic)
    for state in ("Ongoing", "Empty", "ongoing"):
        request = ListTransactionsRequest(state_filters=[state], producer_id_filters=[producer.producer_id])
        of.ask(f"of the producer, {state}", request, version)


@probe(InitProducerIdRequest)
def ids_of_a_transactional_id(of: Conversation, version: int) -> None:
    """New, once more, by itself in good order and out of it, and while a transaction is open."""
    name, topic = of.name("tx"), of.topic()
    first = init(of, name)

    def ask(label: str, **more: Any) -> None:
        fields: dict[str, Any] = {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS}
        of.ask(label, InitProducerIdRequest(**(fields | more)), version)

    ask("once more")
    if version >= 3:
        ask("its next epoch", producer_id=first.producer_id, producer_epoch=1)
        ask("its next epoch, again", producer_id=first.producer_id, producer_epoch=1)
        ask("an epoch long ago", producer_id=first.producer_id, producer_epoch=0)
        ask("an epoch that is to come", producer_id=first.producer_id, producer_epoch=9)
        ask("of another id", producer_id=987_654_321, producer_epoch=0)
    if version >= 6:
        ask("two-phase commit", enable2_pc=True)
        ask("keeping a prepared transaction", keep_prepared_txn=True)
    current = init(of, name)
    begin(of, name, current, topic)
    ask("while a transaction is open")
    wait_for_state(of, name, "CompleteAbort")
    ask("when it was aborted")
    ask_what_is_read(of, "then", topic)
