"""FindCoordinator: which broker coordinates a group or a transactional id.

    kind of key          answer
    0 group              the leader of the partition of `__consumer_offsets` that the group's name falls on
    1 transactional id   COORDINATOR_NOT_AVAILABLE: no broker serves transactions yet
    2 share              INVALID_REQUEST, as of a Kafka without share groups
    other                INVALID_REQUEST

The topic is created when the first group is looked for.  If it is not there in time, or the partition has no
leader that the client can reach, the answer is COORDINATOR_NOT_AVAILABLE, and clients ask again until their
own timeout.  One key in versions 0 to 3, several from 4 on; each stands for itself.
"""

import logging
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, handles
from distributedlog.broker.handlers._asking import ask
from distributedlog.broker.handlers._cluster import NO_NODE, endpoint_of
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.requests import CreateTopicsRequest, NewTopic, TopicsReply
from distributedlog.groups.placement import OFFSETS_TOPIC, partition_of
from distributedlog.model.config import SECOND_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

logger = logging.getLogger(__name__)

BATCHED_SINCE = 4
CREATION_MS_MAX: Final = 5 * SECOND_MS


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


def _refuse(
    request: FindCoordinatorRequest, context: RequestContext, code: ErrorCode, text: str
) -> FindCoordinatorResponse:
    return _answer(request, context, [Located(code, text)] * len(_keys(request, context)))


@handles(FindCoordinatorRequest, versions=(0, 6), refuse=_refuse)
def find_coordinator(
    services: "Services", request: FindCoordinatorRequest, context: RequestContext
) -> Answer:
    if request.key_type == KeyType.GROUP and services.metadata.image.topic_named(OFFSETS_TOPIC) is None:
        return _create_and_answer(services, request, context)
    return _located(services, request, context)


def _keys(request: FindCoordinatorRequest, context: RequestContext) -> list[str]:
    return request.coordinator_keys if context.api_version >= BATCHED_SINCE else [request.key]


def _located(
    services: "Services", request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    image = services.metadata.image
    found = [_locate(image, request.key_type, key, context.listener) for key in _keys(request, context)]
    return _answer(request, context, found)


def _locate(image: MetadataImage, key_type: int, key: str, listener: str) -> Located:
    if key_type == KeyType.GROUP:
        return _leader_of(image, OFFSETS_TOPIC, key, listener)
    if key_type == KeyType.TRANSACTION:
        return Located(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker coordinates this yet")
    if key_type == KeyType.SHARE:
        return Located(ErrorCode.INVALID_REQUEST, "share groups are not served")
    return Located(ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type}")


def _leader_of(image: MetadataImage, topic_name: str, key: str, listener: str) -> Located:
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


async def _create_and_answer(
    services: "Services", request: FindCoordinatorRequest, context: RequestContext
) -> Message:
    wanted = CreateTopicsRequest((_offsets_topic(services),))
    try:
        reply = await ask(services, context, wanted, TopicsReply, CREATION_MS_MAX)
    except DlogError as error:
        logger.debug("%s was not created: %s", OFFSETS_TOPIC, error)
    else:
        outcome = reply.topics[0].outcome
        if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning("%s cannot be created: %s", OFFSETS_TOPIC, outcome.message)
    return _located(services, request, context)


def _offsets_topic(services: "Services") -> NewTopic:
    settings = services.settings
    live = sum(not broker.fenced for broker in services.metadata.image.brokers.values())
    return NewTopic(
        name=OFFSETS_TOPIC,
        num_partitions=settings.offsets_topic_partitions,
        replication_factor=max(1, min(settings.offsets_topic_replication_factor, live)),
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(settings.offsets_topic_segment_bytes)),
        ),
    )


def _answer(
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
