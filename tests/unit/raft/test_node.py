"""One node, asked directly: what it refuses, what it promises, and when it wants to be woken."""

import pytest

from distributedlog.model.errors import (
    ConsensusError,
    InvalidRecordError,
    MembershipError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OverloadedError,
    RecordTooLargeError,
)
from distributedlog.raft import (
    AddObserver,
    Entry,
    EntryKind,
    HardState,
    Membership,
    RaftConfig,
    RaftNode,
    Recovered,
    Role,
    Snapshot,
    codec,
)
from distributedlog.raft.core import Draw
from distributedlog.raft.messages import (
    AppendReply,
    AppendRequest,
    Heartbeat,
    HeartbeatReply,
    InstallRequest,
    VoteReply,
    VoteRequest,
)
from distributedlog.raft.roles import TRANSITIONS, RoleEvent

THREE = Membership.of_voters(1, 2, 3)


def make(
    node_id: int = 1,
    membership: Membership = THREE,
    recovered: Recovered | None = None,
    config: RaftConfig | None = None,
    draw: Draw = lambda low, high: low,
) -> RaftNode:
    return RaftNode(node_id, config or RaftConfig(), draw, membership, recovered or Recovered(), 0)


def settle(node: RaftNode) -> list[object]:
    """Everything is persisted at once; what was sent."""
    sent: list[object] = []
    while node.has_ready:
        ready = node.ready()
        sent.extend(ready.messages)
        if ready.persist is not None:
            node.advance(ready.persist)
    return sent


def lead(config: RaftConfig | None = None, membership: Membership = THREE) -> RaftNode:
    """Node 1, elected in term 1 by node 2."""
    node = make(config=config, membership=membership)
    node.tick(1000)
    settle(node)
    node.step(VoteReply(2, 1, 1, True, True), 1000)
    settle(node)
    node.step(VoteReply(2, 1, 1, False, True), 1000)
    settle(node)
    assert node.status.role is Role.LEADER
    return node


def role_of(node: RaftNode) -> Role:
    return node.status.role


def stored(index: int, sender: int = 2, term: int = 1) -> AppendReply:
    return AppendReply(sender, 1, term, 0, False, index, 0, 0)


def command(index: int, term: int, payload: bytes = b"x") -> Entry:
    return Entry(index, term, EntryKind.COMMAND, payload)


# --- requests that are refused -----------------------------------------------------------------


def test_a_follower_refuses_and_says_who_leads() -> None:
    node = make()
    node.step(Heartbeat(3, 1, 5, 0, 1), 10)
    with pytest.raises(NotLeaderError) as refusal:
        node.propose([b"x"])
    assert refusal.value.leader_id == 3
    with pytest.raises(NotLeaderError):
        node.read_index(1)
    with pytest.raises(NotLeaderError):
        node.change_membership(AddObserver(4))
    with pytest.raises(NotLeaderError):
        node.transfer_leadership(2, 10)


def test_proposals_are_bounded_in_size_number_and_bytes() -> None:
    config = RaftConfig(entry_bytes_max=10, uncommitted_bytes_max=25, uncommitted_entries_max=4)
    node = lead(config)
    with pytest.raises(RecordTooLargeError):
        node.propose([bytes(11)])
    with pytest.raises(InvalidRecordError):
        node.propose([])
    node.propose([bytes(10), bytes(10)])
    with pytest.raises(OverloadedError, match="bytes wait"):
        node.propose([bytes(6)])
    with pytest.raises(OverloadedError, match="entries wait"):
        node.propose([b"", b""])
    settle(node)
    node.step(stored(3), 1001)
    assert node.status.commit_index == 3
    node.propose([bytes(10)])


def test_reads_are_bounded() -> None:
    node = lead(RaftConfig(reads_pending_max=2))
    node.read_index(1)
    node.read_index(2)
    with pytest.raises(OverloadedError):
        node.read_index(3)


