"""A small client of Kafka's protocol: it knows who leads what, and asks one broker at a time.

Its connections are those of `distributedlog.client`, over simulated streams.  It never goes back to an
earlier leader epoch of a partition: what it asks a leader carries the newest epoch that it has heard of.
"""

import contextlib
import random
from typing import TypeVar, cast

from distributedlog.client.connection import Connection, connect
from distributedlog.model.buffers import Buffer
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerUnreachableError, DlogError
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from distributedlog.protocol.schema import Message
from distributedlog.records.batch import read_header
from distributedlog.records.layout import HEADER_BYTES
from distributedlog.records.record import decode_batch
from tests.reliability.history import Place, Seen

TIMEOUT_MS = 2_500
READ_UNCOMMITTED = 0
FETCH_VERSION = 12
REPLICA_FETCH_VERSION = 17
NO_LEADER = -1
EARLIEST, LATEST = -2, -1

M = TypeVar("M", bound=Message)


class WireClient:
    def __init__(self, name: str, bootstrap: list[tuple[str, int]], chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self._bootstrap = bootstrap
        self._connections: dict[tuple[str, int], Connection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._topic_ids: dict[str, Uuid] = {}
        self.leaders: dict[Place, tuple[int, int]] = {}
        """The leader of a partition and its epoch."""

    async def _connected(self, address: tuple[str, int]) -> Connection:
        connection = self._connections.get(address)
        if connection is None or connection._wire.failure is not None:
            connection = await connect(*address, client_id=self.name, timeout_ms=TIMEOUT_MS)
            self._connections[address] = connection
        return connection

    def close(self) -> None:
        """Leaves; what is open at a broker counts against what an address may have."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def ask_any(self, request: Message, response: type[M]) -> M:
        connection = await self._connected(self.chance.choice(self._bootstrap))
        return await connection.call(request, response, timeout_ms=TIMEOUT_MS)

    async def refresh(self) -> None:
        """Learns who leads; what fails is tried again when somebody needs it."""
        try:
            found = await self.ask_any(MetadataRequest(topics=None), MetadataResponse)
        except DlogError:
            return
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
        for topic in found.topics:
            self._topic_ids[topic.name or ""] = topic.topic_id
            for each in topic.partitions:
                place = Place(topic.name or "", each.partition_index)
                if each.leader_epoch >= self.leaders.get(place, (NO_LEADER, -1))[1]:
                    self.leaders[place] = each.leader_id, each.leader_epoch

    def learn_leader(self, place: Place, broker_id: int, address: tuple[str, int], epoch: int) -> None:
        self._addresses[broker_id] = address
        self.leaders[place] = broker_id, epoch

    def epoch_of(self, place: Place) -> int:
        return self.leaders.get(place, (NO_LEADER, -1))[1]

    async def ask_leader(
        self, place: Place, request: Message, response: type[M], version: int | None = None
    ) -> M:
        leader = self.leaders.get(place, (NO_LEADER, -1))[0]
        address = self._addresses.get(leader)
        if address is None:
            raise BrokerUnreachableError(f"{place} has no leader")
        return await self.ask_at(address, request, response, version)

    async def ask_at(
        self, address: tuple[str, int], request: Message, response: type[M], version: int | None = None
    ) -> M:
        connection = await self._connected(address)
        return await connection.call(request, response, timeout_ms=TIMEOUT_MS, version=version)

    # --- reading -------------------------------------------------------------------------------

    async def list_offset(self, place: Place, spec: int) -> int | None:
        """Returns the earliest or latest offset; None if the leader does not say, or is not found."""
        told = await self.list_offset_and_epoch(place, spec)
        return None if told is None else told[0]

    async def list_offset_and_epoch(self, place: Place, spec: int) -> tuple[int, int] | None:
        asked = ListOffsetsPartition(
            partition_index=place.partition, current_leader_epoch=self.epoch_of(place), timestamp=spec
        )
        topic = ListOffsetsTopic(name=place.topic, partitions=[asked])
        try:
            found = await self.ask_leader(
                place, ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse
            )
        except DlogError:
            return None
        told = found.topics[0].partitions[0]
        return (told.offset, told.leader_epoch) if told.error_code == ErrorCode.NONE else None

    async def fetch(
        self, place: Place, offset: int, wait_ms: int, isolation_level: int = READ_UNCOMMITTED
    ) -> PartitionData:
        asked = FetchPartition(
            partition=place.partition,
            current_leader_epoch=self.epoch_of(place),
            fetch_offset=offset,
            partition_max_bytes=8_192,
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=place.topic, partitions=[asked])],
        )
        found = await self.ask_leader(place, request, FetchResponse, FETCH_VERSION)
        return found.responses[0].partitions[0]

    async def fetch_as_replica(self, place: Place, offset: int) -> None:
        """Says that it is some replica of the partition, which has stored all before this offset."""
        asked = FetchPartition(
            partition=place.partition,
            current_leader_epoch=self.epoch_of(place),
            fetch_offset=offset,
            partition_max_bytes=1_024,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.chance.choice(list(self._addresses or (1,)))),
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchTopic(topic_id=self._topic_ids.get(place.topic, ZERO_UUID), partitions=[asked])],
        )
        with contextlib.suppress(DlogError):
            await self.ask_leader(place, request, FetchResponse, REPLICA_FETCH_VERSION)


def records_from(data: PartitionData, offset: int) -> tuple[tuple[Seen, ...], int]:
    """Returns the records of a response from an offset on, and where the next ones begin."""
    buffer = bytes(cast(Buffer, data.records or b""))
    seen: list[Seen] = []
    position, following = 0, offset
    while position + HEADER_BYTES <= len(buffer):  # the last batch may be cut
        header = read_header(buffer, position)
        if position + header.size > len(buffer):
            break
        seen += [
            Seen(record.offset, (record.value or b"").decode())
            for record in decode_batch(buffer, position)
            if record.offset >= offset
        ]
        following = max(following, header.base_offset + header.last_offset_delta + 1)
        position += header.size
    return tuple(seen), following
