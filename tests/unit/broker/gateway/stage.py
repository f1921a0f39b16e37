"""The gateway in front of real partitions on a real disk, called by gRPC's own client.

One loop is both loops; what crosses between them is posted all the same."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import grpc

from distributedlog.broker.addresses import Endpoint as Address
from distributedlog.broker.delayed import Delayed
from distributedlog.broker.fetch_sessions import FetchSessionCache
from distributedlog.broker.gateway.bridge import GatewayBridge
from distributedlog.broker.gateway.charging import CLIENT_ID_KEY
from distributedlog.broker.gateway.failures import FAILURE_KEY
from distributedlog.broker.gateway.late import GATEWAY_LISTENER
from distributedlog.broker.gateway.service import BrokerService
from distributedlog.broker.loops import LoopScheduler
from distributedlog.broker.metrics import BrokerMetrics
from distributedlog.broker.partitions import PartitionSet, PostingExecutor
from distributedlog.broker.quotas import ClientQuotas
from distributedlog.broker.services import Services
from distributedlog.broker.settings import NodeSettings
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.control.gateway import BROKER_SERVICE, GatewayServer
from distributedlog.controller.image import ResourceType
from distributedlog.controller.records import BrokerEndpoint, RegisterBroker
from distributedlog.model.config import LogConfig
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.executor import SystemExecutor
from distributedlog.ports.randomness import SeededRandomness
from distributedlog.replication.partition import Partition
from distributedlog.storage.checkpoints import META_PROPERTIES_FILE, MetaProperties, encode_meta_properties
from distributedlog.storage.files import Files
from tests.unit.broker.partition_stage import CLUSTER, ME, Metadata, topic_id

HOST = "127.0.0.1"
PATIENCE_S = 30


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Nothing may be left over: no exception that nobody saw."""
    unseen: list[dict[str, Any]] = []

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
        async with asyncio.timeout(PATIENCE_S):
            await story()
        gc.collect()

    asyncio.run(bounded())
    gc.collect()
    assert not unseen


