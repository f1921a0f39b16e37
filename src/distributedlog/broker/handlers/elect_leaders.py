"""ElectLeaders: has the controller elect preferred, or any live, replicas as leaders.

Null asks for all partitions; the response then leaves out those that needed nothing.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from distributedlog.broker.handlers._forwarding import bound_timeout_ms, forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller import requests as controller
from distributedlog.controller.requests import ElectLeadersReply, ItemOutcome
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _make_error_response(
    request: ElectLeadersRequest, context: RequestContext, code: ErrorCode, text: str
) -> ElectLeadersResponse:
    """Makes an error for each partition and, as Kafka does, one for the whole beside them."""
    outcome = ItemOutcome(code, text)
    response = _make_response((partition, outcome) for partition in _list_partitions(request) or ())
    response.error_code = code
    return response


@handles(
    ElectLeadersRequest,
    versions=(0, 2),
    error_response=_make_error_response,
    timeout_ms=lambda request: bound_timeout_ms(request.timeout_ms),
)
async def elect_leaders(
    services: "Services", request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    asked = controller.ElectLeadersRequest(request.election_type, _list_partitions(request))
    reply = await forward(services, context, asked, ElectLeadersReply, request.timeout_ms)
    named = (topic.topic for topic in request.topic_partitions or ())
    return _make_response(reply.partitions, named)


def _list_partitions(request: ElectLeadersRequest) -> tuple[TopicPartition, ...] | None:
    if request.topic_partitions is None:
        return None
    return tuple(
        TopicPartition(topic.topic, partition)
        for topic in request.topic_partitions
        for partition in topic.partitions
    )


def _make_response(
    outcomes: Iterable[tuple[TopicPartition, ItemOutcome]], named: Iterable[str] = ()
) -> ElectLeadersResponse:
    """Makes the response; a topic that was named without partitions is in it, as in Kafka's."""
    by_topic: dict[str, list[PartitionResult]] = {topic: [] for topic in named}
    for (topic, partition), outcome in outcomes:
        by_topic.setdefault(topic, []).append(
            PartitionResult(partition_id=partition, error_code=outcome.error, error_message=outcome.message)
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=results)
            for topic, results in by_topic.items()
        ]
    )
