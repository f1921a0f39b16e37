"""The gateway's way to the data loop: what it asks there, and what comes back.

The gateway lives on the control loop, the log on the data loop.  Each method of `GatewayBridge` is called on
the control loop, runs its work as a task of the data loop, and is cancelled with its caller: a caller that is
gone leaves nothing parked.

The work is that of Kafka's own handlers: a produce, a fetch or a look-up of the gateway is a request to the
handler that serves Kafka's clients.  So limits, rules, errors and metrics are the same, and so is whatever is
decided by who asks.  Only the listener is the gateway's own: a broker registers where its gateway is, under
the name GATEWAY_LISTENER, which no listener of the settings can have; so an answer that names a leader names
its gateway.

What crosses are bytes and immutable values.  Regions of files are read on the data loop, large ones in a
thread of its executor, and closed there.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from distributedlog.broker.addresses import Endpoint as Address
from distributedlog.broker.context import ANONYMOUS, RequestContext
from distributedlog.broker.dispatch import Answer
from distributedlog.broker.gateway.batches import Round, TopicPlan
from distributedlog.broker.gateway.charging import CLIENT_ID, Caller, Charges, Stopwatch
from distributedlog.broker.gateway.failures import failure, failure_of
from distributedlog.broker.gateway.late import GATEWAY_LISTENER
from distributedlog.broker.gateway.reading import SECTION_BYTES_MAX, AbortedRange
from distributedlog.broker.handlers._leaders import Leaders
from distributedlog.broker.handlers._topics import error_of_absent
from distributedlog.broker.handlers.fetch import fetch
from distributedlog.broker.handlers.list_offsets import list_offsets
from distributedlog.broker.handlers.metadata import metadata
from distributedlog.broker.handlers.produce import produce
from distributedlog.broker.loops import post
from distributedlog.broker.outgoing import SENDFILE_MIN, close_regions
from distributedlog.broker.quotas import ClientQuotas
from distributedlog.broker.server_metrics import ServerMetrics
from distributedlog.broker.services import Services
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.controller.image import MetadataImage
from distributedlog.model.buffers import Buffer
from distributedlog.model.config import SECOND_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, RegionChangedError
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.ports.executor import Executor, Outcome
from distributedlog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.protocol.schema import Message
from distributedlog.replication.contract import OffsetSpec
from distributedlog.storage.files import FileRegion

T = TypeVar("T")
M = TypeVar("M", bound=Message)

PRODUCE_VERSION: Final = 12
"""The last that names topics by name; it names leaders, too."""
FETCH_VERSION: Final = 17
LIST_OFFSETS_VERSION: Final = 10
METADATA_VERSION: Final = 12
CONSUMER_ID: Final = -1
BRING_UP_MS_MAX: Final = 10 * SECOND_MS
"""How long a topic that was just created is waited for."""
_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_UNSETTLED: Final = "it was appended, and is not known to be acknowledged by all that must"


class Appended(NamedTuple):
    """What became of one batch."""

    base_offset: int
    append_time_ms: int
    """-1 where the topic keeps the producer's time."""
    failure: pb.Failure | None


class Wanted(NamedTuple):
    """Where a stream begins in a partition, as its caller says it."""

    topic: str
    partition: int
    offset: int
    """Or one of OffsetSpec, if it is negative."""
    timestamp_ms: int | None = None


class Located(NamedTuple):
    """The same as offsets."""

    topic: str
    topic_id: Uuid
    partition: int
    offset: int
    end_offset: int
    """Where the partition ended then, for this reader."""
    failure: pb.Failure | None = None


class Position(NamedTuple):
    topic: str
    topic_id: Uuid
    partition: int
    offset: int


class Chunk(NamedTuple):
    """What one fetch brought of a partition."""

    position: Position
    data: bytes
    high_watermark: int
    aborted: tuple[AbortedRange, ...]
    failure: pb.Failure | None


