"""What a node takes of what arrives: of members, with numbers that can be and contents that can be read."""

from collections.abc import Sequence

import pytest

from distributedlog.model.errors import MalformedMessageError
from distributedlog.raft import (
    INDEX_MAX,
    TERM_MAX,
    AddObserver,
    Entry,
    EntryKind,
    HardState,
    IsKnownVoter,
    Membership,
    Promote,
    RaftConfig,
    RaftNode,
    Recovered,
    Refusal,
    Role,
    Snapshot,
    codec,
)
from distributedlog.raft.admission import no_known_voter
from distributedlog.raft.messages import (
    AppendReply,
    AppendRequest,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallRequest,
    Message,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)

CONFIG = RaftConfig(election_timeout_ms=100, heartbeat_ms=20)
MEMBERS = Membership.of_voters(1, 2, 3)
STRANGER = 99
GARBAGE = b"garbage"
VOTED = HardState(5, 2)


class Wordy:
    """Can read whatever is not GARBAGE."""

    def check_entry(self, payload: bytes) -> None:
        if payload == GARBAGE:
            raise MalformedMessageError("garbage")

    def check_snapshot(self, data: bytes, index: int) -> None:
        self.check_entry(data)


def node_of(
    membership: Membership = MEMBERS,
    *,
    hard_state: HardState = VOTED,
    snapshot: Snapshot | None = None,
    entries: Sequence[Entry] = (Entry(1, 5, EntryKind.NOOP, b""),),
    is_known_voter: IsKnownVoter = no_known_voter,
    node_id: int = 1,
) -> RaftNode:
    recovered = Recovered(hard_state, snapshot, entries)
    return RaftNode(
        node_id,
        CONFIG,
        lambda low, _: low,
        membership,
        recovered,
        0,
        is_known_voter=is_known_voter,
        contents=Wordy(),
    )


def whole_state(node: RaftNode) -> object:
    """Everything that a message could change."""
    core = node.core
    return (
        node.status, core.vote, core.leader_id, core.now_ms, core.election_deadline_ms, core.votes,
        core.dirty, core.incoming, list(core.outbox), list(core.parked), core.memberships.index,
        node.has_ready,
    )  # fmt: skip


def messages_of(sender: int, term: int) -> list[Message]:
    entry = Entry(2, min(term, TERM_MAX), EntryKind.COMMAND, b"word")
    return [
        VoteRequest(sender, 1, term, 0, 50, 5, False, False),
        VoteRequest(sender, 1, term, 0, 50, 5, True, False),
        VoteRequest(sender, 1, term, 0, 50, 5, False, True),
        VoteReply(sender, 1, term, False, True),
        VoteReply(sender, 1, term, True, False),
        AppendRequest(sender, 1, term, 1, 5, 2, (entry,)),
        AppendReply(sender, 1, term, 0, False, 1, 0, 0),
        AppendReply(sender, 1, term, 0, True, 1, 0, 0),
        Heartbeat(sender, 1, term, 1, 1),
        HeartbeatReply(sender, 1, term, 0, 1),
        InstallRequest(sender, 1, term, 9, 5, Membership.of_voters(sender), 4, 0, b"word"),
        InstallReply(sender, 1, term, 0, 9, 0),
        TimeoutNow(sender, 1, term),
    ]


# --- members only ------------------------------------------------------------------------------


@pytest.mark.parametrize("message", messages_of(STRANGER, 6) + messages_of(STRANGER, 5), ids=repr)
def test_a_stranger_changes_nothing(message: Message) -> None:
    node = node_of()
    before = whole_state(node)
    assert node.step(message, 50) is Refusal.NOT_A_MEMBER
    assert whole_state(node) == before


@pytest.mark.parametrize("message", messages_of(1, 6), ids=repr)
def test_what_claims_to_be_of_the_node_itself_changes_nothing(message: Message) -> None:
    node = node_of()
    before = whole_state(node)
    assert node.step(message, 50) is Refusal.NOT_A_MEMBER
    assert whole_state(node) == before


def test_a_leader_is_not_deposed_by_a_stranger() -> None:
    node = node_of(Membership.of_voters(1), entries=())
    node.tick(0)
    _settle(node)
    assert node.status.role is Role.LEADER
    for message in messages_of(STRANGER, node.status.term) + messages_of(STRANGER, node.status.term + 1):
        assert node.step(message, 10) is Refusal.NOT_A_MEMBER
    assert node.status.role is Role.LEADER


@pytest.mark.parametrize("sender", [2, 3])
def test_members_are_heard(sender: int) -> None:
    node = node_of()
    assert node.step(Heartbeat(sender, 1, 6, 1, 1), 50) is None
    assert (node.status.term, node.status.leader_id) == (6, sender)


