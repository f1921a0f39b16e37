"""What the leader of the metadata log tells of those who follow it."""

from distributedlog.controller.requests import (
    DescribeQuorumRequest,
    HeartbeatRequest,
    QuorumReply,
    RegisterBrokerReply,
    ReplicaProgress,
)
from distributedlog.model.errors import NotLeaderError
from distributedlog.raft import AddObserver
from tests.unit.broker.control_stage import Node, Quorum, registration, setting

HEARTBEAT_MS = 1_000


def described(quorum: Quorum, node: Node) -> QuorumReply:
    asked = node.ask(DescribeQuorumRequest())
    quorum.settle()
    reply = asked.reply.response
    assert isinstance(reply, QuorumReply)
    return reply


def progress(reply: QuorumReply, node_id: int) -> ReplicaProgress:
    return next(each for each in (*reply.voters, *reply.observers) if each.node_id == node_id)


def test_voters_that_keep_up_are_at_the_end_and_heard_just_now() -> None:
    quorum = Quorum()
    leader = quorum.elect(2)
    leader.ask(setting("red"))
    quorum.settle()
    reply = described(quorum, leader)
    last_index = leader.driver.status.last_index
    assert (reply.leader_id, reply.term, reply.high_watermark) == (2, leader.driver.status.term, last_index)
    assert [each.node_id for each in reply.voters] == [1, 2, 3]
    assert {each.log_end_offset for each in reply.voters} == {last_index}
    now_ms = quorum.timers.clock.wall_ms()
    assert (
        {each.caught_up_ms for each in reply.voters} == {each.heard_ms for each in reply.voters} == {now_ms}
    )
    assert reply.observers == ()


def test_a_voter_that_is_cut_off_stays_behind_and_its_times_stand_still() -> None:
    quorum = Quorum()
    leader = quorum.elect(1)
    leader.ask(setting("red"))
    quorum.settle()
    then_ms, then_end = quorum.timers.clock.wall_ms(), leader.driver.status.last_index
    quorum.cut = {3}
    for _ in range(3):
        quorum.timers.advance(HEARTBEAT_MS // 4)
        leader.ask(setting("blue"))
        quorum.settle()
    reply = described(quorum, leader)
    assert progress(reply, 3) == ReplicaProgress(3, then_end, then_ms, then_ms)
    assert progress(reply, 2).log_end_offset == leader.driver.status.last_index > then_end
    assert progress(reply, 2).caught_up_ms > then_ms


def test_of_a_voter_that_a_new_leader_never_heard_nothing_is_known() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.cut = {3}
    leader = quorum.elect(2)
    assert progress(described(quorum, leader), 3) == ReplicaProgress(3, -1)


def test_an_observer_of_the_log_and_a_broker_that_watches_are_observers() -> None:
    quorum = Quorum(1)
    quorum.timers.advance(0)
    quorum.settle()
    leader = quorum.nodes[1]
    registered = leader.ask(registration(7))
    quorum.settle()
    epoch = registered.reply.response
    assert isinstance(epoch, RegisterBrokerReply)
    leader.driver.change_membership(AddObserver(5, 0), lambda _: None)
    quorum.settle()
    offset = leader.driver.status.last_index - 1
    leader.ask(HeartbeatRequest(7, epoch.broker_epoch, offset))
    quorum.settle()
    heard_ms = quorum.timers.clock.wall_ms()
    quorum.timers.advance(500)
    reply = described(quorum, leader)
    assert [each.node_id for each in reply.observers] == [5, 7]
    assert progress(reply, 5) == ReplicaProgress(5, -1)
    assert progress(reply, 7) == ReplicaProgress(7, offset + 1, heard_ms, heard_ms)


def test_a_broker_that_has_now_what_there_was_then_was_caught_up_then() -> None:
    quorum = Quorum(1)
    quorum.timers.advance(0)
    quorum.settle()
    leader = quorum.nodes[1]
    registered = leader.ask(registration(7))
    quorum.settle()
    epoch = registered.reply.response
    assert isinstance(epoch, RegisterBrokerReply)

    def beat(offset: int) -> tuple[int, ReplicaProgress]:
        at_ms = quorum.timers.clock.wall_ms()
        leader.ask(HeartbeatRequest(7, epoch.broker_epoch, offset))
        quorum.settle()
        return at_ms, progress(described(quorum, leader), 7)

    behind = leader.driver.status.last_index - 1
    leader.ask(setting("red"))
    quorum.settle()
    first_ms, told = beat(behind)
    assert told.caught_up_ms == -1
    end = leader.driver.status.last_index - 1
    quorum.timers.advance(100)
    leader.ask(setting("blue"))
    quorum.settle()
    _, told = beat(end)
    assert told.caught_up_ms == first_ms, "it has now all that there was at its heartbeat before"


def test_who_does_not_lead_says_who_does() -> None:
    quorum = Quorum()
    quorum.elect(1)
    asked = quorum.nodes[2].ask(DescribeQuorumRequest())
    quorum.settle()
    assert isinstance(asked.error, NotLeaderError)
    assert asked.error.leader_id == 1


def test_a_leader_that_was_overtaken_does_not_answer_for_the_quorum() -> None:
    quorum = Quorum()
    old = quorum.elect(1)
    quorum.cut = {1}
    asked = old.ask(DescribeQuorumRequest())
    quorum.settle()
    quorum.elect(2)
    assert asked.is_open
    quorum.cut = set()
    quorum.timers.advance(10_000)
    quorum.settle()
    assert isinstance(asked.error, NotLeaderError)
