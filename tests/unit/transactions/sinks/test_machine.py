"""Batches of sinks: who joins, who wins, who is fenced, and what becomes of them when coordinators die."""

import pytest

from distributedlog.model.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionStateError,
    OverloadedError,
    ProducerFencedError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.protocol.messages.sink_transaction import ONE_RUN_PREFIX
from distributedlog.statemachine import Producer
from distributedlog.transactions.config import TransactionConfig
from distributedlog.transactions.machine import TransactionMachine
from distributedlog.transactions.requests import (
    AddRequest,
    BeingAborted,
    DescribeReply,
    DescribeRequest,
    InitRequest,
    ListReply,
    ListRequest,
    VerifyReply,
    VerifyRequest,
)
from distributedlog.transactions.sinks.query import sink_id_of
from distributedlog.transactions.sinks.requests import (
    SinkDecided,
    SinkDescribe,
    SinkDescription,
    SinkEnd,
    SinkEnded,
    SinkJoin,
    SinkJoined,
    SinkSkipped,
    WinnersRefused,
)
from distributedlog.transactions.transaction import TransactionState
from tests.unit.transactions.sinks.stage import P0, P1, QUERY, TIMEOUT_MS, SinkStage
from tests.unit.transactions.stage import WALL_MS

SINK_ID = sink_id_of(QUERY)


def two_attempts(token: int = 10, batch_id: int = 1) -> tuple[SinkStage, Producer, Producer]:
    """A winner and a loser that have written the same row."""
    stage = SinkStage()
    winner, loser = stage.joined(token, batch_id, "0-0"), stage.joined(token, batch_id, "0-1")
    for each, partition in ((winner, P0), (winner, P1), (loser, P0)):
        assert stage.produce(each, partition, f"{batch_id} of {partition.partition}") is None
    return stage, winner, loser


def test_winners_are_committed_and_losers_never_seen() -> None:
    stage, winner, _ = two_attempts()
    assert stage.end_batch(10, 1, winner) == SinkDecided()
    assert {each.is_commit for each in stage.sent if each.producer.producer_id == winner.producer_id} == {
        True
    }
    assert stage.visible == []
    stage.write_markers()
    assert stage.visible == ["1 of 0", "1 of 1"]
    assert stage.completed == [QUERY]
    assert stage.batch_state() is TransactionState.COMPLETE_COMMIT


def test_an_end_that_is_sent_again_is_answered_the_same_and_does_nothing() -> None:
    stage, winner, loser = two_attempts()
    stage.end_batch(10, 1, winner)
    entries, sent = len(stage.log.entries), len(stage.sent)
    assert stage.end_batch(10, 1, winner) == SinkDecided()
    assert (len(stage.log.entries), len(stage.sent)) == (entries, sent)
    stage.write_markers()
    entries = len(stage.log.entries)
    assert stage.end_batch(10, 1, winner) == SinkEnded()
    assert len(stage.log.entries) == entries
    assert not stage.sent
    assert isinstance(stage.end_batch(10, 1, loser), InvalidTransactionStateError)
    assert stage.visible == ["1 of 0", "1 of 1"]


def test_a_batch_is_complete_only_when_every_marker_is_written() -> None:
    stage, winner, _ = two_attempts()
    stage.end_batch(10, 1, winner)
    first, second = stage.sent
    stage.write_marker(first)
    assert not stage.completed
    assert isinstance(stage.join(11, 2, "0-0"), ConcurrentTransactionsError)
    assert isinstance(stage.write_marker(first), InvalidTransactionStateError), "it was noted already"
    stage.write_marker(second)
    assert stage.completed == [QUERY]


def test_a_join_after_the_decision_gets_no_lease() -> None:
    stage, winner, _ = two_attempts()
    stage.end_batch(10, 1, winner)
    assert isinstance(stage.join(10, 1, "0-2"), ConcurrentTransactionsError)
    stage.write_markers()
    assert stage.join(10, 1, "0-2") == SinkSkipped()
    assert stage.state.open_count == 0


def test_a_produce_after_the_decision_is_fenced() -> None:
    stage, winner, loser = two_attempts()
    stage.end_batch(10, 1, winner)
    assert isinstance(stage.produce(loser, P1, "late"), ProducerFencedError)
    stage.write_markers()
    for late in (winner, loser):
        for partition in (P0, P1):
            assert isinstance(stage.produce(late, partition, "late"), ProducerFencedError)
    with pytest.raises(ProducerFencedError):  # by the partition itself, if it was verified before
        stage.leaders[P0].append(loser, "late")
    # The id is leased again: what comes late of its last lease is not taken for the new one's.
    again = stage.joined(11, 2, "0-0")
    assert again.producer_id in (winner.producer_id, loser.producer_id)
    before = Producer(again.producer_id, again.producer_epoch - 2)
    assert isinstance(stage.produce(before, P0, "late"), ProducerFencedError)
    assert stage.visible == ["1 of 0", "1 of 1"]


