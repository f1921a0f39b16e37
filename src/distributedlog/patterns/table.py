"""A compacted topic as a mapping: the last value of each key, read to the end and then followed.

    start --(every partition is read to where it ended then)--> loaded --(follow)--> … --(close)--> closed

A record without a value takes its key away.  Only what is committed counts.

`wait_until` makes a program see what it has written: the place that `send` returned has been read then.
| once it is loaded, reading fails by | then                                                                |
|-------------------------------------|---------------------------------------------------------------------|
| what passes: the cluster is away    | it is tried again until `close`, with longer and longer pauses; the |
|                                     | table stays as old as it is, and `outage` says why                  |
| what does not: a value that cannot  | every later look raises it: an old table is not taken for a new one |
| be deserialized, a topic that is    |                                                                     |
| deleted                             |                                                                     |

Memory holds the whole table.  Partitions that are added later are found after `metadata_max_age_ms`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from distributedlog.client.errors import is_retriable
from distributedlog.client.faces.aio_admin import Admin
from distributedlog.client.faces.aio_consumer import Consumer
from distributedlog.client.faces.delivery import RecordMetadata
from distributedlog.client.faces.records import ConsumerRecord
from distributedlog.client.faces.settings import (
    BOOTSTRAP_DEFAULT,
    ConsumerSettings,
    Deserializer,
    of_every_client,
)
from distributedlog.model.errors import ClientClosedError, DlogError, RequestTimedOutError, UnknownTopicError
from distributedlog.model.ids import TopicPartition

logger = logging.getLogger(__name__)

POLL_MS: Final = 500
POLL_RECORDS: Final = 5_000
METADATA_MAX_AGE_MS: Final = 300_000

K = TypeVar("K")
V = TypeVar("V")
OnChange = Callable[[K, V | None], object]


def apply(entries: dict[Any, Any], records: Iterable[ConsumerRecord]) -> dict[Any, Any]:
    """Makes the entries what they are after these records.  Returns what changed: None where a key is gone.

    Records without a key belong to no entry.
    """
    changed: dict[Any, Any] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            entries.pop(record.key, None)
        else:
            entries[record.key] = record.value
        changed[record.key] = record.value
    return changed


class TopicTable(Generic[K, V], Mapping[K, V]):
    """Made anywhere, used on one loop, with `async with`, which returns when it is loaded.

    Keys and values are bytes, or what the deserializers make of them.
    """

    def __init__(
        self,
        bootstrap: str = BOOTSTRAP_DEFAULT,
        *,
        topic: str,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_change: OnChange[K, V] | None = None,
        consumer: ConsumerSettings | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self.topic = topic
        settings: ConsumerSettings = {"isolation_level": "read_committed", **(consumer or {})}
        settings["auto_offset_reset"] = "earliest"
        if key_deserializer is not None:
            settings["key_deserializer"] = key_deserializer
        if value_deserializer is not None:
            settings["value_deserializer"] = value_deserializer
        self._settings = settings
        self._admin_settings = of_every_client(settings)
        self._age_ms = settings.get("metadata_max_age_ms", METADATA_MAX_AGE_MS)
        self._on_change = on_change
        self._entries: dict[K, V] = {}
        self._consumer: Consumer | None = None
        self._admin: Admin | None = None
        self._following: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._outage: DlogError | None = None
        self._is_loaded = False
        self._moved = asyncio.Condition()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Returns when everything is read that was there when it was called."""
        self._consumer = consumer = Consumer(self._bootstrap, **self._settings)
        self._admin = admin = Admin(self._bootstrap, **self._admin_settings)
        try:
            await self._assign(consumer, admin)
            ends = await consumer.end_offsets(consumer.assignment)
            self._following = asyncio.create_task(self._follow(consumer, admin))
            for place, end in ends.items():
                if end > 0:
                    await self._reach(place, end)
            self._is_loaded = True
        except BaseException:
            await self.close()
            raise

    async def _assign(self, consumer: Consumer, admin: Admin) -> None:
        (found,) = await admin.describe_topics([self.topic])
        if not found.partitions:
            raise UnknownTopicError(f"there is no topic {self.topic!r}")
        consumer.assign(TopicPartition(self.topic, each.index) for each in found.partitions)

    async def _follow(self, consumer: Consumer, admin: Admin) -> None:
        loop = asyncio.get_running_loop()
        look_at = loop.time() + self._age_ms / 1000
        tries = 0
        try:
            while True:
                try:
                    await self._read(consumer)
                    if loop.time() >= look_at:
                        await self._assign(consumer, admin)
                        look_at = loop.time() + self._age_ms / 1000
                except DlogError as error:
                    if not self._passes(error):
                        raise
                    tries += 1
                    self._note_outage(error)
                    await asyncio.sleep(admin.cluster.pause_ms(tries, error) / 1000)
                else:
                    tries, self._outage = 0, None
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failure = error
            async with self._moved:
                self._moved.notify_all()

    async def _read(self, consumer: Consumer) -> None:
        changed = apply(self._entries, await consumer.poll(POLL_MS, POLL_RECORDS))
        if self._on_change is not None:
            for key, value in changed.items():
                self._on_change(key, value)
        async with self._moved:
            self._moved.notify_all()

    def _passes(self, error: DlogError) -> bool:
        """Whoever waits for the table to be loaded is told at once; later it is worth waiting."""
        return self._is_loaded and is_retriable(error) and not isinstance(error, UnknownTopicError)

    def _note_outage(self, error: DlogError) -> None:
        if self._outage is None:
            logger.warning(
                "the table of %s is as old as it is until it can be read again: %s", self.topic, error
            )
        self._outage = error

    # --- waiting -------------------------------------------------------------------------------

    async def wait_until(
        self, place: RecordMetadata | tuple[TopicPartition, int], timeout_ms: int = 30_000
    ) -> None:
        """Waits until the record at this place is part of the table."""
        if isinstance(place, RecordMetadata):
            partition, offset = TopicPartition(place.topic, place.partition), place.offset
        else:
            partition, offset = place
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._reach(partition, offset + 1)
        except TimeoutError:
            raise RequestTimedOutError(
                f"offset {offset} of {partition} was not read within {timeout_ms} ms"
            ) from None

    async def _reach(self, partition: TopicPartition, position: int) -> None:
        async with self._moved:
            await self._moved.wait_for(
                lambda: self._failure is not None or self._checked().positions().get(partition, 0) >= position
            )
        self._checked()

    def _checked(self) -> Consumer:
        if self._failure is not None:
            raise self._failure
        if self._consumer is None:
            raise ClientClosedError("the table is not open")
        return self._consumer

    # --- looking -------------------------------------------------------------------------------

    def __getitem__(self, key: K) -> V:
        self._checked()
        return self._entries[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self.snapshot())

    def __len__(self) -> int:
        self._checked()
        return len(self._entries)

    def snapshot(self) -> dict[K, V]:
        """A copy of it as it is now."""
        self._checked()
        return dict(self._entries)

    @property
    def outage(self) -> DlogError | None:
        """Why it cannot be read on at the moment; None while it can."""
        return self._outage

    async def lag(self) -> int:
        """How many offsets it is behind."""
        return sum((await self._checked().lag()).values())

    async def close(self) -> None:
        following, self._following = self._following, None
        consumer, self._consumer = self._consumer, None
        admin, self._admin = self._admin, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        try:
            if consumer is not None:
                await consumer.close()
        finally:
            if admin is not None:
                await admin.close()
