"""FindCoordinator: which broker coordinates a group or a transactional id.

    kind of key          response
    0 group              the leader of the partition of `__consumer_offsets` that the group's name falls on
    1 transactional id   TRANSACTIONAL_ID_AUTHORIZATION_FAILED: no broker serves transactions yet
    2 share              INVALID_REQUEST, as of a Kafka without share groups
    other                INVALID_REQUEST

The topic is created when the first group is looked for.  If it is not there in time, or the partition has no
leader that the client can reach, the response is COORDINATOR_NOT_AVAILABLE, and clients ask again until their
own timeout.  One key in versions 0 to 3, several from 4 on; each stands for itself.

Transactions are refused for good, and not with COORDINATOR_NOT_AVAILABLE, on which a producer asks again
until the end of its timeout, a minute and more.  Of the errors that are never retried the one of
authorization is taken since both the Java client and librdkafka name it as fatal in this place and stop at
once.  `init_producer_id` answers likewise.
"""

import logging
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.broker.cluster.listener_view import NO_NODE, endpoint_of
from distributedlog.broker.handlers._forwarding import forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.controller.cluster_settings import read_cluster_setting
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.placement import candidates
from distributedlog.controller.requests import CreateTopicsRequest, NewTopic, TopicsReply
from distributedlog.groups.placement import partition_of
from distributedlog.model.cluster_settings import (
    OFFSETS_TOPIC_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
)
from distributedlog.model.config import SECOND_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services
    from distributedlog.settings.node_settings import NodeSettings

logger = logging.getLogger(__name__)

BATCHED_SINCE = 4
CREATION_MS_MAX: Final = 5 * SECOND_MS
NO_TRANSACTIONS: Final = "transactions are not served by this cluster"


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Located(NamedTuple):
    """Where a coordinator is, or why it is nowhere."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    node_id: int = NO_NODE
    host: str = ""
    port: int = -1


@handles(FindCoordinatorRequest, versions=(0, 6))
def find_coordinator(
    services: "Services", request: FindCoordinatorRequest, context: RequestContext
) -> HandlerResponse:
    if request.key_type == KeyType.GROUP and services.metadata.image.topic_named(OFFSETS_TOPIC) is None:
        return _create_and_locate(services, request, context)
    return _locate_all(services, request, context)


def _list_keys(request: FindCoordinatorRequest, context: RequestContext) -> list[str]:
    return request.coordinator_keys if context.api_version >= BATCHED_SINCE else [request.key]


def _locate_all(
    services: "Services", request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    image = services.metadata.image
    found = [_locate(image, request.key_type, key, context.listener) for key in _list_keys(request, context)]
    return _make_response(request, context, found)


def _locate(image: MetadataImage, key_type: int, key: str, listener: str) -> Located:
    if key_type == KeyType.GROUP:
        return _locate_leader(image, OFFSETS_TOPIC, key, listener)
    if key_type == KeyType.TRANSACTION:
        return Located(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
    if key_type == KeyType.SHARE:
        return Located(ErrorCode.INVALID_REQUEST, "share groups are not served")
    return Located(ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type}")


def _locate_leader(image: MetadataImage, topic_name: str, key: str, listener: str) -> Located:
    topic = image.topic_named(topic_name)
    if topic is None:
        return Located(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the topic {topic_name} is not there yet")
    partition = topic.partitions[partition_of(key, len(topic.partitions))]
    broker = image.brokers.get(partition.leader)
    endpoint = None if broker is None or broker.fenced else endpoint_of(broker, listener)
    if endpoint is None:
        return Located(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator cannot be reached now")
    return Located(node_id=partition.leader, host=endpoint.host, port=endpoint.port)


# --- creating the topic ------------------------------------------------------------------------


async def _create_and_locate(
    services: "Services", request: FindCoordinatorRequest, context: RequestContext
) -> Message:
    topic = _describe_offsets_topic(services)
    if topic is None:
        return _locate_all(services, request, context)
    wanted = CreateTopicsRequest((topic,))
    try:
        reply = await forward(services, context, wanted, TopicsReply, CREATION_MS_MAX)
    except DlogError as error:
        logger.debug("%s was not created: %s", OFFSETS_TOPIC, error)
    else:
        outcome = reply.topics[0].outcome
        if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning("%s cannot be created: %s", OFFSETS_TOPIC, outcome.message)
    return _locate_all(services, request, context)


def _describe_offsets_topic(services: "Services") -> NewTopic | None:
    """Returns None while brokers have yet to register: a topic keeps the replicas it is created with."""
    image = services.metadata.image
    registered = len(candidates(image))
    factor = read_cluster_setting(image, OFFSETS_TOPIC_REPLICATION_FACTOR)
    if registered < min(factor, _count_voting_brokers(services.settings)):
        logger.info("%s is not created yet: %d of %d brokers are there", OFFSETS_TOPIC, registered, factor)
        return None
    return NewTopic(
        name=OFFSETS_TOPIC,
        num_partitions=read_cluster_setting(image, OFFSETS_TOPIC_PARTITIONS),
        replication_factor=max(1, min(factor, registered)),
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(read_cluster_setting(image, OFFSETS_TOPIC_SEGMENT_BYTES))),
        ),
    )


def _count_voting_brokers(settings: "NodeSettings") -> int:
    """The brokers that there will be for sure: where a broker votes, so do the others that stand beside it.
    Voters that only vote say nothing of brokers."""
    return len(settings.controller_quorum_voters) if settings.is_controller else 1


def _make_response(
    request: FindCoordinatorRequest, context: RequestContext, found: list[Located]
) -> FindCoordinatorResponse:
    if context.api_version < BATCHED_SINCE:
        one = found[0]
        return FindCoordinatorResponse(
            error_code=one.error, error_message=one.message, node_id=one.node_id, host=one.host, port=one.port
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=each.node_id,
                host=each.host,
                port=each.port,
                error_code=each.error,
                error_message=each.message,
            )
            for key, each in zip(request.coordinator_keys, found, strict=True)
        ]
    )