def test_an_observer_is_heard_and_one_that_is_being_added_too() -> None:
    """The change is in the log, and not committed."""
    node = node_of(Membership({1: 0}), entries=())
    node.tick(0)
    _settle(node)
    node.change_membership(AddObserver(4))
    assert node.core.memberships.index > node.core.commit_index
    assert node.step(HeartbeatReply(4, 1, node.status.term, 0, 1), 1) is None
    _settle(node)
    assert node.step(AppendReply(4, 1, node.status.term, 0, False, 2, 0, 0), 2) is None
    node.change_membership(Promote(4))
    assert node.step(AppendReply(4, 1, node.status.term, 0, False, 3, 0, 0), 3) is None


def test_one_that_a_change_removed_is_heard_until_the_snapshot_forgets_it() -> None:
    """It may not have heard of it; and the change may yet be truncated."""
    removal = Entry(2, 5, EntryKind.MEMBERSHIP, _encoded(Membership.of_voters(1, 2)))
    node = node_of(entries=[Entry(1, 5, EntryKind.NOOP, b""), removal])
    assert 3 not in node.status.membership.members
    assert node.step(VoteRequest(3, 1, 6, 0, 2, 5, True, False), 1) is None
    node = node_of(
        snapshot=Snapshot(2, 5, Membership.of_voters(1, 2), b"word"),
        entries=[Entry(3, 5, EntryKind.NOOP, b"")],
    )
    assert node.step(VoteRequest(3, 1, 6, 0, 3, 5, False, False), 1) is Refusal.NOT_A_MEMBER
    assert node.status.term == 5


def test_a_voter_that_lags_behind_a_change_votes_for_and_follows_a_known_voter() -> None:
    """4 was added while 3 was away, and 1 removed: without 3 the two that are left could not go on."""
    node = node_of(node_id=3, is_known_voter=lambda node_id: node_id == 4)
    assert node.step(VoteRequest(4, 3, 8, 0, 9, 7, False, False), 1_000) is None
    assert (node.status.term, node.core.vote) == (8, 4)
    named = Entry(2, 7, EntryKind.MEMBERSHIP, _encoded(Membership.of_voters(2, 3, 4)))
    assert node.step(AppendRequest(4, 3, 8, 1, 5, 0, (named,)), 1_001) is None
    assert node.status.leader_id == 4
    assert 4 in node.status.membership.voters
    assert node.step(Heartbeat(STRANGER, 3, 9, 0, 1), 1_002) is Refusal.NOT_A_MEMBER


def test_a_joining_observer_is_caught_up_by_a_leader_it_never_heard_of() -> None:
    node = node_of(node_id=5, hard_state=HardState(), entries=(), is_known_voter=lambda node_id: node_id == 4)
    now = Membership({3: 0, 4: 0}, {5: 0})
    assert node.step(InstallRequest(4, 5, 8, 9, 7, now, 4, 0, b"word"), 1) is None
    _settle(node)
    assert (node.status.leader_id, node.status.last_index, node.status.membership) == (4, 9, now)


# --- bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("term", [TERM_MAX + 1, 2**63 - 1])
def test_a_term_that_no_batch_can_carry_is_refused_also_of_a_member(term: int) -> None:
    for message in messages_of(2, term):
        node = node_of()
        before = whole_state(node)
        assert node.step(message, 50) is Refusal.OUT_OF_RANGE, message
        assert whole_state(node) == before


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(2, 1, 6, 0, INDEX_MAX + 1, 5, False, False),
        VoteRequest(2, 1, 6, 0, 1, 7, False, False),
        AppendRequest(2, 1, 6, INDEX_MAX, 5, 0, (Entry(INDEX_MAX + 1, 6, EntryKind.NOOP, b""),)),
        AppendRequest(2, 1, 6, 1, 7, 0, ()),
        AppendRequest(2, 1, 6, 1, 5, 2**63 - 1, ()),
        AppendReply(2, 1, 6, 0, False, 2**63 - 1, 0, 0),
        AppendReply(2, 1, 6, 0, True, 1, 2**63 - 1, 0),
        AppendReply(2, 1, 6, 0, True, 1, 1, TERM_MAX + 1),
        Heartbeat(2, 1, 6, INDEX_MAX + 1, 1),
        InstallRequest(2, 1, 6, INDEX_MAX + 1, 5, MEMBERS, 4, 0, b"word"),
        InstallRequest(2, 1, 6, 9, 7, MEMBERS, 4, 0, b"word"),
        InstallReply(2, 1, 6, 0, INDEX_MAX + 1, 0),
    ],
    ids=repr,
)
def test_an_index_that_cannot_be_is_refused(message: Message) -> None:
    node = node_of()
    before = whole_state(node)
    assert node.step(message, 50) is Refusal.OUT_OF_RANGE
    assert whole_state(node) == before


