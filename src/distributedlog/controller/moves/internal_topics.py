"""Internal topics grow with the cluster: to three replicas, or one on each broker where there are fewer.

A cluster of one broker keeps its groups and transactions in one copy, and a topic keeps the replicas it was
created with; so when brokers join, the controller itself gives these topics more, as moves like any other
(`reassignments`): resumed by the next controller, seen and cancelled like those of an operator.

    who grows      partitions with a leader and fewer replicas than wanted, the fewest first
    wanted         REPLICAS_WANTED, or as many as there are active brokers
    onto           active brokers, by the rules of placement; no replica is taken away
    not            while any partition of these topics is moved, by whomever; nor a partition with a replica
                   that is fenced or unregistered: it comes back, or somebody replaces it by hand
    at once        PARTITIONS_AT_ONCE, the next when all of these have arrived

The setting `internal.topics.grow.enable` switches it off.  A move that somebody cancels begins again, so that
comes first.

SOFT STATE: whether there may be something to do, and when that is looked at.  A new controller looks once.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from distributedlog.controller.cluster_settings import read_cluster_setting
from distributedlog.controller.elections import Placed, partitions_of
from distributedlog.controller.image import MetadataImage, Partition
from distributedlog.controller.placement import Location, Replicas, choose_replica
from distributedlog.controller.reassignments import begin_move
from distributedlog.controller.records import (
    NO_LEADER,
    BrokerRegistrationChange,
    ConfigChanged,
    PartitionChanged,
    RegisterBroker,
    TopicCreated,
    UnregisterBroker,
)
from distributedlog.model.cluster_settings import INTERNAL_TOPICS_GROW, REPLICAS_WANTED
from distributedlog.model.config import SECOND_MS
from distributedlog.model.internal_topics import INTERNAL_TOPICS
from distributedlog.protocol.schema import Message

PARTITIONS_AT_ONCE: Final = 10
PAUSE_MS: Final = 1 * SECOND_MS
"""The time between two looks at the topics; brokers that join together are seen together."""

_DECISIVE: Final = (
    BrokerRegistrationChange, ConfigChanged, RegisterBroker, TopicCreated, UnregisterBroker
)  # fmt: skip


class InternalTopicsGrowth:
    """When to look whether internal topics can grow."""

    def __init__(self) -> None:
        self._is_due = True
        self._next_ms = 0

    def restart(self, now_ms: int) -> None:
        self._is_due = True
        self._next_ms = now_ms + PAUSE_MS

    def note_changes(self, records: Sequence[Message]) -> None:
        self._is_due = self._is_due or any(
            isinstance(each, _DECISIVE)
            or (isinstance(each, PartitionChanged) and each.adding_replicas is not None)
            for each in records
        )

    def next_deadline_ms(self) -> int | None:
        return self._next_ms if self._is_due else None

    def grow(self, image: MetadataImage, now_ms: int) -> list[PartitionChanged]:
        """Returns the moves that are to begin now."""
        if not self._is_due or now_ms < self._next_ms:
            return []
        self._is_due = False
        self._next_ms = now_ms + PAUSE_MS
        return grow_internal_topics(image)


def grow_internal_topics(image: MetadataImage) -> list[PartitionChanged]:
    """Returns the records by which some partitions of internal topics begin to get more replicas."""
    if not read_cluster_setting(image, INTERNAL_TOPICS_GROW):
        return []
    placed = list(_internal_partitions(image))
    if any(each.partition.is_moving for each in placed):
        return []
    locations = {
        broker.broker_id: Location(broker.rack, broker.placement_host)
        for broker in image.brokers.values()
        if broker.is_active
    }
    wanted = min(REPLICAS_WANTED, len(locations))
    load = Counter(each for _, _, partition in placed for each in partition.replicas)
    growing = [each for each in placed if _can_grow(each.partition, wanted, locations)]
    records = []
    for topic, partition_id, partition in sorted(growing, key=_count_replicas)[:PARTITIONS_AT_ONCE]:
        target = _extend(partition.replicas, wanted, locations, load)
        record = begin_move(image, topic, partition_id, target)
        if record is not None:
            records.append(record)
    return records


def _internal_partitions(image: MetadataImage) -> Iterator[Placed]:
    for name in sorted(INTERNAL_TOPICS):
        topic = image.topic_named(name)
        if topic is not None:
            yield from partitions_of(topic)


def _count_replicas(placed: Placed) -> int:
    return len(placed.partition.replicas)


def _can_grow(partition: Partition, wanted: int, locations: dict[int, Location]) -> bool:
    return (
        len(partition.replicas) < wanted
        and partition.leader != NO_LEADER
        and all(each in locations for each in partition.replicas)
    )


def _extend(replicas: Replicas, wanted: int, locations: dict[int, Location], load: Counter[int]) -> Replicas:
    while len(replicas) < wanted:
        free = [each for each in locations if each not in replicas]
        added = choose_replica(free, replicas, locations, {each: (load[each],) for each in free})
        load[added] += 1
        replicas = (*replicas, added)
    return replicas
