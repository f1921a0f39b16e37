"""The producer of programs without an event loop: `distributedlog.Producer`.

The sender runs on a loop in a thread of its own.  `send` chooses the partition and puts the record into an
inbox; the loop moves what is in it into batches, whole runs of records at a time, so that a record costs no
hand-over of its own:

    send --> inbox (`inbox`) --(one wake-up for many)--> accumulator --> brokers

**Bounds.**  What is in the inbox and what is in batches count together: from `buffer_memory` on `send`
waits, for `max_block_ms` at most.

**Threads.**  Any number may send.  Records of one thread for one partition stay in their order.

**Closing.**  A send either is in the inbox before the producer is closed, and its delivery says how it ended,
or is refused: both happen under the lock.  The core goes away on the loop, once the inbox is empty.

**The end of the program.**  The loop's thread ends with it.  What is undelivered then, of a producer that was
not closed, is lost, and a warning says so.

**Fork.**  In a child process the producer begins anew, with a thread, connections and a producer id of its
own. What the parent had buffered is the parent's to deliver: it is dropped here.
"""

import asyncio
import atexit
import concurrent.futures
import dataclasses
import logging
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from distributedlog.client.accumulator import estimated_bytes
from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.faces.aio_producer import no_room
from distributedlog.client.faces.bulk import BlockingRowsDelivery, RowsDelivery, send_rows
from distributedlog.client.faces.delivery import BlockingDelivery, OnDelivery, Owner
from distributedlog.client.faces.inbox import Inbox
from distributedlog.client.faces.loop_thread import LoopThread, left_behind
from distributedlog.client.faces.settings import (
    BOOTSTRAP_DEFAULT,
    MAX_BLOCK_MS,
    Headers,
    ProducerSettings,
    Serializers,
    check_names,
    client_options,
    producer_options,
)
from distributedlog.client.faces.transactions import (
    Positions,
    blocking_transaction,
    group_of,
    offsets_of,
)
from distributedlog.client.metadata import Cluster
from distributedlog.client.producer import Producer as Core
from distributedlog.model.errors import ClientClosedError, RecordTooLargeError, RequestTimedOutError
from distributedlog.records.layout import HEADER_BYTES, NO_TIMESTAMP

if TYPE_CHECKING:
    from distributedlog.client.transactions.manager import GroupMetadata

_logger = logging.getLogger(__name__)
_ALL: "Final[weakref.WeakSet[Producer]]" = weakref.WeakSet()

ROOM_POLL_S: Final = 0.5
"""How often a thread that waits for room looks by itself."""
TURN_RECORDS_MAX: Final = 2000
"""The records after which the loop takes no further run from the inbox in one turn."""


