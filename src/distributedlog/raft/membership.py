"""Who votes, who only follows, and how that changes: one step at a time.

A member is a node id and an *incarnation*: the number its storage carries.  A node that lost what it had
synced takes a new incarnation, so it is no longer the voter the others mean: it is asked for no vote, it
campaigns for none, and no majority counts it, until it is removed and added again.  The first members of
a cluster have incarnation 0.

A change moves one node, so any majority before it and any majority after it share a voter:

    AddObserver   stranger  -> observer
    Promote       observer  -> voter      (once it has nearly caught up)
    Remove        either    -> stranger   (never the last voter)

A change is an entry like any other.  A node goes by the newest one in its log, committed or not, and
returns to the one before if the entry is truncated.  A leader begins a change only when the one before
and an entry of its own term have committed; with two under way, two majorities could miss each other.
"""

from collections.abc import Mapping
from typing import NamedTuple

from distributedlog.model.errors import MembershipError

MEMBERS_MAX = 10_000


class Membership:
    """An immutable set of voters and observers, each with its incarnation."""

    __slots__ = ("members", "observers", "voters")

    def __init__(self, voters: Mapping[int, int], observers: Mapping[int, int] | None = None) -> None:
        self.voters: Mapping[int, int] = dict(sorted(voters.items()))
        self.observers: Mapping[int, int] = dict(sorted((observers or {}).items()))
        self.members: Mapping[int, int] = {**self.voters, **self.observers}
        if not self.voters:
            raise MembershipError("a cluster needs at least one voter")
        if len(self.members) != len(self.voters) + len(self.observers):
            raise MembershipError("a node is either a voter or an observer, not both")

    @classmethod
    def of_voters(cls, *node_ids: int) -> "Membership":
        """The first voters of a new cluster."""
        return cls(dict.fromkeys(node_ids, 0))

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Membership):
            return NotImplemented
        return self.voters == other.voters and self.observers == other.observers

    def __hash__(self) -> int:
        return hash((tuple(self.voters.items()), tuple(self.observers.items())))

    def __repr__(self) -> str:
        voters = " ".join(_spell(member) for member in self.voters.items())
        observers = " ".join(_spell(member) for member in self.observers.items())
        return f"voters {voters}" + (f", observers {observers}" if observers else "")


def _spell(member: tuple[int, int]) -> str:
    node_id, incarnation = member
    return f"{node_id}@{incarnation}" if incarnation else str(node_id)


class AddObserver(NamedTuple):
    node_id: int
    incarnation: int = 0


class Promote(NamedTuple):
    node_id: int


class Remove(NamedTuple):
    node_id: int


Change = AddObserver | Promote | Remove


def apply_change(membership: Membership, change: Change) -> Membership:
    """The membership after `change`; MembershipError says why it cannot be made."""
    voters, observers = dict(membership.voters), dict(membership.observers)
    node_id = change.node_id
    if isinstance(change, AddObserver):
        if node_id in voters:
            raise MembershipError(f"node {node_id} is a voter: remove it before it is added again")
        if len(membership.members) >= MEMBERS_MAX:
            raise MembershipError(f"a cluster has at most {MEMBERS_MAX} members")
        observers[node_id] = change.incarnation
    elif isinstance(change, Promote):
        if node_id not in observers:
            raise MembershipError(f"node {node_id} is not an observer: add it as one first")
        voters[node_id] = observers.pop(node_id)
    else:
        if node_id not in membership.members:
            raise MembershipError(f"node {node_id} is not a member")
        if list(voters) == [node_id]:
            raise MembershipError(f"node {node_id} is the last voter: promote another first")
        voters.pop(node_id, None)
        observers.pop(node_id, None)
    return Membership(voters, observers)


class MembershipHistory:
    """The memberships of the log by the index that made them, so that a truncation can go back."""

    __slots__ = ("_history", "current", "index")

    def __init__(self, index: int, membership: Membership) -> None:
        self._history = [(index, membership)]
        self.index = index
        self.current = membership

    def append(self, index: int, membership: Membership) -> None:
        self._history.append((index, membership))
        self._refresh()

    def truncate_from(self, index: int) -> None:
        while len(self._history) > 1 and self._history[-1][0] >= index:
            self._history.pop()
        self._refresh()

    def reset(self, index: int, membership: Membership) -> None:
        self._history = [(index, membership)]
        self._refresh()

    def at(self, index: int) -> Membership:
        """The membership in force at `index`."""
        return next(membership for since, membership in reversed(self._history) if since <= index)

    def names(self, node_id: int) -> bool:
        """Returns whether the current membership, or one before it that is still known, has this node as a
        member."""
        return any(node_id in membership.members for _, membership in reversed(self._history))

    def forget_before(self, index: int) -> None:
        """Drops what a snapshot at `index` holds for us."""
        while len(self._history) > 1 and self._history[1][0] <= index:
            del self._history[0]

    @property
    def previous(self) -> Membership | None:
        return self._history[-2][1] if len(self._history) > 1 else None

    def _refresh(self) -> None:
        self.index, self.current = self._history[-1]
