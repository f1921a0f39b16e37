"""OffsetDelete: deletes committed offsets of a group, but not of topics that its members subscribe to.

A topic without partitions is not in the response.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._groups import respond, submit, to_group_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.controller.image import MetadataImage
from distributedlog.groups.requests import DeleteOffsetsReply, DeleteOffsetsRequest
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import InvalidGroupIdError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(OffsetDeleteRequest, versions=(0, 0), to_error_code=to_group_error)
def offset_delete(
    services: "Services", request: OffsetDeleteRequest, context: RequestContext
) -> HandlerResponse:
    if not request.group_id:
        raise InvalidGroupIdError("a group without a name has no committed offsets that can be deleted")
    image = services.metadata.image
    partitions = tuple(
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
        if _is_known(image, topic.name, each.partition_index)
    )
    submitted = DeleteOffsetsRequest(request.group_id, partitions)
    pending = submit(services, context, request.group_id, submitted)
    return respond(pending, DeleteOffsetsReply, lambda reply: _make_response(request, image, reply))


def _is_known(image: MetadataImage, name: str, index: int) -> bool:
    topic = image.topic_named(name)
    return topic is not None and 0 <= index < len(topic.partitions)


def _make_response(
    request: OffsetDeleteRequest, image: MetadataImage, reply: DeleteOffsetsReply
) -> OffsetDeleteResponse:
    errors = iter(reply.errors)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=(
                            next(errors)
                            if _is_known(image, topic.name, each.partition_index)
                            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.partitions
        ]
    )
