"""LeaveGroup: members go.  Versions 0 to 2 name one, whose error is that of the whole; later ones several."""

from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, handles
from distributedlog.broker.handlers._groups import answer, ask, told
from distributedlog.groups.requests import Leaver, LeaveReply, LeaveRequest
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

BATCHED_SINCE = 3


def _refuse(
    request: LeaveGroupRequest, context: RequestContext, code: ErrorCode, text: str
) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=told(code))


@handles(LeaveGroupRequest, versions=(0, 5), refuse=_refuse)
def leave_group(services: "Services", request: LeaveGroupRequest, context: RequestContext) -> Answer:
    if context.api_version < BATCHED_SINCE:
        leavers: tuple[Leaver, ...] = (Leaver(request.member_id),)
    else:
        leavers = tuple(Leaver(each.member_id, each.group_instance_id) for each in request.members)
    future = ask(services, context, request.group_id, LeaveRequest(request.group_id, leavers))
    return answer(future, LeaveReply, lambda reply: _response(context, leavers, reply))


def _response(context: RequestContext, leavers: tuple[Leaver, ...], reply: LeaveReply) -> LeaveGroupResponse:
    if context.api_version < BATCHED_SINCE:
        return LeaveGroupResponse(error_code=reply.errors[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=error)
            for leaver, error in zip(leavers, reply.errors, strict=True)
        ]
    )
