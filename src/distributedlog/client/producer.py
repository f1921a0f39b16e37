"""A producer: sends what the accumulator says, judges the responses, and tells how each batch ended.

One task does the sending.  It takes what is ready, by leader, and each request is a task of its own, so that
a slow broker holds up only its own partitions.  What may be under way at once, and how order and sequences
are kept through retries, the accumulator decides.

| answer                                   | then                                                           |
|------------------------------------------|----------------------------------------------------------------|
| none, or "duplicate"                     | delivered                                                      |
| retriable, and the batch is not too old  | the same bytes again after a pause                             |
| its sequence is not the next one         | again behind those before it; if there are none, with other    |
|                                          | sequences of another epoch; in a transaction, failed           |
| other, or there is no time for a retry   | failed; if it may have been written after all, the following   |
|                                          | ones have another epoch                                        |
| too large, of several records            | the same records in smaller batches                            |
| none within the time for delivery        | failed, and may be there                                       |

A producer with a transactional id sends only within transactions (`transactions/state`).  What fails in one,
or waits when it is aborted, is not tried again.

With `acks` all and a broker that can, the producer is idempotent: retries write nothing twice, and in order.
After a batch has failed the following ones are still sent: a caller that must not have gaps stops sending.

A crash of this process loses what was not delivered; nothing here is kept on disk.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

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
from distributedlog.client.partitioner import make_partitioner
from distributedlog.client.produce_requests import DOUBTFUL, STRANGE_PRODUCER, by_partition, topics_of
from distributedlog.client.producer_options import ACKS_ALL as ACKS_ALL
from distributedlog.client.producer_options import ProducerOptions as ProducerOptions
from distributedlog.client.reports import BatchEnd, Delivery, ProducerMetrics
from distributedlog.client.reports import BatchReport as BatchReport
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    ClientClosedError,
    ConnectionLostError,
    DlogError,
    InvalidTransactionStateError,
    RecordTooLargeError,
    TransactionAbortedError,
    UnknownTopicError,
)
from distributedlog.model.ids import ZERO_UUID, TopicPartition
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from distributedlog.records.layout import NO_TIMESTAMP
from distributedlog.records.record import Record

if TYPE_CHECKING:
    from distributedlog.client.admin.group_offsets import OffsetAndMetadata
    from distributedlog.client.transactions.manager import GroupMetadata, Transactions
    from distributedlog.records.arrow_write import CutBatch

T = TypeVar("T")

NAMED_VERSION_MAX: Final = 12
"""The last version of Produce that names topics by name."""
CLASSIC_VERSION_MAX: Final = 11
"""The last version of Produce that adds nothing to a transaction by itself."""
PRODUCER_EPOCH_MAX: Final = 2**15 - 1
CLOSING_ABORT_S: Final = 5.0
"""How long closing waits for the abort of a transaction that is open; the coordinator would do it later."""


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
            is_transactional=self.options.transactional_id is not None,
            in_flight_max=self.options.in_flight_max,
        )
        self.transactions: Transactions | None = None
        if self.options.transactional_id is not None:
            from distributedlog.client.transactions import manager

            self.transactions = manager.Transactions(
                cluster, self.options.transactional_id, self.options.transaction_timeout_ms
            )
        self.metrics = ProducerMetrics()
        self._partitioner = make_partitioner(
            self.options.partitioner, cluster.draw, self.options.batch_bytes_max
        )
        is_idempotent = self.options.acks == ACKS_ALL and self.options.idempotent is not False
        self._needs_identity = is_idempotent and self.transactions is None
        self._leased_id: str | None = None
        """The transactional id of the lease, if the producer writes under one."""
        self._flushing = 0
        self._changed = asyncio.Event()
        """Something for the sender to look at."""
        self._freed = asyncio.Event()
        """Something for those who wait for room, or for the end, to look at."""
        self._sender: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self.close()

    def lease(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        """Has everything from here on written by this producer, in a transaction that others end (`sinks`).
        It has no other epoch: after a batch that failed the lease is of no more use."""
        if not self._accumulator.is_empty or self.options.acks != ACKS_ALL or self.transactions is not None:
            raise InvalidTransactionStateError("a lease needs acks=all, and a producer that has nothing else")
        self._accumulator.take_lease(Identity(producer_id, epoch))
        self._leased_id = transactional_id
        self._needs_identity = False

    # --- the caller's side ---------------------------------------------------------------------

    async def send(self, topic: str, record: Record, partition: int | None = None) -> Delivery:
        """Takes the record; waits only for room, and for the topic if it is not known yet."""
        place = await self._place(topic, record, partition)
        await self.wait_for_room()
        self.check_sending()
        ended, index = self.add_now(place, record, estimated_bytes(record))
        if index == 0:
            await self._wake_sender()
        return Delivery(ended, index)

    async def send_batch(
        self, partition: TopicPartition, records: list[Record]
    ) -> "asyncio.Future[BatchReport]":
        """Takes records as one batch of their own, for a partition of a topic that is known; waits only for
        room.  The future gets a report, with an error in it if the batch failed."""
        await self.wait_for_room()
        self.check_sending()
        batch = self._accumulator.add_batch(partition, records, self._cluster.clock.monotonic_ms())
        batch.token = BatchEnd()
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
        self.check_sending()
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
        if self.transactions is not None:
            self.transactions.state.failed(failed)
        self._drop_waiting(failed)

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
        """Closes the producer; what is not delivered fails: `flush` first to deliver it.  An open transaction
        is aborted."""
        self._is_closed = True
        tasks = [task for task in (self._sender, *self._requests) if task is not None]
        self._sender = None
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            closed = ConnectionLostError("the producer was closed before the record was delivered")
            for batch in self._accumulator.drop(with_under_way=True):
                self._report(batch, closed)
        await self._abort_at_the_end()

    # --- transactions --------------------------------------------------------------------------

    def check_sending(self) -> None:
        """Raises if nothing can be sent now, as there is no transaction, or one that has failed; or any more,
        also for those who have waited for room meanwhile."""
        if self._is_closed:
            raise ClientClosedError("the producer is closed")
        if self.transactions is not None:
            self.transactions.state.check_sending()

    def _transactions(self) -> "Transactions":
        if self.transactions is None:
            raise InvalidTransactionStateError("transactions need a transactional_id")
        return self.transactions

    async def init_transactions(self) -> None:
        """Takes the transactional id over; `begin_transaction` does so the first time."""
        await self._transactions().init()

    async def begin_transaction(self) -> None:
        transactions = self._transactions()
        await transactions.begin()
        self._accumulator.change_identity(transactions.state.identity)

    async def send_offsets(
        self, offsets: "Mapping[TopicPartition, OffsetAndMetadata]", group: "GroupMetadata"
    ) -> None:
        """Commits a group's positions with the transaction."""
        if offsets:
            await self._transactions().send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Delivers everything and commits it.  Raises `TransactionAbortableError` if something failed."""
        transactions = self._transactions()
        await self.flush()
        transactions.state.ending(commits=True)
        self._accumulator.change_identity(await transactions.end())

    async def abort_transaction(self) -> None:
        """Drops what is not delivered, and aborts the rest."""
        transactions = self._transactions()
        transactions.state.ending(commits=False)
        self._drop_waiting(TransactionAbortedError("the transaction was aborted"))
        while not self._accumulator.is_empty:
            await self._wait_freed()
        self._accumulator.change_identity(await transactions.end())

    async def _abort_at_the_end(self) -> None:
        if self.transactions is None or self.transactions.state.is_ended:
            return
        with contextlib.suppress(DlogError, TimeoutError):
            async with asyncio.timeout(CLOSING_ABORT_S):
                self.transactions.state.ending(commits=False)
                await self.transactions.end()

    async def _add_to_transaction(self, transactions: "Transactions", ready: list[TopicPartition]) -> bool:
        """Makes partitions part of the transaction; False if it cannot go on, and then everything that waits
        has failed."""
        try:
            await transactions.add(ready)
        except DlogError as error:
            self._drop_waiting(error)
            return False
        return True

    def _drop_waiting(self, error: DlogError) -> None:
        for batch in self._accumulator.drop(with_under_way=False):
            if batch.attempts and self.transactions is not None:
                self.transactions.state.needs_epoch = True
            self._report(batch, error)

    async def _wait_freed(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    async def _place(self, topic: str, record: Record, partition: int | None) -> TopicPartition:
        count, size = await self.learn(topic), estimated_bytes(record)
        return TopicPartition(topic, self._choose(topic, count, record, partition, size))

    def _choose(self, topic: str, count: int, record: Record, partition: int | None, size: int) -> int:
        if partition is None:
            return self._partitioner.choose(topic, record.key, count, size)
        if not 0 <= partition < count:
            raise UnknownTopicError(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
        return partition

    # --- for callers that hand records over from another thread ---------------------------------

    @property
    def buffered_bytes(self) -> int:
        return self._accumulator.buffered_bytes

    def partition_now(self, topic: str, record: Record, partition: int | None, size: int) -> int | None:
        """Which partition a record goes to; None if the topic is not known yet, and `learn` has to be
        awaited.  It may be called on any thread, by one at a time."""
        known = self._cluster.view.topics.get(topic)
        if known is None:
            return None
        count = len(known.partitions)
        if partition is not None and 0 <= partition < count:
            return partition
        return self._choose(topic, count, record, partition, size) if count else None

    async def learn(self, topic: str) -> int:
        """Returns how many partitions the topic has."""
        return await self._cluster.partition_count(topic, allow_creation=self.options.allow_creation)

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
            self._begun(batch)
        return _ended(batch), index

    def add_run_now(
        self, place: TopicPartition, records: list[Record], size: int
    ) -> "tuple[asyncio.Future[BatchReport], int]":
        """Takes records that go into one batch together (`Accumulator.add_run`) at once, whether there is
        room or not.  Returns the end of their batch, and the place of the first in it."""
        batch, first = self._accumulator.add_run(place, records, size, self._cluster.clock.monotonic_ms())
        if first == 0:
            self._begun(batch)
        return _ended(batch), first

    def _begun(self, batch: Batch) -> None:
        batch.token = BatchEnd()
        self._start_sender()
        self._changed.set()

    # --- the sender ----------------------------------------------------------------------------

    async def _send_forever(self) -> None:
        while True:
            self._changed.clear()
            now_ms = self._cluster.clock.monotonic_ms()
            ready = self._accumulator.ready(now_ms, flushing=self._flushing > 0)
            if ready and self._needs_identity and not await self._renew_identity():
                continue
            if ready and self.transactions and not await self._add_to_transaction(self.transactions, ready):
                continue
            # While it waited batches may have come back, or have been dropped.
            ready = self._accumulator.still_ready(ready, now_ms, flushing=self._flushing > 0)
            for leader, partitions in self._cluster.by_known_leader(ready).items():
                self._start(leader, partitions)
            if not ready:
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
            asking = self._cluster.retrying(self._ask_identity, timeout_ms=self.options.delivery_timeout_ms)
            identity = await self._in_time(asking, self._cluster.clock.monotonic_ms())
        except DlogError as error:
            self._drop_waiting(error)
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

    def _next_epoch(self) -> None:
        """Begins another epoch, or, where there is none, has another id asked for."""
        producer_id, epoch = self._accumulator.identity
        if epoch < PRODUCER_EPOCH_MAX:
            self._accumulator.change_identity(Identity(producer_id, epoch + 1))
        else:
            self._needs_identity = True

    # --- one request ---------------------------------------------------------------------------

    async def _find_leaders(self, batches: list[Batch]) -> None:
        for batch in batches:
            try:
                await self._in_time(self._cluster.partition(batch.partition), batch.created_ms)
            except DlogError as error:
                self._handle_failure(batch, error)
            else:
                self._accumulator.retry(batch, self._cluster.clock.monotonic_ms())
                self._changed.set()

    async def _deliver(self, leader: int, batches: list[Batch]) -> None:
        first_ms = min(batch.created_ms for batch in batches)
        try:
            responses = await self._in_time(self._produce(leader, batches), first_ms)
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
                batch.is_doubtful = True
                self._handle_failure(
                    batch, ConnectionLostError(f"the broker did not say how {batch.partition} went")
                )
            else:
                self._handle_response(batch, response, leader)

    def _in_time(self, work: "Coroutine[Any, Any, T]", since_ms: int) -> "Coroutine[Any, Any, T]":
        """Waits no longer than what was there by then may take to be delivered."""
        limit_ms = self.options.delivery_timeout_ms
        return self._cluster.until(since_ms + limit_ms, work, f"delivery_timeout_ms ({limit_ms})")

    async def _produce(
        self, leader: int, batches: list[Batch]
    ) -> dict[TopicPartition, PartitionProduceResponse] | None:
        """Sends a Produce request; returns None if no response was asked for."""
        connection = await self._cluster.connection(leader)
        topics, names = topics_of(batches, self._cluster.view)
        timeout_ms = self._cluster.options.request_timeout_ms
        request = ProduceRequest(
            transactional_id=self._leased_id or self.options.transactional_id,
            acks=self.options.acks,
            timeout_ms=timeout_ms,
            topic_data=topics,
        )
        at_most = NAMED_VERSION_MAX if ZERO_UUID in names else None
        if self.transactions is not None and not self.transactions.state.is_implicit:
            at_most = CLASSIC_VERSION_MAX
        version = connection.version_for(ProduceRequest, at_most)
        await connection.drain()
        if self.options.acks == 0:
            connection.send(request, version=version)
            return None
        response = await connection.call(request, ProduceResponse, timeout_ms=timeout_ms * 2, version=version)
        found = by_partition(response, names)
        for partition, each in found.items():
            self._cluster.learn_leader(partition, each.current_leader, response.node_endpoints)
        return found

    def _handle_response(self, batch: Batch, response: PartitionProduceResponse, asked: int) -> None:
        code = response.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._end(batch, None, response.base_offset, response.log_append_time_ms)
            return
        batch.is_doubtful |= code in DOUBTFUL
        message = response.error_message
        if response.record_errors and response.record_errors[0].batch_index_error_message:
            message = response.record_errors[0].batch_index_error_message
        error = error_from(code, f"partition {batch.partition}", message)
        has_moved = self._cluster.view.leader_of(batch.partition) not in (None, asked)
        self._handle_failure(batch, error, has_moved=has_moved)

    def _handle_failure(self, batch: Batch, error: DlogError, *, has_moved: bool = False) -> None:
        """Sends the batch again, at once if its leader is known to be another by now, or ends it."""
        now_ms = self._cluster.clock.monotonic_ms()
        due_ms = now_ms if has_moved else now_ms + self._cluster.pause_ms(batch.attempts, error)
        if is_stale_view(error) and not has_moved:
            self._cluster.mark_stale()
        is_wanted = self.transactions is None or self.transactions.state.is_sending
        if is_wanted and isinstance(error, RecordTooLargeError) and self._accumulator.split(batch, now_ms):
            self._changed.set()
            return
        if not is_wanted or due_ms >= batch.created_ms + self.options.delivery_timeout_ms:
            batch.is_doubtful |= is_retriable(error)  # also who leads no more may have appended it
            self._end(batch, error)
        elif code_of(error) in STRANGE_PRODUCER and self._accumulator.is_after_others(batch):
            self._retry(batch, now_ms)
        elif code_of(error) in STRANGE_PRODUCER and self._is_idempotent_only(batch):
            if self._accumulator.rewrite(batch, now_ms):
                self._next_epoch()
            self._changed.set()
        elif is_retriable(error):
            self._retry(batch, due_ms)
        else:
            self._end(batch, error)

    def _retry(self, batch: Batch, due_ms: int) -> None:
        self._accumulator.retry(batch, due_ms)
        self.metrics.retries += 1
        self._changed.set()

    def _is_idempotent_only(self, batch: Batch) -> bool:
        return batch.identity is not NOBODY and self.transactions is None and self._leased_id is None

    def _end(
        self, batch: Batch, error: DlogError | None, base_offset: int = -1, append_time_ms: int = -1
    ) -> None:
        if error is None:
            self._accumulator.succeed(batch)
        else:
            needs_epoch = self._accumulator.fail(batch)
            if self.transactions is not None:
                self.transactions.state.failed(error)
            elif needs_epoch and self._leased_id is None:
                self._next_epoch()
        self._report(batch, error, base_offset, append_time_ms)
        self._changed.set()

    def _report(
        self, batch: Batch, error: DlogError | None, base_offset: int = -1, append_time_ms: int = -1
    ) -> None:
        report = BatchReport(batch.partition, batch.record_count, base_offset, append_time_ms, error)
        took_ms = self._cluster.clock.monotonic_ms() - batch.created_ms
        self.metrics.count(report, len(batch.encoded or b""), took_ms)
        if batch.cut is None:
            cast(BatchEnd, batch.token).take(report, batch.first_index, batch.whole_count)
        elif batch.token is not None:
            cast("Callable[[BatchReport], object]", batch.token)(report)
        self._freed.set()
        if self._on_batch is not None:
            self._on_batch(report)


def _ended(batch: Batch) -> "asyncio.Future[BatchReport]":
    return cast(BatchEnd, batch.token).reported