def test_a_snapshot_beyond_what_was_applied_or_beyond_the_limit_is_refused() -> None:
    node = lead(RaftConfig(snapshot_bytes_max=5))
    with pytest.raises(OffsetOutOfRangeError):
        node.take_snapshot(1, b"")
    settle(node)
    node.step(stored(1), 1001)
    settle(node)
    with pytest.raises(RecordTooLargeError):
        node.take_snapshot(1, bytes(6))
    node.take_snapshot(1, bytes(5))


def test_leadership_goes_to_a_voter_only() -> None:
    node = lead(membership=Membership({1: 0, 2: 0, 3: 0}, {4: 0}))
    for target in (4, 9):
        with pytest.raises(MembershipError):
            node.transfer_leadership(target, 1000)


# --- promises ----------------------------------------------------------------------------------


def test_a_vote_leaves_only_after_it_is_durable() -> None:
    node = make()
    node.step(VoteRequest(2, 1, 1, 0, 0, 0, False, False), 10)
    ready = node.ready()
    assert ready.messages == []
    assert ready.persist is not None
    assert ready.persist.hard_state == HardState(1, 2, 0)
    node.advance(ready.persist)
    assert node.ready().messages == [VoteReply(1, 2, 1, False, True)]


def test_entries_are_answered_for_only_after_they_are_durable_and_in_one_write_if_they_can() -> None:
    node = make()
    node.step(AppendRequest(2, 1, 1, 0, 0, 0, (command(1, 1),)), 10)
    first = node.ready()
    assert first.persist is not None
    node.step(AppendRequest(2, 1, 1, 1, 1, 0, (command(2, 1),)), 11)
    node.step(AppendRequest(2, 1, 1, 2, 1, 0, (command(3, 1),)), 12)
    meanwhile = node.ready()
    assert meanwhile.persist is None, "one write at a time"
    assert meanwhile.messages == []
    node.advance(first.persist)
    second = node.ready()
    assert [reply.match_index for reply in second.messages if isinstance(reply, AppendReply)] == [1]
    assert second.persist is not None
    assert [entry.index for entry in second.persist.entries] == [2, 3], "what came meanwhile shares a write"
    node.advance(second.persist)
    replies = node.ready().messages
    assert [reply.match_index for reply in replies if isinstance(reply, AppendReply)] == [2, 3]


def test_what_was_promised_in_an_earlier_term_is_not_said_in_a_later_one() -> None:
    node = make()
    node.step(VoteRequest(2, 1, 1, 0, 0, 0, False, False), 10)
    ready = node.ready()
    node.step(VoteRequest(3, 1, 2, 0, 0, 0, False, False), 11)
    assert ready.persist is not None
    node.advance(ready.persist)
    assert settle(node) == [VoteReply(1, 3, 2, False, True)]


def test_a_lone_voter_leads_only_once_its_own_vote_is_durable() -> None:
    node = make(membership=Membership.of_voters(1))
    node.tick(1000)
    ready = node.ready()
    assert role_of(node) is Role.CANDIDATE
    assert ready.persist is not None
    node.advance(ready.persist)
    assert role_of(node) is Role.LEADER


def test_a_truncation_under_way_is_not_undone_by_the_write_before_it() -> None:
    node = make()
    node.step(AppendRequest(2, 1, 1, 0, 0, 0, (command(1, 1), command(2, 1))), 10)
    first = node.ready()
    assert first.persist is not None
    node.step(AppendRequest(3, 1, 2, 1, 1, 0, (command(2, 2),)), 11)
    node.advance(first.persist)
    assert node.status.stable_index == 1
    second = node.ready()
    assert second.persist is not None
    assert second.persist.truncate_from == 2
    assert second.persist.entries == (command(2, 2),)


