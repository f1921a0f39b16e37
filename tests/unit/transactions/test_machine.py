"""The coordinator: epochs, retries, timeouts, and what the next coordinator goes on with."""

from dataclasses import replace

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    ConcurrentTransactionsError,
    InvalidRequestError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    OverloadedError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionalIdNotFoundError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.statemachine import Producer
from distributedlog.transactions.config import TransactionConfig
from distributedlog.transactions.records import TransactionRecord
from distributedlog.transactions.requests import (
    AbortReason,
    AddRequest,
    BeingAborted,
    DescribeReply,
    DescribeRequest,
    InitRequest,
    ListReply,
    ListRequest,
    MarkersWrittenRequest,
    ProducerReply,
    VerifyReply,
)
from distributedlog.transactions.transaction import EPOCH_GIVEN_MAX, EPOCH_MAX, TransactionState
from tests.unit.transactions.stage import (
    FIRST_PRODUCER_ID,
    ID,
    TIMEOUT_MS,
    Stage,
    in_state,
    partitions,
)

V2 = 2


def at_epoch(epoch: int, state: TransactionState = TransactionState.EMPTY) -> tuple[Stage, Producer]:
    """A stage whose producer has this epoch."""
    stage, _ = in_state(state)
    found = replace(stage.found(), producer_epoch=epoch)
    stage.log.append((TransactionRecord(ID, found),))
    stage.take_over()
    return stage, found.producer


# --- InitProducerId ----------------------------------------------------------------------------


def test_each_producer_that_starts_gets_the_next_epoch() -> None:
    stage = Stage()
    assert stage.producer() == Producer(FIRST_PRODUCER_ID, 0)
    assert stage.producer() == Producer(FIRST_PRODUCER_ID, 1)


def test_a_producer_asks_for_its_own_next_epoch_and_may_ask_again() -> None:
    stage = Stage()
    first = stage.producer()
    second = Producer(first.producer_id, 1)
    assert stage.init(first) == ProducerReply(second)
    assert stage.init(first) == ProducerReply(second), "its answer was lost"
    assert stage.init(second) == ProducerReply(Producer(first.producer_id, 2))
    assert isinstance(stage.init(first), ProducerFencedError)


def test_a_producer_that_another_has_replaced_gets_no_epoch() -> None:
    stage = Stage()
    first, second = stage.producer(), stage.producer()
    assert isinstance(stage.init(first), ProducerFencedError)
    stage.add(second, "a-0")
    assert isinstance(stage.init(first), ProducerFencedError)
    assert stage.found().state is TransactionState.ONGOING, "a zombie ends nobody's transaction"


def test_an_id_that_expired_begins_anew_for_the_producer_that_had_it() -> None:
    stage = Stage()
    assert stage.init(Producer(7, 3)) == ProducerReply(Producer(FIRST_PRODUCER_ID, 0))


def test_a_new_producer_fences_the_one_before_and_its_transaction() -> None:
    stage = Stage()
    first = stage.producer()
    stage.add(first, "a-0", "b-1")
    assert isinstance(stage.init(), BeingAborted)
    (sent,) = stage.sent
    assert sent.producer == Producer(first.producer_id, 1)
    assert not sent.is_commit
    assert sent.partitions == partitions("a-0", "b-1")
    assert sent.coordinator_epoch == stage.epoch
    assert isinstance(stage.init(), ConcurrentTransactionsError)
    assert isinstance(stage.end(first, True), ProducerFencedError)
    assert isinstance(stage.end(first, False, V2), ProducerFencedError), "the raised epoch is told to nobody"
    stage.write_markers()
    assert stage.init() == ProducerReply(Producer(first.producer_id, 2))
    assert stage.machine.aborted == {AbortReason.FENCED: 1}


