"""The controller on its Raft log: when it is active, what it may answer, and what becomes of who waits.

How it behaves in a cluster under faults is the simulation's subject.
"""

from collections.abc import Callable

import pytest

from distributedlog.controller.image import MetadataImage
from distributedlog.controller.requests import (
    HeartbeatReply,
    HeartbeatRequest,
    ReadImageRequest,
    RegisterBrokerReply,
)
from distributedlog.model.errors import (
    ConsensusError,
    InconsistentClusterIdError,
    LeadershipLostError,
    LoadInProgressError,
    NotLeaderError,
    OverloadedError,
    RequestTimedOutError,
    StorageError,
)
from distributedlog.raft import AddObserver
from distributedlog.statemachine.runtime import RuntimeLimits
from tests.unit.broker.control_stage import (
    CLUSTER,
    CONFIG,
    SESSION_MS,
    Asked,
    Node,
    Quorum,
    registration,
    setting,
    value_in,
)

# --- active -----------------------------------------------------------------------------------


def test_the_leader_is_in_charge_once_its_log_is_applied_and_its_first_entry_says_so() -> None:
    quorum = Quorum()
    node = quorum.elect(2)
    assert node.controller.is_active
    assert node.charges == [True]
    assert (node.replica.image.controller_id, node.replica.image.epoch) == (2, node.driver.status.term)
    assert node.replica.image.cluster_id == CLUSTER


def test_a_leader_that_has_not_applied_its_log_yet_is_still_loading() -> None:
    quorum = Quorum()
    node, leader = quorum.nodes[2], quorum.elect(1)
    quorum.lost = {(2, 1), (3, 1)}
    last = leader.ask(setting("red"))
    quorum.settle()
    assert last.is_open, "the others have it, and nobody knows that"
    quorum.cut = {1}
    quorum.elect(2, and_settle=False)
    assert value_in(node.replica.image) is None
    assert node.charges == []
    assert isinstance(node.ask(ReadImageRequest()).error, LoadInProgressError)
    quorum.settle()
    assert node.charges == [True]
    assert value_in(node.replica.image) == "red"


def test_a_follower_refuses_and_says_who_leads() -> None:
    quorum = Quorum()
    quorum.elect(1)
    error = quorum.nodes[3].ask(setting("red")).error
    assert isinstance(error, NotLeaderError)
    assert error.leader_id == 1


def test_a_lone_node_is_in_charge_without_anybody_else() -> None:
    quorum = Quorum(7)
    quorum.timers.advance(0)
    quorum.settle()
    asked = quorum.nodes[7].ask(setting("red"))
    quorum.settle()
    assert asked.reply.offset == quorum.nodes[7].replica.image.offset
    read = quorum.nodes[7].ask(ReadImageRequest())
    assert read.reply.response == quorum.nodes[7].replica.image


def test_charge_is_lost_with_leadership_and_everybody_concerned_hears_of_it() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.elect(3)
    assert quorum.nodes[1].charges == [True, False]
    assert quorum.nodes[3].charges == [True]


def test_a_log_of_another_cluster_stops_the_node_and_nothing_is_answered() -> None:
    quorum = Quorum(1)
    quorum.timers.advance(0)
    quorum.settle()
    node = quorum.restart(1, cluster="cluster-2")
    quorum.timers.advance(0)
    quorum.settle()
    assert [type(failure) for failure in node.failures] == [ConsensusError]
    assert not node.controller.is_active
    assert isinstance(node.ask(setting("red")).error, NotLeaderError)
    quorum.timers.advance(1_000)
    assert len(node.failures) == 1


def test_a_restart_reads_everything_back_from_snapshot_and_log() -> None:
    quorum = Quorum(1, snapshot_interval_entries=4)
    quorum.timers.advance(0)
    quorum.settle()
    for number in range(9):
        quorum.nodes[1].ask(setting(str(number)))
        quorum.settle()
    before = quorum.nodes[1].replica.image
    node = quorum.restart(1)
    assert node.replica.image.offset < before.offset, "the snapshot; more is not known to be committed yet"
    quorum.timers.advance(0)
    quorum.settle()
    assert value_in(node.replica.image) == "8"
    assert node.replica.image.next_producer_id == before.next_producer_id