class GatewayBridge:
    """Made anywhere; its methods are called on the control loop."""

    def __init__(
        self,
        services: Services,
        data_loop: asyncio.AbstractEventLoop,
        executor: Executor,
        metrics: ServerMetrics,
        why_not_ready: Callable[[], str | None],
        quotas: ClientQuotas,
    ) -> None:
        """`executor` calls back on the data loop; `why_not_ready` is called there."""
        self.settings = services.settings
        self.clock = services.clock
        self._services = services
        self._data_loop = data_loop
        self._executor = executor
        self._metrics = metrics
        self._why_not_ready = why_not_ready
        self._charges = Charges(quotas, services.clock)

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the data loop.  Whoever cancels this cancels the work."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._data_loop))

    def count(self, api: str, request_bytes: int, seconds: float, code: int) -> None:
        """One call that has ended."""

        def counted() -> None:
            self._metrics.request_received(api, 1, request_bytes)
            self._metrics.request_answered(api, seconds, code)

        post(self._data_loop, counted)

    def count_sent(self, topic: str, records: int) -> None:
        """The bytes of them are counted where they are read."""
        post(self._data_loop, lambda: self._services.metrics.fetched(topic, records, 0))

    async def why_not_ready(self) -> str | None:
        async def look() -> str | None:
            return self._why_not_ready()

        return await self._run(look())

    async def image(self) -> MetadataImage:
        """The one by which the data loop answers now."""

        async def look() -> MetadataImage:
            return self._services.metadata.image

        return await self._run(look())

    async def pay_to_produce(self, caller: Caller, size_bytes: int) -> int:
        """Before so much is written; or else, unpaid, how long the caller is not to write."""

        async def work() -> int:
            wait_ms = self._charges.produce_wait_ms(caller.client_id)
            if not wait_ms:
                self._charges.charge(caller.client_id, produced_bytes=size_bytes)
            return wait_ms

        return await self._run(work()) if self._charges.is_on else 0

    async def pay(self, caller: Caller, fetched_bytes: int) -> int:
        """For what was sent since the last time; how long the caller is not to read."""

        async def work() -> int:
            self._charges.charge(caller.client_id, fetched_bytes=fetched_bytes)
            return self._charges.fetch_wait_ms(caller.client_id)

        return await self._run(work()) if self._charges.is_on else 0

    def pay_last(self, caller: Caller, fetched_bytes: int) -> None:
        """Of a stream that has ended: nobody waits."""
        if self._charges.is_on:
            post(
                self._data_loop,
                lambda: self._charges.charge(caller.client_id, fetched_bytes=fetched_bytes),
            )

    async def plan(self, topics: Sequence[str], caller: Caller) -> dict[str, TopicPlan | pb.Failure]:
        """What there is to know of topics before records are placed in them.  A topic that is not there is
        created, if the broker does that for Kafka's clients."""
        return await self._run(_plan(self._services, topics, self._context(caller, METADATA_VERSION)))

    async def produce(
        self, rounds: Sequence[Round], acks: int, timeout_ms: int, caller: Caller
    ) -> list[list[Appended]]:
        """What became of each batch, once that is known."""
        context = self._context(caller, PRODUCE_VERSION, timeout_ms)
        watch = Stopwatch()

        async def work() -> list[list[Appended]]:
            try:
                return await _produce(self._services, rounds, acks, timeout_ms, context, watch)
            finally:
                self._charges.charge(caller.client_id, seconds=watch.seconds)

        return await self._run(work())

    async def locate(
        self, wanted: Sequence[Wanted], isolation: int, needs_end: bool, caller: Caller
    ) -> list[Located]:
        context = self._context(caller, LIST_OFFSETS_VERSION)
        return await self._run(_locate(self._services, wanted, isolation, needs_end, context))

    async def fetch(
        self, positions: Sequence[Position], isolation: int, bytes_max: int, max_wait_ms: int, caller: Caller
    ) -> list[Chunk]:
        """What can be read; if nothing can, what can within `max_wait_ms`."""
        request = _fetch_request(positions, isolation, bytes_max, max_wait_ms)
        context = self._context(caller, FETCH_VERSION, max_wait_ms)
        watch = Stopwatch()

        async def work() -> list[Chunk]:
            try:
                return await _fetch(self._services, self._executor, request, positions, context, watch)
            finally:
                self._charges.charge(caller.client_id, seconds=watch.seconds)

        return await self._run(work())

    def _context(self, caller: Caller, version: int, patience_ms: int = 0) -> RequestContext:
        now_ms = self.clock.monotonic_ms()
        deadline_ms = now_ms + patience_ms + self.settings.request_timeout_ms
        # Not what the caller calls itself: that is for its quotas, and must open no internal topic.
        return RequestContext(
            ANONYMOUS, GATEWAY_LISTENER, CLIENT_ID, caller.peer, 0, version, now_ms, deadline_ms
        )


# --- on the data loop: handlers ----------------------------------------------------------------


async def _answered(answer: Answer, response: type[M]) -> M:
    """A handler's answer.  If nobody waits for it any more, what it holds open is closed."""
    if isinstance(answer, Message):
        assert isinstance(answer, response)
        return answer
    assert answer is not None
    awaited = asyncio.ensure_future(answer)
    try:
        come = await awaited
    except asyncio.CancelledError:
        if awaited.done() and not awaited.cancelled() and awaited.exception() is None:
            dropped = awaited.result()
            if dropped is not None:
                close_regions(dropped)
        raise
    assert isinstance(come, response)
    return come


