"""A consumer that calls handlers: `@runner.handler("orders")`.

    poll --> lanes --(one of each key at a time, `concurrency` in all)--> handler --> done --> committed
                                                                             |
                                                                   fails: in place, delay topic, dead letter

**At least once.**  A record counts as done when its handler has returned, or when it is stored in a delay
topic or as a dead letter.  Only what all is done before is committed: every `commit_interval_ms`, before
partitions are given up, and at the end.

| event                          | what happens                                                             |
|--------------------------------|--------------------------------------------------------------------------|
| a handler fails                | as `retries` says; without one the runner ends, and `run` raises it      |
| partitions are given up        | what waits of them is dropped, what is under way is waited for           |
| partitions were lost           | what is under way of them may end, and counts for nothing                |
| `stop`, SIGTERM or SIGINT      | nothing is begun any more; what is under way is waited for, for          |
|                                | `shutdown_timeout_ms`; then cancelled, and handled again by the next one |
| a failed record cannot be sent | the runner ends, and `run` raises it: nothing is lost                    |
| a reply is not of a kind that  | whoever asked is told why, as of a handler that fails                    |
| can be sent, or too large      |                                                                          |
| a reply address is none        | it is logged and counted: a request stops nobody but its own requester   |

Memory is bounded: with more than `in_hand_max` records in hand, nothing is fetched.

A handler that is no coroutine function is called on a thread; there are `concurrency` of them.
"""

