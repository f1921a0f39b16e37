"""Which partitions a subscription means now, where they begin and end, and what has been lost.

What is lost is one of these, and an error that names it unless `failOnDataLoss` is false:

| lost                                                       | known by                                      |
|------------------------------------------------------------|-----------------------------------------------|
| records that retention or a truncation took                | an offset before the first, or behind the end |
| a topic that was deleted                                   | it is not there any more                      |
| a topic that the subscription does not mean any more       | positions of it, which nothing reads          |
| a topic that was deleted and made again                    | its id is another                             |
| the first records of a partition that came while running   | it does not begin at 0                        |

A broker that has just restarted may not know everything yet: what seems lost is looked at again, as often and
as far apart as the options say, before it is believed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from distributedlog.client.errors import error_from, is_retriable
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import EARLIEST, LATEST, NO_OFFSET, Isolation
from distributedlog.client.offsets import list_offsets
from distributedlog.client.timestamps import TimestampSpec
from distributedlog.client.view import ClusterView, TopicView
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    ConfigError,
    DlogError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.spark.source.offsets import Positions
from distributedlog.spark.source.options import (
    AtEnd,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Bound,
    ReadOptions,
)
from distributedlog.spark.source.subscription import Subscription


@dataclass(frozen=True, slots=True)
class SubscribedPartitions:
    """What a subscription means at one time."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, Uuid]


async def discover(
    cluster: Cluster, options: ReadOptions, *, must_exist: bool = True
) -> SubscribedPartitions:
    """Asks the cluster.  Where a query begins, a topic that is named must be there."""
    begun_ms = cluster.clock.monotonic_ms()
    loss_ms = options.loss_tries * options.loss_pause_ms

    def is_worth_waiting(error: DlogError) -> bool:
        waited_ms = cluster.clock.monotonic_ms() - begun_ms
        return is_retriable(error) and (not isinstance(error, UnknownTopicError) or waited_ms < loss_ms)

    return await cluster.retrying(
        lambda: discover_once(cluster, options.subscription, must_exist=must_exist),
        is_worth_waiting=is_worth_waiting,
    )


async def discover_once(
    cluster: Cluster, subscription: Subscription, *, must_exist: bool = True
) -> SubscribedPartitions:
    """Asks once; what is missing is not waited for."""
    view = await cluster.refresh(subscription.names)
    topics = [each for each in _described(view, subscription, must_exist) if subscription.matches(each)]
    for topic in topics:
        if topic.error is not ErrorCode.NONE:
            raise error_from(topic.error, f"topic {topic.name!r}")
        without = [each.index for each in topic.partitions if not each.has_leader]
        if without:
            raise error_from(ErrorCode.LEADER_NOT_AVAILABLE, f"partitions {without} of {topic.name!r}")
    ids = {each.name: each.topic_id for each in topics if each.topic_id != ZERO_UUID}
    return SubscribedPartitions(tuple(subscription.partitions_of(topics, must_exist=must_exist)), ids)


def _described(view: ClusterView, subscription: Subscription, must_exist: bool) -> list[TopicView]:
    if subscription.names is None:
        return [view.topics[name] for name in sorted(view.topics)]
    found = []
    for name in subscription.names:
        topic = view.topics.get(name)
        if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if must_exist:
                raise UnknownTopicError(f"there is no topic {name!r}")
            continue
        found.append(topic)
    return found


# --- places ------------------------------------------------------------------------------------


async def ends_of(
    cluster: Cluster, partitions: Iterable[TopicPartition], which: int, isolation: Isolation
) -> dict[TopicPartition, int]:
    """The first offsets (EARLIEST), or those behind the last records (LATEST)."""
    wanted = dict.fromkeys(partitions, which)
    if not wanted:
        return {}
    found = await list_offsets(cluster, wanted, isolation, is_worth_waiting=_is_worth_waiting)
    return {each: at.offset for each, at in found.items()}


def _is_worth_waiting(error: DlogError) -> bool:
    """A topic that is gone is for the caller, who knows whether it was there before."""
    return is_retriable(error) and not isinstance(error, UnknownTopicError | UnknownTopicIdError)


