"""BrokerService: the log over gRPC, for programs that want no Kafka client.

Limits, beside those of gRPC itself (`options`):

    Produce    PRODUCE_BYTES_MAX of all calls in flight; beyond that RESOURCE_EXHAUSTED
    Fetch      STREAMS_MAX streams, DECOMPRESSED_BYTES_MAX of all opened batches (`streams`)
    both       client ids that are connected at a time (`clients`)

Quotas are the brokers': the caller's `client-id` is that of the Kafka requests made for it.

A caller that goes away, or whose deadline is over, takes its call along; what was appended by then stays.
When the gateway stops, streams end with UNAVAILABLE.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage
from grpc.aio import ServicerContext

from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.gateway.batches import Partitioner
from distributedlog.gateway.budget import ByteBudget
from distributedlog.gateway.clients import CLIENT_ID_DEFAULT, GatewayClients
from distributedlog.gateway.failures import abort, defect, failure, failure_of, status_of
from distributedlog.gateway.fetching import PartitionFetcher
from distributedlog.gateway.metadata import check_names, describe_cluster
from distributedlog.gateway.metrics import GatewayMetrics, Uncounted
from distributedlog.gateway.producing import produce
from distributedlog.gateway.reading import SECTION_BYTES_MAX
from distributedlog.gateway.streams import STALL_S, WRITE_TIMEOUT_S, FetchStream, isolation_of, specs_of
from distributedlog.model.config import MIB, MINUTE_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidRequestError, OverloadedError
from distributedlog.ports.clock import Clock

BROKER_SERVICE: Final = "dlog.v1.BrokerService"
CLIENT_ID_KEY: Final = "client-id"
PRODUCE_BYTES_MAX: Final = 64 * MIB
STREAMS_MAX: Final = 256
DECOMPRESSED_BYTES_MAX: Final = 2 * SECTION_BYTES_MAX
THREADS: Final = 2
PRODUCE_TIMEOUT_MS: Final = 30_000
PRODUCE_TIMEOUT_MS_MAX: Final = 10 * MINUTE_MS
HEALTH_TIMEOUT_S: Final = 2.0

Q = TypeVar("Q", bound=ProtoMessage)
Context = ServicerContext[Any, Any]


class BrokerService:
    """The service's methods, on the gateway's loop."""

    def __init__(
        self,
        clients: GatewayClients,
        clock: Clock,
        *,
        first_partition: int = 0,
        streams_max: int = STREAMS_MAX,
        produce_bytes_max: int = PRODUCE_BYTES_MAX,
        stall_s: float = STALL_S,
        write_timeout_s: float = WRITE_TIMEOUT_S,
        metrics: GatewayMetrics | None = None,
    ) -> None:
        """`first_partition` is where records without a key begin: gateways that differ share the load."""
        self._clients = clients
        self._clock = clock
        self._metrics: GatewayMetrics = metrics or Uncounted()
        self._threads = ThreadPoolExecutor(THREADS, "dlog-gateway")
        self._partitioner = Partitioner(first_partition, self._threads)
        self.budget = ByteBudget(DECOMPRESSED_BYTES_MAX)
        self._streams_max = streams_max
        self._produce_bytes_max = produce_bytes_max
        self._stall_s = stall_s
        self._write_timeout_s = write_timeout_s
        self._produce_bytes = 0
        self._streams: set[asyncio.Task[pb.Failure | None]] = set()
        self._is_closed = False

    def handler(self) -> grpc.GenericRpcHandler:
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Produce": grpc.unary_unary_rpc_method_handler(self.produce),
            "Fetch": grpc.unary_stream_rpc_method_handler(self.fetch),
            "GetMetadata": grpc.unary_unary_rpc_method_handler(self.get_metadata),
            "HealthCheck": grpc.unary_unary_rpc_method_handler(self.health_check),
        }
        return grpc.method_handlers_generic_handler(BROKER_SERVICE, methods)

    @property
    def stream_count(self) -> int:
        return len(self._streams)

    def close(self) -> None:
        """Ends the streams: they would keep a server from stopping.  Other calls may end by themselves."""
        self._is_closed = True
        for stream in list(self._streams):
            _cancel(stream)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def wait_closed(self) -> None:
        """Returns when every stream has closed its connections."""
        await asyncio.gather(*self._streams, return_exceptions=True)

    # --- every call ----------------------------------------------------------------------------

    async def _call(
        self, api: str, context: Context, data: bytes, work: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """Runs a call; a failure becomes its status.  A call that its caller ends is CANCELLED."""
        began, status = monotonic(), grpc.StatusCode.CANCELLED
        try:
            response = await self._run(api, work)
            status = grpc.StatusCode.OK
            self._metrics.sent(api, len(response))
            return response
        except _FailedError as error:
            status = status_of(error.failure)
            return await abort(context, error.failure)
        finally:
            self._metrics.called(api, status.name, monotonic() - began, len(data))

    async def _run(self, api: str, work: Callable[[], Awaitable[bytes]]) -> bytes:
        try:
            if self._is_closed:
                raise _FailedError(_stopping())
            return await work()
        except _FailedError as error:
            failed = error.failure
        except DlogError as error:
            failed = failure_of(error)
        except Exception:
            failed = defect(api)
        raise _FailedError(failed)

    # --- produce -------------------------------------------------------------------------------

    async def produce(self, data: bytes, context: Context) -> bytes:
        return await self._call("Produce", context, data, lambda: self._produce(data, context))

    async def _produce(self, data: bytes, context: Context) -> bytes:
        if self._produce_bytes + len(data) > self._produce_bytes_max:
            raise OverloadedError(f"{self._produce_bytes} bytes are being produced already: try again later")
        self._produce_bytes += len(data)
        try:
            request = _parse(pb.ProduceRequest, data)
            timeout_ms = _timeout_ms(request, context)
            async with self._clients.client(_client_id(context)) as client:
                response = await produce(client, request, timeout_ms, self._partitioner, self._clock)
        finally:
            self._produce_bytes -= len(data)
        _check_not_all_failed(response)
        return response.SerializeToString()

    # --- fetch ---------------------------------------------------------------------------------

    async def fetch(self, data: bytes, context: Context) -> None:
        async def work() -> bytes:
            await self._stream(data, context)
            return b""

        await self._call("Fetch", context, data, work)

    async def _stream(self, data: bytes, context: Context) -> None:
        if len(self._streams) >= self._streams_max:
            raise OverloadedError(f"{self._streams_max} streams are read already: try again later")
        request = _parse(pb.FetchRequest, data)
        specs_of(request)  # what cannot be meant costs no connection
        cluster = self._clients.stream_cluster(_client_id(context))

        async def write(response: bytes) -> None:
            await context.write(response)
            self._metrics.sent("Fetch", len(response))

        stream = FetchStream(
            request,
            PartitionFetcher(cluster, isolation_of(request)),
            write,
            self._clock,
            budget=self.budget,
            threads=self._threads,
            stall_s=self._stall_s,
            write_timeout_s=self._write_timeout_s,
        )
        running = asyncio.get_running_loop().create_task(stream.run())
        self._streams.add(running)
        self._metrics.set_streams(len(self._streams))
        running.add_done_callback(self._stream_ended)
        try:
            await asyncio.wait({running})
        finally:
            _cancel(running)
        if running.cancelled():
            raise _FailedError(_stopping())
        failed = running.result()
        if failed is not None:
            raise _FailedError(failed)

    def _stream_ended(self, stream: "asyncio.Task[pb.Failure | None]") -> None:
        self._streams.discard(stream)
        self._metrics.set_streams(len(self._streams))
        if not stream.cancelled():
            stream.exception()  # nobody may be left to look at it

    # --- metadata and health -------------------------------------------------------------------

    async def get_metadata(self, data: bytes, context: Context) -> bytes:
        async def work() -> bytes:
            request = _parse(pb.GetMetadataRequest, data)
            check_names(request.topics)
            async with self._clients.client(_client_id(context)) as client:
                cluster = client.cluster
                names = set(request.topics) or None
                view = await cluster.retrying(lambda: cluster.refresh(names))
            return (await describe_cluster(view, request.topics)).SerializeToString()

        return await self._call("GetMetadata", context, data, work)

    async def health_check(self, data: bytes, context: Context) -> bytes:
        """Always answered, also while no broker is reached: that is what it is for."""
        reason = await self.why_not_serving()
        if reason is None:
            return pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVING).SerializeToString()
        return pb.HealthCheckResponse(
            status=pb.HealthCheckResponse.NOT_SERVING, reason=reason
        ).SerializeToString()

    async def why_not_serving(self) -> str | None:
        """Returns why the gateway does not serve; None if the cluster answers and has a broker that is not
        fenced."""
        if self._is_closed:
            return "the gateway stops"
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S), self._clients.client(CLIENT_ID_DEFAULT) as client:
                view = await client.cluster.refresh(set())
        except TimeoutError:
            return f"the cluster has not answered for {HEALTH_TIMEOUT_S:g} s"
        except DlogError as error:
            return str(error)
        return None if view.brokers else "the cluster has no broker that serves"


class _FailedError(Exception):
    """A call that is to end with this failure."""

    def __init__(self, failed: pb.Failure) -> None:
        super().__init__(failed.message)
        self.failure = failed


def _cancel(stream: "asyncio.Task[pb.Failure | None]") -> None:
    """Ends a stream; once, since a second time would interrupt the closing of its connections."""
    if not stream.cancelling():
        stream.cancel()


def _stopping() -> pb.Failure:
    return failure(ErrorCode.BROKER_NOT_AVAILABLE, "the gateway stops")


def _parse(kind: type[Q], data: bytes) -> Q:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidRequestError(f"the message is no {kind.DESCRIPTOR.full_name}: {error}") from error


def _client_id(context: Context) -> str:
    given = dict(context.invocation_metadata() or ()).get(CLIENT_ID_KEY)
    return given if isinstance(given, str) and given else CLIENT_ID_DEFAULT


def _timeout_ms(request: pb.ProduceRequest, context: Context) -> int:
    """Returns what the call allows; a deadline of the call itself is kept by gRPC."""
    asked_ms = request.timeout_ms or PRODUCE_TIMEOUT_MS
    remaining_s = context.time_remaining()
    if remaining_s is not None:
        asked_ms = min(asked_ms, max(1, int(remaining_s * 1000)))
    return min(asked_ms, PRODUCE_TIMEOUT_MS_MAX)


def _check_not_all_failed(response: pb.ProduceResponse) -> None:
    """A call of which everything failed for one reason has failed: who looks at no result must see it."""
    first = response.results[0].failure
    if all(
        result.HasField("failure")
        and result.failure.code == first.code
        and result.failure.outcome_unknown == first.outcome_unknown
        for result in response.results
    ):
        raise _FailedError(first)
