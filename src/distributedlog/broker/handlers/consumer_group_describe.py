"""ConsumerGroupDescribe: consumer groups, their epochs, and what their members have and are to have.

A classic group is none: GROUP_ID_NOT_FOUND, as of one that is not there.  Topics that are gone are left out
of assignments.  Each group is described once, however often it is named, and after SLICE_GROUPS of them
others have their turn.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._groups import (
    GROUP_OPERATIONS,
    check_consumer_groups,
    describe_each,
    to_group_error,
)
from distributedlog.broker.handlers._operations import NOT_ASKED_FOR
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller.image import MetadataImage
from distributedlog.groups.consumer.records import group_by_topic
from distributedlog.groups.consumer.topics import TopicIdPartitions
from distributedlog.groups.requests import (
    DescribeConsumerGroupReply,
    DescribeConsumerGroupRequest,
    DescribedConsumer,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


@handles(ConsumerGroupDescribeRequest, versions=(0, 1), to_error_code=to_group_error)
async def consumer_group_describe(
    services: "Services", request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    check_consumer_groups(services)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR
    described = describe_each(
        services, context, request.group_ids, DescribeConsumerGroupRequest, DescribeConsumerGroupReply
    )
    groups = [
        _make_failure(group_id, reply.code if group_id else ErrorCode.INVALID_GROUP_ID, str(reply))
        if isinstance(reply, DlogError)
        else _describe_group(reply, services.metadata.image, operations)
        async for group_id, reply in described
    ]
    return ConsumerGroupDescribeResponse(groups=groups)


def _make_failure(group_id: str, code: ErrorCode, text: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=to_group_error(code),
        error_message=text,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _describe_group(
    reply: DescribeConsumerGroupReply, image: MetadataImage, operations: int
) -> DescribedGroup:
    return DescribedGroup(
        group_id=reply.group_id,
        group_state=reply.state,
        group_epoch=reply.epoch,
        assignment_epoch=reply.target_epoch,
        assignor_name=reply.assignor,
        members=[_describe_member(each, image) for each in reply.members],
        authorized_operations=operations,
    )


def _describe_member(member: DescribedConsumer, image: MetadataImage) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.pattern or "",
        assignment=_make_assignment(member.assigned, image),
        target_assignment=_make_assignment(member.target, image),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _make_assignment(tps: TopicIdPartitions, image: MetadataImage) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=partitions)
            for topic_id, partitions in group_by_topic(tps)
            if (topic := image.topics.get(topic_id)) is not None
        ]
    )
