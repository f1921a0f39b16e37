"""One host for any machine: a third one, on a real partition, needs nothing that the host does not have."""

import pytest

from distributedlog.model.errors import LoadInProgressError, NotCoordinatorError, NotLeaderError, StorageError
from distributedlog.ports.executor import Outcome
from distributedlog.records.control import ControlType
from distributedlog.statemachine import Producer, TransactionEnd
from tests.unit.broker.coordination.deliveries import (
    DUE_MS,
    LOAD_AGAIN_MS,
    NUMBER,
    PRODUCER,
    Delivered,
    Deliveries,
    DeliveriesStage,
    Promise,
    States,
)
from tests.unit.broker.partition_stage import ME, OTHER


def settled() -> DeliveriesStage:
    stage = DeliveriesStage()
    stage.stage.settle()
    return stage


# --- replies, effects, events ------------------------------------------------------------------


def test_replies_and_effects_leave_when_their_records_are_committed_and_events_come_back() -> None:
    stage = settled()
    told = stage.ask(Promise("a"))
    assert (told, stage.effects) == ([], [])
    stage.stage.settle()
    assert told[0].value() == {"a": "promised"}
    assert stage.effects == [("a", 0)]
    stage.host.event(Delivered("a"), 0)
    stage.stage.settle()
    assert stage.states() == {"a": "delivered"}


def test_an_event_of_an_earlier_epoch_changes_nothing() -> None:
    stage = settled()
    stage.ask(Promise("a"))
    stage.stage.settle()
    stage.lead_anew()
    stage.stage.settle()
    assert stage.effects == [("a", 0), ("a", 1)], "who leads next takes up what was begun"
    stage.host.event(Delivered("a"), 0)
    stage.stage.settle()
    assert stage.states() == {"a": "promised"}
    stage.host.event(Delivered("a"), 1)
    stage.stage.settle()
    assert stage.states() == {"a": "delivered"}


def test_a_read_leaves_only_if_it_is_confirmed_and_a_write_is_confirmed_by_its_commit() -> None:
    stage = settled()
    stage.is_leased = False
    assert stage.error() is NotCoordinatorError
    told = stage.ask(Promise("a"))
    stage.stage.settle()
    assert told[0].error is None


# --- loading -----------------------------------------------------------------------------------


def test_while_the_log_is_read_back_nothing_is_answered_and_no_timer_is_armed() -> None:
    stage = DeliveriesStage()
    stage.write("a", "promised")
    stage.stage.settle()
    stage.restart()
    timers = stage.stage.scheduler.timer_count
    assert stage.error() is LoadInProgressError
    assert stage.stage.scheduler.timer_count == timers
    assert (stage.activities[-1:], stage.effects) == ([True], [])
    stage.stage.settle()
    assert stage.states() == {"a": "promised"}
    assert stage.effects == [("a", 0)]
    assert stage.stage.scheduler.timer_count > timers


def test_the_load_of_an_older_epoch_can_not_touch_a_newer_one() -> None:
    stage = DeliveriesStage()
    stage.write("a", "promised")
    stage.stage.settle()
    stage.restart()
    executor = stage.stage.executor
    old = executor.waiting
    stage.lead_anew()
    assert executor.waiting == 2 * old, "the disk is read for both"
    executor.run_one(0)  # of the old: it comes to nothing
    assert stage.error() is LoadInProgressError
    stage.stage.settle()
    assert stage.states() == {"a": "promised"}
    assert stage.effects == [("a", 1)], "and it is loaded once"


