"""A broker's data handlers on real partitions, with syncs and time that go on when the test says.

Requests and answers go through the codec of the version they are asked in, so every test is of the bytes too.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from distributedlog.broker.net.context import ANONYMOUS, ConnectionSession, RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.observability.metrics import BrokerMetrics
from distributedlog.broker.quotas.replication_quotas import ReplicationQuotas
from distributedlog.broker.replicas.delayed import Purgatory
from distributedlog.broker.replicas.fetch_sessions import FetchSessionCache
from distributedlog.broker.replicas.partitions import SYNC_PAUSE_MS
from distributedlog.broker.replicas.step_queue import StepQueue
from distributedlog.broker.services import Services
from distributedlog.controller.records import BrokerEndpoint, RegisterBroker
from distributedlog.model.config import LogConfig
from distributedlog.ports.disk import Disk, SystemDisk
from distributedlog.ports.executor import Executor
from distributedlog.protocol.codec import Part, decode_all, encode_bytes
from distributedlog.protocol.framing import decode_response, encode_response
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.protocol.schema import Message
from distributedlog.replication.partition import Partition
from distributedlog.storage.files import FileRegion
from tests.simulation.clock import SeededRandomness
from tests.simulation.executor import InlineExecutor
from tests.unit.broker.handlers.admin_stage import registration_of
from tests.unit.broker.handlers.transaction_stage import ScriptedVerifier
from tests.unit.broker.partition_stage import ME, OTHER, Stage, topic_id
from tests.unit.broker.server_stage import SECRET_HOLDER
from tests.unit.storage.support import batch_of, value_of

R = TypeVar("R", bound=Message)

LISTENER = "CLIENT"
CLIENT_ID = "client"
TOPIC, TOPIC_NUMBER = "t", 1
LARGE = LogConfig(file_delete_delay_ms=0)
"""Segments that hold all of a test."""


class NoGroups:
    """A broker that coordinates nothing."""

    def __init__(self) -> None:
        self.unreadable: dict[int, int] = {}

    def unreadable_counts(self) -> dict[int, int]:
        return self.unreadable


class DataBroker:
    """Broker 1, which leads the one partition of the topic `t`."""

    def __init__(
        self,
        root: Path,
        *,
        log: LogConfig = LARGE,
        disk: Disk | None = None,
        preparing: Executor | None = None,
    ) -> None:
        self.runner = asyncio.Runner()
        self.stage = Stage(disk=disk or SystemDisk(), root=str(root / "data"), log=log)
        self.metadata, self.clock = self.stage.metadata, self.stage.clock
        self.metrics = BrokerMetrics()
        self.session = ConnectionSession()
        """What was proved on the one connection over which everything is asked."""
        self.verifier = ScriptedVerifier()
        partitions = self.stage.partitions
        purgatory = Purgatory(partitions.signals, clock=self.clock, scheduler=self.stage.scheduler)
        self.services = Services(
            settings=self.stage.settings,
            clock=self.clock,
            metadata=self.metadata,
            controller=cast(Any, None),
            partitions=partitions,
            purgatory=purgatory,
            searches=StepQueue(InlineExecutor()),
            preparations=StepQueue(preparing or InlineExecutor(), running_max=2),
            fetch_sessions=FetchSessionCache(8, randomness=SeededRandomness(1), idle=purgatory.idle),
            replication_quotas=ReplicationQuotas(self.stage.settings),
            producer_ids=cast(Any, None),
            groups=cast(Any, NoGroups()),
            transactions=cast(Any, None),
            transaction_verifier=self.verifier,
            metrics=self.metrics,
            secret_holder=SECRET_HOLDER,
        )
        self.metadata.create(TOPIC, TOPIC_NUMBER)
        self.follow()

    def follow(self) -> None:
        """Makes the partitions what the metadata say."""
        self.stage.apply()

    def register(self, broker_id: int, port: int, *, fenced: bool = False) -> None:
        self.metadata.apply(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=topic_id(broker_id),
                broker_epoch=broker_id,
                end_points=[BrokerEndpoint(name=LISTENER, host="host", port=port, security_protocol=0)],
                features=[],
                rack=f"rack-{broker_id}",
                fenced=fenced,
            )
        )

    def hand_over(self, leader: int = OTHER, epoch: int = 1) -> None:
        """Another broker, which has a replica too, leads the topic from now on."""
        self.register(OTHER, 9_002)
        self.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
        self.metadata.change(TOPIC_NUMBER, leader=leader)
        self.follow()

    def lead_anew(self) -> None:
        """This broker leads on in another leader epoch, as when replicas have been moved."""
        self.metadata.change(TOPIC_NUMBER, leader=ME)
        self.follow()

    @property
    def partition(self) -> Partition:
        return self.stage[TOPIC]

    def settle(self) -> None:
        """All is synced that was appended, also what nobody waits for."""
        self.stage.settle()
        self.stage.scheduler.advance(SYNC_PAUSE_MS)
        self.stage.settle()

    @property
    def delayed_count(self) -> int:
        return self.services.purgatory.delayed_count

    @property
    def regions_held(self) -> int:
        """Regions of log files that nobody has closed.  A file with unsynced bytes has one pin more."""
        return sum(
            segment.log.pins - segment.is_dirty
            for partition in self.stage.partitions
            for segment in partition.log.segments
        )

    # --- asking --------------------------------------------------------------------------------

    def begin(self, request: Message, version: int, *, client_id: str = CLIENT_ID) -> HandlerResponse:
        """Phase one, as the server does it with a frame of its own; refusals of the whole are raised."""
        return self.begin_frame(
            type(request), version, bytearray(encode_bytes(request, version)), client_id=client_id
        )

    def begin_frame(
        self, request: type[Message], version: int, frame: bytearray, *, client_id: str = CLIENT_ID
    ) -> HandlerResponse:
        deadline_ms = self.clock.monotonic_ms() + 30_000
        context = RequestContext(
            ANONYMOUS, LISTENER, client_id, "127.0.0.1", 7, version, 0, deadline_ms, self.session
        )

        async def handle() -> HandlerResponse:
            received = decode_all(request, version, frame)
            answer = registration_of(request).handle(self.services, received, context)
            if asyncio.iscoroutine(answer):
                return asyncio.ensure_future(answer)
            return answer

        return self.runner.run(handle())

    def finish(self, answer: HandlerResponse, version: int, response: type[R]) -> R:
        """What the client reads: of an answer that was delayed, once it has come."""
        if isinstance(answer, PendingResponse):
            assert answer.is_decided, "it is still delayed"
            assert answer.error is None
            answer = answer.response
        elif isinstance(answer, asyncio.Future):
            assert answer.done(), "it is still delayed"
            answer = answer.result()
        assert isinstance(answer, Message)
        sent = b"".join(as_bytes(part) for part in encode_response(answer, version, 5))
        correlation_id, message = decode_response(response, version, sent[4:])
        assert correlation_id == 5
        return message

    def ask(self, request: Message, version: int, response: type[R], **options: str) -> R:
        return self.finish(self.begin(request, version, **options), version, response)

    # --- records -------------------------------------------------------------------------------

    def produce(
        self,
        data: bytes | bytearray | None,
        *,
        acks: int = 1,
        version: int = 9,
        topic: str = TOPIC,
        client_id: str = CLIENT_ID,
    ) -> PartitionProduceResponse:
        request = produce_request(data, acks=acks, topic=topic)
        response = self.ask(request, version, ProduceResponse, client_id=client_id)
        ((answer,),) = (each.partition_responses for each in response.responses)
        return answer

    def fill(self, *numbers: int) -> None:
        """One committed batch for each."""
        for number in numbers:
            assert self.produce(batch_of([value_of(number)])).error_code == 0
        self.settle()

    def check_idle(self) -> None:
        """Nothing is delayed, and no region is open."""
        self.settle()
        assert self.delayed_count == 0
        assert self.regions_held == 0

    def close(self) -> None:
        self.stage.partitions.close()
        self.runner.close()


@contextmanager
def data_broker(
    root: Path, *, log: LogConfig = LARGE, disk: Disk | None = None, preparing: Executor | None = None
) -> Iterator[DataBroker]:
    """Yields a broker, which must be idle in the end."""
    broker = DataBroker(root, log=log, disk=disk, preparing=preparing)
    try:
        yield broker
        broker.check_idle()
    finally:
        broker.close()


def as_bytes(part: Part) -> bytes:
    if isinstance(part, FileRegion):
        with part as region:
            return region.read()
    return bytes(cast(bytes, part))


def produce_request(
    data: bytes | bytearray | None, *, acks: int = 1, topic: str = TOPIC, timeout_ms: int = 1_000
) -> ProduceRequest:
    """Makes a request to one partition, by the name of its topic and its id: the version decides which is
    sent."""
    partition = PartitionProduceData(index=0, records=data)
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=topic, topic_id=topic_id(TOPIC_NUMBER), partition_data=[partition])
        ],
    )
