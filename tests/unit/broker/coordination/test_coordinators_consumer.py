"""Consumer groups on a broker's own coordinators: what its disk, its image and its lease mean for them."""

from distributedlog.groups.consumer.topics import NO_PARTITIONS
from distributedlog.groups.requests import ConsumerHeartbeatReply, ConsumerHeartbeatRequest
from distributedlog.model.error_codes import ErrorCode
from tests.unit.broker.group_stage import FOR_EVER, GROUP, TOPIC_NUMBER, GroupStage
from tests.unit.broker.partition_stage import topic_id

JOINS = ConsumerHeartbeatRequest(
    GROUP, "m0", 0, rebalance_timeout_ms=60_000, topics=("t",), owned=NO_PARTITIONS
)
STAYS = ConsumerHeartbeatRequest(GROUP, "m0", 1)


def member_of(stage: GroupStage) -> ConsumerHeartbeatReply:
    told = stage.ask(JOINS)
    stage.settle()
    assert isinstance(told.reply, ConsumerHeartbeatReply)
    return told.reply


def test_a_member_is_told_once_the_log_has_it() -> None:
    stage = GroupStage()
    stage.settle()
    told = stage.ask(JOINS)
    assert not told.is_told
    stage.settle()
    assert isinstance(told.reply, ConsumerHeartbeatReply)
    assert told.reply.assignment is not None
    assert [tuple(tp) for tp in told.reply.assignment] == [(topic_id(TOPIC_NUMBER), 0)]


def test_a_member_goes_on_after_its_coordinator_was_killed() -> None:
    stage = GroupStage()
    stage.settle()
    member_of(stage)
    stage.restart()
    stage.settle()
    again = stage.ask(STAYS)
    stage.settle()
    assert again.code is ErrorCode.NONE


def test_a_broker_that_no_controller_has_heard_for_a_session_keeps_no_member() -> None:
    """Another may coordinate by now, and have given what the member reads to others."""
    stage = GroupStage()
    stage.settle()
    member_of(stage)
    stage.lease.take(FOR_EVER._replace(end_ms=stage.stage.clock.monotonic_ms()))
    assert stage.ask(STAYS).code is ErrorCode.NOT_COORDINATOR
    stage.lease.take(FOR_EVER)
    assert stage.ask(STAYS).code is ErrorCode.NONE
