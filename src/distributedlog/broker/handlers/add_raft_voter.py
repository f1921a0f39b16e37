"""AddRaftVoter: has the active controller make another controller a voter.

Where the node is reached, and what it votes with, the controller knows by the node's own registration; the
addresses in the request are the tool's reading of some file, and are not used.  The directory is compared.
"""

from types import NoneType
from typing import TYPE_CHECKING

from distributedlog.broker.handlers._forwarding import bound_timeout_ms, forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller import requests as controller
from distributedlog.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(
    AddRaftVoterRequest,
    versions=(0, 1),
    timeout_ms=lambda request: bound_timeout_ms(request.timeout_ms),
)
async def add_raft_voter(
    services: "Services", request: AddRaftVoterRequest, context: RequestContext
) -> AddRaftVoterResponse:
    asked = controller.AddVoterRequest(
        request.cluster_id, request.voter_id, request.voter_directory_id, request.ack_when_committed
    )
    await forward(services, context, asked, NoneType, request.timeout_ms)
    return AddRaftVoterResponse()
