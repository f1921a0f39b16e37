"""The states of a producer's transactions: what may follow what, and what each error leaves possible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.client.accumulator import Identity
from distributedlog.client.errors import error_from
from distributedlog.client.transactions.state import State, TransactionState
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DlogError,
    InvalidTransactionStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from distributedlog.model.ids import TopicPartition

ME = Identity(7, 0)
HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def opened(*, is_implicit: bool = True) -> TransactionState:
    state = TransactionState("id")
    state.initialized(ME)
    state.begin(is_implicit=is_implicit)
    return state


def test_records_are_sent_in_a_transaction_only() -> None:
    state = TransactionState("id")
    with pytest.raises(InvalidTransactionStateError, match="not initialized"):
        state.check_sending()
    state.initialized(ME)
    with pytest.raises(InvalidTransactionStateError, match="without a transaction"):
        state.check_sending()
    state.begin(is_implicit=True)
    state.check_sending()
    with pytest.raises(InvalidTransactionStateError, match="cannot begin"):
        state.begin(is_implicit=True)


def test_in_the_classic_flow_partitions_and_groups_are_added_once() -> None:
    state = opened(is_implicit=False)
    assert state.to_add([HERE, THERE]) == [HERE, THERE]
    assert not state.is_started
    state.added([HERE])
    assert state.to_add([HERE, THERE]) == [THERE]
    assert state.must_add_group("g")
    state.added_group("g")
    assert not state.must_add_group("g")
    state.ending(commits=True)
    state.ended(ME)
    state.begin(is_implicit=False)
    assert state.to_add([HERE]) == [HERE]
    assert state.must_add_group("g")


def test_with_version_2_nothing_is_added_but_the_coordinator_may_know() -> None:
    state = opened()
    assert state.to_add([HERE]) == []
    assert state.is_started
    assert TransactionState("other").is_started is False
    assert not opened().must_add_group("g")


def test_what_failed_can_be_aborted_and_never_committed() -> None:
    state = opened()
    state.failed(error_from(ErrorCode.MESSAGE_TOO_LARGE, "partition t-0"))
    for step in (state.check_sending, lambda: state.ending(commits=True)):
        with pytest.raises(TransactionAbortableError, match="t-0"):
            step()
    state.ending(commits=False)
    assert state.needs_epoch
    state.ended(Identity(7, 1))
    assert (state.state, state.error, state.needs_epoch) == (State.READY, None, False)


def test_a_commit_of_unknown_fate_can_only_be_committed_again() -> None:
    state = opened()
    state.ending(commits=True)
    with pytest.raises(InvalidTransactionStateError, match="commit again"):
        state.ending(commits=False)
    state.ending(commits=True)


def test_a_fenced_producer_says_what_to_do_from_then_on() -> None:
    state = opened()
    state.failed(error_from(ErrorCode.PRODUCER_FENCED, "the transactional id 'id'"))
    for step in (
        state.check_sending,
        lambda: state.ending(commits=True),
        lambda: state.ending(commits=False),
        lambda: state.begin(is_implicit=True),
    ):
        with pytest.raises(ProducerFencedError, match="make another one"):
            step()


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE])
def test_only_the_coordinator_is_believed_that_the_transaction_is_over(code: ErrorCode) -> None:
    state = opened()
    state.failed(error_from(code, "partition t-0"))
    believed = opened()
    believed.failed(error_from(code, "the transactional id 'id'"), by_coordinator=True)
    assert (state.state, believed.state) == (State.ABORTABLE, State.DEAD)


STEPS = st.sampled_from(["begin", "fail", "fence", "commit", "abort", "ended"])


@given(st.lists(STEPS, max_size=30))
def test_whatever_is_called_a_transaction_with_a_failure_is_never_committed(steps: list[str]) -> None:
    state = TransactionState("id")
    state.initialized(ME)
    is_open = has_failed = is_ending = is_dead = False
    for step in steps:
        try:
            if step == "begin":
                state.begin(is_implicit=True)
                assert not is_open
                assert not is_dead
                is_open, has_failed = True, False
            elif step == "fail":
                state.failed(error_from(ErrorCode.MESSAGE_TOO_LARGE, "x"))
                has_failed |= is_open and not is_ending
            elif step == "fence":
                state.failed(error_from(ErrorCode.PRODUCER_FENCED, "x"))
                is_dead = True
            elif step in ("commit", "abort"):
                state.ending(commits=step == "commit")
                assert is_open
                assert not is_dead
                assert step == "abort" or not has_failed
                is_ending = True
            elif is_ending and not is_dead:
                state.ended(ME)
                is_open = is_ending = False
        except DlogError:
            pass
        assert state.is_sending == (is_open and not (has_failed or is_ending or is_dead))
