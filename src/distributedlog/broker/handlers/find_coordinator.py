"""FindCoordinator: which broker coordinates a group or a transactional id.

    kind of key          answer
    0 group              COORDINATOR_NOT_AVAILABLE: no broker serves groups yet
    1 transactional id   the same
    2 share              INVALID_REQUEST, as of a Kafka without share groups
    other                INVALID_REQUEST

Clients ask again after COORDINATOR_NOT_AVAILABLE until their own timeout.  One key in versions 0 to 3,
several from 4 on; each stands for itself.  Where coordinators live is decided in `_locate` and nowhere else.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.broker.handlers._cluster import NO_NODE
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

BATCHED_SINCE = 4


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
    return _answer(request, context, Located(code, text))


@handles(FindCoordinatorRequest, versions=(0, 6), refuse=_refuse)
def find_coordinator(
    services: "Services", request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    return _answer(request, context, _locate(request.key_type))


def _locate(key_type: int) -> Located:
    if key_type in (KeyType.GROUP, KeyType.TRANSACTION):
        return Located(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker coordinates this yet")
    if key_type == KeyType.SHARE:
        return Located(ErrorCode.INVALID_REQUEST, "share groups are not served")
    return Located(ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type}")


def _answer(
    request: FindCoordinatorRequest, context: RequestContext, found: Located
) -> FindCoordinatorResponse:
    if context.api_version >= BATCHED_SINCE:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=found.node_id,
                    host=found.host,
                    port=found.port,
                    error_code=found.error,
                    error_message=found.message,
                )
                for key in request.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(
        error_code=found.error,
        error_message=found.message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )
