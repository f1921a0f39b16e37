"""Named invariants of simulated consumer groups, one per file, and what they are told.

A checker raises `InvariantError` the moment its invariant is broken, or at the end of the run (`finish`).
What it is told of the log is what was committed, decoded from the bytes that all copies have.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NoReturn, Protocol

from distributedlog.groups.consumer.topics import TopicIdPartitions
from distributedlog.groups.records import GroupRecord
from distributedlog.model.ids import TopicPartition, Uuid
from tests.simulation.checkers import InvariantError
from tests.simulation.checkers.consumer_log import ConsumerLog

Encoded = tuple[bytes, bytes | None]
"""A record."""
CommittedOffsets = Mapping[TopicPartition, int]


class Member(Protocol):
    """What checkers may see of a member of a classic group."""

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


class Subscription(Protocol):
    def names(self, topic: str) -> bool: ...


class Consumer(Protocol):
    """What checkers may see of a member that speaks the new protocol."""

    name: str
    group: str
    member_id: str
    epoch: int
    assigned: TopicIdPartitions
    owned: TopicIdPartitions
    is_alive: bool
    is_working: bool
    acknowledged_us: int

    @property
    def subscription(self) -> Subscription: ...

    @property
    def said(self) -> Subscription:
        """What the coordinator was told."""
        ...


class GroupsView(Protocol):
    consumer_log: ConsumerLog

    @property
    def topic_names(self) -> Mapping[Uuid, str]: ...

    @property
    def now_us(self) -> int: ...

    @property
    def consumers(self) -> Sequence[Consumer]: ...

    def partition_count(self, topic_id: Uuid) -> int: ...


class GroupsChecker:
    """Hears everything and objects to nothing."""

    name: ClassVar[str]

    def __init__(self, view: GroupsView) -> None:
        self.view = view

    def on_commit(self, record: GroupRecord) -> None:
        """A record was committed."""

    def on_entry(self, groups: set[str]) -> None:
        """All records of an entry were committed; it was about these groups of the new protocol."""

    def on_state(self, state: set[Encoded], replayed: set[Encoded]) -> None:
        """What the coordinator has, and what its log says once it is compacted."""

    def on_told(self, member: Member) -> None:
        """A member was told what it owns."""

    def on_consumer_told(self, consumer: Consumer) -> None:
        """A member of the new protocol was told what is assigned to it."""

    def on_taken(self, consumer: Consumer, tps: TopicIdPartitions) -> None:
        """It reads these from now on."""

    def on_read(
        self, who: str, wanted: Sequence[TopicPartition], found: CommittedOffsets, before: CommittedOffsets
    ) -> None:
        """A member read where its group stands; `before` was acknowledged before it asked."""

    def on_probe(self, broker_id: int, group: str, found: CommittedOffsets, before: CommittedOffsets) -> None:
        """A broker answered somebody who asks all of them; `before` was acknowledged before it was asked."""

    def finish(self, members: Sequence[Member]) -> None:
        """The run is over."""

    def finish_consumers(self, consumers: Sequence[Consumer]) -> None:
        """Likewise, for those that speak the new protocol."""

    def fail(self, message: str) -> NoReturn:
        raise InvariantError(self.name, message)
