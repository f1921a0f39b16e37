"""SyncGroup: the leader hands out assignments, every member gets its own.

The response is delayed until the leader has assigned, and until that is committed.  From version 5 on a
member names the protocol that its group has chosen, or is refused with INCONSISTENT_GROUP_PROTOCOL.
"""

from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._groups import REBALANCE_TIMEOUT_MS_MAX, respond, submit, to_group_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.groups.requests import SyncReply, SyncRequest
from distributedlog.model.errors import InconsistentProtocolError
from distributedlog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

PROTOCOL_SINCE: Final = 5


@handles(
    SyncGroupRequest,
    versions=(0, 5),
    to_error_code=to_group_error,
    timeout_ms=lambda request: REBALANCE_TIMEOUT_MS_MAX,
)
def sync_group(services: "Services", request: SyncGroupRequest, context: RequestContext) -> HandlerResponse:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= PROTOCOL_SINCE and not names_protocol:
        raise InconsistentProtocolError("a member names the protocol that its group has chosen")
    submitted = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        # Not views: they outlive the frame.
        assignments=tuple((each.member_id, bytes(each.assignment)) for each in request.assignments),
        waiter=0,
    )
    request.assignments = []
    return respond(submit(services, context, request.group_id, submitted), SyncReply, _make_response)


def _make_response(reply: SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