def test_in_the_last_term_a_node_follows_and_begins_no_other() -> None:
    node = node_of()
    assert node.step(Heartbeat(2, 1, TERM_MAX, 1, 1), 50) is None
    assert node.status.term == TERM_MAX
    node.ready()
    for _ in range(3):
        deadline_ms = node.next_deadline_ms()
        assert deadline_ms is not None
        node.tick(deadline_ms)
        assert (node.status.term, node.status.role) == (TERM_MAX, Role.FOLLOWER)
    assert not node.ready().messages
    node.step(Heartbeat(2, 1, TERM_MAX, 1, 1), 5_000)
    node.step(TimeoutNow(2, 1, TERM_MAX), 5_000)
    assert (node.status.term, node.status.role) == (TERM_MAX, Role.FOLLOWER)


def test_a_round_that_was_never_sent_confirms_no_read() -> None:
    node = node_of(Membership.of_voters(1, 2))
    node.tick(100)
    node.step(VoteReply(2, 1, 6, True, True), 101)
    _settle(node)
    node.step(VoteReply(2, 1, 6, False, True), 102)
    _settle(node)
    assert node.status.role is Role.LEADER
    node.step(AppendReply(2, 1, 6, 0, False, 2, 0, 0), 103)
    node.step(HeartbeatReply(2, 1, 6, 0, 2**62), 104)
    node.read_index(7)
    assert not node.ready().reads
    node.step(HeartbeatReply(2, 1, 6, 0, node.core.round), 105)
    assert [read.request_id for read in node.ready().reads] == [7]


# --- contents ----------------------------------------------------------------------------------


def test_an_entry_that_cannot_be_read_is_not_accepted_nor_anything_beside_it() -> None:
    node = node_of()
    before = whole_state(node)
    sound, garbage = Entry(2, 6, EntryKind.COMMAND, b"word"), Entry(3, 6, EntryKind.COMMAND, GARBAGE)
    assert node.step(AppendRequest(2, 1, 6, 1, 5, 3, (sound, garbage)), 50) is Refusal.UNREADABLE
    assert whole_state(node) == before
    assert node.step(AppendRequest(2, 1, 6, 1, 5, 2, (sound,)), 51) is None
    assert node.status.last_index == 2


def test_an_entry_that_cannot_be_read_is_not_proposed() -> None:
    node = node_of(Membership.of_voters(1), entries=())
    node.tick(0)
    _settle(node)
    last_index = node.status.last_index
    with pytest.raises(MalformedMessageError):
        node.propose([b"word", GARBAGE])
    assert node.status.last_index == last_index
    node.propose([b"word"])


def test_a_snapshot_that_cannot_be_read_replaces_nothing() -> None:
    node = node_of()
    before = whole_state(node)
    forged = InstallRequest(2, 1, 6, 9, 5, Membership.of_voters(2), len(GARBAGE), 0, GARBAGE)
    assert node.step(forged, 50) is Refusal.UNREADABLE
    assert whole_state(node) == before


def test_a_snapshot_in_chunks_is_read_before_its_last_chunk_is_taken() -> None:
    node = node_of()
    first = InstallRequest(2, 1, 6, 9, 5, MEMBERS, len(GARBAGE), 0, GARBAGE[:3])
    last = first._replace(offset=3, chunk=GARBAGE[3:])
    assert node.step(first, 50) is None
    assert node.step(last, 51) is Refusal.UNREADABLE
    assert (node.status.last_index, node.core.incoming) == (1, None)
    for offset, chunk in ((0, b"sound"), (5, b"ly")):
        assert node.step(first._replace(offset=offset, chunk=chunk), 52) is None
    assert node.status.last_index == 9


def test_chunks_of_two_leaders_are_not_put_together() -> None:
    """The second leader's last chunk must not be judged by what the first one had sent before it."""
    node = node_of()
    first = InstallRequest(2, 1, 6, 9, 5, MEMBERS, len(GARBAGE), 0, GARBAGE[:3])
    assert node.step(first, 50) is None
    assert node.step(first._replace(sender=3, term=7, offset=3, chunk=GARBAGE[3:]), 51) is None
    assert (node.status.term, node.status.last_index) == (7, 1)


def _settle(node: RaftNode) -> None:
    while (ready := node.ready()).persist is not None:
        node.advance(ready.persist)


def _encoded(membership: Membership) -> bytes:
    return codec.encode_membership(membership)