def test_a_load_that_ends_after_the_leadership_does_nothing() -> None:
    stage = DeliveriesStage()
    stage.write("a", "promised")
    stage.stage.settle()
    stage.restart()
    stage.effects.clear()
    stage.stage.metadata.change(NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
    stage.stage.metadata.change(NUMBER, leader=OTHER)
    stage.stage.apply()
    stage.stage.settle()
    assert stage.error() is NotLeaderError
    assert stage.effects == []


def test_a_log_that_cannot_be_read_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = DeliveriesStage()
    stage.write("a", "promised")
    stage.stage.settle()
    stage.restart()

    def fail(*_: object) -> None:
        raise StorageError("a bad sector")

    with monkeypatch.context() as failing:
        failing.setattr(type(stage.partition.log), "read", fail)
        stage.stage.settle()
        stage.lead_anew()
        stage.stage.settle()
        assert stage.error() is LoadInProgressError
    stage.stage.scheduler.advance(LOAD_AGAIN_MS)
    stage.stage.settle()
    assert stage.states() == {"a": "promised"}


def test_an_append_that_fails_throws_the_machine_away_and_reads_the_log_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = settled()
    stage.ask(Promise("a"))
    stage.stage.settle()

    def fail(*_: object) -> None:
        raise StorageError("nobody knows what was written")

    with monkeypatch.context() as failing:
        failing.setattr(stage.log, "append", fail)
        (told,) = stage.ask(Promise("b"))
    assert told.error is not None
    assert stage.losses == [False]
    assert stage.error() is LoadInProgressError
    stage.stage.scheduler.advance(LOAD_AGAIN_MS)
    stage.stage.settle()
    assert stage.states() == {"a": "promised"}
    assert stage.activities == [True, False, True]


def test_whoever_waits_when_the_leadership_is_lost_is_told() -> None:
    stage = settled()
    told = stage.ask(Promise("a"))
    stage.lead_anew()
    (outcome,) = told
    assert outcome.error is not None
    assert stage.losses == [True]


# --- time --------------------------------------------------------------------------------------


def test_deadlines_go_off_while_the_machine_is_in_charge() -> None:
    stage = settled()
    stage.ask(Promise("a"))
    stage.stage.settle()
    stage.stage.pass_time(DUE_MS - 1_000)
    assert stage.states() == {"a": "promised"}
    stage.stage.pass_time(2_000)
    assert stage.states() == {"a": "expired"}


def test_a_closed_host_does_nothing_any_more() -> None:
    stage = settled()
    told = stage.ask(Promise("a"))
    stage.host.close()
    assert told[0].error is not None
    stage.stage.pass_time(2 * DUE_MS)
    assert stage.error() is NotLeaderError


# --- transactions ------------------------------------------------------------------------------


def ended(stage: DeliveriesStage, producer: Producer, *, is_commit: bool) -> Outcome[States]:
    told: list[Outcome[States]] = []
    stage.host.end_transaction(TransactionEnd(producer, is_commit), 60_000, told.append)
    stage.stage.settle()
    return told[0]


@pytest.mark.parametrize(("is_commit", "expected"), [(True, {"a": "promised"}), (False, {})])
def test_what_was_open_at_the_load_ends_by_its_marker(is_commit: bool, expected: States) -> None:
    stage = DeliveriesStage()
    stage.write("a", "promised", PRODUCER)
    stage.stage.settle()
    for _ in range(2):  # held records are read again with each load
        stage.restart()
        stage.stage.settle()
        assert stage.states() == {}
        assert list(stage.host.pending.records()) == [("a", "promised")]
    assert ended(stage, PRODUCER, is_commit=is_commit).error is None
    assert stage.states() == expected
    stage.restart()
    stage.stage.settle()
    assert stage.states() == expected


def test_markers_in_the_log_decide_at_the_load() -> None:
    stage = DeliveriesStage()
    first, second, third = (Producer(each, 0) for each in (1, 2, 3))
    stage.write("a", "promised", first)
    stage.write("b", "promised", second)
    stage.write("c", "promised", third)
    stage.write_marker(first, ControlType.COMMIT)
    stage.write_marker(second, ControlType.ABORT)
    stage.write_marker(Producer(9, 0), ControlType.COMMIT)
    stage.stage.settle()
    stage.restart()
    stage.stage.settle()
    assert stage.states() == {"a": "promised"}
    assert list(stage.host.pending.records()) == [("c", "promised")]


def test_a_transaction_that_is_written_here_is_held_here_and_by_the_next_leader() -> None:
    stage = settled()
    told = stage.ask(Promise("a", PRODUCER))
    stage.stage.settle()
    assert told[0].error is None
    assert stage.states() == {}
    stage.lead_anew()
    stage.stage.settle()
    assert ended(stage, PRODUCER, is_commit=True).error is None
    assert stage.states() == {"a": "promised"}


def test_a_marker_of_an_unknown_producer_changes_nothing() -> None:
    stage = settled()
    stage.ask(Promise("a", PRODUCER))
    stage.stage.settle()
    assert ended(stage, Producer(99, 0), is_commit=True).error is None
    assert stage.states() == {}
    assert list(stage.host.pending.records()) == [("a", "promised")]


def test_a_marker_that_comes_late_is_refused_and_ends_nothing() -> None:
    stage = settled()
    stage.ask(Promise("a", PRODUCER))
    stage.stage.settle()
    late = ended(stage, PRODUCER._replace(producer_epoch=1), is_commit=False)
    assert late.error is not None
    assert isinstance(stage.host.runtime.machine, Deliveries), "the machine is the same"
    assert stage.losses == []
    assert list(stage.host.pending.records()) == [("a", "promised")]
