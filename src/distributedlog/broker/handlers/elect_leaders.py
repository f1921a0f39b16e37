"""ElectLeaders: has the controller elect preferred, or any live, replicas as leaders.

Null asks for all partitions; the answer then leaves out those that needed nothing.
"""

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.broker.handlers._asking import ask, patience_ms
from distributedlog.controller import requests as controller
from distributedlog.controller.requests import ElectLeadersReply, Outcome
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _refuse(
    request: ElectLeadersRequest, context: RequestContext, code: ErrorCode, text: str
) -> ElectLeadersResponse:
    outcome = Outcome(code, text)
    answer = _answer((partition, outcome) for partition in _partitions(request) or ())
    answer.error_code = code
    return answer


@handles(
    ElectLeadersRequest,
    versions=(0, 2),
    refuse=_refuse,
    patience_ms=lambda request: patience_ms(request.timeout_ms),
)
def elect_leaders(
    services: "Services", request: ElectLeadersRequest, context: RequestContext
) -> Awaitable[Message]:
    return _elect(services, request, context)


async def _elect(
    services: "Services", request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    asked = controller.ElectLeadersRequest(request.election_type, _partitions(request))
    reply = await ask(services, context, asked, ElectLeadersReply, request.timeout_ms)
    return _answer(reply.partitions)


def _partitions(request: ElectLeadersRequest) -> tuple[TopicPartition, ...] | None:
    if request.topic_partitions is None:
        return None
    return tuple(
        TopicPartition(topic.topic, partition)
        for topic in request.topic_partitions
        for partition in topic.partitions
    )


def _answer(outcomes: Iterable[tuple[TopicPartition, Outcome]]) -> ElectLeadersResponse:
    by_topic: dict[str, list[PartitionResult]] = {}
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