# --- answers -----------------------------------------------------------------------------------


def test_a_change_is_answered_when_it_is_committed_and_shown_and_not_before() -> None:
    quorum = Quorum()
    node = quorum.elect(1)
    shown: list[str | None] = []
    asked = Asked()
    quorum.cut = {2, 3}

    def done(outcome: object) -> None:
        shown.append(value_in(node.replica.image))
        asked.answers.append(outcome)  # type: ignore[arg-type]

    node.controller.submit(setting("red"), 5_000, done)
    quorum.settle()
    assert asked.is_open
    assert value_in(node.replica.image) is None
    quorum.cut = {3}
    quorum.beat()
    assert shown == ["red"]
    assert asked.reply.offset == node.replica.image.offset


def test_an_answer_without_an_entry_waits_until_a_majority_says_that_the_node_still_leads() -> None:
    quorum = Quorum()
    node = quorum.elect(1)
    quorum.cut = {1}
    asked = node.ask(ReadImageRequest())
    refused = node.ask(registration(5, cluster="elsewhere"))
    quorum.settle()
    assert asked.is_open
    assert refused.is_open
    quorum.cut = set()
    quorum.beat()
    assert isinstance(asked.reply.response, MetadataImage)
    assert isinstance(refused.error, InconsistentClusterIdError)


def test_a_controller_that_was_overtaken_does_not_say_what_it_knows() -> None:
    quorum = Quorum()
    old = quorum.elect(1)
    quorum.cut = {1}
    new = quorum.elect(2)
    new.ask(setting("red"))
    quorum.settle()
    asked, refused = old.ask(ReadImageRequest()), old.ask(registration(5, cluster="elsewhere"))
    quorum.cut = set()
    quorum.beat()
    for each in (asked, refused):
        assert isinstance(each.error, NotLeaderError)
        assert each.error.leader_id in (None, 2)


def test_who_waits_when_leadership_is_lost_is_told_that_nobody_knows() -> None:
    quorum = Quorum()
    node = quorum.elect(1)
    quorum.cut = {1}
    asked = node.ask(setting("red"))
    quorum.elect(2)
    quorum.cut = set()
    quorum.beat()
    assert isinstance(asked.error, LeadershipLostError)
    assert value_in(quorum.nodes[2].replica.image) is None


def test_what_a_successor_commits_of_ours_was_unknown_and_is_there() -> None:
    quorum = Quorum()
    node = quorum.elect(1)
    quorum.lost = {(2, 1), (3, 1)}
    asked = node.ask(setting("red"))
    quorum.settle()
    quorum.cut = {1}
    successor = quorum.elect(2)
    assert value_in(successor.replica.image) == "red"
    quorum.cut, quorum.lost = set(), set()
    quorum.beat()
    assert isinstance(asked.error, LeadershipLostError)


def test_a_request_that_does_not_commit_in_time_is_answered_at_its_deadline() -> None:
    quorum = Quorum()
    node = quorum.elect(1)
    quorum.cut = {1}
    asked = node.ask(setting("red"), timeout_ms=300)
    quorum.timers.advance(299)
    assert asked.is_open
    quorum.timers.advance(1)
    assert isinstance(asked.error, RequestTimedOutError)


def test_more_than_may_wait_is_refused_at_once() -> None:
    quorum = Quorum(limits=RuntimeLimits(delayed_max=2))
    node = quorum.elect(1)
    quorum.cut = {1}
    waiting = [node.ask(setting(str(number))) for number in range(2)]
    assert isinstance(node.ask(setting("more")).error, OverloadedError)
    assert all(each.is_open for each in waiting)


def test_a_request_that_is_made_while_another_is_answered_is_not_lost() -> None:
    quorum = Quorum()
    node = quorum.elect(1)
    answered: list[str] = []

    def ask(depth: int) -> None:
        def done(outcome: object) -> None:
            answered.append(str(depth))
            if depth < 5:
                ask(depth + 1)

        node.controller.submit(setting(str(depth)), 5_000, done)

    ask(0)
    quorum.settle()
    assert answered == list("012345")
    assert value_in(node.replica.image) == "5"


