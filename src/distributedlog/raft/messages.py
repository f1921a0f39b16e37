"""What Raft nodes tell each other, and what they keep.

Every message has a sender, a receiver and the sender's term.  Replies carry the sender's incarnation, by
which a leader knows whether the member that answers is the one its membership names.

| message        | from -> to            | answered by                                             |
|----------------|-----------------------|---------------------------------------------------------|
| VoteRequest    | candidate -> voter    | VoteReply                                               |
| AppendRequest  | leader -> follower    | AppendReply                                             |
| Heartbeat      | leader -> follower    | HeartbeatReply; round 0 only tells and is not answered  |
| InstallRequest | leader -> follower    | InstallReply per chunk; AppendReply when it is durable  |
| TimeoutNow     | leader -> its heir    | by the heir's VoteRequest                               |
"""

from enum import IntEnum
from typing import NamedTuple

from distributedlog.raft.membership import Membership


class EntryKind(IntEnum):
    COMMAND = 0
    """A payload of the state machine above."""
    NOOP = 1
    """Opens a leader's term: with it, entries of earlier terms commit."""
    MEMBERSHIP = 2
    """The payload is an encoded `Membership`, in force from here on."""


class Entry(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int
    kind: EntryKind
    payload: bytes


class HardState(NamedTuple):
    """What must be on the disk before it is answered for."""

    term: int = 0
    vote: int | None = None
    incarnation: int = 0


class Snapshot(NamedTuple):
    """The state machine's state after the entry `index`, and the membership in force there."""

    index: int  # type: ignore[assignment]
    term: int
    membership: Membership
    data: bytes


class VoteRequest(NamedTuple):
    sender: int
    to: int
    term: int
    """The term; for a pre-vote the one the sender would campaign in, and has not begun."""
    voter_incarnation: int
    """The voter that is meant: a node under another incarnation must refuse."""
    last_index: int
    last_term: int
    pre_vote: bool
    transfer: bool
    """The old leader asked for this election: its being alive is no reason to refuse."""


class VoteReply(NamedTuple):
    sender: int
    to: int
    term: int
    pre_vote: bool
    granted: bool


class AppendRequest(NamedTuple):
    sender: int
    to: int
    term: int
    prev_index: int
    prev_term: int
    commit_index: int
    entries: tuple[Entry, ...]


class AppendReply(NamedTuple):
    sender: int
    to: int
    term: int
    incarnation: int
    rejected: bool
    match_index: int
    """Accepted: durable and the same as the leader's up to here.  Rejected: the prev_index refused."""
    hint_index: int
    """Rejected: the largest index at which the logs may still agree, and the term there."""
    hint_term: int


class Heartbeat(NamedTuple):
    sender: int
    to: int
    term: int
    commit_index: int
    round: int


class HeartbeatReply(NamedTuple):
    sender: int
    to: int
    term: int
    incarnation: int
    round: int


class InstallRequest(NamedTuple):
    sender: int
    to: int
    term: int
    snapshot_index: int
    snapshot_term: int
    membership: Membership
    total_bytes: int
    offset: int
    chunk: bytes


class InstallReply(NamedTuple):
    sender: int
    to: int
    term: int
    incarnation: int
    snapshot_index: int
    next_offset: int


class TimeoutNow(NamedTuple):
    sender: int
    to: int
    term: int


Message = (
    VoteRequest
    | VoteReply
    | AppendRequest
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | InstallRequest
    | InstallReply
    | TimeoutNow
)
