"""The consumer of programs without an event loop: `distributedlog.Consumer`.

The consumer of `aio_consumer`, on a loop in a thread of its own.  Each call runs there and is waited for
here; only records that have been fetched already are given out without, if nothing else is due.  While a call
is waited for, callbacks that it causes are handed back and run on the caller's own thread, so that they may
use the consumer, to commit or to seek:

    caller  --poll-->  loop  --partitions revoked-->  caller: on_revoked  --done-->  loop  --records-->
    caller

Heartbeats go on whatever the program does between two polls.  After a fork the child has a consumer with a
thread, connections and a membership of its own, and the same subscription.
"""

import asyncio
import concurrent.futures
import queue
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, Unpack

from distributedlog.client.faces.aio_consumer import Consumer as AioConsumer
from distributedlog.client.faces.loop_thread import LoopThread, left_behind
from distributedlog.client.faces.rebalance_listener import OnPartitions
from distributedlog.client.faces.records import ConsumerRecord
from distributedlog.client.faces.settings import BOOTSTRAP_DEFAULT, ConsumerSettings
from distributedlog.model.errors import ClientClosedError, InvalidRecordError
from distributedlog.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from distributedlog.client.transactions.manager import GroupMetadata

T = TypeVar("T")


class _Call(NamedTuple):
    """A callback for the caller's thread, and whom to tell that it has been called."""

    callback: OnPartitions
    partitions: Collection[TopicPartition]
    told: "asyncio.Future[None]"


