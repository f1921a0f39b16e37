"""Named invariants of a simulated Raft cluster, one per file.

A checker hears what happens (`on_...`) and raises `InvariantError` the moment its invariant is broken, or at
the end of the run (`finish`).  Checkers look at everything; nothing looks at them.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from distributedlog.raft import Entry, Message, RaftNode


class InvariantError(Exception):
    """An invariant is broken."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


class Operation:
    """One request of a client, from its start to what became of it."""

    __slots__ = ("completed_us", "invoked_us", "kind", "outcome", "result", "value")

    def __init__(self, kind: str, value: int, invoked_us: int) -> None:
        self.kind = kind
        self.value = value
        self.invoked_us = invoked_us
        self.completed_us: int | None = None
        self.outcome = "unknown"
        self.result: tuple[int, int] = (0, 0)

    def __repr__(self) -> str:
        return f"{self.kind} {self.value}"


class View(Protocol):
    """What checkers may see of the cluster."""

    @property
    def now_us(self) -> int: ...

    def durable_term(self, node_id: int, incarnation: int, index: int) -> int | None:
        """The term of the entry that this incarnation of the node has stored where a crash cannot take it.

        A disk that is lost afterwards does not make the node's word untrue: it becomes another incarnation.
        """
        ...

    def durable_vote(self, node_id: int) -> tuple[int, int | None]:
        """The term and the vote in it that would survive a crash of the node now."""
        ...


class Checker:
    """Hears everything and objects to nothing."""

    name: ClassVar[str]

    def __init__(self, view: View) -> None:
        self.view = view

    def on_leader(self, node: RaftNode, term: int) -> None:
        """A node began to lead."""

    def on_log(self, node: RaftNode) -> None:
        """A node's log in memory, or its role, changed."""

    def on_stored(self, node_id: int, entries: Sequence[Entry]) -> None:
        """Entries became durable."""

    def on_commit(self, node: RaftNode, before: int, after: int) -> None:
        """A node learned that more has committed."""

    def on_apply(self, node_id: int, entry: Entry) -> None:
        """A state machine was given an entry."""

    def on_restore(self, node_id: int, index: int) -> None:
        """A state machine was replaced by a snapshot that ends at `index`."""

    def on_send(self, node_id: int, incarnation: int, message: Message) -> None:
        """A message left a node."""

    def finish(self, operations: Sequence[Operation]) -> None:
        """The run is over."""

    def fail(self, message: str) -> None:
        raise InvariantError(self.name, message)
