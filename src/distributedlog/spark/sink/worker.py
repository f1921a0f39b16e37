"""The producers of a worker process, each with a thread of its own, kept from task to task.

Spark's Python workers live longer than tasks.  A producer that is made anew for each task would cost a
connection and a question for its identity every time, and leave a producer id in every partition's state, for
a day, for each task of each micro-batch.  So the producer stays: the next task with the same options goes on
with the same identity and the next sequences.

    task thread:   route and encode rows ──► `send` (waits for room) ──► ... ──► `finish` (waits for all)
    own thread:    an event loop: connections, requests, retries; each batch's end into the tally

**A task that fails** takes its producer with it: what it had not sent is dropped, what it had sent is there,
and nobody goes on in the middle of its sequences.  **A forked process** has the objects but not the threads:
it leaves them alone and makes its own.  A worker that is killed leaves nothing but its producer id.

**Exactly once** the identity is not the process's but the attempt's: `join` leases one for each task, and a
new `Producer` on the same connections writes under it, with heartbeats until the task ends.
"""

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, TypeVar

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.metadata import Cluster
from distributedlog.client.producer import BatchReport, Producer
from distributedlog.client.sinks import Sink, SinkLease
from distributedlog.model.errors import DlogError, RecordTooLargeError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.arrow_write import CutBatch
from distributedlog.spark.sink.attempts import Attempt
from distributedlog.spark.sink.options import SinkOptions

T = TypeVar("T")

PRODUCERS_MAX: Final = 4
"""The producers of one process: a worker that serves more kinds of sinks closes the one that was used longest
ago."""


class Tally:
    """What became of the batches of one task.  Written by the producer's thread."""

    def __init__(self) -> None:
        self.counts: dict[TopicPartition, int] = {}
        self.failure: DlogError | None = None

    def note(self, report: BatchReport) -> None:
        if report.error is None:
            self.counts[report.partition] = self.counts.get(report.partition, 0) + report.record_count
        elif self.failure is None:
            self.failure = _explained(report)

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure from None


def _explained(report: BatchReport) -> DlogError:
    error = report.error
    assert error is not None
    if isinstance(error, RecordTooLargeError):
        return RecordTooLargeError(
            f"{error}; a row for {report.partition} is larger than the topic takes: raise its "
            "max.message.bytes, or leave such rows out"
        )
    return error


class SinkProducer:
    """A producer for tasks, one after the other."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.process_id = os.getpid()
        self._tally = Tally()
        self._joined = AsyncExitStack()
        self._beating: asyncio.Task[None] | None = None
        """The heartbeats of the attempt that has joined; ended, they say why the batch is over."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="dlog-sink", daemon=True)
        self._thread.start()
        self._cluster, self._producer = self._run(self._open())

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> tuple[Cluster, Producer]:
        cluster = Cluster(parse_bootstrap(self.options.bootstrap), self.options.client)
        return cluster, self._make_producer(cluster)

    def _make_producer(self, cluster: Cluster) -> Producer:
        return Producer(cluster, self.options.producer, on_batch=lambda report: self._tally.note(report))

    # --- a task's side -------------------------------------------------------------------------

    def begin(self) -> None:
        self._tally = Tally()

    def join(self, attempt: Attempt) -> SinkLease | None:
        """Has everything of this task written under a lease; None: the batch is committed already."""
        return self._run(self._join(attempt))

    async def _join(self, attempt: Attempt) -> SinkLease | None:
        sink, timeout_ms = Sink(self._cluster, attempt.query_id), self.options.batch_timeout_ms
        lease = await sink.join(attempt.token, attempt.batch_id, attempt.attempt_id, timeout_ms=timeout_ms)
        if lease is None:
            return None
        await self._producer.close()
        self._producer = self._make_producer(self._cluster)
        self._producer.lease(*lease)
        self._beating = await self._joined.enter_async_context(
            sink.heartbeats(attempt.token, attempt.batch_id, timeout_ms=timeout_ms)
        )
        return lease

    def leave(self) -> None:
        """Ends the heartbeats.  What was written is the driver's to decide."""
        self._run(self._leave())

    async def _leave(self) -> None:
        self._beating = None
        await self._joined.aclose()

    def _check(self) -> None:
        """Raises if it is known that the task is in vain."""
        self._tally.check()
        if self._beating is not None and self._beating.done():
            self._beating.result()

    def partition_count(self, topic: str, *, afresh: bool = False) -> int:
        """The topic is created if it is not there and the cluster does that.  `afresh`: it may have grown."""
        return self._run(self._partition_count(topic, afresh))

    async def _partition_count(self, topic: str, afresh: bool) -> int:
        if afresh:
            self._cluster.mark_stale()
        allows = self.options.producer.allow_creation
        return await self._cluster.partition_count(topic, allow_creation=allows)

    def draw(self, count: int) -> int:
        return self._cluster.draw(count)

    def wall_ms(self) -> int:
        return self._cluster.clock.wall_ms()

    def send(self, batches: Sequence[tuple[TopicPartition, CutBatch]]) -> None:
        """Takes them; waits for room.  Raises as soon as it is known that one of the task's has failed."""
        self._run(self._send(batches))

    async def _send(self, batches: Sequence[tuple[TopicPartition, CutBatch]]) -> None:
        for partition, cut in batches:
            self._check()
            await self._producer.send_cut(partition, cut)

    def finish(self) -> dict[TopicPartition, int]:
        """Everything is delivered: how many rows each partition got.  Raises if anything was not."""
        self._run(self._producer.flush())
        self._check()
        return dict(self._tally.counts)

    # --- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the producer; what is not delivered is dropped."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        await self._leave()
        await self._producer.close()
        await self._cluster.close()


class _Kept:
    """The producers of this process that no task is using, the one that was used last at the end."""

    def __init__(self) -> None:
        self._idle: OrderedDict[SinkOptions, SinkProducer] = OrderedDict()
        self._inherited: list[SinkProducer] = []
        """The producers of the process that this one was forked from: not ours to close, so they are kept as
        they are."""

    def take(self, options: SinkOptions) -> SinkProducer:
        found = self._idle.pop(options, None)
        if found is not None and found.process_id != os.getpid():
            self._inherited += [found, *self._idle.values()]
            self._idle.clear()
            found = None
        return SinkProducer(options) if found is None else found

    def give_back(self, producer: SinkProducer) -> None:
        known = self._idle.pop(producer.options, None)
        if known is not None and known.process_id == os.getpid():
            known.close()
        self._idle[producer.options] = producer
        while len(self._idle) > PRODUCERS_MAX:
            _, oldest = self._idle.popitem(last=False)
            if oldest.process_id == os.getpid():
                oldest.close()
            else:
                self._inherited.append(oldest)

    def close(self) -> None:
        while self._idle:
            _, producer = self._idle.popitem()
            if producer.process_id == os.getpid():
                producer.close()


KEPT: Final = _Kept()


class task_producer:  # noqa: N801 (used like a function)
    """`with task_producer(options) as producer`: the process's own, kept if the task succeeds."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def __enter__(self) -> SinkProducer:
        self._producer = KEPT.take(self._options)
        self._producer.begin()
        return self._producer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._producer.leave()
            KEPT.give_back(self._producer)
        else:
            self._producer.close()