def test_advance_without_a_write_is_a_defect_of_the_driver() -> None:
    node = make()
    node.step(VoteRequest(2, 1, 1, 0, 0, 0, False, False), 10)
    persist = node.ready().persist
    assert persist is not None
    node.advance(persist)
    with pytest.raises(ConsensusError):
        node.advance(persist)


# --- restarts ----------------------------------------------------------------------------------


def test_a_restart_never_votes_twice_in_a_term() -> None:
    node = make(recovered=Recovered(HardState(term=4, vote=2)))
    node.step(VoteRequest(3, 1, 4, 0, 9, 3, False, False), 10)
    assert settle(node) == [VoteReply(1, 3, 4, False, False)]
    node.step(VoteRequest(2, 1, 4, 0, 9, 3, False, False), 10)
    assert settle(node) == [VoteReply(1, 2, 4, False, True)], "the same vote may be repeated"


def test_a_restart_knows_its_members_from_the_log_and_the_snapshot() -> None:
    four = Membership.of_voters(1, 2, 3, 4)
    change = Entry(7, 2, EntryKind.MEMBERSHIP, codec.encode_membership(four))
    snapshot = Snapshot(5, 1, Membership.of_voters(1, 2), b"")
    node = make(recovered=Recovered(HardState(2), snapshot, (command(6, 2), change)))
    assert node.status.membership == four
    assert node.status.commit_index == 5
    assert make(recovered=Recovered(HardState(2), snapshot)).status.membership == snapshot.membership


def test_a_log_that_an_installed_snapshot_replaced_is_not_used() -> None:
    snapshot = Snapshot(5, 3, THREE, b"")
    shorter = (command(1, 1), command(2, 1))
    conflicting = tuple(command(index, 1) for index in range(1, 8))
    agreeing = (*(command(index, 1) for index in range(1, 5)), command(5, 3), command(6, 3))
    assert make(recovered=Recovered(HardState(3), snapshot, shorter)).status.last_index == 5
    assert make(recovered=Recovered(HardState(3), snapshot, conflicting)).status.last_index == 5
    assert make(recovered=Recovered(HardState(3), snapshot, agreeing)).status.last_index == 6


def test_a_gap_between_snapshot_and_log_is_not_papered_over() -> None:
    with pytest.raises(ConsensusError, match="begins at 7"):
        make(recovered=Recovered(HardState(1), Snapshot(5, 1, THREE, b""), (command(7, 1),)))


# --- incarnations ------------------------------------------------------------------------------


def test_a_node_under_another_incarnation_neither_votes_nor_campaigns() -> None:
    node = make(recovered=Recovered(HardState(incarnation=7)))
    assert not node.may_vote
    assert node.next_deadline_ms() is None
    for pre_vote in (True, False):
        node.step(VoteRequest(2, 1, 1, 0, 0, 0, pre_vote, False), 10)
    replies = settle(node)
    assert [reply.granted for reply in replies if isinstance(reply, VoteReply)] == [False, False]


def test_a_node_that_does_not_know_yet_that_it_is_a_voter_votes_if_it_is_meant() -> None:
    """Else a cluster could wait for a vote that the voter does not know it has."""
    node = make(node_id=4, recovered=Recovered(HardState(incarnation=7)))
    node.step(VoteRequest(2, 4, 1, 7, 0, 0, False, False), 10)
    assert settle(node) == [VoteReply(4, 2, 1, False, True)]


def test_a_leader_forgets_what_an_earlier_incarnation_had_stored() -> None:
    node = lead()
    node.step(stored(1), 1001)
    settle(node)
    node.propose([b"x"])
    settle(node)
    node.step(HeartbeatReply(2, 1, 1, 7, 0), 1002)
    assert node.core.progress[2].match_index == 0
    node.step(AppendReply(2, 1, 1, 7, False, 2, 0, 0), 1003)
    assert node.status.commit_index == 1, "it has the entry, but it does not count"
    node.step(stored(2, sender=3), 1004)
    assert node.status.commit_index == 2


