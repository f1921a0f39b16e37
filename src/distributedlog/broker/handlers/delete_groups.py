"""DeleteGroups: deletes groups without members, and their positions.

A group with more positions than one entry of the log can forget goes in several; until it is gone the answer
is COORDINATOR_LOAD_IN_PROGRESS, on which clients ask again.
"""

import asyncio
from types import NoneType
from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.broker.handlers._groups import ask, told
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


def _refuse(
    request: DeleteGroupsRequest, context: RequestContext, code: ErrorCode, text: str
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=each, error_code=told(code)) for each in request.groups_names]
    )


@handles(DeleteGroupsRequest, versions=(0, 2), refuse=_refuse)
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
        reply = await ask(services, context, group_id, DeleteGroupRequest(group_id))
    except DlogError as error:
        return told(error.code)
    assert isinstance(reply, NoneType | PartDone)
    return ErrorCode.NONE if reply is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
