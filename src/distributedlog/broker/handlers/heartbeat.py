"""Heartbeat: a member of a classic group says that it is there, and hears whether it must join again."""

from types import NoneType
from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, handles
from distributedlog.broker.handlers._groups import answer, ask, told
from distributedlog.groups import requests
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _refuse(
    request: HeartbeatRequest, context: RequestContext, code: ErrorCode, text: str
) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=told(code))


@handles(HeartbeatRequest, versions=(0, 4), refuse=_refuse)
def heartbeat(services: "Services", request: HeartbeatRequest, context: RequestContext) -> Answer:
    asked = requests.HeartbeatRequest(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    future = ask(services, context, request.group_id, asked)
    return answer(future, NoneType, lambda _: HeartbeatResponse())
