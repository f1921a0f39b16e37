"""BrokerService: the log over gRPC, for programs that want no Kafka client.  Lives on the control loop.

    call          work on this loop                     work on the data loop (`bridge`)
    Produce       check, place, encode, in steps        topics are created, batches appended, waited for
    Fetch         open batches, decode, in steps        offsets looked up, bytes read, waited for
    GetMetadata   answered from an immutable image      -
    HealthCheck   -                                     whether it is ready, if it answers at all

Limits, beside those of gRPC itself (`control/options`: the size of a message, calls of one connection):

    Produce    PRODUCE_BYTES_MAX of all calls under way; beyond that RESOURCE_EXHAUSTED
    Fetch      STREAMS_MAX streams, DECOMPRESSED_BYTES_MAX of all opened batches (`streams`)
    both       the quotas of their client (`charging`)

A call before the node is ready is UNAVAILABLE.  A caller that goes away, or whose deadline is over, takes its
call along; what was appended by then stays.  When the node stops, streams end with UNAVAILABLE.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage
from grpc.aio import ServicerContext

from distributedlog.broker.gateway.batches import STEP_RECORDS, Placer, Round, TopicPlan, check, rounds_of
from distributedlog.broker.gateway.bridge import Appended, GatewayBridge
from distributedlog.broker.gateway.budget import ByteBudget
from distributedlog.broker.gateway.charging import CLIENT_ID, CLIENT_ID_KEY, HOLD_MS_MAX, Caller
from distributedlog.broker.gateway.failures import abort, defect, failure, failure_of
from distributedlog.broker.gateway.late import GATEWAY_LISTENER
from distributedlog.broker.gateway.metadata import check_names, metadata_of
from distributedlog.broker.gateway.reading import SECTION_BYTES_MAX
from distributedlog.broker.gateway.streams import STALL_S, WRITE_TIMEOUT_S, FetchStream
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.control.gateway import BROKER_SERVICE
from distributedlog.model.config import MIB, MINUTE_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidRequestError, OverloadedError, ThrottledError
from distributedlog.replication.contract import ACKS_ALL

PRODUCE_BYTES_MAX: Final = 64 * MIB
STREAMS_MAX: Final = 256
DECOMPRESSED_BYTES_MAX: Final = 2 * SECTION_BYTES_MAX
THREADS: Final = 2
PRODUCE_TIMEOUT_MS_MAX: Final = 10 * MINUTE_MS
HEALTH_TIMEOUT_S: Final = 2.0
ACKS_LEADER: Final = 1
NOWHERE: Final = -1
"""The partition and the offset of a record that has none."""
PEER_LENGTH_MAX: Final = 100

Q = TypeVar("Q", bound=ProtoMessage)
Context = ServicerContext[Any, Any]


class BrokerService:
    """Made anywhere; everything else is on the control loop."""

    def __init__(
        self,
        bridge: GatewayBridge,
        first_partition: int,
        *,
        streams_max: int = STREAMS_MAX,
        produce_bytes_max: int = PRODUCE_BYTES_MAX,
        stall_s: float = STALL_S,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        """`first_partition` is where records without a key begin: brokers that differ share the load."""
        self._bridge = bridge
        self._threads = ThreadPoolExecutor(THREADS, "dlog-gateway")
        self._placer = Placer(first_partition, self._threads)
        self.budget = ByteBudget(DECOMPRESSED_BYTES_MAX)
        self._streams_max = streams_max
        self._produce_bytes_max = produce_bytes_max
        self._stall_s = stall_s
        self._write_timeout_s = write_timeout_s
        self._produce_bytes = 0
        self._streams: set[asyncio.Task[pb.Failure | None]] = set()
        self._is_open = False
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

    def open(self) -> None:
        """The node is ready: calls are answered from now on."""
        self._is_open = True

    def close(self) -> None:
        """Ends the streams: they would keep a server from stopping.  Other calls may end by themselves."""
        self._is_closed = True
        for stream in list(self._streams):
            stream.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- every call ----------------------------------------------------------------------------

    async def _call(
        self, api: str, data: bytes, context: Context, work: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """Runs a call, tells its failure, and counts it."""
        started_ms = self._bridge.clock.monotonic_ms()
        # Of a caller that does not wait for the end.  Streams are ended so as a rule.
        code = 0 if api == "Fetch" else int(ErrorCode.REQUEST_TIMED_OUT)
        retry_ms = None
        try:
            try:
                if self._is_closed or not self._is_open:
                    raise _FailedError(self._unavailable())
                answer = await work()
                code = 0
                return answer
            except _FailedError as failed:
                told = failed.failure
            except ThrottledError as error:
                told, retry_ms = failure_of(error), error.retry_ms
            except DlogError as error:
                told = failure_of(error)
            except Exception:
                told = defect(api)
            code = told.code
            await abort(context, told, retry_ms)
        finally:
            seconds = (self._bridge.clock.monotonic_ms() - started_ms) / 1000
            self._bridge.count(f"Gateway{api}", len(data), seconds, code)

    def _unavailable(self) -> pb.Failure:
        state = "stops" if self._is_closed else "is not ready yet"
        return failure(ErrorCode.BROKER_NOT_AVAILABLE, f"the broker {state}")

    # --- produce -------------------------------------------------------------------------------

    async def produce(self, data: bytes, context: Context) -> bytes:
        return await self._call("Produce", data, context, lambda: self._produce(data, context))

    async def _produce(self, data: bytes, context: Context) -> bytes:
        if self._produce_bytes + len(data) > self._produce_bytes_max:
            raise OverloadedError(f"{self._produce_bytes} bytes are being produced already: try again later")
        self._produce_bytes += len(data)
        try:
            caller = _caller(context)
            await self._pay(caller, len(data), context.time_remaining())
            request = _parse(pb.ProduceRequest, data)
            response = await self._append(request, _timeout_ms(request, context, self._bridge), caller)
        finally:
            self._produce_bytes -= len(data)
        _check_not_all_failed(response)
        return response.SerializeToString()

    async def _pay(self, caller: Caller, size_bytes: int, remaining_s: float | None) -> None:
        """For a call that may write.  Holds it back for a moment; ThrottledError if that is not enough."""
        until_ms = self._bridge.clock.monotonic_ms() + HOLD_MS_MAX
        if remaining_s is not None:
            until_ms = min(until_ms, self._bridge.clock.monotonic_ms() + int(remaining_s * 1000))
        while wait_ms := await self._bridge.pay_to_produce(caller, size_bytes):
            if self._bridge.clock.monotonic_ms() + wait_ms > until_ms:
                raise ThrottledError(
                    f"client {caller.client_id!r} has used up its quota: try again in {wait_ms} ms", wait_ms
                )
            await asyncio.sleep(wait_ms / 1000)

    async def _append(
        self, request: pb.ProduceRequest, timeout_ms: int, caller: Caller
    ) -> pb.ProduceResponse:
        topics = await check(request)
        plans = await self._bridge.plan(topics, caller)
        now_ms = self._bridge.clock.wall_ms()
        usable = {name: plan for name, plan in plans.items() if isinstance(plan, TopicPlan)}
        rounds, placed = await rounds_of(request, usable, self._placer, now_ms)
        results = await _blank_results(request, plans, placed, now_ms)
        acks = ACKS_ALL if request.acks == pb.ACKS_ALL else ACKS_LEADER
        if rounds:
            appended = await self._bridge.produce(rounds, acks, timeout_ms, caller)
            for batches, answers in zip(rounds, appended, strict=True):
                await _take_results(results, batches, answers)
        return pb.ProduceResponse(results=results)

    # --- fetch ---------------------------------------------------------------------------------

    async def fetch(self, data: bytes, context: Context) -> None:
        async def work() -> bytes:
            await self._stream(data, context)
            return b""

        await self._call("Fetch", data, context, work)

    async def _stream(self, data: bytes, context: Context) -> None:
        if len(self._streams) >= self._streams_max:
            raise OverloadedError(f"{self._streams_max} streams are read already: try again later")
        stream = FetchStream(
            _parse(pb.FetchRequest, data),
            self._bridge,
            context.write,
            _caller(context),
            budget=self.budget,
            threads=self._threads,
            stall_s=self._stall_s,
            write_timeout_s=self._write_timeout_s,
        )
        running = asyncio.get_running_loop().create_task(stream.run())
        self._streams.add(running)
        running.add_done_callback(self._ended)
        try:
            await asyncio.wait({running})
        finally:
            running.cancel()
        if running.cancelled():
            raise _FailedError(self._unavailable())
        failed = running.result()
        if failed is not None:
            raise _FailedError(failed)

    def _ended(self, stream: "asyncio.Task[pb.Failure | None]") -> None:
        self._streams.discard(stream)
        if not stream.cancelled():
            stream.exception()  # nobody may be left to look at it

    # --- metadata and health -------------------------------------------------------------------

    async def get_metadata(self, data: bytes, context: Context) -> bytes:
        async def work() -> bytes:
            request = _parse(pb.GetMetadataRequest, data)
            check_names(request.topics)
            response = await metadata_of(
                await self._bridge.image(),
                request.topics,
                client_listener=self._bridge.settings.listeners[0].name,
                gateway_listener=GATEWAY_LISTENER,
            )
            return response.SerializeToString()

        return await self._call("GetMetadata", data, context, work)

    async def health_check(self, data: bytes, context: Context) -> bytes:
        """Always answered, also before the node is ready: that is what it is for."""
        try:
            reason = await asyncio.wait_for(self._bridge.why_not_ready(), HEALTH_TIMEOUT_S)
        except TimeoutError:
            reason = f"the data loop has not answered for {HEALTH_TIMEOUT_S:g} s"
        if reason is None and (self._is_closed or not self._is_open):
            reason = "stopping" if self._is_closed else "starting"
        if reason is None:
            return pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVING).SerializeToString()
        return pb.HealthCheckResponse(
            status=pb.HealthCheckResponse.NOT_SERVING, reason=reason
        ).SerializeToString()


class _FailedError(Exception):
    """A call that is to end with this failure."""

    def __init__(self, failed: pb.Failure) -> None:
        super().__init__(failed.message)
        self.failure = failed


def _parse(kind: type[Q], data: bytes) -> Q:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidRequestError(f"the message is no {kind.DESCRIPTOR.full_name}: {error}") from error


def _caller(context: Context) -> Caller:
    told = dict(context.invocation_metadata() or ()).get(CLIENT_ID_KEY)
    return Caller(_peer(context), told if isinstance(told, str) and told else CLIENT_ID)


def _peer(context: Context) -> str:
    """The caller's address without its port, as in `ipv4:127.0.0.1:52000`."""
    return context.peer().partition(":")[2].rpartition(":")[0][:PEER_LENGTH_MAX]


