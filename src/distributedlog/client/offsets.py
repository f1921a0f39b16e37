"""Which offset a place in a partition means: an end, a time, "the last ten".

ListOffsets answers for timestamps, and for the ends under special ones.  With read committed the end is the
last stable offset: what lies behind it may yet be taken back.  A time behind every record has no offset; it
then means the end.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from distributedlog.client.errors import as_error_code, error_from, is_retriable
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    Ago,
    AtOffset,
    AtTime,
    Isolation,
    LastRecords,
    OffsetAndTimestamp,
    OffsetSpec,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CONSUMER: Final = -1
"""The replica id of everyone who is not a replica."""


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    *,
    is_worth_waiting: Callable[[DlogError], bool] = is_retriable,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Returns for each partition the offset at a timestamp, or at one of the special ones above."""
    found: dict[TopicPartition, OffsetAndTimestamp] = {}

    async def attempt() -> None:
        missing = {each: when for each, when in wanted.items() if each not in found}
        by_leader = await cluster.by_leader(missing)
        responses = await asyncio.gather(
            *(
                _ask(cluster, leader, {each: missing[each] for each in led}, isolation)
                for leader, led in by_leader.items()
            ),
            return_exceptions=True,
        )
        failures: list[BaseException] = []
        for response in responses:
            if isinstance(response, BaseException):
                failures.append(response)
            else:
                failures += _sorted_out(response, found)
        if failures:
            raise next((each for each in failures if not _may_pass(each)), failures[0])

    await cluster.retrying(attempt, is_worth_waiting=is_worth_waiting)
    return found


def _may_pass(failure: BaseException) -> bool:
    return isinstance(failure, DlogError) and is_retriable(failure)


async def _ask(
    cluster: Cluster, leader: int, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> ListOffsetsResponse:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for each, timestamp in wanted.items():
        view = await cluster.partition(each)
        topics.setdefault(each.topic, []).append(
            ListOffsetsPartition(
                partition_index=each.partition, current_leader_epoch=view.leader_epoch, timestamp=timestamp
            )
        )
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=found) for name, found in topics.items()],
        timeout_ms=cluster.options.request_timeout_ms,
    )
    return await cluster.call(await cluster.connection(leader), request, ListOffsetsResponse)


def _sorted_out(
    response: ListOffsetsResponse, found: dict[TopicPartition, OffsetAndTimestamp]
) -> list[BaseException]:
    """Puts what was found where it belongs; returns what failed."""
    failures: list[BaseException] = []
    for topic in response.topics:
        for data in topic.partitions:
            partition = TopicPartition(topic.name, data.partition_index)
            if as_error_code(data.error_code) is ErrorCode.NONE:
                found[partition] = OffsetAndTimestamp(data.offset, data.timestamp, data.leader_epoch)
            else:
                failures.append(error_from(data.error_code, f"the offsets of {partition}"))
    return failures


async def resolve(
    cluster: Cluster,
    places: Mapping[TopicPartition, OffsetSpec],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The offset that each place means now."""
    now_ms = cluster.clock.wall_ms()
    times = {each: place.timestamp_ms for each, place in places.items() if isinstance(place, AtTime)}
    for each, place in places.items():
        if isinstance(place, Ago):
            times[each] = max(0, now_ms - place.duration_ms)
    counted = {each: place.count for each, place in places.items() if isinstance(place, LastRecords)}
    offsets = {each: place.offset for each, place in places.items() if isinstance(place, AtOffset)}
    at_times = await list_offsets(cluster, times, isolation) if times else {}
    without = [each for each, at in at_times.items() if at.offset == NO_OFFSET]
    offsets.update((each, at.offset) for each, at in at_times.items())
    ends_wanted = dict.fromkeys([*without, *counted], LATEST)
    ends = await list_offsets(cluster, ends_wanted, isolation) if ends_wanted else {}
    offsets.update((each, ends[each].offset) for each in without)
    starts = await list_offsets(cluster, dict.fromkeys(counted, EARLIEST), isolation) if counted else {}
    for each, count in counted.items():
        offsets[each] = max(starts[each].offset, ends[each].offset - count)
    return offsets
