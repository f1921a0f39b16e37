"""Asks by a record and waits for the record that replies.

    ask --> request topic --> responder --> reply topic, the partition that is this requester's --> its caller

Each requester reads one partition of the reply topic, from its end on: replies to others are passed over.
Those that come after their time, or twice, find nobody who waits and are dropped.  The responder is any
program that copies `kafka_correlationId` (see `correlation`), such as `Runner.responder`.  A request that
cannot be delivered fails as its record does.

While the cluster is away requests fail one by one, and replies are read again when it is back.  What does
not pass, as a reply topic that is deleted, ends the requester: everyone who asks is told.
"""

import asyncio
import logging
import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, Self, cast

from distributedlog.client.errors import is_retriable
from distributedlog.client.faces.aio_consumer import Consumer
from distributedlog.client.faces.aio_producer import Producer
from distributedlog.client.faces.delivery import RecordMetadata
from distributedlog.client.faces.records import ConsumerRecord
from distributedlog.client.faces.settings import (
    BOOTSTRAP_DEFAULT,
    ClientSettings,
    ConsumerSettings,
    Deserializer,
    Headers,
    ProducerSettings,
    Serializer,
    as_headers,
)
from distributedlog.model.errors import (
    BufferFullError,
    ClientClosedError,
    DlogError,
    RequestTimedOutError,
    UnknownTopicError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.patterns.correlation import correlation_id_of, error_in, request_headers

logger = logging.getLogger(__name__)

POLL_MS: Final = 1_000
AWAY_PAUSE_S: Final = 0.1
"""The pause between two tries to read, each of which waits for brokers itself (`default_api_timeout_ms`)."""
WAITING_MAX: Final = 10_000


class Requester:
    """Made anywhere, used on one loop, with `async with`, by any number of tasks."""

    def __init__(
        self,
        bootstrap: str = BOOTSTRAP_DEFAULT,
        *,
        topic: str,
        reply_topic: str,
        timeout_ms: int = 30_000,
        waiting_max: int = WAITING_MAX,
        value_serializer: Serializer | None = None,
        value_deserializer: Deserializer | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic, self._reply_topic = topic, reply_topic
        self._timeout_ms = timeout_ms
        self._waiting_max = waiting_max
        self._value = value_deserializer
        both: dict[str, Any] = dict(settings or {})
        self._producer_settings = cast(ProducerSettings, {"linger_ms": 0, **both})
        if value_serializer is not None:
            self._producer_settings["value_serializer"] = value_serializer
        self._consumer_settings = cast(ConsumerSettings, {"auto_offset_reset": "latest", **both})
        self._waiting: dict[bytes, asyncio.Future[ConsumerRecord]] = {}
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._partition = 0
        self._reading: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Returns when it knows where its replies will begin."""
        self._producer = Producer(self._bootstrap, **self._producer_settings)
        self._consumer = consumer = Consumer(self._bootstrap, **self._consumer_settings)
        try:
            partitions = await self._producer.partitions_for(self._reply_topic)
            self._partition = partitions[uuid.uuid4().int % len(partitions)]
            place = TopicPartition(self._reply_topic, self._partition)
            consumer.assign([place])
            await consumer.position(place)
        except BaseException:
            await self.close()
            raise
        self._reading = asyncio.create_task(self._read(consumer))

    async def _read(self, consumer: Consumer) -> None:
        is_away = False
        try:
            while True:
                try:
                    self._hand_over(await consumer.poll(POLL_MS))
                    is_away = False
                except DlogError as error:
                    if not is_retriable(error) or isinstance(error, UnknownTopicError):
                        raise
                    if not is_away:
                        logger.warning("no replies are read from %s for now: %s", self._reply_topic, error)
                    is_away = True
                    await asyncio.sleep(AWAY_PAUSE_S)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failure = error
            for each in self._waiting.values():
                if not each.done():
                    each.set_exception(error)

    def _hand_over(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            waiting = self._waiting.get(correlation_id_of(record.headers) or b"")
            if waiting is not None and not waiting.done():
                waiting.set_result(record)

    async def ask(
        self,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Returns the value of the reply, deserialized.  Raises `RequestTimedOutError` if there is none in
        time, and `RemoteError` if the responder says that it has failed."""
        record = await self.ask_record(value, key, headers=headers, timeout_ms=timeout_ms)
        if record.value is None or self._value is None:
            return record.value
        return self._value(record.value)

    async def ask_record(
        self,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers | None = None,
        timeout_ms: int | None = None,
    ) -> ConsumerRecord:
        """The same, and returns the whole reply as it came."""
        producer = self._producer
        if producer is None:
            raise ClientClosedError("the requester is not open")
        if self._failure is not None:
            raise self._failure
        if len(self._waiting) >= self._waiting_max:
            raise BufferFullError(f"{self._waiting_max} requests wait for their replies already")
        correlation_id = uuid.uuid4().bytes
        asked = request_headers(correlation_id, self._reply_topic, self._partition)
        reply: asyncio.Future[ConsumerRecord] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = reply

        def on_delivery(error: DlogError | None, _place: RecordMetadata | None) -> None:
            if error is not None and not reply.done():
                reply.set_exception(error)

        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                both = [*as_headers(headers), *asked]
                await producer.send(self._topic, value, key, headers=both, on_delivery=on_delivery)
                record = await reply
        except TimeoutError:
            raise RequestTimedOutError(
                f"nobody has replied within {limit_ms} ms to a request in {self._topic!r}"
            ) from None
        finally:
            del self._waiting[correlation_id]
        error = error_in(record.headers)
        if error is not None:
            raise error
        return record

    async def close(self) -> None:
        """Whoever waits for a reply is told that none will come."""
        reading, self._reading = self._reading, None
        producer, self._producer = self._producer, None
        consumer, self._consumer = self._consumer, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        for each in self._waiting.values():
            if not each.done():
                each.set_exception(ClientClosedError("the requester was closed"))
        try:
            if consumer is not None:
                await consumer.close()
        finally:
            if producer is not None:
                await producer.close()