class Consumer:
    """Reads records.  To be used with `with`, by one thread at a time."""

    def __init__(self, bootstrap: str = BOOTSTRAP_DEFAULT, **settings: Unpack[ConsumerSettings]) -> None:
        self._make: Callable[[], AioConsumer] = lambda: AioConsumer(bootstrap, **settings)
        self._consumer = self._make()
        self._subscribe: Callable[[AioConsumer], None] | None = None
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._is_closed = False
        self._must_ask = False
        """Whether the loop may have to take records back before there is a next one."""
        self._thread = LoopThread("dlog-consumer", self._begin_anew)

    def _begin_anew(self) -> None:
        left_behind(self._consumer)
        self._consumer = self._make()
        self._calls = queue.SimpleQueue()
        if self._subscribe is not None:
            self._subscribe(self._consumer)

    def _run(self, work: "Coroutine[Any, Any, T]") -> T:
        """Runs it on the loop, and its callbacks here."""
        if self._is_closed:
            work.close()
            raise ClientClosedError("the consumer is closed")
        future = self._thread.submit(work)
        calls = self._calls
        future.add_done_callback(lambda _: calls.put(None))
        try:
            while (call := calls.get()) is not None:
                self._answer(call)
            return future.result()
        except BaseException:
            future.cancel()
            # The old queue tells of this end, which the next call must not take for its own.
            self._calls = queue.SimpleQueue()
            raise

    def _give(self, work: "Callable[[], Coroutine[Any, Any, T]]") -> T:
        """Runs what gives out records.  Those that an interrupt keeps from the caller are given out again,
        though the loop may have been done with them before it heard of that."""
        is_given = False

        async def give() -> T:
            nonlocal is_given
            found = await work()
            is_given = True
            return found

        try:
            found = self._run(give())
        except ClientClosedError:
            raise
        except BaseException:
            self._take_back(lambda: is_given)
            raise
        self._must_ask = False
        return found

    def _take_back(self, is_given: Callable[[], bool] = lambda: True) -> None:
        """Has the loop give out again what an interrupt keeps from the caller, if it has been given out."""
        self._must_ask = True
        if self._thread.is_running:
            consumer = self._consumer
            self._thread.call_soon(lambda: consumer.take_back() if is_given() else None)

    def _answer(self, call: _Call) -> None:
        outer, self._calls = (
            self._calls,
            queue.SimpleQueue(),
        )  # the callback's own calls end in a queue of theirs
        try:
            call.callback(call.partitions)
        except Exception as error:
            self._thread.call_soon(_set, call.told, error)
        else:
            self._thread.call_soon(_set, call.told, None)
        finally:
            self._calls = outer

    def _here(self, callback: OnPartitions | None) -> OnPartitions | None:
        """The callback as the loop calls it: it runs on the caller's thread."""
        if callback is None:
            return None

        async def hand_over(partitions: Collection[TopicPartition]) -> None:
            told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._calls.put(_Call(callback, partitions, told))
            await told

        return hand_over

    def _soon(self, what: Callable[[], T]) -> T:
        async def call() -> T:
            return what()

        return self._run(call())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(self._consumer.__aexit__(kind, error, trace))

    def close(self) -> None:
        """Commits what is safe, leaves the group and closes all connections."""
        self._close(self._consumer.close())

    def _close(self, work: "Coroutine[Any, Any, None]") -> None:
        if self._is_closed or not self._thread.is_running:
            work.close()
        else:
            try:
                self._run(work)
            finally:
                self._is_closed = True
                self._thread.stop()
        self._is_closed = True

    # --- what to read --------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Reads these topics, or all whose whole names match a regular expression, shared with the group.

        Callbacks are called within `poll` and `close`, on the thread that calls these.
        """
        names = topics if isinstance(topics, str) else tuple(topics)

        def subscribe(consumer: AioConsumer) -> None:
            consumer.subscribe(
                names,
                pattern=pattern,
                on_assigned=self._here(on_assigned),
                on_revoked=self._here(on_revoked),
                on_lost=self._here(on_lost),
            )

        self._soon(lambda: subscribe(self._consumer))
        self._subscribe = subscribe

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions and no others, whatever the group's other members do."""
        wanted = tuple(partitions)
        self._soon(lambda: self._consumer.assign(wanted))
        self._subscribe = lambda consumer: consumer.assign(wanted)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._consumer.assignment

    def pause(self, *partitions: TopicPartition) -> None:
        """Gives out nothing of these until they are resumed; the group keeps them here."""
        self._soon(lambda: self._consumer.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        self._soon(lambda: self._consumer.resume(*partitions))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._consumer.paused

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """The next record of the partition is the one at this offset, or the first one behind it."""
        self._soon(lambda: self._consumer.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._run(self._consumer.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._run(self._consumer.seek_to_end(*partitions))

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Moves these, or all, behind what was committed, or, before anything was, to where this consumer
        began: after an abort, to read the same again."""
        self._run(self._consumer.seek_to_committed(*partitions))

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Moves these, or all, to the first record of that time or later; to the end, if there is none."""
        self._run(self._consumer.seek_to_time(timestamp_ms, *partitions))

    # --- reading -------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 1_000, max_records: int | None = None) -> list[ConsumerRecord]:
        """Returns records, or none after the timeout.  All that was given out before counts as dealt with."""
        if not self._must_ask and not self._is_closed:
            self._consumer.settle()
            try:
                if found := self._consumer.poll_pending(max_records):
                    return found
            except InvalidRecordError:  # then nothing was taken
                raise
            except BaseException:
                self._take_back()
                raise
        return self._give(lambda: self._consumer.poll(timeout_ms, max_records))

    def poll_arrow(self, timeout_ms: int = 1_000) -> "pyarrow.Table":
        """Returns records as rows, with no Python object for each, or no rows after the timeout: `topic`,
        `partition`, `offset`, `timestamp`, `key`, `value`, `headers`.  `.to_pandas()` and `polars.from_arrow`
        make frames of them."""
        return self._give(lambda: self._consumer.poll_arrow(timeout_ms))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record; the one before it counts as dealt with."""
        record = None if self._must_ask else self._consumer.next_pending()
        return self._give(self._consumer.__anext__) if record is None else record

    # --- offsets -------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commits these offsets of next records, or those behind all that was given out."""
        self._run(self._consumer.commit(offsets))

    def commit_async(
        self, offsets: Mapping[TopicPartition, int] | None = None
    ) -> "concurrent.futures.Future[None]":
        """The same without waiting: the future says how it went."""
        if self._is_closed:
            raise ClientClosedError("the consumer is closed")
        if self._must_ask:  # first the loop takes back what an interrupt has kept from the caller
            wanted = self._soon(lambda: self._consumer.dealt_with(offsets))
        else:
            wanted = self._consumer.dealt_with(offsets)  # before this thread gives out the next record
        return self._thread.submit(self._consumer.commit_dealt_with(wanted))

    def committed(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The committed offsets of these, or of all that are assigned, as far as there are any."""
        return self._run(self._consumer.committed(partitions))

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that is given out."""
        return self._run(self._consumer.position(partition))

    def positions(self) -> dict[TopicPartition, int]:
        """The offsets behind all that was given out: what a transaction sends with `send_offsets`."""
        return self._soon(self._consumer.positions)

    def group_metadata(self) -> "GroupMetadata":
        """Which member of the group this consumer is, for `send_offsets`."""
        return self._soon(self._consumer.group_metadata)

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition still has before its end."""
        return self._run(self._consumer.lag())

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._run(self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._run(self._consumer.end_offsets(partitions))

    def metrics(self) -> dict[str, int]:
        """Counts since the consumer was made."""
        return self._consumer.metrics()


def _set(told: "asyncio.Future[None]", error: Exception | None) -> None:
    if told.done():
        return
    if error is None:
        told.set_result(None)
    else:
        told.set_exception(error)
