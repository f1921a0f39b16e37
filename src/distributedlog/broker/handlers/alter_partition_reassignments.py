"""AlterPartitionReassignments: has the controller move partitions to other brokers, or cancel their moves."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from distributedlog.broker.handlers._forwarding import bound_timeout_ms, forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller import requests as controller
from distributedlog.controller.requests import ItemOutcome
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _make_error_response(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, code: ErrorCode, text: str
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=text, responses=[])


@handles(
    AlterPartitionReassignmentsRequest,
    versions=(0, 1),
    error_response=_make_error_response,
    timeout_ms=lambda request: bound_timeout_ms(request.timeout_ms),
)
async def alter_partition_reassignments(
    services: "Services", request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    asked = controller.AlterReassignmentsRequest(
        tuple(
            (
                TopicPartition(topic.name, each.partition_index),
                None if each.replicas is None else tuple(each.replicas),
            )
            for topic in request.topics
            for each in topic.partitions
        ),
        request.allow_replication_factor_change,
    )
    reply = await forward(services, context, asked, controller.AlterReassignmentsReply, request.timeout_ms)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=_translate(reply.partitions),
    )


def _translate(outcomes: Iterable[tuple[TopicPartition, ItemOutcome]]) -> list[ReassignableTopicResponse]:
    by_topic: dict[str, list[ReassignablePartitionResponse]] = {}
    for (topic, partition), outcome in outcomes:
        by_topic.setdefault(topic, []).append(
            ReassignablePartitionResponse(
                partition_index=partition, error_code=outcome.error, error_message=outcome.message
            )
        )
    return [ReassignableTopicResponse(name=name, partitions=each) for name, each in by_topic.items()]
