"""OffsetForLeaderEpoch: where an epoch ended in the leader's log.

Followers truncate by it, and consumers notice that records they have read were truncated away.  The response
is the largest epoch that is not above the one asked for, and the first offset behind it; both are -1 if
nothing is known of such an epoch.  Only the leader responses, in the epoch that the asker knows; one that
is isolated does not speak of epochs after its own (`cluster.isolation`).
"""

from typing import TYPE_CHECKING

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(OffsetForLeaderEpochRequest, versions=(2, 4))
def offset_for_leader_epoch(
    services: "Services", request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    services.isolation.look()
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_look_up(services, topic.topic, each) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _look_up(services: "Services", topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        found = services.partitions.require(topic, asked.partition).offset_for_leader_epoch(
            asked.leader_epoch, current_leader_epoch=asked.current_leader_epoch
        )
    except DlogError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    return EpochEndOffset(partition=asked.partition, leader_epoch=found.epoch, end_offset=found.end_offset)