def _timeout_ms(request: pb.ProduceRequest, context: Context, bridge: GatewayBridge) -> int:
    """What the call allows, or the settings; a deadline of the call itself is kept by gRPC."""
    asked_ms = request.timeout_ms or bridge.settings.request_timeout_ms
    remaining_s = context.time_remaining()
    if remaining_s is not None:
        asked_ms = min(asked_ms, max(1, int(remaining_s * 1000)))
    return min(asked_ms, PRODUCE_TIMEOUT_MS_MAX)


async def _blank_results(
    request: pb.ProduceRequest,
    plans: Mapping[str, TopicPlan | pb.Failure],
    placed: Mapping[int, int],
    now_ms: int,
) -> list[pb.ProduceResult]:
    """What is known before anything is appended."""
    results = []
    for at, record in enumerate(request.records):
        plan = plans[record.topic]
        result = pb.ProduceResult(partition=placed.get(at, NOWHERE), offset=NOWHERE)
        if isinstance(plan, pb.Failure):
            result.failure.CopyFrom(plan)
        else:
            result.timestamp_ms = record.timestamp_ms if record.HasField("timestamp_ms") else now_ms
        results.append(result)
        if at % STEP_RECORDS == STEP_RECORDS - 1:
            await asyncio.sleep(0)
    return results


async def _take_results(results: list[pb.ProduceResult], batches: Round, answers: list[Appended]) -> None:
    for batch, answer in zip(batches, answers, strict=True):
        for delta, at in enumerate(batch.indexes):
            result = results[at]
            if answer.base_offset >= 0:
                result.offset = answer.base_offset + delta
            if answer.append_time_ms >= 0:
                result.timestamp_ms = answer.append_time_ms
            if answer.failure is not None:
                result.failure.CopyFrom(answer.failure)
        await asyncio.sleep(0)


def _check_not_all_failed(response: pb.ProduceResponse) -> None:
    """A call of which everything failed for one reason has failed: who looks at no result must see it."""
    first = response.results[0].failure
    if all(
        result.HasField("failure")
        and result.failure.code == first.code
        and result.failure.leader == first.leader
        and result.failure.outcome_unknown == first.outcome_unknown
        for result in response.results
    ):
        raise _FailedError(first)
