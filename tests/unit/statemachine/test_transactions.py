"""Transactions in a machine's log: replayed and appended, they count when they are committed."""

import pytest

from distributedlog.model.errors import InvalidProducerEpochError, LoadInProgressError
from distributedlog.statemachine import Phase, Producer, Runtime, TransactionEnd
from distributedlog.statemachine.runtime import NO_OFFSET
from tests.unit.statemachine.ledger import Add, Ledger, Read, Request, Seen, TransactionalStageLog

LATER_MS = 1_000
PRODUCER = Producer(9, 3)
COMMIT, ABORT = TransactionEnd(PRODUCER, is_commit=True), TransactionEnd(PRODUCER, is_commit=False)


def following(log: TransactionalStageLog) -> Runtime[Request, int, Seen, int]:
    return Runtime(Ledger, log, transactions=log)


def active(log: TransactionalStageLog) -> Runtime[Request, int, Seen, int]:
    runtime = following(log)
    runtime.elected(1)
    log.replay_into(runtime)
    runtime.loaded(0)
    return runtime


def values(runtime: Runtime[Request, int, Seen, int]) -> list[int]:
    assert isinstance(runtime.machine, Ledger)
    return runtime.machine.values


@pytest.mark.parametrize(("end", "expected"), [(COMMIT, [1, 2]), (ABORT, [1])])
def test_a_transaction_that_was_open_when_the_log_was_loaded_ends_as_its_marker_says(
    end: TransactionEnd, expected: list[int]
) -> None:
    log = TransactionalStageLog()
    log.append([1])
    log.append_transactional([2], PRODUCER)
    runtime = active(log)
    assert values(runtime) == [1]
    assert list(runtime.pending.records()) == [2]
    ticket = runtime.end_transaction(end, 0, LATER_MS)
    assert values(runtime) == expected
    assert runtime.take().replies == [], "its marker is not committed yet"
    runtime.committed(2)
    (reply,) = runtime.take().replies
    assert (reply.ticket, reply.error, reply.needs_leadership) == (ticket, None, False)
    assert values(active(log)) == expected, "whoever loads the log later comes to the same"


def test_records_of_a_transaction_are_appended_as_such_and_wait_for_its_marker() -> None:
    log = TransactionalStageLog()
    runtime = active(log)
    runtime.submit(Add(5, transaction=PRODUCER), 0, LATER_MS)
    runtime.committed(0)
    assert runtime.take().replies[0].error is None
    assert values(runtime) == []
    read = runtime.submit(Read(), 0, LATER_MS)
    (reply,) = runtime.take().replies
    assert (reply.ticket, reply.response) == (read, ())
    runtime.end_transaction(COMMIT, 0, LATER_MS)
    assert values(runtime) == [5]
    assert values(active(log)) == [5]


def test_what_is_held_is_read_again_with_the_log() -> None:
    log = TransactionalStageLog()
    runtime = active(log)
    runtime.submit(Add(5, transaction=PRODUCER), 0, LATER_MS)
    runtime.leadership_lost()
    assert list(runtime.pending.records()) == [], "it may not have been committed"
    runtime.elected(2)
    log.replay_into(runtime)
    runtime.loaded(0)
    assert list(runtime.pending.records()) == [5]
    runtime.end_transaction(COMMIT, 0, LATER_MS)
    assert values(runtime) == [5]


def test_a_read_that_may_have_seen_what_is_held_waits_for_its_commit() -> None:
    log = TransactionalStageLog()
    runtime = active(log)
    runtime.submit(Add(5, transaction=PRODUCER), 0, LATER_MS)
    runtime.submit(Read(), 0, LATER_MS)
    assert runtime.take().replies == []


def test_a_marker_that_the_log_refuses_has_changed_nothing() -> None:
    log = TransactionalStageLog()
    runtime = active(log)
    runtime.submit(Add(5, transaction=PRODUCER), 0, LATER_MS)
    log.failing = "fenced"
    with pytest.raises(InvalidProducerEpochError):
        runtime.end_transaction(ABORT, 0, LATER_MS)
    assert runtime.phase is Phase.ACTIVE
    assert list(runtime.pending.records()) == [5]


def test_a_marker_of_which_nobody_knows_whether_it_was_written_has_the_log_read_again() -> None:
    log = TransactionalStageLog()
    runtime = active(log)
    runtime.submit(Add(5, transaction=PRODUCER), 0, LATER_MS)
    log.failing = "written all the same"
    runtime.end_transaction(COMMIT, 0, LATER_MS)
    log.failing = None
    assert runtime.phase is Phase.LOADING
    assert runtime.take().reload
    with pytest.raises(LoadInProgressError):
        runtime.end_transaction(COMMIT, 0, LATER_MS)
    log.replay_into(runtime)
    assert values(runtime) == [5]


def test_an_entry_that_was_replayed_already_is_passed_over_in_a_transaction_too() -> None:
    log = TransactionalStageLog()
    log.append_transactional([1], PRODUCER)
    log.append_marker(COMMIT)
    runtime = following(log)
    assert runtime.replayed_offset == NO_OFFSET
    for _ in range(2):
        log.replay_into(runtime)
    assert values(runtime) == [1]
