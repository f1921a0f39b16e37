"""The lease of a broker's coordinators: when they answer reads, and when a new one begins."""

from distributedlog.broker.cluster.lease_grant import NO_LEASE, LeaseGrant
from distributedlog.controller.cluster_settings import session_timeout_ms
from distributedlog.groups.requests import HeartbeatRequest
from distributedlog.model.error_codes import ErrorCode
from tests.unit.broker.group_stage import FOR_EVER, OFFSETS_NUMBER, GroupStage
from tests.unit.broker.partition_stage import ME, OTHER


def with_offset() -> GroupStage:
    stage = GroupStage()
    stage.commit(3)
    stage.settle()
    return stage


def apply(stage: GroupStage) -> None:
    """Applies the newest image, as the data plane does."""
    stage.stage.apply()
    stage.lease.note_applied(stage.metadata.image.offset)


def taken_over() -> GroupStage:
    """Another broker led meanwhile, and this one's image went from the one epoch to the other."""
    stage = with_offset()
    stage.lease.take(FOR_EVER._replace(settled_offset=stage.metadata.image.offset))
    stage.metadata.change(OFFSETS_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
    stage.metadata.change(OFFSETS_NUMBER, leader=OTHER)
    apply(stage)
    stage.metadata.change(OFFSETS_NUMBER, leader=ME)
    stage.metadata.change(OFFSETS_NUMBER, replicas=[ME], isr=[ME])
    apply(stage)
    stage.settle()
    return stage


# --- reads -------------------------------------------------------------------------------------


def test_a_lease_is_suspended_while_this_loop_has_not_applied_what_it_names() -> None:
    stage = with_offset()
    applied = stage.metadata.image.offset
    stage.lease.note_applied(applied)
    stage.lease.take(FOR_EVER._replace(lease_offset=applied + 1))
    assert stage.fetch().code is ErrorCode.NOT_COORDINATOR
    assert stage.ask(HeartbeatRequest("g", "m", None, 1)).code is ErrorCode.NOT_COORDINATOR
    stage.lease.note_applied(applied + 1)
    assert stage.committed() == [3]


def test_a_lease_that_is_given_up_is_over_at_once() -> None:
    stage = with_offset()
    stage.lease.take(NO_LEASE)
    assert stage.fetch().code is ErrorCode.NOT_COORDINATOR


def test_a_read_that_waited_is_not_answered_by_a_lease_that_has_ended_meanwhile() -> None:
    stage = with_offset()
    stage.lease.take(LeaseGrant(stage.stage.clock.monotonic_ms() + 10))
    stage.commit(4)
    read = stage.fetch()
    assert not read.is_told
    stage.stage.clock.advance(10)
    stage.settle()
    assert read.code is ErrorCode.NOT_COORDINATOR


# --- taking over -------------------------------------------------------------------------------


def test_a_new_coordinator_answers_when_the_one_before_has_applied_the_change() -> None:
    stage = taken_over()
    offset = stage.metadata.image.offset
    assert stage.awaited == [offset]
    for told in (stage.fetch(), stage.commit(4)):
        assert told.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.lease.take(FOR_EVER._replace(settled_offset=offset - 1))
    assert stage.fetch().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.lease.take(FOR_EVER._replace(settled_offset=offset))
    stage.settle()
    assert stage.committed() == [3]


def test_or_when_its_lease_has_run_out_whatever_controllers_say() -> None:
    stage = taken_over()
    session_ms = session_timeout_ms(stage.metadata.image)
    stage.stage.scheduler.advance(session_ms - 1)
    assert stage.fetch().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.stage.scheduler.advance(1)
    stage.settle()
    assert stage.committed() == [3]


def test_a_takeover_is_settled_before_the_log_is_read_back_and_that_is_waited_for() -> None:
    stage = with_offset()
    stage.restart()
    stage.lease.take(FOR_EVER)
    assert stage.fetch().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.settle()
    assert stage.committed() == [3]


def test_the_first_leader_of_a_partition_has_no_predecessor() -> None:
    stage = GroupStage()
    stage.lease.take(NO_LEASE)
    stage.settle()
    told = stage.commit(1)
    stage.settle()
    assert told.code is ErrorCode.NONE
    assert stage.awaited == []


def test_a_settled_coordinator_that_loads_again_need_not_wait_again() -> None:
    stage = taken_over()
    stage.lease.take(FOR_EVER)
    stage.settle()
    stage.lease.take(FOR_EVER._replace(settled_offset=-1))
    (coordinator,) = stage.groups.all_active()
    coordinator.host.runtime._append_failed()
    coordinator.on_progress()
    stage.stage.pass_time(2_000)
    assert stage.committed() == [3]


def test_a_takeover_of_an_epoch_that_is_over_settles_nothing() -> None:
    stage = taken_over()
    first = stage.metadata.image.offset
    stage.metadata.change(OFFSETS_NUMBER, leader=ME)
    apply(stage)
    stage.settle()
    stage.lease.take(FOR_EVER._replace(settled_offset=first))
    assert stage.fetch().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.lease.take(FOR_EVER._replace(settled_offset=first + 1))
    stage.settle()
    assert stage.committed() == [3]


def test_what_took_a_leadership_is_told_at_once_and_all_else_with_the_next_heartbeat() -> None:
    stage = with_offset()
    stage.metadata.create("other", 77)
    apply(stage)
    stage.metadata.change(OFFSETS_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
    stage.metadata.change(OFFSETS_NUMBER, leader=OTHER)
    apply(stage)
    assert [is_urgent for _, is_urgent in stage.applied] == [False, True]
