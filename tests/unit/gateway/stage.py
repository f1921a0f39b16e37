"""The gateway in front of a real broker, called by gRPC's own client."""

import asyncio
import gc
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.quotas import QuotaChange, QuotaEntity
from distributedlog.client.admin.topics import NewTopic
from distributedlog.client.metadata import Cluster
from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.gateway.clients import GatewayClients
from distributedlog.gateway.failures import FAILURE_KEY
from distributedlog.gateway.server import GatewayServer
from distributedlog.gateway.service import BROKER_SERVICE, CLIENT_ID_KEY, BrokerService
from distributedlog.ports.clock import SystemClock
from tests.unit.client.stage import QUICK

HOST = "127.0.0.1"
TIMEOUT_S = 30


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Nothing may be left over: no exception that nobody saw."""
    unseen: list[dict[str, Any]] = []

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
        async with asyncio.timeout(TIMEOUT_S):
            await story()
        gc.collect()

    asyncio.run(bounded())
    gc.collect()
    assert not unseen


class GatewayStage:
    """`async with`: it serves, and has a channel to itself.  `topic` is a name that no other test has."""

    def __init__(self, bootstrap: str, *, clients_max: int = 8, **limits: Any) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._clients_max = clients_max
        self._limits = limits
        self.topic = f"t-{uuid.uuid4().hex}"

    async def __aenter__(self) -> "GatewayStage":
        self.clock = SystemClock()
        self.clients = GatewayClients(self._bootstrap, QUICK, clients_max=self._clients_max)
        self.service = BrokerService(self.clients, self.clock, **self._limits)
        self.server = GatewayServer(self.service)
        self.address = f"{HOST}:{await self.server.start(HOST, 0)}"
        self.channel = grpc.aio.insecure_channel(self.address, [("grpc.max_receive_message_length", -1)])
        self.cluster = Cluster(self._bootstrap, QUICK)
        self.admin = Admin(self.cluster)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()
        await self.server.stop(0)
        await self.clients.close()
        await self.cluster.close()

    async def create(self, partitions: int = 1, **configs: str) -> None:
        """The topic of this test."""
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        await self.admin.create_topic(NewTopic(self.topic, partitions=partitions, configs=settings))
        await self.cluster.topic(self.topic)

    async def throttle(self, client_id: str) -> None:
        """This client has written far more than its quota: the broker does not read from it for a while."""
        entity = QuotaEntity(client_id=client_id)
        await self.admin.alter_quotas([QuotaChange(entity, {"producer_byte_rate": 1000.0})])
        await self.produce(self.record(bytes(200_000)), client_id=client_id)

    def record(self, value: bytes | None = b"v", **fields: Any) -> pb.ProduceRecord:
        return pb.ProduceRecord(topic=fields.pop("topic", self.topic), value=value, **fields)

    def position(self, partition: int = 0, **start: Any) -> pb.FetchPosition:
        return pb.FetchPosition(topic=start.pop("topic", self.topic), partition=partition, **start)

    # --- calls ---------------------------------------------------------------------------------

    async def produce(
        self, *records: pb.ProduceRecord, client_id: str = "caller", **fields: Any
    ) -> list[pb.ProduceResult]:
        request = pb.ProduceRequest(records=records, **fields)
        return list((await self.call_produce(request, metadata=((CLIENT_ID_KEY, client_id),))).results)

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


def failure_in(error: grpc.RpcError) -> pb.Failure:
    trailing = dict(cast(Any, error).trailing_metadata())
    return pb.Failure.FromString(trailing[FAILURE_KEY])
