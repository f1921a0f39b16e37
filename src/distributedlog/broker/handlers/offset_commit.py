"""OffsetCommit: stores a group's positions.

Partitions that are not there are refused one by one; the others are stored together, in one batch, and
answered when it is committed.  What is wrong with the group or the member is told of every partition.
Topics are named by id from version 10 on.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, handles
from distributedlog.broker.handlers._groups import answer, ask, told
from distributedlog.controller.image import MetadataImage, Topic
from distributedlog.groups.requests import CommitReply, CommitRequest, Position
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

MEMBER_EPOCHS_SINCE = 9
TOPIC_IDS_SINCE = 10


def _refuse(
    request: OffsetCommitRequest, context: RequestContext, code: ErrorCode, text: str
) -> OffsetCommitResponse:
    response = _blank(request)
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = told(code)
    return response


@handles(OffsetCommitRequest, versions=(2, 10), refuse=_refuse)
def offset_commit(services: "Services", request: OffsetCommitRequest, context: RequestContext) -> Answer:
    image = services.metadata.image
    response = _blank(request)
    positions: list[Position] = []
    accepted: list[OffsetCommitResponsePartition] = []
    for topic, answered in zip(request.topics, response.topics, strict=True):
        known = _topic(image, topic, context.api_version)
        for partition, place in zip(topic.partitions, answered.partitions, strict=True):
            if known is None or partition.partition_index not in known.partitions:
                place.error_code = _absent(known, context.api_version)
                continue
            accepted.append(place)
            positions.append(
                Position(
                    TopicPartition(known.name, partition.partition_index),
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                )
            )
    asked = CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        positions=tuple(positions),
        retention_ms=None if request.retention_time_ms < 0 else request.retention_time_ms,
        knows_epochs=context.api_version >= MEMBER_EPOCHS_SINCE,
    )

    def respond(reply: CommitReply) -> OffsetCommitResponse:
        for place, error in zip(accepted, reply.errors, strict=True):
            place.error_code = error
        return response

    return answer(ask(services, context, request.group_id, asked), CommitReply, respond)


def _topic(image: MetadataImage, topic: OffsetCommitRequestTopic, version: int) -> Topic | None:
    return image.topics.get(topic.topic_id) if version >= TOPIC_IDS_SINCE else image.topic_named(topic.name)


def _absent(known: Topic | None, version: int) -> ErrorCode:
    if known is None and version >= TOPIC_IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _blank(request: OffsetCommitRequest) -> OffsetCommitResponse:
    """The response with a place for every partition, none of which has an error yet."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
