"""Voters added and removed under a real Raft log: what is refused, and what becomes of the rest.

How whole processes do it is in tests/system/failover/test_voters.py.
"""

import pytest

from distributedlog.controller.image import ControllerRegistration
from distributedlog.controller.requests import (
    AddVoterRequest,
    RegisterControllerRequest,
    RemoveVoterRequest,
)
from distributedlog.controller.snapshots import encode_snapshot
from distributedlog.model.errors import (
    DlogError,
    DuplicateVoterError,
    InconsistentClusterIdError,
    InvalidRequestError,
    InvalidVoterKeyError,
    MembershipError,
    NotLeaderError,
    RequestTimedOutError,
    VoterNotFoundError,
)
from distributedlog.model.ids import Uuid
from tests.unit.broker.control_stage import CLUSTER, CONFIG, Node, Quorum, setting, value_in

TIMEOUT_MS = 2_000


def directory(node_id: int) -> Uuid:
    return Uuid(node_id.to_bytes(16, "big"))


def registration_of(node: Node) -> ControllerRegistration:
    incarnation = node.driver.node.core.incarnation
    return ControllerRegistration(node.node_id, directory(node.node_id), incarnation, "127.0.0.1", 9093)


def register(leader: Node, quorum: Quorum, node: Node) -> None:
    asked = leader.ask(RegisterControllerRequest(CLUSTER, registration_of(node)))
    quorum.settle()
    assert asked.reply.response is None


def led_with_a_standby(*voters: int, snapshot_every: int = 1_000) -> tuple[Quorum, Node, Node]:
    """A quorum that node 1 leads, and node 4, which has registered."""
    quorum = Quorum(*voters, snapshot_interval_entries=snapshot_every)
    if quorum.voters == (1,):
        quorum.timers.advance(2 * CONFIG.election_timeout_ms)
        quorum.settle()
        leader = quorum.nodes[1]
    else:
        leader = quorum.elect(1)
    standby = quorum.join(4)
    register(leader, quorum, standby)
    return quorum, leader, standby