def _leader(leader_id: int, leader_epoch: int, gateways: Mapping[int, Address]) -> pb.Leader | None:
    if leader_id < 0:
        return None
    gateway = gateways.get(leader_id)
    return pb.Leader(
        broker_id=leader_id,
        leader_epoch=leader_epoch,
        gateway=None if gateway is None else str(gateway),
    )


def _absent(services: Services, topic: str, partition: int) -> pb.Failure | None:
    """Why a partition cannot be asked for at all."""
    known = services.metadata.image.topic_named(topic)
    if known is None:
        return failure(error_of_absent(topic), f"there is no topic {topic[:300]!r}")
    if partition not in known.partitions:
        return failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition}")
    return None


def _refusal(services: Services, code: ErrorCode, topic: str, partition: int, what: str) -> pb.Failure:
    """Of a handler that gave a code and no words."""
    leader = None
    if code is _NOT_LEADER:
        leaders = Leaders(services, GATEWAY_LISTENER)
        found = leaders.of(topic, partition)
        gateways = {each.node_id: Address(each.host, each.port) for each in leaders.nodes.values()}
        leader = _leader(*found, gateways)
    return failure(code, f"{topic}-{partition} {what}", leader=leader)


# --- on the data loop: produce -----------------------------------------------------------------


async def _plan(
    services: Services, topics: Sequence[str], context: RequestContext
) -> dict[str, TopicPlan | pb.Failure]:
    image = services.metadata.image
    absent = [name for name in topics if image.topic_named(name) is None]
    if absent and services.settings.auto_create_topics:
        await _create(services, absent, context)
    return {name: _topic_plan(services, name) for name in topics}


async def _create(services: Services, names: Iterable[str], context: RequestContext) -> None:
    """As for Kafka's clients, who ask for the metadata of what they want to write to."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name, topic_id=ZERO_UUID) for name in names],
        allow_auto_topic_creation=True,
    )
    answer = metadata(services, request, context)
    if not isinstance(answer, Message) and answer is not None:
        await answer
        await _brought_up(services)


async def _brought_up(services: Services) -> None:
    """Until the partitions are what the present image says: Kafka's clients would ask again and again."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done() -> None:
        if not ready.done():
            ready.set_result(None)

    services.partitions.apply_image(services.partitions.image, done)
    await asyncio.wait({ready}, timeout=BRING_UP_MS_MAX / 1000)


def _topic_plan(services: Services, name: str) -> TopicPlan | pb.Failure:
    topic = services.metadata.image.topic_named(name)
    if topic is None:
        return failure(error_of_absent(name), f"there is no topic {name[:300]!r}")
    led = []
    batch_bytes_max = services.settings.log.max_message_bytes
    for partition_id in sorted(topic.partitions):
        partition = services.partitions.get(name, partition_id)
        if partition is not None and partition.is_leader:
            led.append(partition_id)
            batch_bytes_max = partition.log.config.max_message_bytes
    return TopicPlan(len(topic.partitions), tuple(led), batch_bytes_max)


async def _produce(
    services: Services,
    rounds: Sequence[Round],
    acks: int,
    timeout_ms: int,
    context: RequestContext,
    watch: Stopwatch,
) -> list[list[Appended]]:
    """Every round is handed in before any is waited for; others have their turn in between."""
    answers: list[Answer] = []
    try:
        for batches in rounds:
            request = _produce_request(batches, acks, timeout_ms)
            answers.append(watch.run(produce, services, request, context))
            await asyncio.sleep(0)
        responses = [await _answered(answer, ProduceResponse) for answer in answers]
    finally:
        for answer in answers:
            if isinstance(answer, asyncio.Future):
                answer.cancel()
    return [_appended(response) for response in responses]