class Producer(Owner):
    """Sends records.  To be used with `with`, from any number of threads."""

    def __init__(self, bootstrap: str = BOOTSTRAP_DEFAULT, **settings: Unpack[ProducerSettings]) -> None:
        check_names(settings, ProducerSettings.__annotations__, "a producer")
        self._bootstrap = parse_bootstrap(bootstrap)
        self._client_options = client_options(settings)
        self._options = producer_options(settings)
        self._buffer_bytes_max = self._options.buffer_bytes_max
        self._record_bytes_max = self._options.request_bytes_max - HEADER_BYTES
        self._serializers = Serializers(settings)
        self._max_block_ms = settings.get("max_block_ms", MAX_BLOCK_MS)
        self._thread = LoopThread("dlog-producer", self._begin_anew)
        self._is_closed = False
        self._core: Core | None = None
        self._cluster: Cluster | None = None
        self._reset()
        _ALL.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._starting = threading.Lock()
        self._inbox = Inbox(self._options.batch_bytes_max - HEADER_BYTES)
        self._is_drain_due = False
        self._waiting = 0

    def _begin_anew(self) -> None:
        left_behind((self._core, self._cluster))
        self._core = self._cluster = None
        self._reset()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    # --- the caller's threads ------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> BlockingDelivery:
        """Takes a record; waits only for room, and for the topic if it is not known yet.

        Raises `BufferFullError` after `max_block_ms` without room, and at once in an `on_delivery`, which is
        called on the producer's own thread.
        """
        core = self._core or self._start()
        if core.transactions is not None:
            core.check_sending()
        if timestamp_ms is None or timestamp_ms == NO_TIMESTAMP:
            timestamp_ms = time.time_ns() // 1_000_000
        record = self._serializers.record(value, key, headers, timestamp_ms)
        size = estimated_bytes(record)
        if size > self._record_bytes_max:
            raise RecordTooLargeError(
                f"a record of {size} bytes does not fit into a request of {self._options.request_bytes_max}"
            )
        until: float | None = None
        while True:
            with self._lock:
                inbox = self._inbox
                if inbox.size_bytes + core.buffered_bytes >= self._buffer_bytes_max:
                    until = until or self._deadline()
                    self._wait_for_room(core, until)
                if self._is_closed:
                    self._check_open()
                chosen = core.partition_now(topic, record, partition, size)
                if chosen is not None:
                    delivery = inbox.add(self, topic, chosen, record, size, on_delivery)
                    if not self._is_drain_due:
                        self._is_drain_due = True
                        self._thread.call_soon(self._drain)
                    return delivery
            until = until or self._deadline()
            self._learn(core, topic, until)

    def _deadline(self) -> float:
        """The time until which a send may wait in all."""
        return time.monotonic() + self._max_block_ms / 1000

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the producer is closed")

    def _start(self) -> Core:
        with self._starting:
            self._check_open()
            if self._core is None:
                self._core = self._thread.run(self._make_core())
            return self._core

    async def _make_core(self) -> Core:
        self._cluster = Cluster(self._bootstrap, self._client_options)
        return Core(self._cluster, self._options, on_batch=lambda _: self._told_of_room())

    def _learn(self, core: Core, topic: str, until: float) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(max(0, until - time.monotonic())):
                await core.learn(topic)

        try:
            self._thread.run(bounded())
        except concurrent.futures.CancelledError:
            self._check_open()
            raise
        except TimeoutError:
            raise RequestTimedOutError(
                f"nothing was learnt of topic {topic!r} within {self._max_block_ms} ms"
            ) from None

    def _wait_for_room(self, core: Core, until: float) -> None:
        if self._thread.is_current:  # room is made on this thread, and by nobody else
            raise no_room(0)
        self._waiting += 1
        try:
            while (
                not self._is_closed
                and self._inbox.size_bytes + core.buffered_bytes >= self._options.buffer_bytes_max
            ):
                left = until - time.monotonic()
                if left <= 0:
                    raise no_room(self._max_block_ms)
                self._room.wait(min(left, ROOM_POLL_S))
        finally:
            self._waiting -= 1

    def send_batch(self, topic: str, rows: Any) -> BlockingRowsDelivery:
        """Sends rows with no Python object for each: a table or batch of pyarrow, or a frame of pandas or
        polars.

        Columns are `key`, `value`, `headers`, `timestamp` and `partition`, of which `key` or `value` must
        be there. Waits for room; a row without a partition goes where its key belongs, as murmur2 has it.
        """
        core = self._core or self._start()
        cluster = self._cluster
        if cluster is None:
            raise ClientClosedError("the producer is closed")

        async def send() -> RowsDelivery:
            self._check_open()
            self._into_batches(core)  # what the thread has sent before comes before the rows
            return await send_rows(core, cluster, topic, rows)

        return BlockingRowsDelivery(self._thread.run(send()), self._thread)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything that was sent is delivered or has failed; raises `RequestTimedOutError` if
        that takes more than `timeout` seconds."""
        core = self._core
        if core is None:
            return

        async def flush() -> None:
            while self._inbox:
                self._drain()
            await core.flush()

        async def bounded() -> None:
            async with asyncio.timeout(timeout):
                await flush()

        try:
            self._thread.run(bounded())
        except TimeoutError:
            raise RequestTimedOutError(f"not everything was delivered within {timeout} s") from None

    # --- transactions --------------------------------------------------------------------------

    def transaction(self) -> AbstractContextManager[None]:
        """A block whose records are committed together at its end, or aborted if it raises."""
        return blocking_transaction(self)

    def init_transactions(self) -> None:
        """Takes the `transactional_id` over: its last producer is fenced, and what that had open is aborted.
        The first transaction does so, too."""
        self._run(Core.init_transactions)

    def begin_transaction(self) -> None:
        self._run(Core.begin_transaction)

    def send_offsets(self, positions: Positions, group: "GroupMetadata | str") -> None:
        """Commits positions of a group with the transaction: `consumer.positions()`, and
        `consumer.group_metadata()`."""
        self._run(lambda core: core.send_offsets(offsets_of(positions), group_of(group)))

    def commit_transaction(self) -> None:
        """Delivers everything and commits it.  Raises `TransactionAbortableError` if something failed: then
        it has to be aborted."""
        self._run(Core.commit_transaction)

    def abort_transaction(self) -> None:
        self._run(Core.abort_transaction)

    def _run(self, step: Callable[[Core], Awaitable[None]]) -> None:
        """Takes a step of a transaction, behind all that this thread has sent."""
        core = self._core or self._start()

        async def run() -> None:
            self._check_open()
            self._into_batches(core)
            await step(core)

        self._thread.run(run())

    def partitions_for(self, topic: str) -> range:
        core = self._core or self._start()
        return range(self._thread.run(core.learn(topic)))

    def metrics(self) -> dict[str, int]:
        """Counts since the producer was made, and what is buffered now."""
        core = self._core or self._start()
        buffered = self._inbox.size_bytes + core.buffered_bytes
        return {**dataclasses.asdict(core.metrics), "buffered_bytes": buffered}

    def close(self) -> None:
        """Closes it; what is not delivered fails: `flush` first to deliver it."""
        with self._starting, self._lock:
            is_first, self._is_closed = not self._is_closed, True
            core, cluster = self._core, self._cluster
            self._room.notify_all()
        try:
            if is_first and core is not None and cluster is not None:
                self._thread.run(self._close(core, cluster))
        finally:
            self._core = self._cluster = None
            self._thread.stop()

    async def _close(self, core: Core, cluster: Cluster) -> None:
        self._into_batches(core)
        self._core = self._cluster = None
        try:
            await core.close()
        finally:
            await cluster.close()

    # --- the loop's thread ---------------------------------------------------------------------

    def wait_for(self, delivery: BlockingDelivery) -> "concurrent.futures.Future[None]":
        async def wait() -> None:
            while not delivery.is_in_batch and self._inbox:
                self._drain()
            await delivery.ended()

        return self._thread.submit(wait())

    def _drain(self) -> None:
        core = self._core
        if core is None:
            return
        self._into_batches(core, TURN_RECORDS_MAX)
        with self._lock:
            self._is_drain_due = bool(self._inbox)
        if self._is_drain_due:
            asyncio.get_running_loop().call_soon(self._drain)

    def _into_batches(self, core: Core, most: int | None = None) -> None:
        inbox, taken = self._inbox, 0
        while inbox and (most is None or taken < most):
            with self._lock:
                run = inbox.take()
            taken += len(run.records)
            run.bind(*core.add_run_now(run.partition, run.records, run.size_bytes))
            with self._lock:
                inbox.size_bytes -= run.size_bytes

    def _told_of_room(self) -> None:
        if self._waiting:
            with self._lock:
                self._room.notify_all()

    def tell_of_lost(self) -> None:
        """Warns, when the program ends, of what is not delivered."""
        core = self._core
        if core is None or self._is_closed:
            return
        if left := self._inbox.size_bytes + core.buffered_bytes:
            _logger.warning(
                "the program ends, and a producer was not closed: %d bytes of records are not delivered;"
                " use it with `with`, or call flush()",
                left,
            )


@atexit.register
def _tell_of_lost() -> None:
    for each in list(_ALL):
        each.tell_of_lost()