import asyncio
import concurrent.futures
import inspect
import logging
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from distributedlog.client.admin.topics import NewTopic
from distributedlog.client.errors import code_of
from distributedlog.client.faces.aio_admin import Admin
from distributedlog.client.faces.aio_consumer import Consumer
from distributedlog.client.faces.aio_producer import Producer
from distributedlog.client.faces.records import ConsumerRecord
from distributedlog.client.faces.settings import (
    BOOTSTRAP_DEFAULT,
    ConsumerSettings,
    Deserializer,
    ProducerSettings,
    as_bytes,
    of_every_client,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    ConfigError,
    DlogError,
    InvalidRequestError,
    RecordTooLargeError,
    TopicExistsError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.patterns.correlation import error_headers, reply_address
from distributedlog.patterns.lanes import Lanes, Order, Ticket
from distributedlog.patterns.retries import (
    DeadLetterError,
    RetryPolicy,
    Topics,
    after_failure,
    attempts_of,
    topics_for,
)
from distributedlog.ports.clock import Clock, SystemClock
from distributedlog.records.record import Header

logger = logging.getLogger(__name__)

POLL_MS: Final = 200
"""How long one wait for records is: then commits, pauses and the end are looked after."""
LOOK_AGAIN_S: Final = 0.02
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

WRONG_ADDRESS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""What a reply fails with because of where its request wants it; all else is a failure of the cluster."""

Handler = Callable[[ConsumerRecord], Any]
"""A function, which is called on a thread, or a coroutine function."""
F = TypeVar("F", bound=Handler)


@dataclass(slots=True)
class RunnerMetrics:
    """Counts since the runner was made."""

    handled: int = 0
    failed: int = 0
    """Attempts that failed."""
    retried: int = 0
    """Records that went to a delay topic."""
    dead_letters: int = 0
    unreplied: int = 0
    """Requests whose reply address is none."""
    commits: int = 0


@dataclass(frozen=True, slots=True)
class _Registered:
    call: Handler
    key: Deserializer | None
    value: Deserializer | None
    topics: Topics | None
    delay_ms: int
    """The delay of the topic, if it is a delay topic."""
    replies: bool

    def read(self, record: ConsumerRecord) -> ConsumerRecord:
        """The record as the handler gets it."""
        try:
            if self.key is not None and record.key is not None:
                record = record._replace(key=self.key(record.key))
            if self.value is not None and record.value is not None:
                record = record._replace(value=self.value(record.value))
        except Exception as error:  # whatever a program's own code raises
            raise DeadLetterError(f"it cannot be deserialized: {error!r}") from error
        return record


class Runner:
    """Reads topics with a group and calls their handlers.  Made anywhere, run once, on one loop."""

    def __init__(
        self,
        bootstrap: str = BOOTSTRAP_DEFAULT,
        *,
        group_id: str,
        concurrency: int = 16,
        order: Order = "key",
        retries: RetryPolicy | None = None,
        create_topics: bool = True,
        in_hand_max: int = 2_000,
        commit_interval_ms: int = 1_000,
        shutdown_timeout_ms: int = 30_000,
        consumer: ConsumerSettings | None = None,
        producer: ProducerSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._group_id = group_id
        self._retries = retries
        self._creates_topics = create_topics
        self._in_hand_max = in_hand_max
        self._commit_interval_ms = commit_interval_ms
        self._shutdown_timeout_ms = shutdown_timeout_ms
        settings: ConsumerSettings = {"auto_offset_reset": "earliest", **(consumer or {})}
        settings["group_id"], settings["enable_auto_commit"] = group_id, False
        self._consumer_settings = settings
        self._producer_settings: ProducerSettings = producer or {}
        self._clock = clock or SystemClock()
        self._lanes = Lanes(concurrency, order)
        self._threads = concurrent.futures.ThreadPoolExecutor(concurrency, "dlog-handler")
        self._handlers: dict[str, _Registered] = {}
        self._metrics = RunnerMetrics()
        self._tasks: set[asyncio.Task[None]] = set()
        self._committed: dict[TopicPartition, int] = {}
        self._commit_due_ms = 0
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopping = False
        self._started = asyncio.Event()
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._forwarder: Producer | None = None
        """Sends bytes as they are, whatever serializers handlers have for what they send."""

    # --- handlers ------------------------------------------------------------------------------

    def handler(
        self,
        *topics: str,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> Callable[[F], F]:
        """The function below it is called with each record of these topics."""
        return self._register(topics, key_deserializer, value_deserializer, replies=False)

    def responder(
        self,
        *topics: str,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> Callable[[F], F]:
        """What the function below it returns is the reply to the request, and so is what it raises."""
        return self._register(topics, key_deserializer, value_deserializer, replies=True)

    def _register(
        self, topics: tuple[str, ...], key: Deserializer | None, value: Deserializer | None, *, replies: bool
    ) -> Callable[[F], F]:
        if not topics:
            raise ConfigError("a handler is for topics: name at least one")

        def register(call: F) -> F:
            policy = None if replies else self._retries
            for topic in topics:
                others = None if policy is None else topics_for(topic, self._group_id, policy)
                self._add(topic, _Registered(call, key, value, others, 0, replies))
                if policy is not None and others is not None:
                    for name, delay_ms in zip(others.delays, policy.delays_ms, strict=True):
                        self._add(name, _Registered(call, key, value, others, delay_ms, replies))
            return call

        return register

    def _add(self, topic: str, registered: _Registered) -> None:
        if topic in self._handlers:
            raise ConfigError(f"topic {topic!r} has a handler already")
        self._handlers[topic] = registered

    # --- its life ------------------------------------------------------------------------------

    async def run(self, *, handle_signals: bool = False) -> None:
        """Runs until `stop`; with `handle_signals` SIGTERM and SIGINT stop it, too.  Raises what ended it."""
        if not self._handlers:
            raise ConfigError("there is no handler: write one below @runner.handler(topic)")
        if self._loop is not None:
            raise InvalidRequestError("a runner is run once: make another one")
        self._loop = asyncio.get_running_loop()
        self._consumer = consumer = Consumer(self._bootstrap, **self._consumer_settings)
        self._producer = Producer(self._bootstrap, **self._producer_settings)
        self._forwarder = self._make_forwarder(self._producer)
        with _signals(self._loop, self.stop, wanted=handle_signals):
            try:
                await self._make_topics()
                consumer.subscribe(self._handlers, on_revoked=self._on_revoked, on_lost=self._on_lost)
                self._started.set()
                while not self._is_stopping:
                    await self._turn(consumer)
            finally:
                await self._shut_down(consumer, {self._producer, self._forwarder})
        if self._failure is not None:
            raise self._failure

    def _make_forwarder(self, producer: Producer) -> Producer:
        plain: ProducerSettings = {**self._producer_settings}
        has_serializers = "key_serializer" in plain or "value_serializer" in plain
        plain.pop("key_serializer", None)
        plain.pop("value_serializer", None)
        return Producer(self._bootstrap, **plain) if has_serializers else producer

    def stop(self) -> None:
        """Ends it: what is under way is done first.  Any thread and any handler may call it."""
        loop = self._loop
        self._is_stopping = True
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(lambda: None)

    async def started(self) -> None:
        """Waits until it has subscribed."""
        await self._started.wait()

    @property
    def producer(self) -> Producer:
        """The producer of handlers that send: what they await is sent before their record is committed."""
        if self._producer is None:
            raise InvalidRequestError("the runner does not run")
        return self._producer

    def metrics(self) -> dict[str, int]:
        """Counts since it was made, and how many records are in hand."""
        return {**asdict(self._metrics), "in_hand": self._lanes.in_hand, "under_way": self._lanes.under_way}

    async def _make_topics(self) -> None:
        """Delay topics and dead-letter topics have as many partitions as what they are for."""
        wanted = {topic: each.topics for topic, each in self._handlers.items() if each.topics is not None}
        if not self._creates_topics or not wanted:
            return
        async with Admin(self._bootstrap, **of_every_client(self._consumer_settings)) as admin:
            counts = {each.name: len(each.partitions) for each in await admin.list_topics()}
            for topic, others in wanted.items():
                if topic in others.delays:
                    continue
                for name in (*others.delays, others.dead_letters):
                    if name not in counts:
                        try:
                            await admin.create_topic(NewTopic(name, counts.get(topic, -1)))
                        except TopicExistsError:
                            continue  # another runner of the group was faster

    async def _turn(self, consumer: Consumer) -> None:
        self._pause_and_resume(consumer)
        now_ms = self._clock.wall_ms()
        for record in await consumer.poll(POLL_MS):
            due_ms = attempts_of(record).due_ms
            latest_ms = now_ms + self._handlers[record.topic].delay_ms
            self._lanes.add(record, min(due_ms, latest_ms))
        self._start_ready()
        if self._clock.monotonic_ms() >= self._commit_due_ms:
            await self._commit(consumer, self._lanes.safe_offsets())

    def _pause_and_resume(self, consumer: Consumer) -> None:
        if self._lanes.in_hand >= self._in_hand_max:
            wanted = consumer.assignment
        else:
            wanted = consumer.assignment & self._lanes.unready(self._clock.wall_ms())
        paused = consumer.paused & consumer.assignment
        consumer.pause(*(wanted - paused))
        consumer.resume(*(paused - wanted))

    # --- records -------------------------------------------------------------------------------

    def _start_ready(self) -> None:
        if self._is_stopping:
            return
        for ticket in self._lanes.start(self._clock.wall_ms()):
            task = asyncio.create_task(self._handle(ticket))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _handle(self, ticket: Ticket) -> None:
        try:
            await self._attempt(ticket.record, self._handlers[ticket.record.topic])
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failure = self._failure or error
            self.stop()
            return  # it is not done: nothing behind it is committed
        self._metrics.handled += 1
        self._lanes.finish(ticket)
        self._start_ready()

    async def _attempt(self, raw: ConsumerRecord, registered: _Registered) -> None:
        pauses_ms = iter(() if self._retries is None else self._retries.in_place_ms)
        tries = 0
        while True:
            tries += 1
            try:
                outcome = await self._call(registered.call, registered.read(raw))
                reply = self._serialized(outcome) if registered.replies else None
            except Exception as error:
                self._metrics.failed += 1
                if registered.replies:
                    await self._reply_error(raw, error)
                    return
                policy = self._retries
                if policy is None or registered.topics is None:
                    raise
                pause_ms = None if isinstance(error, policy.give_up_on) else next(pauses_ms, None)
                if pause_ms is None or self._is_stopping:
                    await self._pass_on(raw, error, tries, registered.topics, policy)
                    return
                await asyncio.sleep(pause_ms / 1000)
            else:
                if registered.replies:
                    await self._reply(raw, reply)
                return

    async def _call(self, call: Handler, record: ConsumerRecord) -> Any:
        if inspect.iscoroutinefunction(call):
            return await call(record)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, record)

    async def _pass_on(
        self, record: ConsumerRecord, error: Exception, tries: int, topics: Topics, policy: RetryPolicy
    ) -> None:
        following = after_failure(
            record,
            error,
            tries=tries,
            group=self._group_id,
            topics=topics,
            policy=policy,
            now_ms=self._clock.wall_ms(),
        )
        await self._forward(following.topic, record.value, record.key, following.headers)
        if following.is_dead:
            self._metrics.dead_letters += 1
            logger.warning("a dead letter from %s-%d: %r", record.topic, record.partition, error)
        else:
            self._metrics.retried += 1

    def _serialized(self, outcome: Any) -> bytes | None:
        serialize = self._producer_settings.get("value_serializer")
        return as_bytes(outcome if serialize is None else serialize(outcome))

    async def _reply(self, record: ConsumerRecord, value: bytes | None) -> None:
        try:
            await self._send_reply(record, value)
        except RecordTooLargeError as error:
            self._metrics.failed += 1
            await self._reply_error(record, error)

    async def _reply_error(self, record: ConsumerRecord, error: Exception) -> None:
        await self._send_reply(record, b"", error_headers(error))

    async def _send_reply(
        self, record: ConsumerRecord, value: bytes | None, headers: tuple[Header, ...] = ()
    ) -> None:
        address = reply_address(record.headers)
        if address is None:
            self._unreplied(record, "it says not where to")
            return
        try:
            await self._forward(
                address.topic, value, record.key, (*address.headers, *headers), address.partition
            )
        except DlogError as error:
            if code_of(error) not in WRONG_ADDRESS:
                raise
            self._unreplied(record, str(error))

    def _unreplied(self, record: ConsumerRecord, reason: str) -> None:
        self._metrics.unreplied += 1
        logger.warning(
            "the request at offset %d of %s-%d is not replied to: %s",
            record.offset, record.topic, record.partition, reason,
        )  # fmt: skip

    async def _forward(
        self, topic: str, value: Any, key: Any, headers: tuple[Header, ...], partition: int | None = None
    ) -> None:
        assert self._forwarder is not None
        await self._forwarder.send_and_wait(topic, value, key, partition=partition, headers=headers)

    # --- what is done --------------------------------------------------------------------------

    async def _commit(self, consumer: Consumer, offsets: dict[TopicPartition, int]) -> None:
        """A commit that fails is no harm but to those who handle again."""
        self._commit_due_ms = self._clock.monotonic_ms() + self._commit_interval_ms
        due = {
            each: at
            for each, at in offsets.items()
            if self._committed.get(each) != at and each in consumer.assignment
        }
        if not due:
            return
        try:
            await consumer.commit(due)
        except DlogError as error:
            logger.warning("offsets were not committed: %s", error)
            return
        self._committed.update(due)
        self._metrics.commits += 1

    async def _on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        assert self._consumer is not None
        self._lanes.retire(partitions)
        deadline_ms = self._clock.monotonic_ms() + self._shutdown_timeout_ms
        while self._lanes.under_way_of(partitions) and self._clock.monotonic_ms() < deadline_ms:
            if not self._tasks:
                break  # one that failed is not done, and never will be
            await asyncio.wait(self._tasks, timeout=LOOK_AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
        safe = self._lanes.safe_offsets()
        await self._commit(self._consumer, {each: safe[each] for each in partitions if each in safe})
        self._on_lost(partitions)

    def _on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._lanes.drop(partitions)
        for each in partitions:
            self._committed.pop(each, None)

    async def _shut_down(self, consumer: Consumer, producers: Collection[Producer]) -> None:
        self._is_stopping = True
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self._shutdown_timeout_ms / 1000)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._shutdown_timeout_ms = 0  # nothing is waited for twice
            try:
                await consumer.close()  # gives its partitions up, and so commits
            finally:
                for each in producers:
                    await each.close()


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None], *, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    for each in SIGNALS:
        loop.add_signal_handler(each, stop)
    try:
        yield
    finally:
        for each in SIGNALS:
            loop.remove_signal_handler(each)
