"""SyncGroup: the leader hands out assignments, every member gets its own.

The answer waits until the leader has assigned, and until that is committed.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, handles
from distributedlog.broker.handlers._groups import PATIENCE_MS, answer, ask, told
from distributedlog.groups.requests import SyncReply, SyncRequest
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _refuse(
    request: SyncGroupRequest, context: RequestContext, code: ErrorCode, text: str
) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=told(code), assignment=b"")


@handles(SyncGroupRequest, versions=(0, 5), refuse=_refuse, patience_ms=lambda request: PATIENCE_MS)
def sync_group(services: "Services", request: SyncGroupRequest, context: RequestContext) -> Answer:
    asked = SyncRequest(
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
    return answer(ask(services, context, request.group_id, asked), SyncReply, _response)


def _response(reply: SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
