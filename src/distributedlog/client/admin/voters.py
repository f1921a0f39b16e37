"""Who votes on the cluster's metadata: adding a controller to the voters, and removing one (KIP-853)."""

from collections.abc import Iterable
from typing import NamedTuple

from distributedlog.client.admin.changes import ask_controller
from distributedlog.client.errors import check_response
from distributedlog.client.metadata import Cluster
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from distributedlog.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


class VoterEndpoint(NamedTuple):
    """Where a controller is reached, as Kafka's brokers want to be told; ours know it."""

    name: str
    host: str
    port: int


async def add_raft_voter(
    cluster: Cluster,
    voter_id: int,
    directory_id: Uuid = ZERO_UUID,
    endpoints: Iterable[VoterEndpoint] = (),
    *,
    cluster_id: str | None = None,
) -> None:
    """Makes a controller a voter, once it has caught up; RequestTimedOutError if it does not in time."""
    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=cluster.options.request_timeout_ms,
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=[Listener(name=name, host=host, port=port) for name, host, port in endpoints],
    )
    response = await ask_controller(
        cluster, request, AddRaftVoterResponse, lambda response: [response.error_code]
    )
    check_response(response.error_code, f"voter {voter_id}", response.error_message)


async def remove_raft_voter(
    cluster: Cluster, voter_id: int, directory_id: Uuid = ZERO_UUID, *, cluster_id: str | None = None
) -> None:
    """Takes a node out of the voters; one that leads hands over first."""
    request = RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id
    )
    response = await ask_controller(
        cluster, request, RemoveRaftVoterResponse, lambda response: [response.error_code]
    )
    check_response(response.error_code, f"voter {voter_id}", response.error_message)
