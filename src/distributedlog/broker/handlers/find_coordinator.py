"""FindCoordinator: which broker coordinates a group or a transactional id.

    kind of key          response
    0 group              the leader of the partition of `__consumer_offsets` that the group's name falls on
    1 transactional id   likewise, of `__transaction_state`
    2 share              INVALID_REQUEST, as of a Kafka without share groups
    other                INVALID_REQUEST

The topic is created when the first key is looked for (`_coordinator_topics`).  If it is not there in time, or
the partition has no leader that the client can reach, the response is COORDINATOR_NOT_AVAILABLE, and clients
ask again until their own timeout.  One key in versions 0 to 3, several from 4 on; each stands for itself.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._coordinator_topics import (
    Located,
    create_coordinator_topic,
    locate_coordinator,
)
from distributedlog.broker.handlers._isolated import send_elsewhere_if_isolated
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.controller.image import MetadataImage
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from distributedlog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

BATCHED_SINCE = 4


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS: Final[Mapping[int, str]] = {
    KeyType.GROUP: OFFSETS_TOPIC,
    KeyType.TRANSACTION: TRANSACTIONS_TOPIC,
}


@handles(FindCoordinatorRequest, versions=(0, 6))
def find_coordinator(
    services: "Services", request: FindCoordinatorRequest, context: RequestContext
) -> HandlerResponse:
    send_elsewhere_if_isolated(services, context)
    topic_name = _TOPICS.get(request.key_type)
    if topic_name is not None and services.metadata.image.topic_named(topic_name) is None:
        return _create_and_locate(services, request, context, topic_name)
    return _locate_all(services, request, context)


async def _create_and_locate(
    services: "Services", request: FindCoordinatorRequest, context: RequestContext, topic_name: str
) -> Message:
    await create_coordinator_topic(services, context, topic_name)
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
    topic_name = _TOPICS.get(key_type)
    if topic_name is not None:
        return locate_coordinator(image, topic_name, key, listener)
    if key_type == KeyType.SHARE:
        return Located(ErrorCode.INVALID_REQUEST, "share groups are not served")
    return Located(ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type}")


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