def test_entries_that_are_no_metadata_stand_between_without_harm() -> None:
    """A change of Raft's members takes an offset of which no image ever shows a trace."""
    quorum = Quorum()
    node = quorum.elect(1)
    node.driver.change_membership(AddObserver(9), lambda outcome: None)
    before = node.ask(setting("red"))
    quorum.settle()
    assert before.reply.offset == node.replica.image.offset
    read = node.ask(ReadImageRequest())
    quorum.settle()
    assert read.reply.offset <= node.replica.image.offset, "whoever waits for it must not wait for ever"


# --- looking seldom ----------------------------------------------------------------------------


def overtaken_in_secret() -> tuple[Quorum, Node]:
    """Node 1 leads, and its controller does not look at what Raft does until it is told to."""
    quorum = Quorum(unwired=1)
    node = quorum.elect(1)
    node.controller.progressed()
    quorum.settle()
    node.controller.progressed()
    assert node.controller.is_active
    return quorum, node


def test_another_leaders_entry_where_ours_was_to_stand_is_not_taken_for_ours() -> None:
    quorum, node = overtaken_in_secret()
    quorum.cut = {1}
    asked = node.ask(setting("red"))
    successor = quorum.elect(2)
    for number in range(4):
        successor.ask(setting(f"blue {number}"))
    quorum.settle()
    quorum.cut = set()
    quorum.beat()
    assert node.driver.applied_index > asked_index(node), "others' entries are applied beyond that place"
    node.controller.progressed()
    assert isinstance(asked.error, LeadershipLostError)
    assert value_in(node.replica.image) == "blue 3"


def asked_index(node: Node) -> int:
    """Where the first entry after the one that said which controller is active stood."""
    return node.replica.image.offset


def test_leadership_that_was_lost_and_won_again_unseen_fails_who_waited_and_serves_who_comes() -> None:
    quorum, node = overtaken_in_secret()
    quorum.cut = {1}
    asked = node.ask(setting("red"))
    quorum.elect(2)
    quorum.cut = set()
    quorum.beat()
    quorum.elect(1)
    node.controller.progressed()
    assert isinstance(asked.error, LeadershipLostError)
    quorum.settle()
    node.controller.progressed()
    again = node.ask(setting("green"))
    quorum.settle()
    node.controller.progressed()
    assert again.reply.offset == node.replica.image.offset
    assert value_in(node.replica.image) == "green"


def test_a_read_of_an_earlier_leadership_is_not_vouched_for_by_a_later_one() -> None:
    """It was asked after another had changed what it reads; what it saw was committed later, and was old."""
    quorum, node = overtaken_in_secret()
    quorum.lost = {(2, 1), (3, 1), (1, 3)}
    node.ask(setting("red"))
    quorum.settle()
    quorum.cut = {1}
    changed = quorum.elect(2).ask(setting("blue"))
    quorum.settle()
    assert changed.reply.offset > 0
    stale = node.ask(ReadImageRequest())
    assert stale.is_open, "it waits for the commit of the red that it saw"
    quorum.cut, quorum.lost = set(), set()
    quorum.beat()
    quorum.elect(1)
    node.controller.progressed()
    quorum.settle()
    node.controller.progressed()
    quorum.beat()
    assert isinstance(stale.error, NotLeaderError | LeadershipLostError)


# --- appends that fail -------------------------------------------------------------------------


def handing_over_in_vain() -> tuple[Quorum, Node]:
    """A leader that hands over to one who does not hear it: until it gives up it takes no entries."""
    quorum = Quorum()
    node = quorum.elect(1)
    quorum.cut = {2}
    node.driver.transfer_leadership(2)
    return quorum, node


