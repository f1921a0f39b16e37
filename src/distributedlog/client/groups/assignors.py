"""Who of a group reads what.  Pure.

| name                 | how                                                                   | rebalance   |
|----------------------|-----------------------------------------------------------------------|-------------|
| `range`              | topic by topic, a run of neighbouring partitions to each member       | eager       |
| `roundrobin`         | all partitions of all topics, one to each member in turn              | eager       |
| `sticky`             | balanced, and what can stay where it was stays                        | eager       |
| `cooperative-sticky` | the same; what moves is given up first and given out a rebalance later| cooperative |

Members are taken in the order of their instance ids and member ids, as Kafka's assignors do.  A topic that
has no partitions, or that nobody subscribed to, is nobody's.  Every partition of every other topic gets
exactly one member that subscribed to it.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from distributedlog.client.groups.sticky import assign_sticky, without_moves
from distributedlog.client.groups.subscription import (
    MemberSubscription,
    encode_previous,
)
from distributedlog.model.errors import ConfigError
from distributedlog.model.ids import TopicPartition

Members = Mapping[str, MemberSubscription]
PartitionCounts = Mapping[str, int]


class Assignor(Protocol):
    name: str
    is_cooperative: bool
    """Members keep what they have while they join."""

    def assign(self, counts: PartitionCounts, members: Members) -> dict[str, list[TopicPartition]]:
        """What each member gets; every member is in it."""
        ...

    def user_data(self, owned: tuple[TopicPartition, ...], generation: int) -> bytes | None: ...


def in_order(members: Members) -> list[str]:
    """Those with an instance id first, by it; then the others by member id."""
    return sorted(
        members,
        key=lambda member: (members[member].instance_id is None, members[member].instance_id or "", member),
    )


class RangeAssignor:
    name = "range"
    is_cooperative = False

    def assign(self, counts: PartitionCounts, members: Members) -> dict[str, list[TopicPartition]]:
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        order = in_order(members)
        for topic in sorted(counts):
            takers = [member for member in order if topic in members[member].topics]
            if not takers:
                continue
            each, more = divmod(counts[topic], len(takers))
            start = 0
            for place, member in enumerate(takers):
                end = start + each + (place < more)
                assigned[member] += (TopicPartition(topic, index) for index in range(start, end))
                start = end
        return assigned

    def user_data(self, owned: tuple[TopicPartition, ...], generation: int) -> bytes | None:
        return None


class RoundRobinAssignor:
    name = "roundrobin"
    is_cooperative = False

    def assign(self, counts: PartitionCounts, members: Members) -> dict[str, list[TopicPartition]]:
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        order = in_order(members)
        at = 0
        for topic in sorted(counts):
            if not any(topic in each.topics for each in members.values()):
                continue
            for index in range(counts[topic]):
                while topic not in members[order[at % len(order)]].topics:
                    at += 1
                assigned[order[at % len(order)]].append(TopicPartition(topic, index))
                at += 1
        return assigned

    def user_data(self, owned: tuple[TopicPartition, ...], generation: int) -> bytes | None:
        return None


class StickyAssignor:
    name = "sticky"
    is_cooperative = False

    def assign(self, counts: PartitionCounts, members: Members) -> dict[str, list[TopicPartition]]:
        return assign_sticky(counts, members)

    def user_data(self, owned: tuple[TopicPartition, ...], generation: int) -> bytes | None:
        return encode_previous(owned, generation)


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    is_cooperative = True

    def assign(self, counts: PartitionCounts, members: Members) -> dict[str, list[TopicPartition]]:
        return without_moves(assign_sticky(counts, members), members)

    def user_data(self, owned: tuple[TopicPartition, ...], generation: int) -> bytes | None:
        return None


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    each.name: each
    for each in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}


def assignors_named(names: tuple[str, ...]) -> tuple[Assignor, ...]:
    if not names:
        raise ConfigError(f"at least one assignor is needed: there are {', '.join(ASSIGNORS)}")
    for name in names:
        if name not in ASSIGNORS:
            raise ConfigError(f"there is no assignor {name!r}: there are {', '.join(ASSIGNORS)}")
    return tuple(ASSIGNORS[name] for name in dict.fromkeys(names))
