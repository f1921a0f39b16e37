"""ListGroups: the groups that this broker coordinates, by state and type if that is pending for.

While some of its coordinators are still reading their logs back, it says so with what it has: the list of a
cluster is only whole when all brokers have responded without error.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._groups import PendingReply, gather_replies
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.groups.requests import GroupListing, ListReply, ListRequest
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(ListGroupsRequest, versions=(0, 5))
async def list_groups(
    services: "Services", request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if services.groups.is_loading else ErrorCode.NONE
    groups: list[ListedGroup] = []
    for reply in await _list_all(services, context):
        if isinstance(reply, DlogError):
            error = reply.code
            continue
        groups += [
            ListedGroup(
                group_id=each.group_id,
                protocol_type=each.protocol_type,
                group_state=each.state,
                group_type=each.type,
            )
            for each in reply.groups
            if _is_wanted(each, states, types)
        ]
    return ListGroupsResponse(error_code=error, groups=groups)


async def _list_all(services: "Services", context: RequestContext) -> list[ListReply | DlogError]:
    pending = []
    for coordinator in services.groups.all_active():
        pending.append(PendingReply())
        coordinator.submit(ListRequest(), context.deadline_ms, pending[-1])
    return await gather_replies(pending, ListReply)


def _is_wanted(group: GroupListing, states: set[str], types: set[str]) -> bool:
    return (not states or group.state.lower() in states) and (not types or group.type.lower() in types)