def test_a_batch_that_is_committed_is_skipped_and_an_older_one_refused() -> None:
    stage, winner, _ = two_attempts(batch_id=5)
    stage.end_batch(10, 5, winner)
    stage.write_markers()
    assert stage.join(11, 5, "0-0") == SinkSkipped()
    refusal = stage.join(11, 4, "0-0")
    assert isinstance(refusal, InvalidTransactionStateError)
    assert "the checkpoint is older than the sink" in str(refusal)
    stage.take_over()
    stage.advance(stage.config.id_expiration_ms * 2)
    assert stage.join(12, 5, "0-0") == SinkSkipped(), "the marker never expires"
    assert not stage.state.leases, "producer ids do"


def test_a_driver_with_a_lower_token_is_fenced_and_its_batch_aborted() -> None:
    stage, winner, _ = two_attempts(token=10)
    assert stage.join(20, 1, "0-0") == BeingAborted()
    for refused in (stage.join(10, 1, "0-5"), stage.heartbeat(10, 1), stage.end_batch(10, 1, winner)):
        assert isinstance(refused, ProducerFencedError)
    new = stage.joined(20, 1, "0-0")
    assert isinstance(stage.end_batch(10, 1, winner), ProducerFencedError)
    assert stage.produce(new, P0, "new") is None
    stage.end_batch(20, 1, new)
    stage.write_markers()
    assert stage.visible == ["new"]


def test_the_timeout_counts_from_the_last_sign_of_life() -> None:
    stage, winner, loser = two_attempts()
    for _ in range(5):
        stage.advance(TIMEOUT_MS - 1)
        assert stage.heartbeat(10, 1) is None
    assert stage.batch_state() is TransactionState.ONGOING
    stage.advance(TIMEOUT_MS)
    assert stage.batch_state() is TransactionState.PREPARE_ABORT
    assert isinstance(stage.end_batch(10, 1, winner), ProducerFencedError)
    assert isinstance(stage.heartbeat(10, 1), ProducerFencedError)
    stage.write_markers()
    assert isinstance(stage.join(10, 1, "0-3"), ProducerFencedError), "its token is used up"
    assert isinstance(stage.produce(loser, P0, "late"), ProducerFencedError)
    assert stage.visible == []
    assert isinstance(stage.join(11, 1, "0-3"), SinkJoined)


@pytest.mark.parametrize("is_decided", [False, True])
def test_the_next_coordinator_goes_on(is_decided: bool) -> None:
    stage, winner, _ = two_attempts()
    if is_decided:
        stage.end_batch(10, 1, winner)
        stage.write_marker(stage.sent[0])
    stage.take_over()
    if is_decided:
        assert len(stage.sent) == 1, "the marker of whoever has none yet"
        assert stage.end_batch(10, 1, winner) == SinkDecided()
    else:
        assert not stage.sent
        assert stage.end_batch(10, 1, winner) == SinkDecided()
        assert len(stage.sent) == 2
    stage.write_markers()
    assert stage.end_batch(10, 1, winner) == SinkEnded()
    assert stage.visible == ["1 of 0", "1 of 1"]


def test_a_winner_that_holds_no_lease_aborts_all() -> None:
    for wrong in (Producer(1, 0), Producer(1000, 7)):
        stage, winner, _ = two_attempts()
        assert isinstance(stage.end_batch(10, 1, winner, wrong), WinnersRefused)
        stage.write_markers()
        assert stage.visible == []
        assert stage.batch_state() is TransactionState.COMPLETE_ABORT
        assert stage.query.committed_batch_id == -1


def test_an_abort_acts_on_its_own_open_batch_alone() -> None:
    stage, _, _ = two_attempts()
    stage.abort_batch(9)
    stage.abort_batch(11)
    assert stage.batch_state() is TransactionState.ONGOING
    stage.abort_batch(10)
    stage.write_markers()
    assert stage.batch_state() is TransactionState.COMPLETE_ABORT
    again = stage.joined(11, 1, "0-0")
    stage.end_batch(11, 1, again)
    stage.abort_batch(11)
    stage.write_markers()
    assert stage.batch_state() is TransactionState.COMPLETE_COMMIT


def test_ids_are_leased_again_and_a_join_that_is_repeated_gets_the_same() -> None:
    stage = SinkStage()
    used = set()
    for batch_id in range(4):
        attempts = [stage.joined(batch_id, batch_id, f"{at}-0") for at in range(3)]
        assert stage.joined(batch_id, batch_id, "1-0") == attempts[1]
        used.update(attempts)
        stage.end_batch(batch_id, batch_id, *attempts)
        stage.write_markers()
    assert len(used) == 12, "each lease has an epoch of its own"
    assert len({each.producer_id for each in used}) == 3