def _produce_request(batches: Round, acks: int, timeout_ms: int) -> ProduceRequest:
    """One topic entry for each batch, so that the answers stand in the same order."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=batch.topic,
                partition_data=[PartitionProduceData(index=batch.partition, records=batch.data)],
            )
            for batch in batches
        ],
    )


def _appended(response: ProduceResponse) -> list[Appended]:
    gateways = {each.node_id: Address(each.host, each.port) for each in response.node_endpoints}
    found = []
    for topic in response.responses:
        for answer in topic.partition_responses:
            failed = _produce_failure(answer, gateways)
            found.append(Appended(answer.base_offset, answer.log_append_time_ms, failed))
    return found


def _produce_failure(answer: PartitionProduceResponse, gateways: Mapping[int, Address]) -> pb.Failure | None:
    if not answer.error_code:
        return None
    told = answer.current_leader
    return failure(
        ErrorCode(answer.error_code),
        answer.error_message or _UNSETTLED,
        outcome_unknown=answer.base_offset >= 0,
        leader=None if told is None else _leader(told.leader_id, told.leader_epoch, gateways),
    )


# --- on the data loop: offsets -----------------------------------------------------------------


async def _locate(
    services: Services, wanted: Sequence[Wanted], isolation: int, needs_end: bool, context: RequestContext
) -> list[Located]:
    found = []
    for each in wanted:
        found.append(_locate_one(services, each, isolation, needs_end, context))
        await asyncio.sleep(0)
    return found


def _locate_one(
    services: Services, wanted: Wanted, isolation: int, needs_end: bool, context: RequestContext
) -> Located:
    topic, partition, offset, timestamp_ms = wanted
    failed = _absent(services, topic, partition)
    if failed is not None:
        return Located(topic, ZERO_UUID, partition, 0, 0, failed)
    end_offset = 0
    asked: list[int] = [OffsetSpec.LATEST] if needs_end or offset < 0 else []
    if timestamp_ms is not None:
        asked.append(timestamp_ms)
    elif offset == OffsetSpec.EARLIEST:
        asked.append(offset)
    # The end comes first: what is found later is behind nothing that came in between.
    for time in asked:
        listed = _listed(services, topic, partition, time, isolation, context)
        if listed.error_code:
            code = ErrorCode(listed.error_code)
            failed = _refusal(services, code, topic, partition, "cannot be read here")
            return Located(topic, ZERO_UUID, partition, 0, 0, failed)
        if time == OffsetSpec.LATEST:
            end_offset = listed.offset
        else:
            offset = listed.offset
    known = services.metadata.image.topic_named(topic)
    assert known is not None
    # The end was asked for, or nothing is at or after the time: what comes next is.
    return Located(topic, known.topic_id, partition, end_offset if offset < 0 else offset, end_offset)


def _listed(
    services: Services, topic: str, partition: int, timestamp: int, isolation: int, context: RequestContext
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=CONSUMER_ID,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )
    response = list_offsets(services, request, context)
    assert isinstance(response, ListOffsetsResponse)
    return response.topics[0].partitions[0]


# --- on the data loop: fetch -------------------------------------------------------------------


def _fetch_request(
    positions: Sequence[Position], isolation: int, bytes_max: int, max_wait_ms: int
) -> FetchRequest:
    """Partitions are read in the order of the positions until there are enough bytes."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=isolation,
        topics=[
            FetchTopic(
                topic_id=each.topic_id,
                partitions=[
                    FetchPartition(
                        partition=each.partition, fetch_offset=each.offset, partition_max_bytes=bytes_max
                    )
                ],
            )
            for each in positions
        ],
    )


async def _fetch(
    services: Services,
    executor: Executor,
    request: FetchRequest,
    positions: Sequence[Position],
    context: RequestContext,
    watch: Stopwatch,
) -> list[Chunk]:
    response = await _answered(watch.run(fetch, services, request, context), FetchResponse)
    by_key = {(each.topic_id, each.partition): each for each in positions}
    gateways = {each.node_id: Address(each.host, each.port) for each in response.node_endpoints}
    chunks = []
    try:
        for topic in response.responses:
            for data in topic.partitions:
                position = by_key[topic.topic_id, data.partition_index]
                chunks.append(await _chunk(executor, position, data, gateways))
    finally:
        close_regions(response)
    return chunks


async def _chunk(
    executor: Executor, position: Position, data: PartitionData, gateways: Mapping[int, Address]
) -> Chunk:
    failed, content = None, b""
    region, data.records = data.records, b""
    if data.error_code:
        told = data.current_leader
        leader = None if told is None else _leader(told.leader_id, told.leader_epoch, gateways)
        what = f"{position.topic}-{position.partition} cannot be read at offset {position.offset}"
        failed = failure(ErrorCode(data.error_code), what, leader=leader)
    elif isinstance(region, FileRegion) and region.length > SECTION_BYTES_MAX:
        what = f"a batch of {region.length} bytes at offset {position.offset} is too large for the gateway"
        region.close()
        failed = failure(ErrorCode.MESSAGE_TOO_LARGE, what)
    elif isinstance(region, FileRegion):
        try:
            content = await _contents(executor, region)
        except RegionChangedError:
            content = b""  # it was truncated under us: what is there now is read by the next fetch
        except DlogError as error:
            failed = failure_of(error)
    elif region:
        content = bytes(cast(Buffer, region))
    aborted = tuple(
        AbortedRange(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
    )
    return Chunk(position, content, data.high_watermark, aborted, failed)


async def _contents(executor: Executor, region: FileRegion) -> bytes:
    """The region is closed, whoever still waits: not before the thread that reads it is done."""
    if region.length < SENDFILE_MIN:
        with region:
            return region.read()
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def done(outcome: Outcome[bytes]) -> None:
        region.close()
        if future.done():
            return
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.value())

    executor.run_blocking(region.read, done)
    return await future
