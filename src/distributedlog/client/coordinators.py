"""The broker that coordinates a group or a transactional id: found when needed, remembered until it fails.

A coordinator moves like any leader.  One that cannot be reached is forgotten; whoever meets another error of
it calls `forget`; and the next call looks again.
"""

from typing import Final

from distributedlog.client.addresses import Address
from distributedlog.client.connection import Connection
from distributedlog.client.errors import check_response
from distributedlog.client.metadata import Cluster
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
SEVERAL_KEYS_SINCE: Final = 4


class Coordinator:
    def __init__(self, cluster: Cluster, key_type: int, key: str) -> None:
        self.about = f"{'group' if key_type == GROUP_KEY else 'transactional id'} {key!r}"
        """What it coordinates, for messages."""
        self._cluster = cluster
        self._key_type = key_type
        self._key = key
        self._address: Address | None = None

    async def connection(self) -> Connection:
        if self._address is None:
            self._address = await self._find()
        try:
            return await self._cluster.connection_to(self._address)
        except DlogError:
            self.forget()
            raise

    def forget(self) -> None:
        """Forgets who it is after a failure: it may be another by now."""
        self._address = None

    async def _find(self) -> Address:
        await self._cluster.brokers()  # whoever is known can be asked when the bootstrap list is gone
        connection = await self._cluster.any_connection()
        if connection.version_for(FindCoordinatorRequest) >= SEVERAL_KEYS_SINCE:
            request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self._key])
        else:
            request = FindCoordinatorRequest(key=self._key, key_type=self._key_type)
        response = await self._cluster.call(connection, request, FindCoordinatorResponse)
        found = next(iter(response.coordinators), response)
        check_response(found.error_code, f"the coordinator of {self.about}", found.error_message)
        return Address(found.host, found.port)
