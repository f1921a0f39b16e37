"""OffsetDelete: forgets positions of a group, but not of topics that its members read."""

from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, handles
from distributedlog.broker.handlers._groups import answer, ask, told
from distributedlog.groups.requests import DeleteOffsetsReply, DeleteOffsetsRequest
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _refuse(
    request: OffsetDeleteRequest, context: RequestContext, code: ErrorCode, text: str
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=told(code), topics=[])


@handles(OffsetDeleteRequest, versions=(0, 0), refuse=_refuse)
def offset_delete(services: "Services", request: OffsetDeleteRequest, context: RequestContext) -> Answer:
    partitions = tuple(
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    )
    asked = DeleteOffsetsRequest(request.group_id, partitions)
    future = ask(services, context, request.group_id, asked)
    return answer(future, DeleteOffsetsReply, lambda reply: _response(request, reply))


def _response(request: OffsetDeleteRequest, reply: DeleteOffsetsReply) -> OffsetDeleteResponse:
    errors = iter(reply.errors)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index, error_code=next(errors)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
