"""RemoveRaftVoter: has the active controller take a node out of the voters, itself included."""

from types import NoneType
from typing import TYPE_CHECKING

from distributedlog.broker.handlers._forwarding import forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller import requests as controller
from distributedlog.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(RemoveRaftVoterRequest, versions=(0, 0))
async def remove_raft_voter(
    services: "Services", request: RemoveRaftVoterRequest, context: RequestContext
) -> RemoveRaftVoterResponse:
    asked = controller.RemoveVoterRequest(request.cluster_id, request.voter_id, request.voter_directory_id)
    await forward(services, context, asked, NoneType, services.settings.request_timeout_ms)
    return RemoveRaftVoterResponse()