def test_while_it_hands_over_nothing_is_done_and_the_machine_stays() -> None:
    quorum, node = handing_over_in_vain()
    assert isinstance(node.ask(setting("red")).error, NotLeaderError)
    assert node.charges == [True]
    for _ in range(10):
        quorum.beat()
    assert node.leads
    asked = node.ask(setting("green"))
    quorum.settle()
    assert asked.reply.offset == node.replica.image.offset
    assert node.charges == [True]


def failing_log(monkeypatch: pytest.MonkeyPatch) -> tuple[Quorum, Node]:
    """A leader whose log takes no entries, for a reason that says nothing of what was written."""
    quorum = Quorum()
    node = quorum.elect(1)

    def propose(payload: bytes, done: object) -> int:
        raise StorageError("nobody knows what was written")

    monkeypatch.setattr(node.driver, "propose", propose)
    return quorum, node


def test_an_append_that_fails_starts_the_machine_anew_and_it_goes_on_when_the_log_does() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        quorum, node = failing_log(monkeypatch)
        assert isinstance(node.ask(setting("red")).error, LeadershipLostError)
        assert isinstance(node.ask(setting("blue")).error, LoadInProgressError)
        assert node.charges == [True, False]
    for _ in range(10):
        quorum.beat()
    assert node.leads
    assert node.charges == [True, False, True]
    asked = node.ask(setting("green"))
    quorum.settle()
    assert asked.reply.offset == node.replica.image.offset


def test_while_appends_fail_the_machine_is_loaded_again_now_and_then_and_not_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quorum, node = failing_log(monkeypatch)
    node.ask(setting("red"))
    last_index = node.driver.status.last_index
    loads: list[int] = []
    load: Callable[..., None] = node.controller.load

    def counted(begun: object) -> None:
        loads.append(quorum.timers.clock.monotonic_ms())
        load(begun)

    monkeypatch.setattr(node.controller, "load", counted)
    planned: list[int] = []
    for _ in range(CONFIG.election_timeout_ms // 2):
        quorum.timers.advance(1)
        node.controller.progressed()
        planned.append(quorum.timers.planned)
    assert 2 <= len(loads) <= 12
    assert max(planned) <= planned[0] + 1, "what was planned is not planned again and again"
    assert node.driver.status.last_index == last_index


# --- time --------------------------------------------------------------------------------------


def registered(quorum: Quorum, node: Node, broker_id: int) -> int:
    asked = node.ask(registration(broker_id))
    quorum.settle()
    reply = asked.reply.response
    assert isinstance(reply, RegisterBrokerReply)
    return reply.broker_epoch


def beat_of(quorum: Quorum, node: Node, broker_id: int, epoch: int) -> HeartbeatReply:
    request = HeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch, metadata_offset=node.replica.image.offset
    )
    asked = node.ask(request)
    quorum.settle()
    reply = asked.reply.response
    assert isinstance(reply, HeartbeatReply)
    return reply


def pass_time(quorum: Quorum, duration_ms: int) -> None:
    """Lets time pass in steps, so that the quorum's own heartbeats keep its leader."""
    for _ in range(duration_ms // CONFIG.heartbeat_ms // 2):
        quorum.beat()


def test_the_machines_deadlines_are_kept_although_nobody_asks_anything() -> None:
    quorum = Quorum()
    node = quorum.elect(1)
    epoch = registered(quorum, node, 5)
    assert not beat_of(quorum, node, 5, epoch).is_fenced
    pass_time(quorum, SESSION_MS - 1_000)
    assert not node.replica.image.brokers[5].fenced
    pass_time(quorum, 2_000)
    assert node.replica.image.brokers[5].fenced


def test_a_new_controller_gives_everyone_a_full_session() -> None:
    quorum = Quorum()
    node = quorum.elect(1)
    epoch = registered(quorum, node, 5)
    beat_of(quorum, node, 5, epoch)
    pass_time(quorum, SESSION_MS - 1_000)
    successor = quorum.elect(2)
    pass_time(quorum, SESSION_MS - 1_000)
    assert not successor.replica.image.brokers[5].fenced
    pass_time(quorum, 2_000)
    assert successor.replica.image.brokers[5].fenced