# --- time --------------------------------------------------------------------------------------


def test_idle_time_costs_nothing() -> None:
    observer = make(node_id=9)
    assert observer.next_deadline_ms() is None
    alone = make(membership=Membership.of_voters(1))
    alone.tick(1000)
    settle(alone)
    assert alone.next_deadline_ms() is None
    node = lead()
    deadline_ms = node.next_deadline_ms()
    assert deadline_ms == 1200
    node.tick(1199)
    assert settle(node) == []
    node.tick(1200)
    assert [type(message) for message in settle(node)] == [Heartbeat, Heartbeat]


def test_who_is_not_elected_asks_again_soon_then_later_and_after_a_leader_as_a_follower_does() -> None:
    node = make(config=RaftConfig(election_timeout_ms=1000))
    waits_ms, now_ms = [], 0
    for _ in range(5):
        deadline_ms = node.next_deadline_ms()
        assert deadline_ms is not None
        waits_ms.append(deadline_ms - now_ms)
        now_ms = deadline_ms
        node.tick(now_ms)
        settle(node)
    assert waits_ms == [1000, 250, 500, 1000, 1000]
    node.step(Heartbeat(2, 1, 1, 0, 0), now_ms)
    assert node.next_deadline_ms() == now_ms + 1000
    node.tick(now_ms + 1000)
    assert node.next_deadline_ms() == now_ms + 1250, "a leader was heard: the count begins anew"


def test_voters_stand_in_turn_when_the_leader_is_known_to_be_gone() -> None:
    config, moments = RaftConfig(election_timeout_ms=1000), []
    for node_id in (1, 3):
        node = make(node_id=node_id, config=config, draw=lambda low, high: high)
        node.step(Heartbeat(2, node_id, 1, 0, 0), 500)
        assert node.next_deadline_ms() == 2500
        node.leader_refused(2, 1000)
        moments.append(node.next_deadline_ms())
    assert moments == [1500 + 125, 1500 + 125 + 125], "never before an election timeout of silence"


def test_a_leader_that_refuses_hastens_nothing_for_who_does_not_follow_it() -> None:
    node = make(config=RaftConfig(election_timeout_ms=1000), draw=lambda low, high: high)
    node.step(Heartbeat(2, 1, 1, 0, 0), 500)
    node.leader_refused(3, 1000)
    assert node.next_deadline_ms() == 2500
    node.leader_refused(2, 2450)
    assert node.next_deadline_ms() == 2500, "its own turn would be later"
    node.step(Heartbeat(2, 1, 1, 0, 0), 2460)
    assert node.next_deadline_ms() == 4460, "it is there again"


def test_two_that_took_each_others_vote_try_again_at_moments_of_their_own() -> None:
    node = make(config=RaftConfig(election_timeout_ms=1000))
    node.tick(1000)
    node.step(VoteReply(2, 1, 1, True, True), 1000)
    settle(node)
    assert role_of(node) is Role.CANDIDATE
    node.step(VoteReply(2, 1, 1, False, False), 1001)
    assert role_of(node) is Role.CANDIDATE, "the third may be on its way"
    node.step(VoteReply(3, 1, 1, False, False), 1002)
    assert role_of(node) is Role.FOLLOWER
    assert node.next_deadline_ms() == 1252


def test_a_leader_that_hears_one_of_two_followers_goes_on_and_that_hears_none_steps_down() -> None:
    node = lead()
    for now_ms in range(1200, 3001, 200):
        node.step(HeartbeatReply(3, 1, 1, 0, 1), now_ms)
        node.tick(now_ms)
        assert node.status.role is Role.LEADER
    node.tick(4000)
    assert node.status.role is Role.FOLLOWER


def test_reads_are_given_up_when_leadership_is() -> None:
    node = lead()
    node.read_index(77)
    node.step(Heartbeat(2, 1, 2, 0, 1), 1100)
    assert node.ready().reads_lost == [77]


