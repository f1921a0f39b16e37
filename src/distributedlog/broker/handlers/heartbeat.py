"""Heartbeat: a member of a classic group shows that it is alive, and learns whether it must join again.

While the group is being loaded the response is no error, as Kafka's is: nothing is known against the member,
and some clients (aiokafka) give up for good when a heartbeat meets COORDINATOR_LOAD_IN_PROGRESS.
"""

from types import NoneType
from typing import TYPE_CHECKING

from distributedlog.broker.handlers._groups import respond, submit, to_group_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.groups import requests
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def to_heartbeat_error(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else to_group_error(code)


@handles(HeartbeatRequest, versions=(0, 4), to_error_code=to_heartbeat_error)
def heartbeat(services: "Services", request: HeartbeatRequest, context: RequestContext) -> HandlerResponse:
    submitted = requests.HeartbeatRequest(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    pending = submit(services, context, request.group_id, submitted)
    return respond(pending, NoneType, lambda _: HeartbeatResponse())
