"""A producer: sends what the accumulator says, judges the responses, and tells how each batch ended.

One task does the sending.  It takes what is ready, by leader, and each request is a task of its own, so that
a slow broker holds up only its own partitions.  A partition has one batch under way at a time.

| answer                                   | then                                                           |
|------------------------------------------|----------------------------------------------------------------|
| none, or "duplicate"                     | delivered                                                      |
| retriable, and the batch is not too old  | the same bytes again after a pause                             |
| other                                    | failed; if it may have been written after all, or the broker   |
|                                          | does not know the producer, under another identity from then on|
| too large, of several rows (`send_cut`)  | the same rows in smaller batches                               |

With `acks` all and a broker that can, the producer is idempotent: retries write nothing twice, and in order.
After a batch has failed the following ones are still sent: a caller that must not have gaps stops sending.

A crash of this process loses what was not delivered; nothing here is kept on disk.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from distributedlog.client.accumulator import NOBODY, Accumulator, Batch, Identity, estimated_bytes
from distributedlog.client.errors import (
    UNKNOWN_OUTCOME,
    check_response,
    code_of,
    error_from,
    is_retriable,
    is_stale_view,
)
from distributedlog.client.metadata import Cluster
from distributedlog.client.options import MIB
from distributedlog.client.partitioner import (
    ChoosePartition,
    PartitionerName,
    check_partitioner,
    make_partitioner,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    ConfigError,
    ConnectionLostError,
    DlogError,
    RecordTooLargeError,
    UnknownTopicError,
)
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.records.compression import Codec, check_level
from distributedlog.records.layout import NO_TIMESTAMP
from distributedlog.records.record import Record

if TYPE_CHECKING:
    from distributedlog.records.arrow_write import CutBatch

ACKS_ALL: Final = -1
NAMED_VERSION_MAX: Final = 12
"""The last version of Produce that names topics by name."""
STRANGE_PRODUCER: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
DOUBTFUL: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    acks: int = ACKS_ALL
    """-1: all in-sync replicas have it; 1: the leader has it; 0: it was sent."""
    codec: Codec = Codec.NONE
    idempotent: bool | None = None
    """None: if the acknowledgements and the broker allow it."""
    linger_ms: int = 5
    batch_bytes_max: int = 256 * 1024
    request_bytes_max: int = 16 * MIB
    buffer_bytes_max: int = 32 * MIB
    """The undelivered bytes from which on `send` waits."""
    delivery_timeout_ms: int = 120_000
    allow_creation: bool = True
    """Whether a topic may be created by sending to it, if the cluster does that."""
    codec_level: int | None = None
    """None: the codec's own."""
    partitioner: PartitionerName | ChoosePartition = "murmur2"

    def __post_init__(self) -> None:
        if self.acks not in (ACKS_ALL, 0, 1):
            raise ConfigError(f"acks is {self.acks}; it must be -1 (all), 0 or 1")
        if self.idempotent and self.acks != ACKS_ALL:
            raise ConfigError("an idempotent producer needs acks=all")
        if self.linger_ms < 0 or self.delivery_timeout_ms <= 0:
            raise ConfigError("linger_ms must not be negative, delivery_timeout_ms must be positive")
        if not 0 < self.batch_bytes_max <= self.request_bytes_max <= self.buffer_bytes_max:
            raise ConfigError("batch_bytes_max, request_bytes_max and buffer_bytes_max must rise")
        check_level(self.codec, self.codec_level)
        check_partitioner(self.partitioner)


class BatchReport(NamedTuple):
    """How a batch ended."""

    partition: TopicPartition
    record_count: int
    base_offset: int
    """-1 where it is not known: with acks 0, or if a retry found it written already."""
    append_time_ms: int = -1
    error: DlogError | None = None


@dataclass(slots=True)
class ProducerMetrics:
    """Counts since the producer was made."""

    records_delivered: int = 0
    records_failed: int = 0
    batches_delivered: int = 0
    bytes_delivered: int = 0
    """The bytes of batches as they travelled."""
    retries: int = 0


class Delivered(NamedTuple):
    partition: TopicPartition
    offset: int


class Delivery:
    """How one record will have ended."""

    __slots__ = ("_ended", "_index")

    def __init__(self, ended: "asyncio.Future[BatchReport]", index: int) -> None:
        self._ended = ended
        self._index = index

    @property
    def is_done(self) -> bool:
        return self._ended.done()

    async def wait(self) -> Delivered:
        """Returns where the record is.  Raises what its batch failed with."""
        report = await asyncio.shield(self._ended)
        if report.error is not None:
            raise report.error
        offset = -1 if report.base_offset < 0 else report.base_offset + self._index
        return Delivered(report.partition, offset)


