"""JoinGroup: a member enters a classic group, or waits for its next generation.

    version   what it lacks
    0         a rebalance timeout: the session's counts
    0 to 3    knows no MEMBER_ID_REQUIRED: a member without an id is let in at once
    0 to 4    static members
    0 to 8    cannot be told to keep the assignment there is

The answer waits until all members have joined, or the time for that is over.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, handles
from distributedlog.broker.handlers._groups import PATIENCE_MS, answer, ask, told
from distributedlog.groups.requests import JoinReply, JoinRequest, Offer
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

MUST_KNOW_ID_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIPS_ASSIGNMENT_SINCE = 9


def _refuse(
    request: JoinGroupRequest, context: RequestContext, code: ErrorCode, text: str
) -> JoinGroupResponse:
    return _response(JoinReply(request.member_id, told(code)), context)


@handles(
    JoinGroupRequest,
    versions=(0, 9),
    refuse=_refuse,
    patience_ms=lambda request: max(request.rebalance_timeout_ms, PATIENCE_MS),
)
def join_group(services: "Services", request: JoinGroupRequest, context: RequestContext) -> Answer:
    version = context.api_version
    rebalance_ms = request.rebalance_timeout_ms
    asked = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if rebalance_ms < 0 else rebalance_ms,
        protocol_type=request.protocol_type,
        # Not views: they outlive the frame.
        offers=tuple(Offer(each.name, bytes(each.metadata)) for each in request.protocols),
        waiter=0,
        must_know_id=version >= MUST_KNOW_ID_SINCE,
        may_skip_assignment=version >= SKIPS_ASSIGNMENT_SINCE,
    )
    for each in request.protocols:
        each.metadata = b""
    future = ask(services, context, request.group_id, asked)
    return answer(future, JoinReply, lambda reply: _response(reply, context))


def _response(reply: JoinReply, context: RequestContext) -> JoinGroupResponse:
    protocol = reply.protocol
    if protocol is None and context.api_version < NULL_PROTOCOL_SINCE:
        protocol = ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol,
        leader=reply.leader_id,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in reply.members
        ],
    )
