"""A broker's transaction coordinators on real partitions of a simulated disk, and leaders that write markers
as a test says.  Syncs, loading and time go on when the test says."""

import asyncio
from collections.abc import Callable

from distributedlog.broker.coordination.lease import CoordinatorLease
from distributedlog.broker.coordination.marker_sender import MarkerSender
from distributedlog.broker.coordination.transaction_coordinators import TransactionCoordinators
from distributedlog.client.connection import Connection
from distributedlog.controller.records import RegisterBroker
from distributedlog.model.config import LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerUnreachableError, DlogError
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.model.internal_topics import TRANSACTIONS_TOPIC
from distributedlog.ports.executor import Outcome
from distributedlog.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from distributedlog.statemachine import Producer
from distributedlog.transactions.config import TransactionConfig
from distributedlog.transactions.requests import ProducerReply, Reply, Request
from distributedlog.transactions.transaction import Transaction, TransactionState
from tests.unit.broker.group_stage import FOR_EVER
from tests.unit.broker.partition_stage import ME, Stage

ID = "transfers"
TOPIC_NUMBER, TRANSACTIONS_NUMBER = 1, 51
DEADLINE_MS = 30_000
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 500

Decide = Callable[[TopicPartition], ErrorCode]


class Leaders:
    """The partitions' side: notes the markers, and answers as `decide` says."""

    def __init__(self) -> None:
        self.requests: list[WriteTxnMarkersRequest] = []
        self.decide: Decide = lambda partition: ErrorCode.NONE
        self.is_reachable = True

    async def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        await asyncio.sleep(0)
        if not self.is_reachable:
            raise BrokerUnreachableError("gone")
        self.requests.append(request)
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=each,
                                    error_code=self.decide(TopicPartition(topic.name, each)),
                                )
                                for each in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    @property
    def written(self) -> list[tuple[int, int, bool, str, int]]:
        """Producer, epoch, commit, topic and partition of each marker that was asked for."""
        return [
            (marker.producer_id, marker.producer_epoch, marker.transaction_result, topic.name, each)
            for request in self.requests
            for marker in request.markers
            for topic in marker.topics
            for each in topic.partition_indexes
        ]


class TransactionStage:
    """Broker 1, which leads `__transaction_state` and a topic `t` of three partitions."""

    def __init__(self) -> None:
        self.stage = Stage(log=LogConfig(file_delete_delay_ms=0, cleanup_policy=("compact",)))
        self.metadata = self.stage.metadata
        self.register(ME)
        self.metadata.create("t", TOPIC_NUMBER, 3)
        self.metadata.create(TRANSACTIONS_TOPIC, TRANSACTIONS_NUMBER, 2)
        self.leaders = Leaders()
        self.next_producer_id = FIRST_PRODUCER_ID
        self.completed: list[TransactionState] = []
        """The state of a transaction each time when its producer's next one was let begin."""
        self.attach()

    def register(self, broker_id: int, *, fenced: bool = False) -> None:
        self.metadata.apply(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=Uuid(bytes(15) + bytes([broker_id])),
                broker_epoch=1,
                end_points=[],
                features=[],
                rack=None,
                fenced=fenced,
            )
        )

    def attach(self) -> None:
        self.lease = CoordinatorLease(
            lambda: self.metadata.image,
            clock=self.stage.clock,
            scheduler=self.stage.scheduler,
            tell_applied=lambda offset, is_urgent: None,
            await_settled=lambda offset: None,
        )
        self.lease.take(FOR_EVER)
        self.sender = MarkerSender(
            lambda: self.metadata.image,
            broker_id=ME,
            connect=self._connect,
            write_here=self.leaders.write,
            clock=self.stage.clock,
            scheduler=self.stage.scheduler,
            timeout_ms=1_000,
        )
        self.coordinators = TransactionCoordinators(
            TransactionConfig(),
            self.stage.partitions.signals,
            lambda: self.metadata.image,
            broker_id=ME,
            clock=self.stage.clock,
            scheduler=self.stage.scheduler,
            executor=self.stage.executor,
            lease=self.lease,
            sender=self.sender,
            new_producer_id=self._new_producer_id,
            completed=self._note_completed,
        )
        self.stage.apply()

    async def _connect(self, broker_id: int) -> Connection:
        raise BrokerUnreachableError(f"broker {broker_id} is not there")

    def _note_completed(self, transactional_id: str) -> None:
        for each in self.coordinators.all_active():
            found = each.machine.transactions.get(transactional_id)
            if found is not None:  # else it is a sink's
                self.completed.append(found.state)

    async def _new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def restart(self) -> None:
        """Killed, and started again on what was synced."""
        self.coordinators.close()
        self.stage.restart()
        self.attach()

    async def settle(self) -> None:
        for _ in range(8):
            self.stage.settle()
            for _ in range(4):
                await asyncio.sleep(0)

    async def ask(self, request: Request, transactional_id: str = ID) -> Reply | DlogError:
        outcomes: list[Outcome[Reply]] = []
        deadline_ms = self.stage.clock.monotonic_ms() + DEADLINE_MS
        self.coordinators.submit(transactional_id, request, deadline_ms, outcomes.append)
        await self.settle()
        (outcome,) = outcomes
        if outcome.error is None:
            return outcome.value()
        assert isinstance(outcome.error, DlogError)
        return outcome.error

    async def producer_of(self, request: Request) -> Producer:
        reply = await self.ask(request)
        assert isinstance(reply, ProducerReply), reply
        return reply.producer

    async def advance(self, duration_ms: int) -> None:
        """Time goes on, and what it brings about: in small steps where it is short."""
        step_ms = 100 if duration_ms <= 10_000 else 1_000
        for _ in range(-(-duration_ms // step_ms)):
            self.stage.scheduler.advance(step_ms)
            await self.settle()

    def found(self, transactional_id: str = ID) -> Transaction:
        for each in self.coordinators.all_active():
            if transactional_id in each.machine.transactions:
                return each.machine.transactions[transactional_id]
        raise AssertionError(f"nobody knows {transactional_id}")
