"""One life of a transactional producer: from InitProducerId on until it is fenced, or gives up.

Copies of its requests may come late (`asking`).  In the classic flow those are of records alone, where
sequences refuse them: a late end, or late offsets, of the same epoch are taken there, as in Kafka.
"""

from typing import TYPE_CHECKING, Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from distributedlog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from distributedlog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from distributedlog.records.record import Record, encode_batch
from distributedlog.statemachine.pending import Producer
from tests.reliability.history import Outcome, Place
from tests.simulation.brokers.transactions.asking import AbortableError, Asking, FencedError
from tests.simulation.brokers.transactions.flows import Flow, Meaning
from tests.simulation.brokers.transactions.wire import GROUP, TRANSACTIONAL_ID, TransactionsWire

if TYPE_CHECKING:
    from tests.simulation.brokers.transactions.clients import TransactionClients

TIMEOUT_MS: Final = 2_000
"""How long a transaction may be open."""
END_PATIENCE_US: Final = 6_000_000
ADD_VERSION: Final = 3
ADD_OFFSETS_VERSION: Final = 4
STRANGE: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


class Session(Asking):
    def __init__(
        self, clients: "TransactionClients", wire: TransactionsWire, transactional_id: str, flow: Flow
    ) -> None:
        super().__init__(clients, wire)
        self.transactional_id = transactional_id
        self.flow = flow
        self.producer: Producer | None = None
        self._sequences: dict[Place, int] = {}
        self._added: set[object] = set()
        self._is_in_doubt = False
        """Whether records may be on their way, so that the sequences are not known."""

    # --- what a producer does ------------------------------------------------------------------

    async def begin(self) -> bool:
        """Takes the transactional id, or the next epoch of it; returns whether that succeeded."""
        expected = self.producer or Producer(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=expected.producer_id,
            producer_epoch=expected.producer_epoch,
        )
        given = None

        async def ask() -> int:
            nonlocal given
            given = await self.wire.ask_coordinator(
                TRANSACTIONAL_ID, self.transactional_id, request, InitProducerIdResponse
            )
            return given.error_code

        meaning, code, _ = await self._until_known(ask)
        self._start_over(None)
        if meaning is not Meaning.DONE or given is None:
            self._say("is given no id", (meaning.name, code))
            return False
        self._start_over(Producer(given.producer_id, given.producer_epoch))
        self._say("has", self.producer)
        return True

    def _start_over(self, producer: Producer | None) -> None:
        self.producer = producer
        self._sequences.clear()
        self._added.clear()
        self._is_in_doubt = False

    async def write(self, place: Place, values: list[str]) -> int:
        """Writes records as part of the transaction; returns the offset of the first."""
        assert self.producer is not None
        if not self.flow.adds_implicitly and place not in self._added:
            await self._add_partition(place)
        request = self._make_produce(place, values)
        self._send_again_later(
            lambda wire: wire.ask_leader(place, request, ProduceResponse, self.flow.produce_version)
        )
        offset, text = -1, None

        async def ask() -> int:
            nonlocal offset, text
            found = await self.wire.ask_leader(place, request, ProduceResponse, self.flow.produce_version)
            told = found.responses[0].partition_responses[0]
            offset, text = told.base_offset, told.error_message
            return told.error_code

        meaning, code, _ = await self._until_known(ask)
        self._say(f"writes {values[0]}+{len(values)} to {place}", (meaning.name, code, text))
        if meaning is Meaning.DONE:
            self._sequences[place] = self._sequences.get(place, 0) + len(values)
            self._added.add(place)
            return offset
        self._is_in_doubt = True
        if meaning is Meaning.FENCED:
            raise FencedError(str(code))
        if code in STRANGE:
            self._clients.cluster.history.strange_sequence(
                self.wire.name, place, str(ErrorCode(code or 0)), values
            )
        if code == ErrorCode.INVALID_TXN_STATE and self.flow.adds_implicitly:
            self._clients.cluster.history.unconfirmed_write(self.wire.name, place, values)
        raise AbortableError(str(code))

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
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1_500,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )

    async def _add_partition(self, place: Place) -> None:
        assert self.producer is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place.topic, partitions=[place.partition])],
        )

        async def ask() -> int:
            found = await self.wire.ask_coordinator(
                TRANSACTIONAL_ID, self.transactional_id, request, AddPartitionsToTxnResponse, ADD_VERSION
            )
            return found.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        await self._must(ask)

    async def commit_offset(self, group: str, place: Place, offset: int) -> None:
        """Commits the offset of a group as part of the transaction."""
        assert self.producer is not None
        if not self.flow.adds_implicitly and group not in self._added:
            await self._add_group(group)
        partition = TxnOffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=place.topic, partitions=[partition])],
        )
        version = self.flow.offsets_version
        if self.flow.adds_implicitly:
            self._send_again_later(
                lambda wire: wire.ask_coordinator(GROUP, group, request, TxnOffsetCommitResponse, version)
            )

        async def ask() -> int:
            found = await self.wire.ask_coordinator(GROUP, group, request, TxnOffsetCommitResponse, version)
            return found.topics[0].partitions[0].error_code

        await self._must(ask)
        self._say(f"commits {offset} of {place}")
        self._added.add(group)

    async def _add_group(self, group: str) -> None:
        assert self.producer is not None
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            group_id=group,
        )

        async def ask() -> int:
            found = await self.wire.ask_coordinator(
                TRANSACTIONAL_ID, self.transactional_id, request, AddOffsetsToTxnResponse, ADD_OFFSETS_VERSION
            )
            return found.error_code

        await self._must(ask)

    async def end(self, *, is_commit: bool) -> Outcome:
        """Ends the transaction.  The outcome is that of a commit: FAIL says that nothing of it will be seen.
        Afterwards there is a producer only where it is known how it goes on."""
        assert self.producer is not None
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            committed=is_commit,
        )
        version = self.flow.end_version
        is_copied = self.flow.adds_implicitly and self._send_again_later(
            lambda wire: wire.ask_coordinator(
                TRANSACTIONAL_ID, self.transactional_id, request, EndTxnResponse, version
            )
        )
        ended = None

        async def ask() -> int:
            nonlocal ended
            ended = await self.wire.ask_coordinator(
                TRANSACTIONAL_ID, self.transactional_id, request, EndTxnResponse, version
            )
            return ended.error_code

        meaning, code, is_in_doubt = await self._until_known(ask, END_PATIENCE_US)
        self._say("commits" if is_commit else "aborts", (meaning.name, code))
        if meaning is Meaning.DONE and ended is not None:
            self._go_on(ended)
            return Outcome.OK if is_commit else Outcome.FAIL
        self.producer = None
        is_unknown = is_commit and (is_in_doubt or is_copied or meaning is Meaning.AGAIN)
        return Outcome.UNKNOWN if is_unknown else Outcome.FAIL

    def _go_on(self, ended: EndTxnResponse) -> None:
        if self.flow.adds_implicitly:
            self._start_over(Producer(ended.producer_id, ended.producer_epoch))
        else:
            self._added.clear()

    @property
    def needs_epoch(self) -> bool:
        """Whether it has to ask for the next epoch, because it does not know its sequences."""
        return self.producer is None or self._is_in_doubt
