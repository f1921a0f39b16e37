"""The producer of programs on an asyncio loop: `distributedlog.aio.Producer`.

`send` waits only for room and, the first time, for the topic's metadata; then it gives a `Delivery`, which is
awaited by whoever wants to know.  `transaction` is a block that is committed or aborted as a whole.  Leaving
`async with` delivers everything; leaving it by an error drops what is not delivered yet.
"""

import asyncio
import dataclasses
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from distributedlog.client.accumulator import estimated_bytes
from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.faces.bulk import RowsDelivery, send_rows
from distributedlog.client.faces.delivery import Delivery, OnDelivery, RecordMetadata
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
from distributedlog.client.faces.transactions import Positions, aio_transaction, group_of, offsets_of
from distributedlog.client.metadata import Cluster
from distributedlog.client.producer import Producer as Core
from distributedlog.model.errors import BufferFullError, ClientClosedError, RequestTimedOutError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record

if TYPE_CHECKING:
    from distributedlog.client.transactions.manager import GroupMetadata


class Producer:
    """Sends records.  Made anywhere, used on one loop, with `async with`."""

    def __init__(self, bootstrap: str = BOOTSTRAP_DEFAULT, **settings: Unpack[ProducerSettings]) -> None:
        check_names(settings, ProducerSettings.__annotations__, "a producer")
        self._serializers = Serializers(settings)
        self._max_block_ms = settings.get("max_block_ms", MAX_BLOCK_MS)
        self._cluster = Cluster(parse_bootstrap(bootstrap), client_options(settings))
        self._core = Core(self._cluster, producer_options(settings))
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self.close()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Takes a record.  Raises `BufferFullError` if there is no room for it within `max_block_ms`."""
        self._check_open()
        self._core.check_sending()
        record = self._serializers.record(value, key, headers, timestamp_ms)
        size = estimated_bytes(record)
        chosen = self._core.partition_now(topic, record, partition, size) if self._core.has_room else None
        if chosen is None:
            chosen = await self._choose_after_waiting(topic, record, partition, size)
            self._check_open()
            self._core.check_sending()
        ended, index = self._core.add_now(TopicPartition(topic, chosen), record, size)
        if index == 0:
            await asyncio.sleep(0)  # the sender gets its turn also under a caller that never waits
        delivery = Delivery(ended, index)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the producer is closed")

    async def _choose_after_waiting(
        self, topic: str, record: Record, partition: int | None, size: int
    ) -> int:
        """What is known of the topic may be given up while there is no room: then it is learnt again."""
        is_learning = False
        try:
            async with asyncio.timeout(self._max_block_ms / 1000):
                while True:
                    await self._core.wait_for_room()
                    chosen = self._core.partition_now(topic, record, partition, size)
                    if chosen is not None:
                        return chosen
                    is_learning = True
                    await self._core.learn(topic)
                    is_learning = False
        except TimeoutError:
            if not is_learning:
                raise no_room(self._max_block_ms) from None
            raise RequestTimedOutError(
                f"nothing was learnt of topic {topic!r} within {self._max_block_ms} ms"
            ) from None

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Returns where the record is, once it is there."""
        return await (
            await self.send(
                topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
        )

    async def send_batch(self, topic: str, rows: Any) -> RowsDelivery:
        """Sends rows with no Python object for each: a table or batch of pyarrow, or a frame of pandas or
        polars.

        Columns are `key`, `value`, `headers`, `timestamp` and `partition`, of which `key` or `value` must
        be there. Waits for room as `send` does; a row without a partition goes where its key belongs, as
        murmur2 has it.
        """
        self._check_open()
        return await send_rows(self._core, self._cluster, topic, rows)

    async def flush(self) -> None:
        """Waits until everything that was sent is delivered or has failed."""
        await self._core.flush()

    # --- transactions --------------------------------------------------------------------------

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """A block whose records are committed together at its end, or aborted if it raises."""
        return aio_transaction(self)

    async def init_transactions(self) -> None:
        """Takes the `transactional_id` over: its last producer is fenced, and what that had open is aborted.
        The first transaction does so, too."""
        self._check_open()
        await self._core.init_transactions()

    async def begin_transaction(self) -> None:
        self._check_open()
        await self._core.begin_transaction()

    async def send_offsets(self, positions: Positions, group: "GroupMetadata | str") -> None:
        """Commits positions of a group with the transaction: `consumer.positions()`, and
        `consumer.group_metadata()`."""
        await self._core.send_offsets(offsets_of(positions), group_of(group))

    async def commit_transaction(self) -> None:
        """Delivers everything and commits it.  Raises `TransactionAbortableError` if something failed: then
        it has to be aborted."""
        await self._core.commit_transaction()

    async def abort_transaction(self) -> None:
        await self._core.abort_transaction()

    async def partitions_for(self, topic: str) -> range:
        return range(await self._core.learn(topic))

    def metrics(self) -> dict[str, int]:
        """Counts since the producer was made, and what is buffered now."""
        return {**dataclasses.asdict(self._core.metrics), "buffered_bytes": self._core.buffered_bytes}

    async def close(self) -> None:
        """Closes it; what is not delivered fails: `flush` first to deliver it."""
        self._is_closed = True
        try:
            await self._core.close()
        finally:
            await self._cluster.close()


def no_room(max_block_ms: int) -> BufferFullError:
    return BufferFullError(
        f"there was no room for a record within {max_block_ms} ms: the brokers take less than is sent, or "
        "none is there; raise buffer_memory or max_block_ms, or send less"
    )
