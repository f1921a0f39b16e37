"""A machine that takes its state as it is kept elsewhere, instead of replaying the log."""

import pytest

from distributedlog.model.errors import LeadershipLostError
from distributedlog.statemachine import Phase, Runtime
from tests.unit.statemachine.ledger import Add, Ledger, Read, Request, Seen, StageLog

LATER_MS = 1_000


def log_of(*values: int) -> StageLog:
    log = StageLog()
    for value in values:
        log.append([value])
    return log


def ledger_of(log: StageLog, entries: int) -> Ledger:
    ledger = Ledger()
    for offset, records in enumerate(log.entries[:entries]):
        ledger.replay(records, offset)
    return ledger


def adopted(log: StageLog) -> Runtime[Request, int, Seen, int]:
    """Returns an active machine that stands at the log's end, all of which is committed."""
    runtime: Runtime[Request, int, Seen, int] = Runtime(Ledger, log)
    runtime.elected(1)
    runtime.adopt(ledger_of(log, len(log.entries)), len(log.entries) - 1)
    runtime.loaded(0)
    return runtime


def test_what_was_adopted_is_there_and_committed() -> None:
    runtime = adopted(log_of(7, 8))
    runtime.submit(Read(), 0, LATER_MS)
    (answer,) = runtime.take().replies
    assert answer.response == (7, 8)
    assert answer.needs_leadership


def test_a_change_stands_behind_what_was_adopted_and_waits_for_its_own_commit() -> None:
    log = log_of(7, 8)
    runtime = adopted(log)
    runtime.submit(Add(9), 0, LATER_MS)
    assert runtime.take().replies == []
    runtime.committed(1)
    assert runtime.take().replies == [], "that is news of what was adopted"
    runtime.committed(2)
    (answer,) = runtime.take().replies
    assert answer.response == (7, 8, 9)
    assert log.entries[-1] == (9,)


def test_entries_that_the_adopted_machine_has_are_passed_over_and_later_ones_are_not() -> None:
    log = log_of(7, 8, 9)
    runtime: Runtime[Request, int, Seen, int] = Runtime(Ledger, log)
    runtime.elected(1)
    runtime.adopt(ledger_of(log, 2), 1)
    for offset, records in enumerate(log.entries):
        runtime.replay(records, offset)
    runtime.committed(2)
    runtime.loaded(0)
    runtime.submit(Read(), 0, LATER_MS)
    assert runtime.take().replies[0].response == (7, 8, 9)


def test_an_empty_machine_may_be_adopted_for_an_empty_log() -> None:
    runtime = adopted(StageLog())
    runtime.submit(Add(7), 0, LATER_MS)
    runtime.committed(0)
    assert runtime.take().replies[0].response == (7,)


def test_a_machine_in_charge_is_not_exchanged() -> None:
    runtime = adopted(log_of(7))
    with pytest.raises(AssertionError, match="active machine"):
        runtime.adopt(Ledger(), 0)


def test_a_machine_is_adopted_anew_after_an_append_failed() -> None:
    log = log_of(7)
    runtime = adopted(log)
    lost = runtime.submit(Add(8), 0, LATER_MS)
    log.failing = "nothing written"
    runtime.submit(Add(9), 0, LATER_MS)
    assert runtime.phase is Phase.LOADING
    answers = runtime.take().replies
    assert answers[0].ticket == lost
    assert isinstance(answers[0].error, LeadershipLostError)
    log.failing = None
    runtime.adopt(ledger_of(log, 2), 1)  # the first was written and has committed meanwhile
    runtime.loaded(0)
    runtime.submit(Read(), 0, LATER_MS)
    assert runtime.take().replies[0].response == (7, 8)


def test_what_was_adopted_survives_lost_leadership_if_nothing_was_added_to_it() -> None:
    runtime = adopted(log_of(7, 8))
    runtime.leadership_lost()
    assert not runtime.take().reload
    runtime.elected(2)
    runtime.loaded(0)
    runtime.submit(Read(), 0, LATER_MS)
    assert runtime.take().replies[0].response == (7, 8)
