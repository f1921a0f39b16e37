"""DescribeGroups: the state and members of classic groups.

A group that is not there is Dead; from version 6 on that is GROUP_ID_NOT_FOUND as well, and nothing is told
of operations.  Each is described once, however often it is named, and after SLICE_GROUPS of them others have
their turn.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._groups import GROUP_OPERATIONS, describe_each, to_group_error
from distributedlog.broker.handlers._operations import NOT_ASKED_FOR
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.groups.classic.group import GroupState
from distributedlog.groups.requests import DescribeReply, DescribeRequest
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

NOT_FOUND_SINCE = 6


@handles(DescribeGroupsRequest, versions=(0, 6), to_error_code=to_group_error)
async def describe_groups(
    services: "Services", request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    described = describe_each(services, context, request.groups, DescribeRequest, DescribeReply)
    groups = [
        _make_failure(group_id, reply.code, str(reply))
        if isinstance(reply, DlogError)
        else _describe_group(reply, request, context)
        async for group_id, reply in described
    ]
    return DescribeGroupsResponse(groups=groups)


def _make_failure(group_id: str, code: ErrorCode, text: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=to_group_error(code),
        error_message=text,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _describe_group(
    reply: DescribeReply, request: DescribeGroupsRequest, context: RequestContext
) -> DescribedGroup:
    group = DescribedGroup(
        group_id=reply.group_id,
        group_state=reply.state,
        protocol_type=reply.protocol_type,
        protocol_data=reply.protocol,
        members=[
            DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata,
                member_assignment=each.assignment,
            )
            for each in reply.members
        ],
        authorized_operations=GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR,
    )
    if reply.state == GroupState.DEAD and context.api_version >= NOT_FOUND_SINCE:
        group.authorized_operations = NOT_ASKED_FOR
        group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        group.error_message = f"there is no group {reply.group_id!r}"
    return group