def run(quorum: Quorum, duration_ms: int) -> None:
    for _ in range(duration_ms // 20):
        quorum.timers.advance(20)
        quorum.settle()


def refusal(node: Node, request: AddVoterRequest | RemoveVoterRequest) -> DlogError:
    error = node.ask(request, TIMEOUT_MS).error
    assert isinstance(error, DlogError)
    return error


@pytest.mark.parametrize("voters", [(1,), (1, 2, 3)])
def test_a_standby_catches_up_first_and_votes_then(voters: tuple[int, ...]) -> None:
    quorum, leader, standby = led_with_a_standby(*voters)
    asked = leader.ask(AddVoterRequest(CLUSTER, 4, directory(4)), TIMEOUT_MS)
    assert asked.is_open
    assert 4 not in leader.driver.status.membership.voters
    run(quorum, 1_000)
    assert asked.reply.response is None
    assert [*leader.driver.status.membership.voters] == [*voters, 4]
    assert standby.driver.node.may_vote
    assert standby.replica.image == leader.replica.image
    assert isinstance(refusal(leader, AddVoterRequest(CLUSTER, 4)), DuplicateVoterError)


@pytest.mark.parametrize("watches", [False, True])
def test_one_that_has_to_be_given_a_snapshot_catches_up_whether_or_not_it_watched(watches: bool) -> None:
    quorum, leader, standby = led_with_a_standby(1, snapshot_every=5)
    for number in range(20):
        leader.ask(setting(str(number)))
        quorum.settle()
    assert leader.driver.node.core.snapshot is not None
    if watches:
        standby.replica.handle_snapshot(encode_snapshot(leader.replica.image))
    asked = leader.ask(AddVoterRequest(CLUSTER, 4), TIMEOUT_MS)
    run(quorum, 1_000)
    assert asked.reply.response is None
    leader.ask(setting("last"))
    run(quorum, 500)
    assert value_in(standby.replica.image) == "last"
    assert standby.replica.image == leader.replica.image


def test_one_that_is_not_reached_is_an_observer_when_the_time_is_over_and_goes_on_when_asked_again() -> None:
    quorum, leader, standby = led_with_a_standby()
    quorum.cut = {4}
    asked = leader.ask(AddVoterRequest(CLUSTER, 4), TIMEOUT_MS)
    run(quorum, TIMEOUT_MS + 100)
    assert isinstance(asked.error, RequestTimedOutError)
    assert "has not answered" in str(asked.error)
    assert [*leader.driver.status.membership.observers] == [4]
    quorum.cut = set()
    again = leader.ask(AddVoterRequest(CLUSTER, 4), TIMEOUT_MS)
    run(quorum, TIMEOUT_MS)
    assert again.reply.response is None
    assert standby.driver.node.may_vote


def test_a_second_change_is_refused_while_one_is_under_way() -> None:
    quorum, leader, _ = led_with_a_standby()
    quorum.cut = {4}
    asked = leader.ask(AddVoterRequest(CLUSTER, 4), TIMEOUT_MS)
    run(quorum, 100)
    for request in (AddVoterRequest(CLUSTER, 4), RemoveVoterRequest(CLUSTER, 3)):
        error = refusal(leader, request)
        assert isinstance(error, MembershipError)
        assert "node 4 is being added: one change at a time" in str(error)
    assert asked.is_open
    assert [*leader.driver.status.membership.voters] == [1, 2, 3]


def test_what_cannot_be_meant_is_refused_and_changes_nothing() -> None:
    quorum, leader, _ = led_with_a_standby()
    before = leader.driver.status.membership
    for request, kind in (
        (AddVoterRequest("another", 4), InconsistentClusterIdError),
        (RemoveVoterRequest("another", 2), InconsistentClusterIdError),
        (AddVoterRequest(CLUSTER, 77), InvalidRequestError),
        (AddVoterRequest(CLUSTER, 4, directory(5)), InvalidVoterKeyError),
        (RemoveVoterRequest(CLUSTER, 77), VoterNotFoundError),
        (RemoveVoterRequest(CLUSTER, -1), InvalidRequestError),
        (RemoveVoterRequest(CLUSTER, 4), VoterNotFoundError),
    ):
        assert type(refusal(leader, request)) is kind
    assert isinstance(refusal(quorum.nodes[2], AddVoterRequest(CLUSTER, 4)), NotLeaderError)
    quorum.settle()
    assert leader.driver.status.membership == before


def test_a_voter_on_another_disk_is_removed_before_it_is_added() -> None:
    quorum, leader, _ = led_with_a_standby()
    quorum.nodes[3].driver.stop()
    replaced = quorum.join(3)
    register(leader, quorum, replaced)
    error = refusal(leader, AddVoterRequest(CLUSTER, 3))
    assert isinstance(error, DuplicateVoterError)
    assert "remove it, then add it" in str(error)
    asked = leader.ask(RemoveVoterRequest(CLUSTER, 3, directory(9)), TIMEOUT_MS)
    run(quorum, 1_000)
    assert asked.reply.response is None
    assert 3 in leader.replica.image.controllers, "what it registered is of its new disk"
    asked = leader.ask(AddVoterRequest(CLUSTER, 3), TIMEOUT_MS)
    run(quorum, 1_000)
    assert asked.reply.response is None
    assert replaced.driver.node.may_vote


def test_one_that_is_removed_is_forgotten() -> None:
    quorum, leader, _ = led_with_a_standby()
    register(leader, quorum, quorum.nodes[3])
    error = refusal(leader, RemoveVoterRequest(CLUSTER, 3, directory(9)))
    assert isinstance(error, InvalidVoterKeyError)
    asked = leader.ask(RemoveVoterRequest(CLUSTER, 3, directory(3)), TIMEOUT_MS)
    quorum.settle()
    assert asked.reply.response is None
    assert [*leader.driver.status.membership.voters] == [1, 2]
    assert [*leader.replica.image.controllers] == [4]


def test_the_last_voter_and_the_last_majority_stay() -> None:
    quorum, leader, _ = led_with_a_standby(1)
    assert "last voter" in str(refusal(leader, RemoveVoterRequest(CLUSTER, 1)))
    quorum, leader, _ = led_with_a_standby(1, 2, 3)
    quorum.cut = {3}
    run(quorum, 3 * CONFIG.election_timeout_ms)
    assert leader.leads
    error = refusal(leader, RemoveVoterRequest(CLUSTER, 2))
    assert isinstance(error, MembershipError)
    assert "no majority" in str(error)
    assert [*leader.driver.status.membership.voters] == [1, 2, 3]


def test_who_leads_hands_over_and_is_removed_by_whom_it_handed_over_to() -> None:
    quorum, leader, _ = led_with_a_standby()
    error = refusal(leader, RemoveVoterRequest(CLUSTER, 1))
    assert isinstance(error, NotLeaderError)
    assert error.leader_id in (2, 3)
    assert [*leader.driver.status.membership.voters] == [1, 2, 3], "nothing was done yet"
    quorum.settle()
    successor = quorum.nodes[error.leader_id]
    assert successor.leads
    asked = successor.ask(RemoveVoterRequest(CLUSTER, 1), TIMEOUT_MS)
    run(quorum, 200)
    assert asked.reply.response is None
    assert [*successor.driver.status.membership.voters] == [2, 3]


def test_a_node_that_watches_ahead_of_its_log_takes_no_snapshot_of_what_is_not_in_it() -> None:
    """It is fed twice: a snapshot up to an entry that held more would be replayed twice after a restart."""
    _, leader, standby = led_with_a_standby()
    standby.replica.handle_snapshot(leader.controller.snapshot() or b"")
    assert standby.replica.image.offset >= standby.driver.applied_index
    assert standby.controller.snapshot() is None
