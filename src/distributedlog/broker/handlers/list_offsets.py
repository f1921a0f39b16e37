"""ListOffsets: the offset at a time, or at one of a log's ends; see `replication.offsets` for what is found.

    asked for                                              response
    a partition that is named twice                        INVALID_REQUEST, once
    a topic without partitions                             the topic is not in the response
    a special time that the version does not know yet      UNSUPPORTED_VERSION
    (-3 from 7, -4 from 8, -5 from 9, -6 from 11 on)
    the end, while a new leader does not know it           OFFSET_NOT_AVAILABLE; before version 5 it is
                                                           LEADER_NOT_AVAILABLE: both make clients ask again
    a time after every record                              offset -1, and no error

An end, the newest record and a time are looked up once what was acknowledged is synced (`_own_sync`).

A consumer (replica id -1) sees what it may read, a tool (-2) all that is in the log.  A request as a replica
is refused with CLUSTER_AUTHORIZATION_FAILED for each partition (`_replica_ids`).

Batches that are opened to find a time are opened beside the loop (`replicas.step_queue`).
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._own_sync import list_unsynced, wait_for_sync
from distributedlog.broker.handlers._replica_ids import CONSUMER_ID, authorize_replica
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from distributedlog.protocol.schema import Message
from distributedlog.replication.contract import OffsetSpec
from distributedlog.replication.partition import Partition
from distributedlog.storage.timestamps import Steps

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

NOT_AVAILABLE_SINCE: Final = 5
SPECIAL_TIMES_SINCE: Final[dict[int, int]] = {
    OffsetSpec.LATEST: 1,
    OffsetSpec.EARLIEST: 1,
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,
}
NEVER: Final = 2**15


@handles(ListOffsetsRequest, versions=(1, 11))
def list_offsets(
    services: "Services", request: ListOffsetsRequest, context: RequestContext
) -> HandlerResponse:
    authorize_replica(services, request.replica_id, context)
    services.isolation.look()
    if request.replica_id == CONSUMER_ID:
        unsynced = list_unsynced(services, _iterate_bounded(request))
        if unsynced:
            return _respond_synced(services, request, context, unsynced)
    return services.searches.run(context.client_host, _respond(services, request, context))


def _iterate_bounded(request: ListOffsetsRequest) -> Iterator[tuple[str, int]]:
    """The partitions of which something is asked that depends on the high watermark."""
    for topic in request.topics:
        for each in topic.partitions:
            if each.timestamp >= 0 or each.timestamp in (OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP):
                yield topic.name, each.partition_index


async def _respond_synced(
    services: "Services", request: ListOffsetsRequest, context: RequestContext, unsynced: list[Partition]
) -> Message | None:
    await wait_for_sync(services, unsynced)
    response = services.searches.run(context.client_host, _respond(services, request, context))
    return response if isinstance(response, Message) else await response


def _respond(
    services: "Services", request: ListOffsetsRequest, context: RequestContext
) -> Steps[ListOffsetsResponse]:
    named = Counter(
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    isolation = request.isolation_level if request.replica_id == CONSUMER_ID else None
    response = ListOffsetsResponse(topics=[])
    for topic in request.topics:
        responses = []
        for each in topic.partitions:
            times = named.pop((topic.name, each.partition_index), 0)
            if times > 1:
                responses.append(_make_failure(each, ErrorCode.INVALID_REQUEST))
            elif times == 1:
                found = yield from _look_up(services, topic.name, each, isolation, context.api_version)
                responses.append(found)
        if responses:
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=responses))
    return response


def _look_up(
    services: "Services", topic: str, asked: ListOffsetsPartition, isolation: int | None, version: int
) -> Steps[ListOffsetsPartitionResponse]:
    if asked.timestamp < 0 and version < SPECIAL_TIMES_SINCE.get(asked.timestamp, NEVER):
        return _make_failure(asked, ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition = services.partitions.require(topic, asked.partition_index)
        found = yield from partition.search_offset(asked.timestamp, isolation, asked.current_leader_epoch)
    except DlogError as error:
        if error.code == ErrorCode.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_SINCE:
            return _make_failure(asked, ErrorCode.LEADER_NOT_AVAILABLE)
        return _make_failure(asked, error.code)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _make_failure(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