@pytest.mark.parametrize("epoch", [EPOCH_GIVEN_MAX, EPOCH_MAX])
def test_epochs_run_out_and_a_new_producer_id_follows(epoch: int) -> None:
    stage, producer = at_epoch(epoch)
    new = Producer(producer.producer_id + 1, 0)
    assert stage.init() == ProducerReply(new)
    assert stage.found().previous_producer_id == producer.producer_id


def test_a_producer_whose_own_epochs_run_out_may_ask_again() -> None:
    stage, producer = at_epoch(EPOCH_GIVEN_MAX)
    new = Producer(producer.producer_id + 1, 0)
    assert stage.init(producer) == ProducerReply(new)
    assert stage.init(producer) == ProducerReply(new)
    assert isinstance(stage.init(Producer(producer.producer_id, 5)), ProducerFencedError)


def test_a_producer_of_the_last_epoch_can_be_fenced() -> None:
    stage, _ = at_epoch(EPOCH_GIVEN_MAX, TransactionState.ONGOING)
    stage.advance(TIMEOUT_MS)
    assert stage.found().producer_epoch == EPOCH_MAX
    assert stage.producer() == Producer(FIRST_PRODUCER_ID + 1, 0)


def test_nobody_has_the_epoch_that_is_left_to_fence_with() -> None:
    stage, producer = at_epoch(EPOCH_MAX)
    assert isinstance(stage.add(producer, "a-0"), ProducerFencedError)
    assert isinstance(stage.end(producer, False, V2), ProducerFencedError)


def test_what_is_out_of_bounds_is_refused() -> None:
    stage = Stage(TransactionConfig(timeout_ms_max=1_000, ids_max=1, entry_bytes_max=400))
    for timeout_ms in (-1, 0, 1_001):
        assert isinstance(stage.ask(InitRequest(ID, timeout_ms)), InvalidTransactionTimeoutError)
    assert isinstance(stage.ask(InitRequest("", 1_000)), InvalidRequestError)
    assert isinstance(stage.ask(InitRequest("x" * 10_001, 1_000)), InvalidRequestError)
    reply = stage.ask(InitRequest(ID, 1_000))
    assert isinstance(reply, ProducerReply)
    assert isinstance(stage.ask(InitRequest("other", 1_000)), OverloadedError)
    many = frozenset(TopicPartition("t", number) for number in range(100))
    assert isinstance(stage.ask(AddRequest(ID, reply.producer, many)), RecordTooLargeError)
    assert stage.found().state is TransactionState.EMPTY


# --- partitions --------------------------------------------------------------------------------


def test_partitions_that_are_there_already_are_not_written_again() -> None:
    stage, producer = in_state(TransactionState.ONGOING)
    written = len(stage.log.entries)
    assert stage.add(producer, "a-0") is None
    assert len(stage.log.entries) == written
    stage.add(producer, "a-1")
    assert stage.found().partitions == partitions("a-0", "a-1")


def test_verification_says_which_partitions_are_part_of_it() -> None:
    stage, producer = in_state(TransactionState.ONGOING)
    reply = stage.verify(producer, "a-0", "b-0")
    assert isinstance(reply, VerifyReply)
    assert [error for _, error in reply.errors] == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_was_part_of_an_ended_transaction_is_not_verified(is_commit: bool) -> None:
    stage, producer = in_state(TransactionState.ONGOING)
    stage.end(producer, is_commit)
    assert isinstance(stage.verify(producer, "a-0"), ConcurrentTransactionsError)
    stage.write_markers()
    reply = stage.verify(producer, "a-0")
    assert isinstance(reply, VerifyReply)
    assert [error for _, error in reply.errors] == [ErrorCode.TRANSACTION_ABORTABLE]


# --- the end, at version 2 ---------------------------------------------------------------------