async def resolve_bound(
    cluster: Cluster,
    bound: Bound,
    found: SubscribedPartitions,
    isolation: Isolation,
    *,
    now_ms: int,
    is_no_match_latest: bool,
) -> dict[TopicPartition, int]:
    """The offset that a bound means now, for each partition."""
    match bound:
        case AtEnd(which):
            return await ends_of(cluster, found.partitions, which, isolation)
        case AtTimestamp(timestamp):
            timestamps = dict.fromkeys(found.partitions, timestamp)
            return await _at_timestamps(cluster, timestamps, isolation, now_ms, is_no_match_latest)
        case AtTimestamps(by_partition):
            _check_named(by_partition.keys(), found)
            return await _at_timestamps(cluster, by_partition, isolation, now_ms, is_no_match_latest)
        case AtOffsets(positions):
            _check_named(positions.offsets.keys(), found)
            changed = remade_topics(positions, found.topic_ids)
            if changed:
                raise ConfigError(f"these are positions of another topic {changed[0]!r}: it was made again")
            return await _at_positions(cluster, positions.offsets, isolation)


def _check_named(named: Iterable[TopicPartition], found: SubscribedPartitions) -> None:
    odd = sorted(set(named) ^ set(found.partitions))
    if odd:
        raise ConfigError(
            f"the offsets must name each partition that is read, and no other: {', '.join(map(str, odd))}"
            " is not in both (-2 stands for the first offset, -1 for the end)"
        )


async def _at_timestamps(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, TimestampSpec],
    isolation: Isolation,
    now_ms: int,
    is_no_match_latest: bool,
) -> dict[TopicPartition, int]:
    times = {each: timestamp.at(now_ms) for each, timestamp in timestamps.items()}
    found = await list_offsets(cluster, times, isolation) if times else {}
    without = [each for each, at in found.items() if at.offset == NO_OFFSET]
    for each in without:
        if not is_no_match_latest and not timestamps[each].is_ago:
            raise ConfigError(
                f"no record of {each} is as young as {times[each]}: to start at the end then, set"
                " startingOffsetsByTimestampStrategy to latest"
            )
    ends = await ends_of(cluster, without, LATEST, isolation)
    return {each: ends.get(each, at.offset) for each, at in found.items()}


async def _at_positions(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, int]:
    resolved = dict(offsets)
    for which in (EARLIEST, LATEST):
        wanted = [each for each, offset in offsets.items() if offset == which]
        resolved |= await ends_of(cluster, wanted, which, isolation)
    return resolved


# --- what is lost ------------------------------------------------------------------------------


def remade_topics(before: Positions, topic_ids: Mapping[str, Uuid]) -> list[str]:
    """Those that have another id now."""
    return sorted(
        name
        for name, topic_id in before.topic_ids.items()
        if name in topic_ids and topic_ids[name] != topic_id
    )


def losses_between(
    before: Positions,
    ends: Mapping[TopicPartition, int],
    found: SubscribedPartitions,
    subscription: Subscription,
) -> list[DlogError]:
    """Returns what a query that stands at `before` has lost, looking at the cluster as it is.  What its
    subscription does not mean any more is not gone, and is told as what it is."""
    remade = remade_topics(before, found.topic_ids)
    lost: list[DlogError] = [
        UnknownTopicIdError(
            f"the topic {name!r} was deleted and made again (its id was {before.topic_ids[name]}, and is"
            f" {found.topic_ids[name]}): its records are not those that the query was reading"
        )
        for name in remade
    ]
    gone = sorted({each.topic for each in before.offsets} - {each.topic for each in found.partitions})
    lost += [
        UnknownTopicError(f"the topic {name!r} is gone")
        if subscription.includes(name)
        else _left(f"the topic {name!r}", subscription)
        for name in gone
    ]
    for partition, offset in sorted(before.offsets.items()):
        if partition.topic in remade or partition.topic in gone:
            continue
        if partition not in ends and subscription.partitions and partition not in subscription.partitions:
            lost.append(_left(f"the partition {partition}", subscription))
        elif partition not in ends:
            lost.append(UnknownTopicError(f"the partition {partition} is gone"))
        elif ends[partition] < offset:
            lost.append(
                OffsetOutOfRangeError(
                    f"{partition} ends at {ends[partition]}, and the query was at {offset}: the records were"
                    " taken away, or the topic was made again"
                )
            )
    return lost


def _left(what: str, subscription: Subscription) -> DlogError:
    return ConfigError(
        f"the query has read {what}, and is now subscribed to {subscription.label!r} without it: a checkpoint"
        " belongs to the topics that it was begun with; subscribe to it again, or begin with a new checkpoint"
        " (in a pipeline: --full-refresh of the table)"
    )
