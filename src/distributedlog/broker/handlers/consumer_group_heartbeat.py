"""ConsumerGroupHeartbeat: a member of a consumer group (KIP-848) joins, stays, changes, leaves.

    version   what it lacks
    0         a member without an id is given one; there are no patterns

In a cluster whose feature `group.version` is below 1 there are no consumer groups: UNSUPPORTED_VERSION, as
Kafka does; ApiVersions lists the API all the same.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._groups import check_consumer_groups, respond, submit, to_group_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.groups.consumer.records import group_by_topic
from distributedlog.groups.consumer.topics import TopicIdPartition
from distributedlog.groups.requests import ConsumerHeartbeatReply, ConsumerHeartbeatRequest
from distributedlog.model.errors import InvalidRequestError
from distributedlog.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

BRINGS_ID_SINCE = 1


@handles(ConsumerGroupHeartbeatRequest, versions=(0, 1), to_error_code=to_group_error)
def consumer_group_heartbeat(
    services: "Services", request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> HandlerResponse:
    check_consumer_groups(services)
    if not request.group_id.strip():
        raise InvalidRequestError("a member names its group")
    if context.api_version >= BRINGS_ID_SINCE and not request.member_id:
        raise InvalidRequestError("a member brings an id of its own")
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    submitted = ConsumerHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else tuple(topics),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=(
            None
            if owned is None
            else frozenset(
                TopicIdPartition(each.topic_id, partition) for each in owned for partition in each.partitions
            )
        ),
    )
    return respond(
        submit(services, context, request.group_id, submitted), ConsumerHeartbeatReply, _make_response
    )


def _make_response(reply: ConsumerHeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in group_by_topic(reply.assignment)
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )
