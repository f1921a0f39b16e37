"""Somebody who moves partitions about while everything fails: other replicas, more, fewer; and cancels.

No topic gets fewer replicas than have to be in sync for it.  When everything heals nothing more is begun;
what is under way then has to arrive (`checkers.moves_arrive`).
"""

from typing import TYPE_CHECKING

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.reliability.history import Place
from tests.simulation.brokers.wire_client import WireClient

if TYPE_CHECKING:
    from tests.simulation.brokers.clients import Clients

MOVES = "moves"
"""The flavour of runs in which this happens."""
PAUSE_MS = 1_200
REPLICAS_MAX = 3


class Mover:
    def __init__(self, clients: "Clients", client: WireClient) -> None:
        self._clients = clients
        self._client = client
        self._chance = clients.chance
        self.begun = 0

    async def run(self) -> None:
        clients = self._clients
        while not clients.is_over:
            await clients.pause(PAUSE_MS)
            if clients.cluster.faults.is_healing:
                return
            await self._move(self._chance.choice(clients.places))

    async def _move(self, place: Place) -> None:
        cluster = self._clients.cluster
        _, in_sync = self._clients.topics[place.topic]
        wanted = self._chance.randint(max(2, in_sync), REPLICAS_MAX)
        target = None if self._chance.random() < 0.2 else self._chance.sample(sorted(cluster.hosts), wanted)
        topic = ReassignableTopic(
            name=place.topic,
            partitions=[ReassignablePartition(partition_index=place.partition, replicas=target)],
        )
        request = AlterPartitionReassignmentsRequest(timeout_ms=2_000, topics=[topic])
        try:
            found = await self._client.ask_any(request, AlterPartitionReassignmentsResponse)
        except DlogError as error:
            cluster.trace.add(cluster.now_us, f"move {place} to {target}:", self._client.name, error)
            return
        codes = [each.error_code for topic in found.responses for each in topic.partitions]
        cluster.trace.add(cluster.now_us, f"move {place} to {target}:", self._client.name, codes)
        self.begun += codes == [ErrorCode.NONE] and target is not None
