"""The role of a node, and every way it may change.

An observer, or a voter whose incarnation is not the one its membership names, is a follower for which
ELECTION_TIMEOUT never comes.
"""

from collections.abc import Mapping
from enum import Enum


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class RoleEvent(Enum):
    ELECTION_TIMEOUT = "election timeout"
    MAJORITY_GRANTED = "majority granted"
    ELECTION_LOST = "election lost"
    VOTED = "voted for another"
    LEADER_HEARD = "leader heard"
    HIGHER_TERM = "higher term"
    TIMEOUT_NOW = "timeout now"
    MAJORITY_LOST = "majority lost"
    REMOVED = "removed"


TRANSITIONS: Mapping[tuple[Role, RoleEvent], Role] = {
    (Role.FOLLOWER, RoleEvent.ELECTION_TIMEOUT): Role.PRE_CANDIDATE,
    (Role.FOLLOWER, RoleEvent.TIMEOUT_NOW): Role.CANDIDATE,
    (Role.FOLLOWER, RoleEvent.VOTED): Role.FOLLOWER,
    (Role.FOLLOWER, RoleEvent.LEADER_HEARD): Role.FOLLOWER,
    (Role.FOLLOWER, RoleEvent.HIGHER_TERM): Role.FOLLOWER,
    (Role.PRE_CANDIDATE, RoleEvent.ELECTION_TIMEOUT): Role.PRE_CANDIDATE,
    (Role.PRE_CANDIDATE, RoleEvent.TIMEOUT_NOW): Role.CANDIDATE,
    (Role.PRE_CANDIDATE, RoleEvent.MAJORITY_GRANTED): Role.CANDIDATE,
    (Role.PRE_CANDIDATE, RoleEvent.ELECTION_LOST): Role.FOLLOWER,
    (Role.PRE_CANDIDATE, RoleEvent.VOTED): Role.FOLLOWER,
    (Role.PRE_CANDIDATE, RoleEvent.LEADER_HEARD): Role.FOLLOWER,
    (Role.PRE_CANDIDATE, RoleEvent.HIGHER_TERM): Role.FOLLOWER,
    (Role.CANDIDATE, RoleEvent.ELECTION_TIMEOUT): Role.PRE_CANDIDATE,
    (Role.CANDIDATE, RoleEvent.MAJORITY_GRANTED): Role.LEADER,
    (Role.CANDIDATE, RoleEvent.ELECTION_LOST): Role.FOLLOWER,
    (Role.CANDIDATE, RoleEvent.LEADER_HEARD): Role.FOLLOWER,
    (Role.CANDIDATE, RoleEvent.HIGHER_TERM): Role.FOLLOWER,
    (Role.LEADER, RoleEvent.HIGHER_TERM): Role.FOLLOWER,
    (Role.LEADER, RoleEvent.MAJORITY_LOST): Role.FOLLOWER,
    (Role.LEADER, RoleEvent.REMOVED): Role.FOLLOWER,
}
"""A pair that is not here cannot happen: a KeyError is a defect of this package."""