def test_every_end_raises_the_epoch_and_markers_carry_it() -> None:
    stage = Stage()
    producer = stage.producer()
    for number, is_commit in enumerate((True, False, True)):
        stage.add(producer, "a-0", version=V2)
        reply = stage.end(producer, is_commit, V2)
        assert isinstance(reply, ProducerReply)
        assert reply.producer == Producer(producer.producer_id, number + 1)
        assert [each.producer for each in stage.sent] == [reply.producer]
        assert stage.sent[0].version == V2
        stage.write_markers()
        producer = reply.producer


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_that_is_sent_again_gets_the_same_answer(is_commit: bool) -> None:
    stage, producer = in_state(TransactionState.ONGOING, V2)
    reply = stage.end(producer, is_commit, V2)
    assert isinstance(stage.end(producer, is_commit, V2), ConcurrentTransactionsError)
    assert isinstance(stage.end(producer, not is_commit, V2), InvalidTransactionStateError)
    stage.write_markers()
    assert stage.end(producer, is_commit, V2) == reply
    assert isinstance(stage.end(producer, not is_commit, V2), InvalidTransactionStateError)
    stage.take_over()
    assert stage.end(producer, is_commit, V2) == reply, "of another coordinator, too"


def test_a_late_end_does_nothing_to_the_next_transaction() -> None:
    stage, producer = in_state(TransactionState.ONGOING, V2)
    reply = stage.end(producer, True, V2)
    assert isinstance(reply, ProducerReply)
    stage.write_markers()
    stage.add(reply.producer, "b-0", version=V2)
    for is_commit in (True, False):
        assert isinstance(stage.end(producer, is_commit, V2), ProducerFencedError)
    assert stage.found().state is TransactionState.ONGOING


def test_an_abort_of_nothing_raises_the_epoch_at_once() -> None:
    stage, producer = in_state(TransactionState.EMPTY)
    reply = stage.end(producer, False, V2)
    assert reply == ProducerReply(Producer(producer.producer_id, 1))
    assert not stage.sent
    assert stage.found().state is TransactionState.COMPLETE_ABORT
    assert stage.end(producer, False, V2) == reply


def test_the_last_epoch_ends_with_a_new_producer_id() -> None:
    stage, producer = at_epoch(EPOCH_GIVEN_MAX, TransactionState.ONGOING)
    new = Producer(producer.producer_id + 1, 0)
    assert stage.end(producer, True, V2) == ProducerReply(new)
    assert stage.sent[0].producer == Producer(producer.producer_id, EPOCH_MAX)
    assert isinstance(stage.add(new, "a-0", version=V2), ConcurrentTransactionsError), "it has to wait"
    stage.take_over()
    stage.write_markers()
    assert stage.end(producer, True, V2) == ProducerReply(new), "sent again"
    assert stage.add(new, "a-0", version=V2) is None


def test_the_last_epoch_of_an_empty_transaction_ends_likewise() -> None:
    stage, producer = at_epoch(EPOCH_GIVEN_MAX)
    new = Producer(producer.producer_id + 1, 0)
    assert stage.end(producer, False, V2) == ProducerReply(new)
    assert stage.found().producer == new


# --- time --------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    stage, producer = in_state(TransactionState.ONGOING)
    stage.advance(TIMEOUT_MS - 1)
    assert not stage.sent
    stage.advance(1)
    assert [each.is_commit for each in stage.sent] == [False]
    assert isinstance(stage.end(producer, True), ProducerFencedError)
    stage.write_markers()
    assert stage.found().state is TransactionState.COMPLETE_ABORT
    assert stage.machine.aborted == {AbortReason.TIMEOUT: 1}


def test_what_was_ended_does_not_time_out() -> None:
    stage, producer = in_state(TransactionState.ONGOING)
    stage.advance(TIMEOUT_MS - 1)
    stage.end(producer, True)
    stage.write_markers()
    stage.add(producer, "a-0")
    stage.advance(TIMEOUT_MS - 1)
    assert stage.found().state is TransactionState.ONGOING


