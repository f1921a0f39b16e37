"""Which messages a node takes at all.  What is refused changes nothing: no term, no vote, no log, no timer.

| refused      | when                                                                               |
|--------------|------------------------------------------------------------------------------------|
| NOT_A_MEMBER | its sender is in no configuration of this node's log, and is no known voter        |
| OUT_OF_RANGE | a term is over TERM_MAX, an index over INDEX_MAX, or an earlier term above its own |
| UNREADABLE   | it has an entry or a snapshot that the state machine cannot decode                 |

**Members only.**  A stranger's term would depose a leader, and is durable before anybody doubts it.  But
the members that a node knows of are those of *its own* log, which may be behind:

- A voter that lags behind a change may be asked for its vote by a voter that it has never heard of, and be
  sent entries by a leader that it does not know.  It must answer both, or a cluster whose majority is alive
  could stand still: the entry that names the stranger comes from nobody but the stranger.
- An observer that joins, or a voter that was added and is caught up, has an empty log: it knows the
  bootstrap configuration, of which nobody may be left.
- A voter that was removed may not have heard of it.  It asks for a pre-vote, which begins no term, and those
  who hear a leader refuse it.

So a node hears whoever is named by *any* configuration since its snapshot (the current one, those before it,
and one that is not committed yet), and beside those its driver knows as voters: nodes that have proved,
outside of consensus, that they belong to this cluster: those of the settings, and those that have registered
as controllers.  Nobody else is heard.

Why that is safe: to hear a node gives it nothing but what Raft gives any server.  A vote is counted, and an
acknowledgement too, only of a voter of the configuration in force (`election`, `Core.majority_of`); a
leader's entries are taken only if they continue this log.

**Bounds.**  A term is the leader epoch of a batch in the metadata log, an int32 in Kafka's format.  An index
is an offset, an int64, with room for those that are computed from it.  A node in the last term begins no
other.

**Contents.**  What is appended here will be committed, and what is committed must be applied by every node,
for ever.  So entries are decoded before a leader appends them and before a follower accepts them, and a
snapshot before it takes the log's place: afterwards it would be too late to say no.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from distributedlog.model.errors import DlogError
from distributedlog.raft.membership import MembershipHistory
from distributedlog.raft.messages import (
    AppendReply,
    AppendRequest,
    Entry,
    EntryKind,
    Heartbeat,
    InstallReply,
    InstallRequest,
    Message,
    VoteRequest,
)

TERM_MAX: Final = 2**31 - 1
INDEX_MAX: Final = 2**62

IsKnownVoter = Callable[[int], bool]
"""Whether a node has proved that it takes part in this cluster's consensus."""


class Refusal(Enum):
    NOT_A_MEMBER = "not a member"
    OUT_OF_RANGE = "out of range"
    UNREADABLE = "unreadable"


class Contents(Protocol):
    """What the state machine can read.  Both raise a DlogError for what it cannot, and change nothing."""

    def check_entry(self, payload: bytes) -> None: ...

    def check_snapshot(self, data: bytes, index: int) -> None:
        """The state after the entry `index`."""
        ...


class AnyContents:
    """The contents of a state machine that can read everything."""

    def check_entry(self, payload: bytes) -> None:
        return None

    def check_snapshot(self, data: bytes, index: int) -> None:
        return None


def no_known_voter(node_id: int) -> bool:
    return False


def is_member(memberships: MembershipHistory, node_id: int, is_known_voter: IsKnownVoter) -> bool:
    return memberships.names(node_id) or is_known_voter(node_id)


def is_in_range(message: Message) -> bool:
    """Returns whether every term and index of the message can be one.  None is negative: `codec` sees to
    that."""
    if message.term > TERM_MAX:
        return False
    if isinstance(message, AppendRequest):
        last_index = message.prev_index + len(message.entries)
        return message.prev_term <= message.term and _are_indexes(last_index, message.commit_index)
    if isinstance(message, VoteRequest):
        return message.last_term <= message.term and _are_indexes(message.last_index)
    if isinstance(message, InstallRequest):
        return message.snapshot_term <= message.term and _are_indexes(message.snapshot_index)
    if isinstance(message, AppendReply):
        return message.hint_term <= TERM_MAX and _are_indexes(message.match_index, message.hint_index)
    if isinstance(message, Heartbeat):
        return _are_indexes(message.commit_index)
    return not isinstance(message, InstallReply) or _are_indexes(message.snapshot_index)


def _are_indexes(*indexes: int) -> bool:
    return max(indexes) <= INDEX_MAX


def are_readable(entries: tuple[Entry, ...], contents: Contents) -> bool:
    try:
        for entry in entries:
            if entry.kind is EntryKind.COMMAND:
                contents.check_entry(entry.payload)
    except DlogError:
        return False
    return True


def is_readable_snapshot(data: bytes, index: int, contents: Contents) -> bool:
    try:
        contents.check_snapshot(data, index)
    except DlogError:
        return False
    return True