class Producer:
    """A producer, used with `async with`, which delivers everything before it ends, or drops it after an
    error."""

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions | None = None,
        *,
        on_batch: Callable[[BatchReport], None] | None = None,
    ) -> None:
        self.options = options or ProducerOptions()
        self._cluster = cluster
        self._on_batch = on_batch
        self._accumulator = Accumulator(
            batch_bytes_max=self.options.batch_bytes_max,
            linger_ms=self.options.linger_ms,
            request_bytes_max=self.options.request_bytes_max,
            codec=self.options.codec,
            codec_level=self.options.codec_level,
        )
        self.metrics = ProducerMetrics()
        self._partitioner = make_partitioner(
            self.options.partitioner, cluster.draw, self.options.batch_bytes_max
        )
        self._needs_identity = self.options.acks == ACKS_ALL and self.options.idempotent is not False
        self._flushing = 0
        self._changed = asyncio.Event()
        """Something for the sender to look at."""
        self._freed = asyncio.Event()
        """Something for those who wait for room, or for the end, to look at."""
        self._sender: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.flush()
        await self.close()

    # --- the caller's side ---------------------------------------------------------------------

    async def send(self, topic: str, record: Record, partition: int | None = None) -> Delivery:
        """Takes the record; waits only for room, and for the topic if it is not known yet."""
        place = await self._place(topic, record, partition)
        await self.wait_for_room()
        clock = self._cluster.clock
        batch, index = self._accumulator.add(place, record, clock.monotonic_ms(), clock.wall_ms())
        if index == 0:
            batch.token = asyncio.get_running_loop().create_future()
            await self._wake_sender()
        return Delivery(_ended(batch), index)

    async def send_batch(
        self, partition: TopicPartition, records: list[Record]
    ) -> "asyncio.Future[BatchReport]":
        """Takes records as one batch of their own, for a partition of a topic that is known; waits only for
        room.  The future gets a report, with an error in it if the batch failed."""
        await self.wait_for_room()
        batch = self._accumulator.add_batch(partition, records, self._cluster.clock.monotonic_ms())
        batch.token = asyncio.get_running_loop().create_future()
        await self._wake_sender()
        return _ended(batch)

    async def send_cut(
        self,
        partition: TopicPartition,
        cut: "CutBatch",
        on_end: Callable[[BatchReport], object] | None = None,
    ) -> None:
        """Takes a batch of rows for a partition of a topic that is known; waits only for room.

        How it ended is told to `on_batch` and `on_end`, in several reports if the broker takes only
        smaller ones.
        """
        await self.wait_for_room()
        batch = self._accumulator.add_cut(partition, cut, self._cluster.clock.monotonic_ms())
        batch.token = on_end
        await self._wake_sender()

    def _start_sender(self) -> None:
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_forever())
            self._sender.add_done_callback(self._sender_ended)

    async def _wake_sender(self) -> None:
        self._start_sender()
        self._changed.set()
        await asyncio.sleep(0)  # the sender gets its turn also under a caller that never waits

    def _sender_ended(self, sender: "asyncio.Task[None]") -> None:
        """It ends by itself only by a bug; then nobody may wait for it for ever."""
        if sender.cancelled() or sender.exception() is None:
            return
        self._sender = None
        failed = DlogError(f"the producer failed: {sender.exception()!r}")
        for batch in self._accumulator.drop(with_under_way=False):
            self._report(batch, failed)

    async def flush(self) -> None:
        """Waits until everything that was sent is delivered or has failed."""
        self._flushing += 1
        self._changed.set()
        try:
            while not self._accumulator.is_empty:
                await self._wait_freed()
        finally:
            self._flushing -= 1

    async def close(self) -> None:
        """Closes the producer; what is not delivered fails: `flush` first to deliver it."""
        tasks = [task for task in (self._sender, *self._requests) if task is not None]
        self._sender = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closed = ConnectionLostError("the producer was closed before the record was delivered")
        for batch in self._accumulator.drop(with_under_way=True):
            self._report(batch, closed)

    async def _wait_freed(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    async def _place(self, topic: str, record: Record, partition: int | None) -> TopicPartition:
        view = await self._cluster.topic(topic, allow_creation=self.options.allow_creation)
        return self._placed(topic, len(view.partitions), record, partition, estimated_bytes(record))

    def _placed(
        self, topic: str, count: int, record: Record, partition: int | None, size: int
    ) -> TopicPartition:
        if partition is None:
            return TopicPartition(topic, self._partitioner.choose(topic, record.key, count, size))
        if not 0 <= partition < count:
            raise UnknownTopicError(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
        return TopicPartition(topic, partition)

    # --- for callers that hand records over from another thread ---------------------------------

    @property
    def buffered_bytes(self) -> int:
        return self._accumulator.buffered_bytes

    def place_now(
        self, topic: str, record: Record, partition: int | None, size: int
    ) -> TopicPartition | None:
        """Where a record goes; None if the topic is not known yet, and `learn` has to be awaited.  It may be
        called on any thread, by one at a time."""
        known = self._cluster.view.topics.get(topic)
        if known is None or not known.partitions:
            return None
        return self._placed(topic, len(known.partitions), record, partition, size)

    async def learn(self, topic: str) -> int:
        """Returns how many partitions the topic has."""
        view = await self._cluster.topic(topic, allow_creation=self.options.allow_creation)
        return len(view.partitions)

    @property
    def has_room(self) -> bool:
        return self._accumulator.buffered_bytes < self.options.buffer_bytes_max

    async def wait_for_room(self) -> None:
        while not self.has_room:
            await self._wait_freed()

    def add_now(
        self, place: TopicPartition, record: Record, size: int
    ) -> "tuple[asyncio.Future[BatchReport], int]":
        """Takes a record of that estimated size at once, whether there is room or not.  Returns the end of
        its batch, and its place in it."""
        clock = self._cluster.clock
        wall_ms = clock.wall_ms() if record.timestamp_ms == NO_TIMESTAMP else NO_TIMESTAMP
        batch, index = self._accumulator.add(place, record, clock.monotonic_ms(), wall_ms, size)
        if index == 0:
            batch.token = asyncio.get_running_loop().create_future()
            self._start_sender()
            self._changed.set()
        return _ended(batch), index

    # --- the sender ----------------------------------------------------------------------------

    async def _send_forever(self) -> None:
        while True:
            self._changed.clear()
            now_ms = self._cluster.clock.monotonic_ms()
            ready = self._accumulator.ready(now_ms, flushing=self._flushing > 0)
            if ready and self._needs_identity and not await self._renew_identity():
                continue
            for leader, partitions in self._by_known_leader(ready).items():
                self._start(leader, partitions)
            await self._wait_changed()

    async def _wait_changed(self) -> None:
        due_ms = self._accumulator.next_due_ms()
        if due_ms is None:
            await self._changed.wait()
            return
        wait_ms = max(1, due_ms - self._cluster.clock.monotonic_ms())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._changed.wait()

    def _by_known_leader(self, partitions: list[TopicPartition]) -> dict[int | None, list[TopicPartition]]:
        """Groups by leader as the view has it; None where it has no leader."""
        found: dict[int | None, list[TopicPartition]] = {}
        for partition in partitions:
            topic = self._cluster.view.topics.get(partition.topic)
            view = None if topic is None else topic.partition(partition.partition)
            leader = view.leader_id if view is not None and view.has_leader else None
            leader = None if self._cluster.is_stale else leader
            found.setdefault(leader, []).append(partition)
        return found

    def _start(self, leader: int | None, partitions: list[TopicPartition]) -> None:
        """One request, or several if they do not fit into one."""
        while partitions:
            batches = self._accumulator.take(partitions)
            partitions = partitions[len(batches) :]
            for batch in [each for each in batches if each.flaw is not None]:
                batches.remove(batch)
                self._end(batch, batch.flaw)
            if not batches:
                continue
            work = self._find_leaders(batches) if leader is None else self._deliver(leader, batches)
            task = asyncio.create_task(work)
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)

    async def _renew_identity(self) -> bool:
        """Renews the identity; False if there is none to be had, and then everything that waits has
        failed."""
        try:
            identity = await self._cluster.retrying(
                self._ask_identity, timeout_ms=self.options.delivery_timeout_ms
            )
        except DlogError as error:
            for batch in self._accumulator.drop(with_under_way=False):
                self._report(batch, error)
            return False
        self._accumulator.change_identity(identity)
        self._needs_identity = False
        return True

    async def _ask_identity(self) -> Identity:
        connection = await self._cluster.any_connection()
        if self.options.idempotent is None and not connection.serves(InitProducerIdRequest):
            return NOBODY
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = await self._cluster.call(connection, request, InitProducerIdResponse)
        check_response(response.error_code, "an id for the producer")
        return Identity(response.producer_id, response.producer_epoch)

    # --- one request ---------------------------------------------------------------------------

    async def _find_leaders(self, batches: list[Batch]) -> None:
        for batch in batches:
            try:
                await self._cluster.partition(batch.partition)
            except DlogError as error:
                self._handle_failure(batch, error)
            else:
                self._accumulator.retry(batch, self._cluster.clock.monotonic_ms())
                self._changed.set()

    async def _deliver(self, leader: int, batches: list[Batch]) -> None:
        try:
            responses = await self._produce(leader, batches)
        except DlogError as error:
            for batch in batches:
                batch.is_doubtful |= isinstance(error, UNKNOWN_OUTCOME)
                self._handle_failure(batch, error)
            return
        for batch in batches:
            if responses is None:
                self._end(batch, None)
                continue
            response = responses.get(batch.partition)
            if response is None:
                self._handle_failure(
                    batch, ConnectionLostError(f"the broker did not say how {batch.partition} went")
                )
            else:
                self._handle_response(batch, response)

    async def _produce(
        self, leader: int, batches: list[Batch]
    ) -> dict[TopicPartition, PartitionProduceResponse] | None:
        """Sends a Produce request; returns None if no response was asked for."""
        connection = await self._cluster.connection(leader)
        names: dict[Uuid, str] = {}
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name = batch.partition.topic
            topic = self._cluster.view.topics.get(name)
            if topic is None:  # whoever shares the cluster's view has asked for other topics meanwhile
                raise UnknownTopicError(f"the topic {name} is not known any more")
            topic_id = topic.topic_id
            names[topic_id] = name
            data = topics.setdefault(name, TopicProduceData(name=name, topic_id=topic_id, partition_data=[]))
            data.partition_data.append(
                PartitionProduceData(index=batch.partition.partition, records=batch.encoded)
            )
        timeout_ms = self._cluster.options.request_timeout_ms
        request = ProduceRequest(
            acks=self.options.acks, timeout_ms=timeout_ms, topic_data=list(topics.values())
        )
        version = connection.version_for(ProduceRequest, NAMED_VERSION_MAX if ZERO_UUID in names else None)
        await connection.drain()
        if self.options.acks == 0:
            connection.send(request, version=version)
            return None
        response = await connection.call(request, ProduceResponse, timeout_ms=timeout_ms * 2, version=version)
        return {
            TopicPartition(topic.name or names.get(topic.topic_id, ""), each.index): each
            for topic in response.responses
            for each in topic.partition_responses
        }

    def _handle_response(self, batch: Batch, response: PartitionProduceResponse) -> None:
        code = response.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._end(batch, None, response.base_offset, response.log_append_time_ms)
            return
        batch.is_doubtful |= code in DOUBTFUL
        message = response.error_message
        if response.record_errors and response.record_errors[0].batch_index_error_message:
            message = response.record_errors[0].batch_index_error_message
        self._handle_failure(batch, error_from(code, f"partition {batch.partition}", message))

    def _handle_failure(self, batch: Batch, error: DlogError) -> None:
        """Sends the batch again, or ends it."""
        now_ms = self._cluster.clock.monotonic_ms()
        due_ms = now_ms + self._cluster.pause_ms(batch.attempts)
        if is_stale_view(error):
            self._cluster.mark_stale()
        if isinstance(error, RecordTooLargeError) and self._accumulator.split(batch, now_ms):
            self._changed.set()
            return
        if is_retriable(error) and due_ms < batch.created_ms + self.options.delivery_timeout_ms:
            self._accumulator.retry(batch, due_ms)
            self.metrics.retries += 1
            self._changed.set()
            return
        self._end(batch, error)

    def _end(
        self, batch: Batch, error: DlogError | None, base_offset: int = -1, append_time_ms: int = -1
    ) -> None:
        if error is None:
            self._accumulator.succeed(batch)
        else:
            self._accumulator.fail(batch)
            is_strange = code_of(error) in STRANGE_PRODUCER
            if batch.identity is not NOBODY and (batch.is_doubtful or is_strange):
                self._needs_identity = True
        self._report(batch, error, base_offset, append_time_ms)
        self._changed.set()

    def _report(
        self, batch: Batch, error: DlogError | None, base_offset: int = -1, append_time_ms: int = -1
    ) -> None:
        report = BatchReport(batch.partition, batch.record_count, base_offset, append_time_ms, error)
        if error is None:
            self.metrics.records_delivered += batch.record_count
            self.metrics.batches_delivered += 1
            self.metrics.bytes_delivered += len(batch.encoded or b"")
        else:
            self.metrics.records_failed += batch.record_count
        if batch.cut is None:
            ended = _ended(batch)
            if not ended.done():
                ended.set_result(report)
        elif batch.token is not None:
            cast("Callable[[BatchReport], object]", batch.token)(report)
        self._freed.set()
        if self._on_batch is not None:
            self._on_batch(report)


def _ended(batch: Batch) -> "asyncio.Future[BatchReport]":
    return cast("asyncio.Future[BatchReport]", batch.token)
