"""What a transactional client asks beyond `wire_client`: coordinators, and reading what is committed.

Readers leave out what was aborted as Kafka's clients do: by the list of aborted transactions that comes with
a response, and the markers in the log.
"""

import random
from typing import Final, TypeVar, cast

from distributedlog.model.buffers import Buffer
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerUnreachableError, DlogError
from distributedlog.protocol.messages.fetch import (
    AbortedTransaction,
    PartitionData,
)
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from distributedlog.protocol.schema import Message
from distributedlog.records.batch import read_header
from distributedlog.records.control import read_end_marker
from distributedlog.records.layout import HEADER_BYTES
from distributedlog.records.record import decode_batch
from tests.reliability.history import Place, Seen
from tests.simulation.brokers.wire_client import LATEST, TIMEOUT_MS, WireClient

GROUP: Final = 0
TRANSACTIONAL_ID: Final = 1
FIND_VERSION: Final = 3
OFFSET_FETCH_VERSION: Final = 7
READ_COMMITTED: Final = 1
NO_OFFSET: Final = -1

M = TypeVar("M", bound=Message)


class TransactionsWire(WireClient):
    def __init__(self, name: str, bootstrap: list[tuple[str, int]], chance: random.Random) -> None:
        super().__init__(name, bootstrap, chance)
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}

    def forget_coordinators(self) -> None:
        self._coordinators.clear()

    async def ask_coordinator(
        self, kind: int, key: str, request: Message, response: type[M], version: int | None = None
    ) -> M:
        address = self._coordinators.get((kind, key))
        if address is None:
            address = self._coordinators[kind, key] = await self._find_coordinator(kind, key)
        connection = await self._connected(address)
        return await connection.call(request, response, timeout_ms=TIMEOUT_MS, version=version)

    async def _find_coordinator(self, kind: int, key: str) -> tuple[str, int]:
        connection = await self._connected(self.chance.choice(self._bootstrap))
        asked = FindCoordinatorRequest(key=key, key_type=kind)
        found = await connection.call(
            asked, FindCoordinatorResponse, timeout_ms=TIMEOUT_MS, version=FIND_VERSION
        )
        if found.error_code != ErrorCode.NONE:
            raise BrokerUnreachableError(f"no coordinator for {key}: {found.error_code}")
        return found.host, found.port

    # --- reading -------------------------------------------------------------------------------

    async def list_stable(self, place: Place) -> int | None:
        """Returns the last stable offset."""
        asked = ListOffsetsPartition(
            partition_index=place.partition, current_leader_epoch=self.epoch_of(place), timestamp=LATEST
        )
        topic = ListOffsetsTopic(name=place.topic, partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=READ_COMMITTED, topics=[topic])
        try:
            found = await self.ask_leader(place, request, ListOffsetsResponse)
        except DlogError:
            return None
        told = found.topics[0].partitions[0]
        return told.offset if told.error_code == ErrorCode.NONE else None

    async def fetch_committed(self, place: Place, offset: int, wait_ms: int) -> PartitionData:
        return await self.fetch(place, offset, wait_ms, READ_COMMITTED)

    async def committed_offset(self, group: str, place: Place) -> int | None:
        """Returns the stable committed offset, 0 if there is none; None if nobody says."""
        topic = OffsetFetchRequestTopic(name=place.topic, partition_indexes=[place.partition])
        request = OffsetFetchRequest(group_id=group, topics=[topic], require_stable=True)
        try:
            found = await self.ask_coordinator(
                GROUP, group, request, OffsetFetchResponse, OFFSET_FETCH_VERSION
            )
        except DlogError:
            self.forget_coordinators()
            return None
        told = found.topics[0].partitions[0] if found.topics else None
        if found.error_code != ErrorCode.NONE or told is None or told.error_code != ErrorCode.NONE:
            self.forget_coordinators()
            return None
        return 0 if told.committed_offset == NO_OFFSET else told.committed_offset


def committed_records(data: PartitionData, offset: int) -> tuple[tuple[Seen, ...], int]:
    """Returns the committed records of a response from an offset on, and where the next ones begin."""
    buffer = bytes(cast(Buffer, data.records or b""))
    to_come = sorted(data.aborted_transactions or (), key=_first_offset, reverse=True)
    aborting: set[int] = set()
    seen: list[Seen] = []
    position, following = 0, offset
    while position + HEADER_BYTES <= len(buffer):  # the last batch may be cut
        header = read_header(buffer, position)
        if position + header.size > len(buffer):
            break
        while to_come and to_come[-1].first_offset <= header.last_offset:
            aborting.add(to_come.pop().producer_id)
        if header.is_control:
            if not read_end_marker(buffer, position, header).is_commit:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            seen += [
                Seen(record.offset, (record.value or b"").decode())
                for record in decode_batch(buffer, position)
                if record.offset >= offset
            ]
        following = max(following, header.next_offset)
        position += header.size
    return tuple(seen), following


def _first_offset(aborted: AbortedTransaction) -> int:
    return aborted.first_offset
