"""The sticky assignment: balanced first, and then as much as possible where it was.  Pure.

1. Each member keeps what it had and may still have; of two that claim a partition, the one of the newer
   generation, and of one generation neither: one of them has lost it without knowing.
2. What is nobody's goes, partition by partition, to whoever may have it and has least; partitions that few
may have
   come first.
3. While somebody has two more than another who could take one of his, one is moved.  Every move makes the
sum of
   squares of the loads smaller, so that this ends.

**Invariants.**  Every partition has one member that subscribed to it.  No single move would make it more
even.  Where all members subscribe to the same topics loads differ by one at most, and an assignment that
was already even and complete stays as it is.
"""

from collections.abc import Mapping

from distributedlog.client.groups.subscription import MemberSubscription
from distributedlog.model.ids import TopicPartition

Members = Mapping[str, MemberSubscription]


def assign_sticky(counts: Mapping[str, int], members: Members) -> dict[str, list[TopicPartition]]:
    takers = {
        topic: sorted(member for member, each in members.items() if topic in each.topics) for topic in counts
    }
    owner = _kept(counts, members)
    assigned: dict[str, set[TopicPartition]] = {member: set() for member in members}
    for partition, member in owner.items():
        assigned[member].add(partition)
    missing = [
        TopicPartition(topic, index)
        for topic in sorted(counts, key=lambda topic: (len(takers[topic]), topic))
        if takers[topic]
        for index in range(counts[topic])
        if TopicPartition(topic, index) not in owner
    ]
    for partition in missing:
        least = min(takers[partition.topic], key=lambda member: (len(assigned[member]), member))
        assigned[least].add(partition)
    _balance(assigned, takers)
    return {member: sorted(partitions) for member, partitions in assigned.items()}


def _kept(counts: Mapping[str, int], members: Members) -> dict[TopicPartition, str]:
    """Step 1: the owners that stay."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in sorted(members):
        subscription = members[member]
        for partition in subscription.owned:
            is_there = 0 <= partition.partition < counts.get(partition.topic, 0)
            if not is_there or partition.topic not in subscription.topics:
                continue
            generation, other = claims.get(partition, (None, None))
            if generation is None or subscription.generation > generation:
                claims[partition] = (subscription.generation, member)
            elif subscription.generation == generation and other != member:
                claims[partition] = (generation, None)
    return {partition: member for partition, (_, member) in claims.items() if member is not None}


def _balance(assigned: dict[str, set[TopicPartition]], takers: Mapping[str, list[str]]) -> None:
    """Step 3.  The fullest members are looked at first; one that cannot give anything away is done with."""
    done: set[str] = set()
    while len(done) < len(assigned):
        fullest = max(assigned.keys() - done, key=lambda member: (len(assigned[member]), member))
        taker = _least_of(fullest, assigned, takers)
        if taker is None:
            done.add(fullest)
            continue
        movable = (each for each in sorted(assigned[fullest], reverse=True) if taker in takers[each.topic])
        partition = next(movable)
        assigned[fullest].discard(partition)
        assigned[taker].add(partition)
        done.clear()


def _least_of(
    fullest: str, assigned: Mapping[str, set[TopicPartition]], takers: Mapping[str, list[str]]
) -> str | None:
    """Who could take one of somebody's partitions and has at least two less; the emptiest of them."""
    topics = {each.topic for each in assigned[fullest]}
    others = {member for topic in topics for member in takers[topic]}
    least = min(others, key=lambda member: (len(assigned[member]), member), default=None)
    if least is None or len(assigned[fullest]) - len(assigned[least]) < 2:
        return None
    return least


def without_moves(
    target: Mapping[str, list[TopicPartition]], members: Members
) -> dict[str, list[TopicPartition]]:
    """The target less what somebody else still has: it is given out when that member has given it up."""
    owner: dict[TopicPartition, set[str]] = {}
    for member, subscription in members.items():
        for partition in subscription.owned:
            owner.setdefault(partition, set()).add(member)
    return {
        member: [each for each in partitions if owner.get(each, set()) <= {member}]
        for member, partitions in target.items()
    }
