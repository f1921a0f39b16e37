"""Raft as a pure state machine: messages and the time go in, effects come out.

`RaftNode` is the door.  A driver feeds it (`step`, `tick`, `propose`, ...), asks `ready()` what to persist,
send and apply, and reports with `advance()` that something is on the disk.  Nothing here waits, reads a
clock or draws a number by itself, so a cluster of nodes replays from a seed.
"""

from distributedlog.raft.admission import INDEX_MAX, TERM_MAX, Contents, IsKnownVoter, Refusal
from distributedlog.raft.config import RaftConfig
from distributedlog.raft.membership import AddObserver, Change, Membership, Promote, Remove
from distributedlog.raft.messages import Entry, EntryKind, HardState, Message, Snapshot
from distributedlog.raft.node import Loaded, Persist, RaftNode, ReadState, Ready, Recovered, Status
from distributedlog.raft.roles import Role

__all__ = [
    "INDEX_MAX",
    "TERM_MAX",
    "AddObserver",
    "Change",
    "Contents",
    "Entry",
    "EntryKind",
    "HardState",
    "IsKnownVoter",
    "Loaded",
    "Membership",
    "Message",
    "Persist",
    "Promote",
    "RaftConfig",
    "RaftNode",
    "ReadState",
    "Ready",
    "Recovered",
    "Refusal",
    "Remove",
    "Role",
    "Snapshot",
    "Status",
]
