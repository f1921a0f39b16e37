"""One attempt of a task: it joins at its first row, writes, and tells who it was.  It never commits.

Copies of its join and of what it writes may come late.  It sends heartbeats beside what it does, until it has
ended; sometimes it takes longer than a batch may be silent.  It may die at any moment, and says nothing then.
"""

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.protocol.messages.sink_transaction import SinkOperation, SinkTransactionResponse
from distributedlog.records.record import Record, encode_batch
from distributedlog.statemachine.pending import Producer
from tests.reliability.history import Place
from tests.simulation.brokers.sinks.asking import TIMEOUT_MS, SinkAsking
from tests.simulation.brokers.sinks.rows import Batch, Piece, written_by
from tests.simulation.brokers.transactions.flows import V2, Meaning, meaning_of
from tests.simulation.brokers.transactions.session import STRANGE
from tests.simulation.brokers.transactions.wire import TransactionsWire

if TYPE_CHECKING:
    from tests.simulation.brokers.sinks.clients import SinkClients

HEARTBEAT_S: Final = TIMEOUT_MS / 1000 / 5
DEATH_SHARE: Final = 0.06
SLOW_SHARE: Final = 0.06


class End(Enum):
    WRITTEN = "all its rows are acknowledged"
    SKIPPED = "the batch is committed"
    FAILED = "it died, or could not write"
    FENCED = "its batch is over"


class SinkAttempt(SinkAsking):
    def __init__(
        self,
        clients: "SinkClients",
        wire: TransactionsWire,
        batch: Batch,
        token: int,
        name: str,
        pieces: list[Piece],
    ) -> None:
        super().__init__(clients, wire, batch.query_id)
        self.batch = batch
        self.token = token
        self.name = name
        """No other attempt has it, of whatever query, batch and task."""
        self.producer: Producer | None = None
        self.sent: list[tuple[Place, list[str], int, int | None]] = []
        """What was sent where and when, and its offset if it was acknowledged."""
        self._pieces = pieces
        self._sequences: dict[Place, int] = {}

    async def run(self) -> End:
        try:
            return await self._join() or await self._write_beating()
        finally:
            self.wire.close()

    async def _write_beating(self) -> End:
        beating = asyncio.get_running_loop().create_task(self._beat())
        try:
            return await self._write_all()
        finally:
            beating.cancel()

    # --- joining -------------------------------------------------------------------------------

    async def _join(self) -> End | None:
        """Returns how the attempt has ended before it could write."""
        request = self.make(SinkOperation.JOIN, self.token, self.batch.number)
        request.attempt_id = self.name
        self._send_again_later(lambda wire: self.ask_sink(request, wire))
        self._clients.ledger.joining(self)
        meaning, told, _ = await self.ask_until_known(request)
        if meaning is Meaning.FENCED:
            return End.FENCED
        if told is None:
            return End.FAILED
        return self._joined(told)

    def _joined(self, told: SinkTransactionResponse) -> End | None:
        if told.is_skipped:
            self._clients.ledger.skipped(self)
            return End.SKIPPED
        self.producer = Producer(told.producer_id, told.producer_epoch)
        self._clients.ledger.leased(self)
        return None

    async def _beat(self) -> None:
        request = self.make(SinkOperation.HEARTBEAT, self.token, self.batch.number)
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                told = await self.ask_sink(request)
            except DlogError:
                self.wire.forget_coordinators()
                continue
            if meaning_of(told.error_code) is Meaning.AGAIN:
                self.wire.forget_coordinators()
            elif told.error_code != ErrorCode.NONE:
                return

    # --- writing -------------------------------------------------------------------------------

    async def _write_all(self) -> End:
        chance = self.wire.chance
        for piece in self._pieces:
            if chance.random() < SLOW_SHARE and not self._clients.cluster.faults.is_healing:
                await asyncio.sleep(chance.uniform(0.3, 1.5) * TIMEOUT_MS / 1000)
            if chance.random() < DEATH_SHARE or self._clients.is_over:
                return End.FAILED
            ended = await self._write(piece)
            if ended is not None:
                return ended
        return End.WRITTEN

    async def _write(self, piece: Piece) -> End | None:
        place, values = piece.place, [written_by(row, self.name) for row in piece.rows]
        request = self._make_produce(place, values)
        began_us = self._clients.cluster.now_us
        self.sent.append((place, values, began_us, None))
        self._send_again_later(
            lambda wire: wire.ask_leader(place, request, ProduceResponse, V2.produce_version)
        )
        offset = -1

        async def ask() -> int:
            nonlocal offset
            found = await self.wire.ask_leader(place, request, ProduceResponse, V2.produce_version)
            told = found.responses[0].partition_responses[0]
            offset = told.base_offset
            return told.error_code

        meaning, code, _ = await self._until_known(ask)
        self._say(f"writes {values[0]}+{len(values)} to {place}", (meaning.name, code))
        if meaning is Meaning.DONE:
            self.sent[-1] = place, values, began_us, offset if offset >= 0 else None
            self._sequences[place] = self._sequences.get(place, 0) + len(values)
            return None
        if code in STRANGE:
            self._clients.cluster.history.strange_sequence(
                self.wire.name, place, str(ErrorCode(code or 0)), values
            )
        return End.FENCED if meaning is Meaning.FENCED else End.FAILED

    def _make_produce(self, place: Place, values: list[str]) -> ProduceRequest:
        assert self.producer is not None
        batch = encode_batch(
            [Record(value.encode(), timestamp_ms=1_700_000_000_000) for value in values],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=self._sequences.get(place, 0),
            is_transactional=True,
        )
        data = PartitionProduceData(index=place.partition, records=bytes(batch))
        return ProduceRequest(
            transactional_id=f"dlog.sink/{self.query_id}",
            acks=-1,
            timeout_ms=1_500,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )
