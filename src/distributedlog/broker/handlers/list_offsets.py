"""ListOffsets: the offset at a time, or at one of a log's ends; see `replication.offsets` for what is found.

    asked for                                              answer
    a partition that is named twice                        INVALID_REQUEST, each time
    a special time that the version does not know yet      UNSUPPORTED_VERSION
    (-3 from 7, -4 from 8, -5 from 9 on)
    the end, while a new leader does not know it           OFFSET_NOT_AVAILABLE; before version 5 it is
                                                           LEADER_NOT_AVAILABLE: both make clients ask again
    a time after every record                              offset -1, and no error

A consumer (replica id -1) is told what it may read; replicas and tools are told of all that is in the log.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from distributedlog.replication.contract import OffsetSpec

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

CONSUMER_ID: Final = -1
NOT_AVAILABLE_SINCE: Final = 5
SPECIAL_TIMES_SINCE: Final[dict[int, int]] = {
    OffsetSpec.LATEST: 1,
    OffsetSpec.EARLIEST: 1,
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
}
NEVER: Final = 2**15


def _refuse(
    request: ListOffsetsRequest, context: RequestContext, code: ErrorCode, text: str
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[_failed(each, code) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


@handles(ListOffsetsRequest, versions=(1, 10), refuse=_refuse)
def list_offsets(
    services: "Services", request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse:
    named = Counter(
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    isolation = request.isolation_level if request.replica_id == CONSUMER_ID else None
    response = ListOffsetsResponse(topics=[])
    for topic in request.topics:
        answers = []
        for each in topic.partitions:
            if named[topic.name, each.partition_index] > 1:
                answers.append(_failed(each, ErrorCode.INVALID_REQUEST))
            else:
                answers.append(_look_up(services, topic.name, each, isolation, context.api_version))
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _look_up(
    services: "Services", topic: str, asked: ListOffsetsPartition, isolation: int | None, version: int
) -> ListOffsetsPartitionResponse:
    if asked.timestamp < 0 and version < SPECIAL_TIMES_SINCE.get(asked.timestamp, NEVER):
        return _failed(asked, ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition = services.partitions.require(topic, asked.partition_index)
        found = partition.list_offset(
            asked.timestamp, isolation=isolation, current_leader_epoch=asked.current_leader_epoch
        )
    except DlogError as error:
        if error.code == ErrorCode.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_SINCE:
            return _failed(asked, ErrorCode.LEADER_NOT_AVAILABLE)
        return _failed(asked, error.code)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _failed(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
