"""JoinGroup: a member enters a classic group, or waits for its next generation.

    version   what it lacks
    0         a rebalance timeout: the session's counts
    0 to 3    knows no MEMBER_ID_REQUIRED: a member without an id joins at once
    0 to 4    static members
    0 to 8    lacks `skip_assignment`

The response is delayed until all members have joined, or the rebalance timeout is over.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._groups import REBALANCE_TIMEOUT_MS_MAX, respond, submit, to_group_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.groups.requests import JoinReply, JoinRequest, SupportedProtocol
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


def _make_error_response(
    request: JoinGroupRequest, context: RequestContext, code: ErrorCode, text: str
) -> JoinGroupResponse:
    """Makes the response that a member gets to a reply with this code: with its id, and generation -1."""
    return _make_response(JoinReply(request.member_id, code), context)


@handles(
    JoinGroupRequest,
    versions=(0, 9),
    error_response=_make_error_response,
    to_error_code=to_group_error,
    timeout_ms=lambda request: max(request.rebalance_timeout_ms, REBALANCE_TIMEOUT_MS_MAX),
)
def join_group(services: "Services", request: JoinGroupRequest, context: RequestContext) -> HandlerResponse:
    version = context.api_version
    rebalance_ms = request.rebalance_timeout_ms
    submitted = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if rebalance_ms < 0 else rebalance_ms,
        protocol_type=request.protocol_type,
        # Not views: they outlive the frame.
        protocols=tuple(SupportedProtocol(each.name, bytes(each.metadata)) for each in request.protocols),
        waiter=0,
        must_know_id=version >= MUST_KNOW_ID_SINCE,
        may_skip_assignment=version >= SKIPS_ASSIGNMENT_SINCE,
    )
    for each in request.protocols:
        each.metadata = b""
    pending = submit(services, context, request.group_id, submitted)
    return respond(pending, JoinReply, lambda reply: _make_response(reply, context))


def _make_response(reply: JoinReply, context: RequestContext) -> JoinGroupResponse:
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
