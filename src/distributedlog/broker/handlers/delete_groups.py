"""DeleteGroups: deletes groups without members, and their committed offsets.

A group with more committed offsets than one entry of the log can remove is deleted in several; until it is
gone the response is COORDINATOR_LOAD_IN_PROGRESS, on which clients try again.
"""

import asyncio
from types import NoneType
from typing import TYPE_CHECKING

from distributedlog.broker.handlers._groups import submit, to_group_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.groups.requests import DeleteGroupRequest, PartDone
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(DeleteGroupsRequest, versions=(0, 2), to_error_code=to_group_error)
async def delete_groups(
    services: "Services", request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse:
    names = list(dict.fromkeys(request.groups_names))
    codes = await asyncio.gather(*(_delete(services, context, name) for name in names))
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=code)
            for name, code in zip(names, codes, strict=True)
        ]
    )


async def _delete(services: "Services", context: RequestContext, group_id: str) -> ErrorCode:
    try:
        reply = await submit(services, context, group_id, DeleteGroupRequest(group_id))
    except DlogError as error:
        return to_group_error(error.code)
    assert isinstance(reply, NoneType | PartDone)
    return ErrorCode.NONE if reply is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
