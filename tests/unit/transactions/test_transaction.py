"""Every state with every event: what it becomes, or how it is refused; and producers' epochs."""

import pytest

from distributedlog.model.errors import (
    ConcurrentTransactionsError,
    DlogError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
from distributedlog.statemachine import Producer
from distributedlog.transactions.requests import (
    BeingAborted,
    MarkersWrittenRequest,
    ProducerReply,
    Reply,
)
from distributedlog.transactions.transaction import REFUSALS, TRANSITIONS, Event, TransactionState
from tests.unit.transactions.stage import ID, Stage, in_state

PAIRS = [(state, event) for state in TransactionState for event in Event]
FREE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def test_each_pair_stands_in_one_table() -> None:
    assert not TRANSITIONS.keys() & REFUSALS.keys()
    assert TRANSITIONS.keys() | REFUSALS.keys() == set(PAIRS)


def perform(stage: Stage, producer: Producer, event: Event, version: int) -> Reply | DlogError:
    match event:
        case Event.INIT:
            return stage.init()
        case Event.ADD:
            return stage.add(producer, "a-0", "b-1", version=version)
        case Event.COMMIT:
            return stage.end(producer, True, version)
        case Event.ABORT:
            return stage.end(producer, False, version)
        case Event.WRITTEN:
            return stage.ask(MarkersWrittenRequest(ID, stage.found().producer))
        case Event.FENCE:
            stage.advance(stage.found().timeout_ms)
        case Event.EXPIRE:
            stage.now_ms += stage.config.id_expiration_ms
            stage.advance(stage.config.id_expiration_check_ms)
    return None


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(("state", "event"), PAIRS, ids=str)
def test_a_pair_goes_as_its_table_says(state: TransactionState, event: Event, version: int) -> None:
    stage, producer = in_state(state, version)
    reply = perform(stage, producer, event, version)
    now = stage.machine.transactions.get(ID)
    if event is Event.INIT and state is TransactionState.ONGOING:
        assert isinstance(reply, BeingAborted), "it is fenced first"
        assert now is not None
        assert now.state is TransactionState.PREPARE_ABORT
    elif event is Event.EXPIRE and state is TransactionState.ONGOING:
        assert now is not None
        assert now.state is TransactionState.PREPARE_ABORT, "it timed out long before"
    elif (state, event) in REFUSALS or (version == 0 and event is Event.ABORT and state in FREE):
        assert now is not None
        assert now.state is state
        if event not in (Event.FENCE, Event.EXPIRE):
            check_refusal(state, event, version, reply)
    else:
        following = TRANSITIONS[state, event]
        assert (None if now is None else now.state) is following
        assert not isinstance(reply, DlogError)


def check_refusal(state: TransactionState, event: Event, version: int, reply: Reply | DlogError) -> None:
    same = (TransactionState.COMPLETE_COMMIT, Event.COMMIT), (TransactionState.COMPLETE_ABORT, Event.ABORT)
    if version == 0 and (state, event) in same:
        assert isinstance(reply, ProducerReply), "sent again, it is confirmed"
    elif version == 2 and event in (Event.COMMIT, Event.ABORT) and state.name.startswith("PREPARE"):
        assert isinstance(reply, ConcurrentTransactionsError), "the end of the next one comes too early"
    else:
        assert isinstance(reply, REFUSALS.get((state, event), InvalidTransactionStateError))


# --- who asks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(TransactionState))
def test_others_are_refused_in_every_state(state: TransactionState) -> None:
    stage, producer = in_state(state)
    other_id, older, newer = (
        Producer(producer.producer_id + 1, producer.producer_epoch),
        Producer(producer.producer_id, producer.producer_epoch - 1),
        Producer(producer.producer_id, producer.producer_epoch + 1),
    )
    before = stage.found()
    for version in (0, 2):
        for is_commit in (True, False):
            assert isinstance(stage.end(other_id, is_commit, version), InvalidProducerIdMappingError)
            assert isinstance(stage.end(older, is_commit, version), ProducerFencedError)
            assert isinstance(stage.end(newer, is_commit, version), ProducerFencedError)
        for add in (stage.add, stage.verify):
            assert isinstance(add(other_id, "a-0"), InvalidProducerIdMappingError)
            assert isinstance(add(older, "a-0"), ProducerFencedError)
            assert isinstance(add(newer, "a-0"), ProducerFencedError)
    assert isinstance(stage.init(other_id), ProducerFencedError)
    assert stage.found() == before


def test_an_unknown_id_has_no_producer() -> None:
    stage = Stage()
    producer = Producer(5, 0)
    assert isinstance(stage.add(producer, "a-0"), InvalidProducerIdMappingError)
    assert isinstance(stage.verify(producer, "a-0"), InvalidProducerIdMappingError)
    for version in (0, 2):
        assert isinstance(stage.end(producer, True, version), InvalidProducerIdMappingError)
    assert not stage.log.entries