# --- messages that should not be ---------------------------------------------------------------


def test_a_message_for_another_node_is_ignored() -> None:
    node = make()
    node.step(Heartbeat(2, 3, 9, 0, 1), 10)
    assert node.status.term == 0


def test_two_leaders_in_a_term_stop_the_node() -> None:
    node = lead()
    with pytest.raises(ConsensusError, match="both lead term 1"):
        node.step(Heartbeat(2, 1, 1, 0, 1), 1001)


def test_a_leader_that_would_take_back_what_was_committed_stops_the_node() -> None:
    node = make()
    node.step(AppendRequest(2, 1, 1, 0, 0, 1, (command(1, 1), command(2, 1))), 10)
    settle(node)
    node.core.commit_to(2)
    with pytest.raises(ConsensusError, match="is committed"):
        node.core.truncate_from(2)


def test_a_sender_of_the_past_is_told_the_term() -> None:
    node = make(recovered=Recovered(HardState(term=5)))
    node.step(AppendRequest(2, 1, 4, 0, 0, 0, ()), 10)
    node.step(VoteRequest(3, 1, 4, 0, 0, 0, True, False), 10)
    assert settle(node) == [HeartbeatReply(1, 2, 5, 0, 0), VoteReply(1, 3, 5, True, False)]


def test_chunks_may_be_lost_doubled_and_late() -> None:
    def chunk(offset: int, data: bytes, total: int = 6, term: int = 1) -> InstallRequest:
        return InstallRequest(2, 1, term, 9, 1, THREE, total, offset, data)

    node = make()
    for request in (chunk(2, b"cd"), chunk(0, b"ab"), chunk(0, b"ab"), chunk(4, b"ef"), chunk(2, b"cd")):
        node.step(request, 10)
    assert node.status.last_index == 0
    node.step(chunk(4, b"ef"), 11)
    ready = node.ready()
    assert ready.persist is not None
    assert ready.persist.snapshot == Snapshot(9, 1, THREE, b"abcdef")
    assert ready.persist.snapshot_installed
    assert node.ready().restore is None, "not before it is durable"
    node.advance(ready.persist)
    assert node.ready().restore == Snapshot(9, 1, THREE, b"abcdef")


def test_another_leaders_chunks_are_not_mixed_in() -> None:
    node = make()
    node.step(InstallRequest(2, 1, 1, 9, 1, THREE, 4, 0, b"ab"), 10)
    node.step(InstallRequest(3, 1, 2, 9, 1, THREE, 4, 2, b"CD"), 11)
    assert node.status.last_index == 0
    node.step(InstallRequest(3, 1, 2, 9, 1, THREE, 4, 0, b"AB"), 12)
    node.step(InstallRequest(3, 1, 2, 9, 1, THREE, 4, 2, b"CD"), 13)
    snapshot = node.ready().persist
    assert snapshot is not None
    assert snapshot.snapshot is not None
    assert snapshot.snapshot.data == b"ABCD"


def test_a_snapshot_of_what_the_log_has_leaves_the_tail_alone() -> None:
    node = make()
    entries = tuple(command(index, 1) for index in range(1, 6))
    node.step(AppendRequest(2, 1, 1, 0, 0, 0, entries), 10)
    settle(node)
    node.step(InstallRequest(2, 1, 1, 3, 1, THREE, 1, 0, b"s"), 11)
    assert node.status.last_index == 5
    assert node.status.commit_index == 3


# --- roles -------------------------------------------------------------------------------------


def test_every_role_ends_at_a_higher_term_and_only_candidates_become_leaders() -> None:
    for role in Role:
        assert TRANSITIONS[role, RoleEvent.HIGHER_TERM] is Role.FOLLOWER
    ways = [role for (role, _), after in TRANSITIONS.items() if after is Role.LEADER]
    assert ways == [Role.CANDIDATE]