class GatewayStage:
    """`async with`: it serves, and has a channel to itself."""

    def __init__(self, root: Path, *, is_open: bool = True, parked_max: int = 100, **limits: Any) -> None:
        self.root = str(root / "data")
        self.metadata = Metadata()
        self.clock = SystemClock()
        self.metrics = BrokerMetrics()
        self.quotas = ClientQuotas()
        self.not_ready: str | None = None
        self._limits = limits
        self._parked_max = parked_max
        self._is_open = is_open
        self._numbers: dict[str, int] = {}

    async def __aenter__(self) -> "GatewayStage":
        loop = asyncio.get_running_loop()
        disk = SystemDisk()
        files = Files(disk)
        files.make_directory(self.root)
        meta = encode_meta_properties(MetaProperties(CLUSTER, ME, topic_id(99)))
        files.write_atomically(f"{self.root}/{META_PROPERTIES_FILE}", meta)
        settings = NodeSettings(
            node_id=ME, data_dir=self.root, auto_create_topics=False, log=LogConfig(file_delete_delay_ms=0)
        )
        scheduler = LoopScheduler(loop, self.clock)
        self._executor = SystemExecutor(threads=2)
        executor = PostingExecutor(self._executor, scheduler)
        self.partitions = PartitionSet.open(
            disk,
            settings,
            clock=self.clock,
            randomness=SeededRandomness(1),
            scheduler=scheduler,
            executor=executor,
            on_failure=lambda failure: None,
        )
        self.delayed = Delayed(
            self.partitions.signals, clock=self.clock, scheduler=scheduler, parked_max=self._parked_max
        )
        absent = cast(Any, None)
        services = Services(
            settings=settings,
            clock=self.clock,
            metadata=self.metadata,
            controller=absent,
            partitions=self.partitions,
            delayed=self.delayed,
            fetch_sessions=FetchSessionCache(10, randomness=SeededRandomness(1)),
            producer_ids=absent,
            groups=absent,
            metrics=self.metrics,
        )
        self.bridge = GatewayBridge(
            services, loop, executor, self.metrics, lambda: self.not_ready, self.quotas
        )
        self.service = BrokerService(self.bridge, ME, **self._limits)
        self._server = GatewayServer()
        self._server.add(BROKER_SERVICE, self.service.handler())
        port = await self._server.start(HOST, 0)
        self.address = f"{HOST}:{port}"
        self.channel = grpc.aio.insecure_channel(self.address, [("grpc.max_receive_message_length", -1)])
        if self._is_open:
            self.service.open()
        await self._apply()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()
        self.service.close()
        await self._server.stop(0)
        await self.until(lambda: self._pin_count() == 0 and self.delayed.parked_count == 0)
        self.partitions.close()
        self._executor.close()

    def _pin_count(self) -> int:
        """Files that somebody holds open."""
        return sum(segment.log.pins for each in self.partitions for segment in each.log.segments)

    # --- the cluster ---------------------------------------------------------------------------

    async def _apply(self) -> None:
        applied = asyncio.Event()
        self.partitions.apply_image(self.metadata.image, applied.set)
        await applied.wait()

    async def create(self, name: str, partitions: int = 1, **roles: Any) -> None:
        number = self._numbers[name] = len(self._numbers) + 1
        self.metadata.create(name, number, partitions, **roles)
        await self._apply()

    async def change(self, name: str, **roles: Any) -> None:
        self.metadata.change(self._numbers[name], **roles)
        await self._apply()

    async def configure(self, name: str, setting: str, value: str) -> None:
        self.metadata.configure(ResourceType.TOPIC, name, setting, value)
        await self._apply()

    async def remove(self, name: str) -> None:
        self.metadata.remove(self._numbers[name])
        await self._apply()

    async def register(self, broker_id: int, gateway: Address | None = None) -> None:
        listening = {"PLAINTEXT": Address("kafka", 9000 + broker_id)}
        if gateway is not None:
            listening[GATEWAY_LISTENER] = gateway
        endpoints = [
            BrokerEndpoint(name=name, host=host, port=port, security_protocol=0)
            for name, (host, port) in listening.items()
        ]
        self.metadata.apply(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=topic_id(1000 + broker_id),
                broker_epoch=1,
                end_points=endpoints,
                features=[],
                rack="r1",
                fenced=False,
            )
        )
        await self._apply()

    def partition(self, name: str, partition_id: int = 0) -> Partition:
        return self.partitions.require(name, partition_id)

    async def append(self, name: str, *batches: bytearray, partition_id: int = 0, origin: Any = None) -> None:
        """As another client did; until they are committed."""
        partition = self.partition(name, partition_id)
        for batch in batches:
            arguments = (batch, 1, self.clock.wall_ms()) + (() if origin is None else (origin,))
            partition.append(*arguments)
        await self.delayed.produced([(partition, partition.log_end_offset)], PATIENCE_S * 1000)

    # --- calls ---------------------------------------------------------------------------------

    async def produce(self, *records: pb.ProduceRecord, **fields: Any) -> list[pb.ProduceResult]:
        return list((await self.call_produce(pb.ProduceRequest(records=records, **fields))).results)

    def call_produce(self, request: pb.ProduceRequest, **call: Any) -> Any:
        stub: Any = self.channel.unary_unary(
            f"/{BROKER_SERVICE}/Produce",
            request_serializer=pb.ProduceRequest.SerializeToString,
            response_deserializer=pb.ProduceResponse.FromString,
        )
        return stub(request, **call)

    def stream(self, *positions: pb.FetchPosition, client_id: str | None = None, **fields: Any) -> Any:
        """The call of a Fetch, to be iterated or read."""
        stub: Any = self.channel.unary_stream(
            f"/{BROKER_SERVICE}/Fetch",
            request_serializer=pb.FetchRequest.SerializeToString,
            response_deserializer=pb.FetchResponse.FromString,
        )
        named = None if client_id is None else ((CLIENT_ID_KEY, client_id),)
        return stub(pb.FetchRequest(positions=positions, **fields), metadata=named)

    async def read(self, stream: Any) -> list[pb.FetchResponse]:
        """What is left of a stream."""
        responses = []
        while (response := await stream.read()) is not grpc.aio.EOF:
            responses.append(response)
        return responses

    async def fetch(self, *positions: pb.FetchPosition, **fields: Any) -> list[pb.FetchResponse]:
        return await self.read(self.stream(*positions, **fields))

    async def values(self, *positions: pb.FetchPosition, **fields: Any) -> list[bytes]:
        return [record.value for each in await self.fetch(*positions, **fields) for record in each.records]

    async def get_metadata(self, *topics: str) -> pb.GetMetadataResponse:
        stub: Any = self.channel.unary_unary(
            f"/{BROKER_SERVICE}/GetMetadata",
            request_serializer=pb.GetMetadataRequest.SerializeToString,
            response_deserializer=pb.GetMetadataResponse.FromString,
        )
        return cast(pb.GetMetadataResponse, await stub(pb.GetMetadataRequest(topics=topics)))

    async def health(self) -> pb.HealthCheckResponse:
        stub: Any = self.channel.unary_unary(
            f"/{BROKER_SERVICE}/HealthCheck",
            request_serializer=pb.HealthCheckRequest.SerializeToString,
            response_deserializer=pb.HealthCheckResponse.FromString,
        )
        return cast(pb.HealthCheckResponse, await stub(pb.HealthCheckRequest()))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Lets the loop run until something is so; the story's own time limit bounds it."""
        while not is_so():
            await asyncio.sleep(0)


async def turns_during(work: Awaitable[object]) -> int:
    """How often something else on the loop had its turn before the work was done."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    busy = asyncio.ensure_future(other())
    await work
    busy.cancel()
    return turns


def record(topic: str = "t", value: bytes | None = b"v", **fields: Any) -> pb.ProduceRecord:
    return pb.ProduceRecord(topic=topic, value=value, **fields)


def position(topic: str = "t", partition: int = 0, **start: Any) -> pb.FetchPosition:
    return pb.FetchPosition(topic=topic, partition=partition, **start)


def failure_in(error: grpc.RpcError) -> pb.Failure:
    trailing = dict(cast(Any, error).trailing_metadata())
    return pb.Failure.FromString(trailing[FAILURE_KEY])
