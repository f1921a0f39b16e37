"""Server-side assignors: from what members subscribe to, to who reads what.  Pure functions.

    range     each topic's partitions in runs, members in the order of their instance ids, then member ids;
              topics with equally many partitions and the same readers are split alike, so that records of one
              key end up with one member
    uniform   as even as subscriptions allow, and of all even ones close to the assignment before

Of equal subscriptions uniform gives every member ⌊n/m⌋ or ⌈n/m⌉ partitions, and moves only those that one
of these numbers makes impossible to keep.  Of unequal ones it gives what nobody has to whoever of its readers
has least, and then takes from those who have at least two more than another reader of the same topic, until
there is nobody; each such step brings the sum of squares down, so it ends.

Invariants: every partition of every topic that somebody subscribes to is given to exactly one of its readers;
nobody gets what it does not subscribe to; the result depends on nothing but the arguments.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from distributedlog.groups.consumer.topics import TopicIdPartition, TopicIdPartitions, TopicView


class Reader(NamedTuple):
    """What an assignor knows of a member."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    """The topics that there are."""
    before: TopicIdPartitions
    """What the target gave it until now."""


Assignor = Callable[[Iterable[Reader], Mapping[str, TopicView]], dict[str, TopicIdPartitions]]


def assign_range(readers: Iterable[Reader], topics: Mapping[str, TopicView]) -> dict[str, TopicIdPartitions]:
    ordered = sorted(readers, key=_static_first)
    given: dict[str, list[TopicIdPartition]] = {reader.member_id: [] for reader in ordered}
    for topic in topics.values():
        those = [reader for reader in ordered if topic.name in reader.topics]
        at = 0
        for number, reader in enumerate(those):
            count = topic.partition_count // len(those) + (number < topic.partition_count % len(those))
            given[reader.member_id] += [
                TopicIdPartition(topic.topic_id, each) for each in range(at, at + count)
            ]
            at += count
    return {member_id: frozenset(tps) for member_id, tps in given.items()}


def _static_first(reader: Reader) -> tuple[bool, str, str]:
    return reader.instance_id is None, reader.instance_id or "", reader.member_id


def assign_uniform(
    readers: Iterable[Reader], topics: Mapping[str, TopicView]
) -> dict[str, TopicIdPartitions]:
    ordered = sorted(readers, key=lambda reader: reader.member_id)
    if not ordered:
        return {}
    if all(reader.topics == ordered[0].topics for reader in ordered):
        return _even(ordered, topics)
    return _as_even_as_may_be(ordered, topics)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


def _list_partitions(topics: Mapping[str, TopicView], names: Iterable[str]) -> list[TopicIdPartition]:
    """Lists partitions topic by topic, so that what is dealt out in turn is spread topic by topic."""
    return [
        TopicIdPartition(topics[name].topic_id, partition)
        for name in sorted(names)
        for partition in range(topics[name].partition_count)
    ]


# --- equal subscriptions -----------------------------------------------------------------------


def _even(readers: list[Reader], topics: Mapping[str, TopicView]) -> dict[str, TopicIdPartitions]:
    tps = _list_partitions(topics, readers[0].topics)
    there = set(tps)
    least, more = divmod(len(tps), len(readers))
    kept = {reader.member_id: sorted(reader.before & there) for reader in readers}
    # Those who had most may keep one more: the fewest move.
    by_size = sorted(readers, key=lambda reader: -len(kept[reader.member_id]))
    quota = {reader.member_id: least + (number < more) for number, reader in enumerate(by_size)}
    taken: set[TopicIdPartition] = set()
    given: dict[str, list[TopicIdPartition]] = {}
    for reader in by_size:
        mine = [tp for tp in kept[reader.member_id] if tp not in taken][: quota[reader.member_id]]
        given[reader.member_id] = mine
        taken.update(mine)
    lacking = [(len(mine), member_id) for member_id, mine in given.items() if len(mine) < quota[member_id]]
    heapify(lacking)
    for tp in tps:
        if tp in taken:
            continue
        count, member_id = heappop(lacking)
        given[member_id].append(tp)
        if count + 1 < quota[member_id]:
            heappush(lacking, (count + 1, member_id))
    return {reader.member_id: frozenset(given[reader.member_id]) for reader in readers}


# --- unequal subscriptions ---------------------------------------------------------------------


def _as_even_as_may_be(
    readers: list[Reader], topics: Mapping[str, TopicView]
) -> dict[str, TopicIdPartitions]:
    by_topic: dict[str, list[str]] = {}
    for reader in readers:
        for name in reader.topics:
            by_topic.setdefault(name, []).append(reader.member_id)
    owner = _kept(readers, topics)
    load = {reader.member_id: 0 for reader in readers}
    for member_id in owner.values():
        load[member_id] += 1
    # Topics with few readers first: the others have more of a choice.
    names = sorted(by_topic, key=lambda name: (len(by_topic[name]), name))
    for name in names:
        _give_out(topics[name], by_topic[name], owner, load)
    moved = True
    while moved:
        moved = False
        for name in names:
            moved |= _even_out(topics[name], by_topic[name], owner, load)
    given: dict[str, list[TopicIdPartition]] = {reader.member_id: [] for reader in readers}
    for tp, member_id in owner.items():
        given[member_id].append(tp)
    return {member_id: frozenset(tps) for member_id, tps in given.items()}


def _kept(readers: list[Reader], topics: Mapping[str, TopicView]) -> dict[TopicIdPartition, str]:
    owner: dict[TopicIdPartition, str] = {}
    for reader in readers:
        mine = {topics[name].topic_id: topics[name].partition_count for name in reader.topics}
        for tp in reader.before:
            if tp.partition < mine.get(tp.topic_id, 0):
                owner.setdefault(tp, reader.member_id)
    return owner


def _give_out(
    topic: TopicView, those: list[str], owner: dict[TopicIdPartition, str], load: dict[str, int]
) -> None:
    heap = [(load[member_id], member_id) for member_id in those]
    heapify(heap)
    for partition in range(topic.partition_count):
        tp = TopicIdPartition(topic.topic_id, partition)
        if tp in owner:
            continue
        count, member_id = heappop(heap)
        owner[tp] = member_id
        load[member_id] = count + 1
        heappush(heap, (count + 1, member_id))


def _even_out(
    topic: TopicView, those: list[str], owner: dict[TopicIdPartition, str], load: dict[str, int]
) -> bool:
    """Moves partitions from the most loaded reader that has some of the topic to the least loaded, while that
    helps."""
    had: dict[str, list[TopicIdPartition]] = {}
    for partition in range(topic.partition_count):
        tp = TopicIdPartition(topic.topic_id, partition)
        had.setdefault(owner[tp], []).append(tp)
    heavy = [(-load[member_id], member_id) for member_id in had]
    light = [(load[member_id], member_id) for member_id in those]
    heapify(heavy)
    heapify(light)
    moved = False
    while heavy and -heavy[0][0] - light[0][0] >= 2:
        _, giver = heappop(heavy)
        _, taker = heappop(light)
        tp = had[giver].pop()
        owner[tp] = taker
        load[giver] -= 1
        load[taker] += 1
        moved = True
        if had[giver]:
            heappush(heavy, (-load[giver], giver))
        heappush(light, (load[taker], taker))
        # The giver's own entry among the light ones is too high by now, and it stays heavier than the taker.
    return moved
