"""Named invariants of simulated consumer groups, one per file, and what they are told.

A checker raises `InvariantError` the moment its invariant is broken, or at the end of the run (`finish`).
What it is told of the log is what was committed, decoded from the bytes that all copies have.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NoReturn, Protocol

from distributedlog.groups.records import GroupRecord
from tests.simulation.checkers import InvariantError


class Member(Protocol):
    """What checkers may see of a member."""

    name: str
    group: str
    member_id: str
    generation: int
    owned: tuple[int, ...]
    is_alive: bool
    is_fenced: bool
    is_working: bool
    acknowledged_us: int

    @property
    def owner(self) -> str: ...


class GroupsView(Protocol):
    @property
    def now_us(self) -> int: ...


class GroupsChecker:
    """Hears everything and objects to nothing."""

    name: ClassVar[str]

    def __init__(self, view: GroupsView) -> None:
        self.view = view

    def on_commit(self, record: GroupRecord) -> None:
        """A record was committed."""

    def on_told(self, member: Member) -> None:
        """A member was told what it owns."""

    def on_read(self, member: Member, found: Mapping[int, int], before: Mapping[int, int]) -> None:
        """A member read where its group stands; `before` was acknowledged before it asked."""

    def finish(self, members: Sequence[Member]) -> None:
        """The run is over."""

    def fail(self, message: str) -> NoReturn:
        raise InvariantError(self.name, message)
