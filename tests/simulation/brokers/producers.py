"""A producer of the simulation.

With acks=all it is idempotent: a batch is sent again under its sequence until it is acknowledged, or is
too old; then nobody knows what became of it, and the producer goes on under another id.  A refusal for its
sequence would say that an acknowledged batch is gone.  With acks=1 nothing is sent twice, and nothing is
promised; at times it sends many in a row to one partition, so that replicas have different ends.
"""

from typing import TYPE_CHECKING

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.records.record import Record, encode_batch
from tests.reliability.history import Outcome, Place
from tests.simulation.brokers.wire_client import WireClient

if TYPE_CHECKING:
    from tests.simulation.brokers.clients import Clients

ACKS_ALL = -1
TOO_OLD_US = 9_000_000
BURST_SHARE = 0.2
BURST = 12
VERSION = 12
STRANGE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
WRITTEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class Producer:
    def __init__(self, clients: "Clients", client: WireClient, acks: int) -> None:
        self._clients = clients
        self._client = client
        self._acks = acks
        self._identity: tuple[int, int] | None = None
        self._sequences: dict[Place, int] = {}
        self._values = 0

    async def run(self) -> None:
        await self._client.refresh()
        while not self._clients.is_over:
            place = self._client.chance.choice(self._clients.places)
            if self._acks == ACKS_ALL and self._identity is None:
                await self._take_identity()
            elif not self._is_hopeless(place):
                await self._produce(place)
                if self._acks != ACKS_ALL and self._client.chance.random() < BURST_SHARE:
                    for _ in range(BURST):
                        await self._produce(place)
            await self._clients.pause(250)

    def _is_hopeless(self, place: Place) -> bool:
        """Nobody leads it by right.  When all has healed nobody waits for it, but writes to others."""
        cluster = self._clients.cluster
        return cluster.faults.is_healing and place in cluster.observer.progress.waiting_for_operator

    async def _take_identity(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        try:
            found = await self._client.ask_any(request, InitProducerIdResponse)
        except DlogError:
            return
        if found.error_code == ErrorCode.NONE:
            self._identity = found.producer_id, found.producer_epoch
            self._sequences.clear()

    def _make_batch(self, place: Place) -> tuple[list[str], bytes]:
        values = []
        for _ in range(self._client.chance.choice((1, 1, 2, 5))):
            self._values += 1
            values.append(f"{self._client.name}-{self._values}")
        records = [Record(value.encode(), timestamp_ms=1_700_000_000_000) for value in values]
        if self._identity is None:
            return values, bytes(encode_batch(records))
        producer_id, epoch = self._identity
        batch = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences.get(place, 0),
        )
        return values, bytes(batch)

    async def _produce(self, place: Place) -> None:
        clients, began_us = self._clients, self._clients.cluster.now_us
        values, batch = self._make_batch(place)
        told: PartitionProduceResponse | None = None
        while True:
            told = await self._send(place, batch)
            code = None if told is None else ErrorCode(told.error_code)
            if code in WRITTEN:
                break
            if self._acks != ACKS_ALL:
                await self._client.refresh()
                break
            if code in STRANGE and self._identity is not None and self._asked_who_leads(place):
                clients.cluster.history.strange_sequence(self._client.name, place, str(code), values)
            await self._client.refresh()
            is_too_old = clients.cluster.now_us - began_us > TOO_OLD_US
            if is_too_old or clients.is_over or self._is_hopeless(place):
                break
            await clients.pause(100)
        is_written = self._acks == ACKS_ALL and told is not None and told.error_code in WRITTEN
        outcome = Outcome.OK if is_written else Outcome.UNKNOWN
        offset = told.base_offset if is_written and told is not None and told.base_offset >= 0 else None
        clients.operations += 1
        clients.cluster.history.sent(self._client.name, place, values, began_us, outcome, offset)
        if is_written:
            self._sequences[place] = self._sequences.get(place, 0) + len(values)
        else:
            self._identity = None

    def _asked_who_leads(self, place: Place) -> bool:
        """Whether the broker that was asked leads for the controller, too.  One that was cut off does not
        know what its successor has acknowledged."""
        topic = self._clients.cluster.steps[-1].after.topic_named(place.topic)
        partition = None if topic is None else topic.partitions.get(place.partition)
        asked = self._client.leaders.get(place)
        return partition is not None and asked == (partition.leader, partition.leader_epoch)

    async def _send(self, place: Place, batch: bytes) -> PartitionProduceResponse | None:
        data = PartitionProduceData(index=place.partition, records=batch)
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=1_500,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )
        try:
            found = await self._client.ask_leader(place, request, ProduceResponse, VERSION)
        except DlogError:
            return None
        return found.responses[0].partition_responses[0]
