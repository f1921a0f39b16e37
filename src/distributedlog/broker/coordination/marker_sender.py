"""Sends the markers of decided transactions to the leaders of their partitions, for as long as it takes.

    a transaction is decided ──► its partitions by leader ──► one WriteTxnMarkers for all that wait for one
    leader ──► every partition has its marker: told to the coordinator

| of a partition                              | what is done                                               |
|---------------------------------------------|------------------------------------------------------------|
| written                                     | done                                                       |
| its topic is deleted                        | done: there is nobody left to read it                      |
| the producer has a later epoch there        | done: nothing of this transaction is open there            |
| it keeps no transactions (UNSUPPORTED_…)    | done                                                       |
| it has no leader; any other error; no answer| tried again, later each time, with whoever leads it then   |

A leader that is fenced is not waited for any longer: what it was asked for is routed anew at once
(`brokers_changed`), and not only when its response has timed out.

No transaction waits for another: each leader has its own queue and connection, several requests may be under
way to one, and those that failed before go apart from those that did not.  What is under way is bounded by
these; what waits, by the transactions that there are.

This broker's own partitions are written to directly.  A job belongs to one coordinator in one epoch, which
cancels it when it is one no more: the next one sends all of the markers again, and partitions bear that.
Nothing here survives a crash: the PREPARE states in the log do.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from distributedlog.broker.peers.authentication import PROVE_ANEW
from distributedlog.client.connection import Connection
from distributedlog.client.errors import as_error_code
from distributedlog.controller.image import MetadataImage
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerUnreachableError, DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import Clock
from distributedlog.ports.scheduler import Scheduler
from distributedlog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from distributedlog.transactions.requests import SendMarkers

_logger = logging.getLogger("distributedlog.broker")

IN_FLIGHT_MAX: Final = 4
"""The requests that are under way to one leader."""
PARTITIONS_MAX: Final = 2_000
"""The markers of one request, but for a single transaction with more."""
RETRY_MS: Final = 20
RETRY_MS_MAX: Final = 2_000
DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)

Connect = Callable[[int], Awaitable[Connection]]
WriteHere = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]
_Results = dict[tuple[int, TopicPartition], ErrorCode]


class MarkerJob:
    """The markers of one transaction."""

    __slots__ = ("attempts", "done", "is_cancelled", "left", "markers")

    def __init__(self, markers: SendMarkers, done: Callable[[], None]) -> None:
        self.markers = markers
        self.done = done
        self.left = set(markers.partitions)
        """The partitions that have none yet."""
        self.attempts = 0
        self.is_cancelled = False


class _Part(NamedTuple):
    """What one leader has to write of a job."""

    job: MarkerJob
    partitions: tuple[TopicPartition, ...]
    is_retry: bool


class _Leader:
    """What one broker has to write."""

    __slots__ = ("connection", "in_flight", "queue")

    def __init__(self) -> None:
        self.queue: deque[_Part] = deque()
        self.in_flight = 0
        self.connection: asyncio.Task[Connection] | None = None

    def disconnect(self) -> None:
        """Closes the connection, or ends the making of it."""
        task, self.connection = self.connection, None
        if task is None:
            return
        if not task.done():
            task.cancel()
        elif not task.cancelled() and task.exception() is None:
            task.result().close()


class MarkerSender:
    def __init__(
        self,
        image: Callable[[], MetadataImage],
        *,
        broker_id: int,
        connect: Connect,
        write_here: WriteHere,
        clock: Clock,
        scheduler: Scheduler,
        timeout_ms: int,
    ) -> None:
        """`connect` makes a connection on which this broker has proved which it is."""
        self._image = image
        self._broker_id = broker_id
        self._connect = connect
        self._write_here = write_here
        self._clock = clock
        self._scheduler = scheduler
        self._timeout_ms = timeout_ms
        self._leaders: dict[int, _Leader] = {}
        self._jobs: dict[MarkerJob, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_flush_posted = False
        self._is_closed = False

    @property
    def waiting_count(self) -> int:
        """The markers that are not written yet."""
        return sum(len(job.left) for job in self._jobs)

    def send(self, markers: SendMarkers, done: Callable[[], None]) -> MarkerJob:
        """Begins to send; `done` is called once, in a later turn of the loop, unless the job is cancelled."""
        job = MarkerJob(markers, done)
        self._jobs[job] = None
        self._route(job, job.left, is_retry=False)
        return job

    def cancel(self, jobs: Iterable[MarkerJob]) -> None:
        for job in jobs:
            job.is_cancelled = True
            self._jobs.pop(job, None)

    def brokers_changed(self) -> None:
        """Gives up on fenced brokers: others lead in their place, or will."""
        image = self._image()
        for leader_id, leader in list(self._leaders.items()):
            if leader_id == self._broker_id or _is_unfenced(image, leader_id):
                continue
            leader.disconnect()  # so what is in flight fails, and is tried again
            queue, leader.queue = leader.queue, deque()
            for part in queue:
                if not part.job.is_cancelled:
                    self._route(part.job, part.partitions, is_retry=part.is_retry)

    def close(self) -> None:
        self._is_closed = True
        self.cancel(list(self._jobs))
        for task in self._tasks:
            task.cancel()
        for leader in self._leaders.values():
            leader.disconnect()

    # --- to whom -------------------------------------------------------------------------------

    def _route(self, job: MarkerJob, partitions: Iterable[TopicPartition], *, is_retry: bool) -> None:
        """Queues partitions for those who lead them now."""
        image = self._image()
        by_leader: dict[int, list[TopicPartition]] = {}
        homeless: list[TopicPartition] = []
        for name, named in groupby(sorted(partitions), key=itemgetter(0)):
            topic = image.topic_named(name)
            for each in named:
                placed = None if topic is None else topic.partitions.get(each.partition)
                if placed is None:
                    job.left.discard(each)
                else:
                    by_leader.setdefault(placed.leader, []).append(each)
        for leader_id in list(by_leader):
            if not _is_unfenced(image, leader_id):
                homeless += by_leader.pop(leader_id)
        for leader_id, found in by_leader.items():
            leader = self._leaders.setdefault(leader_id, _Leader())
            leader.queue.append(_Part(job, tuple(found), is_retry))
        if by_leader:
            self._flush_soon()
        if homeless:
            self._retry(job, homeless)
        self._finish(job)

    def _retry(self, job: MarkerJob, partitions: Iterable[TopicPartition]) -> None:
        pause_ms = min(RETRY_MS << min(job.attempts, 10), RETRY_MS_MAX)
        job.attempts += 1
        again = tuple(partitions)

        def retry() -> None:
            if not job.is_cancelled:
                self._route(job, again, is_retry=True)

        self._scheduler.call_at(self._clock.monotonic_ms() + pause_ms, retry)

    def _finish(self, job: MarkerJob) -> None:
        if job.left or job not in self._jobs:
            return
        self._jobs.pop(job, None)
        self._scheduler.post(lambda: None if job.is_cancelled else job.done())

    # --- sending -------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        """Gathers what comes in one turn of the loop."""
        if not self._is_flush_posted:
            self._is_flush_posted = True
            self._scheduler.post(self._flush)

    def _flush(self) -> None:
        self._is_flush_posted = False
        if self._is_closed:
            return
        for leader_id, leader in self._leaders.items():
            while leader.in_flight < IN_FLIGHT_MAX and (parts := _take(leader.queue)):
                leader.in_flight += 1
                task = asyncio.get_running_loop().create_task(self._send(leader_id, leader, parts))
                self._tasks[task] = None
                task.add_done_callback(self._tasks.pop)

    async def _send(self, leader_id: int, leader: _Leader, parts: list[_Part]) -> None:
        request = WriteTxnMarkersRequest(markers=[_make_marker(part) for part in parts])
        try:
            if leader_id == self._broker_id:
                response = await self._write_here(request)
            else:
                response = await self._call(leader_id, leader, request)
        except (DlogError, OSError) as error:
            _logger.debug("markers were not written by broker %d: %s", leader_id, error)
            results: _Results = {}
        except Exception:  # markers are tried again whatever happened: nobody else would write them
            _logger.exception("markers were not written by broker %d", leader_id)
            results = {}
        else:
            results = _read_results(response)
            if not PROVE_ANEW.isdisjoint(results.values()):
                leader.disconnect()
        finally:
            leader.in_flight -= 1
        for part in parts:
            self._note_results(part, results)
        if leader.queue:
            self._flush_soon()

    async def _call(
        self, leader_id: int, leader: _Leader, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        if leader.connection is None:
            leader.connection = asyncio.get_running_loop().create_task(self._connected(leader_id))
        task = leader.connection
        try:
            connection = await asyncio.shield(task)
            return await connection.call(request, WriteTxnMarkersResponse, timeout_ms=self._timeout_ms)
        except asyncio.CancelledError:
            if self._is_closed or not task.cancelled():
                raise
            raise BrokerUnreachableError(f"nobody waits for broker {leader_id} any more") from None
        except Exception:
            if leader.connection is task:
                leader.disconnect()
            raise

    async def _connected(self, leader_id: int) -> Connection:
        return await self._connect(leader_id)

    def _note_results(self, part: _Part, results: _Results) -> None:
        job = part.job
        if job.is_cancelled:
            return
        again = []
        for partition in part.partitions:
            code = results.get((job.markers.producer.producer_id, partition))
            if code in DONE:
                job.left.discard(partition)
                if code is not ErrorCode.NONE:
                    _logger.warning("%s needs no marker of %s: %s", partition, job.markers.producer, code)
            else:
                again.append(partition)
        if again:
            self._retry(job, again)
        self._finish(job)


def _take(queue: deque[_Part]) -> list[_Part]:
    """Takes what is to be sent together; those that failed before go apart."""
    parts: list[_Part] = []
    count = 0
    while queue:
        part = queue[0]
        if part.job.is_cancelled:
            queue.popleft()
            continue
        if parts and (
            count + len(part.partitions) > PARTITIONS_MAX or part.is_retry is not parts[0].is_retry
        ):
            break
        parts.append(queue.popleft())
        count += len(part.partitions)
    return parts


def _make_marker(part: _Part) -> WritableTxnMarker:
    markers = part.job.markers
    topics: dict[str, list[int]] = {}
    for topic, partition in part.partitions:
        topics.setdefault(topic, []).append(partition)
    return WritableTxnMarker(
        producer_id=markers.producer.producer_id,
        producer_epoch=markers.producer.producer_epoch,
        transaction_result=markers.is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=found) for name, found in topics.items()],
        coordinator_epoch=markers.coordinator_epoch,
        transaction_version=markers.version,
    )


def _read_results(response: WriteTxnMarkersResponse) -> _Results:
    return {
        (marker.producer_id, TopicPartition(topic.name, each.partition_index)): as_error_code(each.error_code)
        for marker in response.markers
        for topic in marker.topics
        for each in topic.partitions
    }


def _is_unfenced(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced
