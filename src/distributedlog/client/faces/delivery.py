"""What became of a record that was sent.

    handed over --(the loop takes it into a batch)--> in a batch --(the batch ends)--> delivered | failed

A `Delivery` knows its batch's end and its own place in the batch; nothing else is kept for a record.  On a
loop it is awaited.  `result` serves other threads as well: there it waits, and on the loop it must be done.

Records of other threads are handed over in runs: those of one partition that go into one batch together.
What became of a run is written down once, for all of its deliveries.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from distributedlog.client.producer import BatchReport
from distributedlog.model.errors import DlogError, RequestTimedOutError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record


class RecordMetadata(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int
    """-1 where it is not known: with acks 0, or if a retry found it written already."""
    timestamp_ms: int
    """The broker's time where the topic has its records stamped by it, or -1."""


OnDelivery = Callable[[DlogError | None, RecordMetadata | None], object]
"""Called with an error or with the record's place, on the loop's thread: it must not block."""


class Delivery:
    """How one record will have ended; awaited, or asked with `result`."""

    __slots__ = ("_ended", "_index")

    def __init__(self, ended: "asyncio.Future[BatchReport]", index: int) -> None:
        self._ended = ended
        self._index = index

    def done(self) -> bool:
        return self._ended.done()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._wait().__await__()

    async def _wait(self) -> RecordMetadata:
        if not self._ended.done():
            await asyncio.wait([self._ended])
        return self.result()

    def result(self) -> RecordMetadata:
        """Returns where the record is, or raises what its batch failed with.  It must be done."""
        return metadata_of(self._ended.result(), self._index)

    def add_done_callback(self, on_delivery: OnDelivery) -> None:
        call_when_ended(self._ended, self._index, on_delivery)


class BlockingDelivery:
    """The same for another thread than the loop's: `result` waits."""

    __slots__ = ("_index", "_run")

    def __init__(self, run: "Run", index: int) -> None:
        self._run = run
        self._index = index

    @property
    def is_in_batch(self) -> bool:
        return self._run.ended is not None

    def done(self) -> bool:
        ended = self._run.ended
        return ended is not None and ended.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Returns where the record is, after at most `timeout` seconds, or raises what its batch failed
        with."""
        self._wait(timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> DlogError | None:
        """Returns what it failed with, or None once it is delivered.  Raises `RequestTimedOutError` if that
        takes more than `timeout` seconds: nobody knows then."""
        self._wait(timeout)
        try:
            self._outcome()
        except DlogError as error:
            return error
        return None

    def _wait(self, timeout: float | None) -> None:
        if self.done():
            return
        waiting = self._run.owner.wait_for(self)
        try:
            waiting.result(timeout)
        except concurrent.futures.TimeoutError:
            waiting.cancel()
            raise RequestTimedOutError(f"the record was not delivered within {timeout} s") from None

    def _outcome(self) -> RecordMetadata:
        run = self._run
        assert run.ended is not None
        return metadata_of(run.ended.result(), run.first_index + self._index)

    async def ended(self) -> None:
        """Waits, on the loop, for the end of a record that is in a batch there."""
        ended = self._run.ended
        if ended is None or ended.get_loop() is not asyncio.get_running_loop():
            raise DlogError("the record was sent by the parent process, which alone knows how that ends")
        if not ended.done():
            await asyncio.wait([ended])


class Run:
    """Records of one partition, in their order, which go into one batch together."""

    __slots__ = ("callbacks", "ended", "first_index", "owner", "partition", "records", "size_bytes")

    def __init__(self, owner: "Owner", partition: TopicPartition) -> None:
        self.owner = owner
        self.partition = partition
        self.records: list[Record] = []
        """None any more once they are in a batch."""
        self.size_bytes = 0
        self.callbacks: list[tuple[int, OnDelivery]] = []
        """Those of some records, by their places."""
        self.first_index = 0
        self.ended: asyncio.Future[BatchReport] | None = None
        """The end of the batch that they are in; None before they are in one."""

    def bind(self, ended: "asyncio.Future[BatchReport]", first_index: int) -> None:
        """The loop has put the records into a batch, the first at that place."""
        self.records = []
        self.first_index = first_index
        self.ended = ended  # last: other threads take it for the sign that the rest is there
        for at, on_delivery in self.callbacks:
            call_when_ended(ended, first_index + at, on_delivery)
        self.callbacks.clear()


class Owner:
    """Whoever made a blocking delivery."""

    def wait_for(self, delivery: BlockingDelivery) -> "concurrent.futures.Future[None]":
        raise NotImplementedError


def metadata_of(report: BatchReport, index: int) -> RecordMetadata:
    offset = report.offset_of(index)
    return RecordMetadata(*report.partition, offset, report.of_record(index)[0].append_time_ms)


def call_when_ended(ended: "asyncio.Future[BatchReport]", index: int, on_delivery: OnDelivery) -> None:
    def call(future: "asyncio.Future[BatchReport]") -> None:
        report = future.result()
        error = report.of_record(index)[0].error
        if error is not None:
            on_delivery(error, None)
        else:
            on_delivery(None, metadata_of(report, index))

    ended.add_done_callback(call)