def test_what_a_sink_may_not_do() -> None:
    stage, winner, _ = two_attempts()
    offsets = TopicPartition(OFFSETS_TOPIC, 0)
    add = AddRequest(SINK_ID, winner, frozenset({offsets}), 2)
    assert isinstance(stage.ask(add), InvalidTransactionStateError)
    stranger = AddRequest(SINK_ID, Producer(5, 0), frozenset({P0}), 2)
    assert isinstance(stage.ask(stranger), InvalidProducerIdMappingError)
    assert isinstance(stage.ask(InitRequest(SINK_ID, TIMEOUT_MS)), InvalidRequestError)
    assert isinstance(stage.join(10, 2, "0-0"), InvalidRequestError), "a token is one batch's"
    assert isinstance(stage.join(10, 1, ""), InvalidRequestError)
    assert isinstance(stage.join(10, 1, "a" * 1_001), InvalidRequestError)
    assert isinstance(stage.end_batch(11, 1, winner), InvalidTransactionStateError), "nobody joined with it"


def test_the_attempts_of_a_batch_are_bounded() -> None:
    stage = SinkStage()
    stage.config = TransactionConfig(sink_attempts_max=1, sink_queries_max=1)
    stage.take_over()
    stage.joined(1, 1, "0-0")
    assert isinstance(stage.join(1, 1, "0-1"), OverloadedError)
    assert isinstance(stage.ask(SinkJoin("other", 1, 1, "0-0", TIMEOUT_MS)), OverloadedError)


def test_a_query_of_one_run_is_forgotten_long_after_its_end_and_no_other() -> None:
    stage = SinkStage()
    of_one_run = f"{ONE_RUN_PREFIX}7"
    for token, query_id in ((7, of_one_run), (8, QUERY)):
        reply = stage.ask(SinkJoin(query_id, token, 0, "0-0", TIMEOUT_MS))
        assert isinstance(reply, SinkJoined)
        stage.ask(SinkEnd(query_id, token, 0, frozenset({reply.producer})))
        stage.write_markers()
    stage.advance(stage.config.id_expiration_ms - 1)
    assert set(stage.machine.sinks.states) == {of_one_run, QUERY}
    stage.advance(2 * stage.config.id_expiration_check_ms)
    assert set(stage.machine.sinks.states) == {QUERY}
    assert stage.join(9, 0, "0-0") == SinkSkipped()
    stage.take_over()
    assert set(stage.machine.sinks.states) == {QUERY}


def test_a_query_of_one_run_that_is_open_is_kept() -> None:
    stage = SinkStage()
    of_one_run = f"{ONE_RUN_PREFIX}7"
    reply = stage.ask(SinkJoin(of_one_run, 7, 0, "0-0", TIMEOUT_MS))
    stage.advance(TIMEOUT_MS)
    stage.advance(2 * stage.config.id_expiration_ms)
    assert stage.machine.sinks.states[of_one_run].open_count == 1, "its markers are not written"
    stage.write_markers()
    stage.advance(2 * stage.config.id_expiration_ms)
    assert of_one_run not in stage.machine.sinks.states
    assert isinstance(reply, SinkJoined)


def test_a_batch_is_seen_as_a_transaction_and_as_what_it_is() -> None:
    stage, winner, loser = two_attempts()
    verified = stage.ask(VerifyRequest(SINK_ID, loser, frozenset({P0, P1})))
    assert isinstance(verified, VerifyReply)
    assert [code.name for _, code in verified.errors] == ["NONE", "TRANSACTION_ABORTABLE"]
    listed = stage.ask(ListRequest(producer_ids=frozenset({loser.producer_id})))
    assert isinstance(listed, ListReply)
    assert [each[:2] for each in listed.transactions] == [(SINK_ID, loser.producer_id)]
    described = stage.ask(DescribeRequest(SINK_ID))
    assert isinstance(described, DescribeReply)
    assert described.transaction.partitions == {P0, P1}
    seen = stage.ask(SinkDescribe(QUERY))
    assert isinstance(seen, SinkDescription)
    assert seen.query.batch_id == 1
    assert [(each.producer, each.attempt_id) for each in seen.attempts] == [(winner, "0-0"), (loser, "0-1")]
    assert list(stage.machine.open_start_times_ms()) == [WALL_MS + stage.now_ms]


def test_a_snapshot_holds_everything() -> None:
    stage, winner, _ = two_attempts()
    stage.end_batch(10, 1, winner)
    stage.write_marker(stage.sent[0])
    restored: TransactionMachine = stage.new_machine()
    restored.restore(stage.machine.snapshot(), 0)
    assert list(restored.sinks.records()) == list(stage.machine.sinks.records())
    assert restored.sinks.states[QUERY].free == stage.state.free