def test_a_timeout_counts_from_the_first_partition_across_coordinators() -> None:
    stage, producer = in_state(TransactionState.ONGOING)
    stage.advance(TIMEOUT_MS // 2)
    stage.take_over()
    stage.add(producer, "b-0")
    stage.advance(TIMEOUT_MS // 2 - 1)
    assert not stage.sent
    stage.advance(1)
    assert [each.partitions for each in stage.sent] == [partitions("a-0", "b-0")]


def test_a_clock_that_stepped_back_does_not_lengthen_a_timeout() -> None:
    stage, _ = in_state(TransactionState.ONGOING)
    stage.now_ms -= 900
    stage.take_over()
    assert stage.machine.next_deadline_ms() == stage.now_ms + TIMEOUT_MS


def test_ids_expire_that_nothing_is_done_with_and_no_others() -> None:
    stage = Stage(TransactionConfig(id_expiration_ms=10_000, id_expiration_check_ms=1_000))
    producers = [stage.ask(InitRequest(f"id-{number}", TIMEOUT_MS)) for number in range(1_200)]
    last = producers[-1]
    assert isinstance(last, ProducerReply)
    stage.ask(AddRequest("id-1199", last.producer, partitions("a-0")))
    stage.advance(9_000)
    assert len(stage.machine.transactions) == 1_200
    stage.advance(3_000)
    assert list(stage.machine.transactions) == ["id-1199"], "it is open"
    assert max(len(entry) for entry in stage.log.entries) == 500
    stage.take_over()
    assert list(stage.machine.transactions) == ["id-1199"]


# --- the next coordinator ----------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, V2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_decision_is_carried_out_by_the_next_coordinator(is_commit: bool, version: int) -> None:
    stage, producer = in_state(TransactionState.ONGOING)
    stage.end(producer, is_commit, version)
    before = stage.sent[0]
    stage.take_over()
    assert stage.sent == [before._replace(coordinator_epoch=stage.epoch)]
    stage.write_markers()
    wanted = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    assert stage.found().state is wanted


def test_markers_of_an_earlier_transaction_complete_nothing() -> None:
    stage, producer = in_state(TransactionState.PREPARE_COMMIT, V2)
    late = MarkersWrittenRequest(ID, Producer(producer.producer_id, producer.producer_epoch - 1))
    assert isinstance(stage.ask(late), ProducerFencedError)
    assert stage.found().state is TransactionState.PREPARE_COMMIT


def test_a_snapshot_holds_everything() -> None:
    stage, producer = in_state(TransactionState.ONGOING, V2)
    stage.end(producer, True, V2)
    stage.init(transactional_id="other")
    other = stage.new_machine()
    other.restore(stage.machine.snapshot(), 9)
    assert other.transactions == stage.machine.transactions
    assert len(other.transactions) == 2


# --- looking -----------------------------------------------------------------------------------


def test_transactions_are_listed_by_state_producer_and_duration() -> None:
    stage, producer = in_state(TransactionState.ONGOING)
    stage.init(transactional_id="other")
    stage.now_ms += 500

    def listed(request: ListRequest) -> list[str]:
        reply = stage.ask(request)
        assert isinstance(reply, ListReply)
        return [each.transactional_id for each in reply.transactions]

    assert listed(ListRequest()) == [ID, "other"]
    assert listed(ListRequest(states=frozenset({TransactionState.EMPTY}))) == ["other"]
    assert listed(ListRequest(producer_ids=frozenset({producer.producer_id}))) == [ID]
    assert listed(ListRequest(open_ms_min=500)) == [ID]
    assert listed(ListRequest(open_ms_min=501)) == []
    assert list(stage.machine.open_start_times_ms()) == [stage.found().start_ms]


def test_a_transaction_is_described() -> None:
    stage, _ = in_state(TransactionState.ONGOING)
    assert stage.ask(DescribeRequest(ID)) == DescribeReply(stage.found())
    assert isinstance(stage.ask(DescribeRequest("other")), TransactionalIdNotFoundError)
