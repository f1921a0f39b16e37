"""LeaveGroup: members go.  Versions 0 to 2 name one, whose error is that of the whole; later ones several."""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._groups import respond, submit, to_group_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.groups.requests import Leaver, LeaveReply, LeaveRequest
from distributedlog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

BATCHED_SINCE = 3


@handles(LeaveGroupRequest, versions=(0, 5), to_error_code=to_group_error)
def leave_group(services: "Services", request: LeaveGroupRequest, context: RequestContext) -> HandlerResponse:
    if context.api_version < BATCHED_SINCE:
        leavers: tuple[Leaver, ...] = (Leaver(request.member_id),)
    else:
        leavers = tuple(Leaver(each.member_id, each.group_instance_id) for each in request.members)
    pending = submit(services, context, request.group_id, LeaveRequest(request.group_id, leavers))
    return respond(pending, LeaveReply, lambda reply: _make_response(context, leavers, reply))


def _make_response(
    context: RequestContext, leavers: tuple[Leaver, ...], reply: LeaveReply
) -> LeaveGroupResponse:
    if context.api_version < BATCHED_SINCE:
        return LeaveGroupResponse(error_code=reply.errors[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=error)
            for leaver, error in zip(leavers, reply.errors, strict=True)
        ]
    )
