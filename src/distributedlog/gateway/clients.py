"""Connections to the cluster, for each client id that callers name.

A broker throttles a client by not reading from its connection.  So callers with different client ids share
no connection: one that has used its quota up slows nobody else down.  A client has one set of connections
for producing and metadata; each Fetch call has its own (`stream_cluster`), since a response that waits for
records holds back those behind it.

At most CLIENTS_MAX clients are connected.  One more closes the one that has been idle for longest; if none
is idle, the call is refused.  A client id is at most CLIENT_ID_LENGTH_MAX characters of what the caller
says.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from distributedlog.client.addresses import Address
from distributedlog.client.metadata import Cluster
from distributedlog.client.options import ClientOptions
from distributedlog.client.producer import Producer, ProducerOptions
from distributedlog.model.config import MIB
from distributedlog.model.errors import OverloadedError

CLIENTS_MAX: Final = 64
CLIENT_ID_DEFAULT: Final = "gateway"
CLIENT_ID_LENGTH_MAX: Final = 249
DELIVERY_TIMEOUT_MS: Final = 60_000
BUFFER_BYTES_MAX: Final = 64 * MIB
"""The buffer of one client and one kind of acknowledgement; all calls together have a smaller bound
(`service`)."""


@dataclass(eq=False, slots=True)
class GatewayClient:
    """The connections of one client id."""

    cluster: Cluster
    calls: int = 0
    """Calls that use it now."""
    producers: dict[int, Producer] = field(default_factory=dict)
    """The producers by acks."""

    def producer(self, acks: int) -> Producer:
        made = self.producers.get(acks)
        if made is None:
            options = ProducerOptions(
                acks=acks,
                linger_ms=0,
                buffer_bytes_max=BUFFER_BYTES_MAX,
                delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            )
            made = self.producers[acks] = Producer(self.cluster, options)
        return made

    async def close(self) -> None:
        for producer in self.producers.values():
            await producer.close()
        await self.cluster.close()


class GatewayClients:
    """All clients of a gateway, on its loop."""

    def __init__(
        self, bootstrap: Sequence[Address], options: ClientOptions, *, clients_max: int = CLIENTS_MAX
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._options = options
        self._clients_max = clients_max
        self._clients: dict[str, GatewayClient] = {}
        """Used longest ago first."""

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def call_count(self) -> int:
        """Calls that use a client now."""
        return sum(each.calls for each in self._clients.values())

    @contextlib.asynccontextmanager
    async def client(self, client_id: str) -> AsyncIterator[GatewayClient]:
        """Lends a client to a call; raises OverloadedError if all are in use."""
        client_id = client_id[:CLIENT_ID_LENGTH_MAX]
        client = self._clients.pop(client_id, None)
        if client is None:
            await self._make_room()
            client = GatewayClient(self._cluster(client_id))
        client = self._clients.setdefault(client_id, client)  # another call may have made it meanwhile
        client.calls += 1
        try:
            yield client
        finally:
            client.calls -= 1

    def stream_cluster(self, client_id: str) -> Cluster:
        """A cluster with connections of its own, for one stream, which closes it."""
        return self._cluster(client_id[:CLIENT_ID_LENGTH_MAX])

    async def close(self) -> None:
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()

    def _cluster(self, client_id: str) -> Cluster:
        return Cluster(self._bootstrap, replace(self._options, client_id=client_id))

    async def _make_room(self) -> None:
        while len(self._clients) >= self._clients_max:
            idle = next((name for name, each in self._clients.items() if not each.calls), None)
            if idle is None:
                raise OverloadedError(f"{self._clients_max} clients call already: try again later")
            await self._clients.pop(idle).close()
