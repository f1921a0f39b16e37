"""The load of a running cluster, as any Kafka-compatible one tells it: two samples, some seconds apart.

    disk        DescribeLogDirs: the bytes of a partition's log, of its largest replica
    bytes in    how far its end went between the samples (ListOffsets), in records, times the bytes of a
                record: what the log grew by for each; if it did not grow, as it was trimmed, the mean of all
    bytes out   each follower reads what is written; consumers what the committed offsets of groups went on
                by between the samples (ListGroups, OffsetFetch).  Readers without a group are not seen.

Brokers that are fenced, or do not say what is on their disks, take no part; neither do those that are
excluded.  A partition that is being moved, that lacks replicas in sync or a leader, or that has replicas on
such brokers is counted, and left where it is.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from distributedlog.cli.cluster.balancing.loads import ClusterLoad, PartitionLoad, Site
from distributedlog.client.admin.admin import Admin, OffsetRange, Reassignment
from distributedlog.client.admin.groups import GroupAdmin
from distributedlog.client.view import PartitionView, TopicView
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition

GROUPS_AT_ONCE: Final = 16
"""How many groups are asked for their offsets at a time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look at the cluster saw."""

    seconds: float
    sizes: Mapping[TopicPartition, int]
    ranges: Mapping[TopicPartition, OffsetRange]
    committed: Mapping[tuple[str, TopicPartition], int]
    """Offsets, by group."""


class Rates:
    """What went on between two samples; bytes in a second."""

    def __init__(self, first: Sample, last: Sample) -> None:
        self._first, self._last = first, last
        self._seconds = last.seconds - first.seconds
        self._advances: Counter[TopicPartition] = Counter()
        for (group, name), offset in last.committed.items():
            before = first.committed.get((group, name), offset)
            self._advances[name] += max(0, offset - before)

    def bytes_in(self, name: TopicPartition) -> float:
        return self._per_second(self._written(name) * self._bytes_of_record(name))

    def consumed(self, name: TopicPartition) -> float:
        return self._per_second(self._advances[name] * self._bytes_of_record(name))

    def _written(self, name: TopicPartition) -> int:
        if name not in self._first.ranges or name not in self._last.ranges:
            return 0
        return max(0, self._last.ranges[name].end - self._first.ranges[name].end)

    def _bytes_of_record(self, name: TopicPartition) -> float:
        size = self._last.sizes.get(name, 0)
        grown, written = size - self._first.sizes.get(name, size), self._written(name)
        if grown > 0 and written > 0:
            return grown / written
        held = self._last.ranges.get(name)
        return size / (held.end - held.start) if held is not None and held.end > held.start else 0.0

    def _per_second(self, amount: float) -> float:
        return amount / self._seconds if self._seconds > 0 else 0.0


async def measure(admin: Admin, seconds: float, excluded: Collection[int] = ()) -> ClusterLoad:
    """Returns the load; `seconds` lie between the samples, and with none nothing is known of bytes in and
    out."""
    first = await take_sample(admin) if seconds > 0 else None
    await asyncio.sleep(seconds)
    last = await take_sample(admin)
    view = await admin.describe_cluster()
    fenced = await admin.list_fenced_brokers()
    hosts = await admin.list_broker_hosts()
    answers = await admin.describe_log_dirs(partitions=())
    saying = {each for each, answer in answers.items() if not isinstance(answer, DlogError)}
    brokers = {
        each.node_id: Site(each.rack, hosts.get(each.node_id, each.address.host))
        for each in view.brokers.values()
        if each.node_id in saying and each.node_id not in fenced and each.node_id not in excluded
    }
    topics = await admin.list_topics(with_internal=True)
    return combine(brokers, topics, await admin.list_reassignments(), first or last, last)


def combine(
    brokers: Mapping[int, Site],
    topics: Collection[TopicView],
    moving: Mapping[TopicPartition, Reassignment],
    first: Sample,
    last: Sample,
) -> ClusterLoad:
    """Returns the load of what the cluster has, as two samples tell it.  A move under way counts as done."""
    rates = Rates(first, last)
    partitions = {}
    for topic in topics:
        for each in topic.partitions:
            name = TopicPartition(topic.name, each.index)
            leaving = moving[name].removing if name in moving else ()
            partitions[name] = PartitionLoad(
                tuple(replica for replica in each.replicas if replica not in leaving),
                float(last.sizes.get(name, 0)),
                rates.bytes_in(name),
                rates.consumed(name),
                name in moving or not _is_whole(each, brokers),
            )
    return ClusterLoad(brokers, partitions)


def _is_whole(partition: PartitionView, brokers: Collection[int]) -> bool:
    is_complete = partition.has_leader and not partition.is_under_replicated
    return is_complete and all(each in brokers for each in partition.replicas)


async def take_sample(admin: Admin) -> Sample:
    topics = await admin.list_topics(with_internal=True)
    committed = await _committed(GroupAdmin(admin.cluster))
    sizes = await admin.log_sizes(topics) or {}
    ranges = await admin.offset_ranges(topics)
    return Sample(time.monotonic(), sizes, ranges, committed)


async def _committed(groups: GroupAdmin) -> dict[tuple[str, TopicPartition], int]:
    """Returns what groups have committed; one whose coordinator does not say is left out."""
    turns = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def ask(group_id: str) -> Mapping[tuple[str, TopicPartition], int]:
        async with turns:
            try:
                found = await groups.offsets(group_id).fetch()
            except DlogError:
                return {}
        return {(group_id, name): each.offset for name, each in found.items()}

    try:
        listed = await groups.list_groups()
    except DlogError:
        return {}
    answers = await asyncio.gather(*(ask(each.group_id) for each in listed))
    return {key: offset for answer in answers for key, offset in answer.items()}
