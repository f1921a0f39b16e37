"""One task: the records of a partition from one offset up to another, from the broker to Arrow.

The next fetch is sent before the rows of the last one are handed out, so that the broker works while Spark
does.  A position always moves to the end of a batch: gaps that compaction left cost nothing, and the end of
the task may lie in the middle of a batch, or in a gap.

| the answer                                        | then                                                 |
|---------------------------------------------------|------------------------------------------------------|
| batches                                           | rows                                                 |
| retriable, nobody there, nothing new              | again after a pause, for `poll_timeout_ms` in all   |
| the offset is out of range; the topic is gone     | lost: an error that names it, or it is passed over   |
| another replica is nearer                         | that one is asked, the leader again after a failure  |
| another, or bytes unsound                         | raised                                               |

A task that is cancelled just stops asking.  Tasks know the id of the topic they were planned for, and read no
other one under its name.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from pyspark.sql.datasource import InputPartition

from distributedlog.client.errors import check_response, error_from, is_retriable, is_stale_view
from distributedlog.client.fetcher import AbortedFilter, Fetcher, FetchOptions, PreparedFetch
from distributedlog.client.offset_specs import EARLIEST, LATEST, Isolation
from distributedlog.model.buffers import Buffer
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DlogError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from distributedlog.records.batch import whole_batches
from distributedlog.spark.connections import ConnectedCluster, connect
from distributedlog.spark.source.columns import RowMaker, Run
from distributedlog.spark.source.losses import Losses
from distributedlog.spark.source.options import ReadOptions
from distributedlog.spark.source.topics import ends_of
from distributedlog.spark.source.watching import look_at
from distributedlog.spark.worker_memory import settle

if TYPE_CHECKING:
    import pyarrow

ROWS_MIN: Final = 4_096
"""Fewer rows are held back until more have come, or all of them, or `HELD_BYTES_MAX`."""
HELD_BYTES_MAX: Final = 4 * 1024 * 1024
"""The bytes, as they came, from which on rows are not held back: large records are not held back by the
thousand."""


@dataclass
class Task(InputPartition):
    """What is pickled for a worker."""

    topic: str
    index: int
    start: int
    end: int
    topic_id: bytes = ZERO_UUID.bytes16

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)


def read_task(options: ReadOptions, task: Task) -> Iterator["pyarrow.RecordBatch"]:
    settle()
    connected = connect(options.kafka.bootstrap, options.kafka.client)
    reading = _Reading(connected, options, task)
    rows = RowMaker(task.partition, options.columns)
    held: list[Run] = []
    held_from = task.start
    while reading.position < task.end:
        runs = connected.run(reading.next())
        held += runs
        # What was passed over as lost may still be there, in the batch behind it: it is not to come back.
        has_jumped = not runs
        if has_jumped or reading.position >= task.end or is_enough(held):
            yield from rows.rows(held, held_from, task.end)
            held, held_from = [], reading.position


def is_enough(held: Sequence[Run]) -> bool:
    """Returns whether it is worth a batch of rows."""
    rows = sum(each.offsets for each in held)
    return rows >= ROWS_MIN or sum(len(each.batches) for each in held) >= HELD_BYTES_MAX


# --- what came ---------------------------------------------------------------------------------


class Taken(NamedTuple):
    runs: list[Run]
    next_offset: int
    """The offset behind the last whole batch, or the end if that was reached."""


def take(data: Buffer, position: int, end: int, filtering: AbortedFilter) -> Taken:
    """The runs of batches that have what is wanted; aborted transactions and markers are not in them."""
    runs: list[Run] = []
    view = memoryview(data)
    read_to = run_at = 0
    run_kind = False
    run_records = 0

    def close_run(until: int) -> None:
        if until > run_at and run_records:
            runs.append(Run(view[run_at:until], run_kind, run_records))

    next_offset = position
    for at, header in whole_batches(view):
        if header.base_offset >= end or next_offset >= end:
            next_offset = max(next_offset, end)
            break
        is_wanted = filtering.passes(view, at, header) and header.next_offset > position
        if not is_wanted or header.is_log_append_time != run_kind:
            close_run(at)
            run_at, run_records, run_kind = at, 0, header.is_log_append_time
        read_to = at + header.size
        if is_wanted:
            run_records += header.record_count
        else:
            run_at = read_to
        next_offset = max(next_offset, header.next_offset)
    close_run(read_to)
    if read_to == 0 and next_offset == position and len(view) > 0:
        raise RecordTooLargeError(
            f"the batch at offset {position} did not come whole within {len(view)} bytes: raise"
            " kafka.max.partition.fetch.bytes"
        )
    return Taken(runs, min(next_offset, end))


# --- asking ------------------------------------------------------------------------------------


class _Reading:
    """Where a task stands, and the fetch under way."""

    def __init__(self, connected: ConnectedCluster, options: ReadOptions, task: Task) -> None:
        self.position = task.start
        self._cluster = connected.cluster
        self._options = options
        self._task = task
        self._losses = Losses(fails=options.fails_on_data_loss)
        bytes_max = options.kafka.fetch_bytes_max
        self._fetcher = Fetcher(
            FetchOptions(
                isolation=options.kafka.isolation,
                wait_ms_max=options.kafka.fetch_wait_ms,
                bytes_max=bytes_max,
                partition_bytes_max=bytes_max,
                rack=options.kafka.rack,
            )
        )
        self._nearer: int | None = None
        """The replica that the leader has named as nearer: it is asked until it fails once."""
        self._asked: tuple[PreparedFetch, asyncio.Future[FetchResponse]] | None = None

    async def next(self) -> list[Run]:
        """Returns what comes next; the position moves on.  Empty only if it has moved over something."""
        clock = self._cluster.clock
        begun_ms = clock.monotonic_ms()
        tries = 0
        while True:
            try:
                runs = await self._turn()
            except DlogError as error:
                if self._nearer is not None:  # it may be behind, or away: the leader has the last word
                    self._stay_with_leader()
                    continue
                if await self._skip_lost(error, clock.monotonic_ms() - begun_ms):
                    return []
                if clock.monotonic_ms() - begun_ms >= self._options.poll_timeout_ms or not is_retriable(
                    error
                ):
                    raise
                tries += 1
                if is_stale_view(error):
                    self._cluster.mark_stale()
                await asyncio.sleep(self._cluster.pause_ms(tries, error) / 1000)
            else:
                return runs

    async def _turn(self) -> list[Run]:
        """One answer, and the next request.  Raises if there was nothing."""
        data = await self._answer()
        if data.preferred_read_replica >= 0:
            self._go_nearer(data.preferred_read_replica)
            data = await self._answer()
        records = cast(Buffer, data.records if data.records is not None else b"")
        aborted = data.aborted_transactions if self._options.kafka.isolation else None
        taken = take(records, self.position, self._task.end, AbortedFilter(aborted or ()))
        if taken.next_offset == self.position:
            end = data.last_stable_offset if self._options.kafka.isolation else data.high_watermark
            raise OffsetNotAvailableError(
                f"{self._task.partition} gives nothing at {self.position}, it ends at {end}, and was to be"
                f" read up to {self._task.end}"
            )
        self.position = taken.next_offset
        if self.position < self._task.end:
            with suppress(DlogError):  # what came must not be lost over it: the next turn asks again
                self._asked = await self._ask()
        return taken.runs

    async def _answer(self) -> PartitionData:
        asked, self._asked = self._asked or await self._ask(), None
        return self._partition_of(asked[0], await asked[1])

    def _go_nearer(self, node_id: int) -> None:
        if node_id in self._cluster.view.brokers:
            self._nearer = node_id
        else:
            self._cluster.mark_stale()  # the leader would only name it again

    def _stay_with_leader(self) -> None:
        self._nearer = None
        self._fetcher.options = replace(self._fetcher.options, rack="")

    async def _ask(self) -> tuple[PreparedFetch, "asyncio.Future[FetchResponse]"]:
        partition = self._task.partition
        led = await self._cluster.partition(partition)
        topic_id = self._cluster.view.topics[partition.topic].topic_id
        planned_id = Uuid(self._task.topic_id)
        if ZERO_UUID not in (topic_id, planned_id) and topic_id != planned_id:
            raise UnknownTopicIdError(
                f"the topic {partition.topic!r} was deleted and made again (its id was {planned_id}, and is"
                f" {topic_id})"
            )
        connection = await self._cluster.connection(led.leader_id if self._nearer is None else self._nearer)
        self._fetcher.assign({partition: self.position})
        prepared = self._fetcher.prepare([partition], self._cluster.view)
        future = connection.submit(
            prepared.request,
            FetchResponse,
            timeout_ms=self._cluster.options.request_timeout_ms + self._options.kafka.fetch_wait_ms,
            version=connection.version_for(FetchRequest, prepared.version_max),
        )
        future.add_done_callback(look_at)
        return prepared, future

    def _partition_of(self, prepared: PreparedFetch, response: FetchResponse) -> PartitionData:
        check_response(response.error_code, f"the fetch of {self._task.partition}")
        for partition, data in prepared.partitions_of(response):
            if partition == self._task.partition:
                check_response(data.error_code, f"{partition} at {self.position}")
                return data
        raise error_from(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the fetch of {self._task.partition}")

    # --- what is lost --------------------------------------------------------------------------

    async def _skip_lost(self, error: DlogError, waited_ms: int) -> bool:
        """Moves the position behind what is not there any more, and reports it; False if nothing is lost."""
        if isinstance(error, OffsetOutOfRangeError):
            return await self._skip_out_of_range()
        if isinstance(error, UnknownTopicIdError | UnknownTopicError):
            if waited_ms < self._options.loss_tries * self._options.loss_pause_ms:
                return False
            self._losses.report(error)
            self.position = self._task.end
            return True
        return False

    async def _skip_out_of_range(self) -> bool:
        partition = self._task.partition
        isolation = Isolation.READ_UNCOMMITTED
        first = (await ends_of(self._cluster, [partition], EARLIEST, isolation))[partition]
        end = (await ends_of(self._cluster, [partition], LATEST, isolation))[partition]
        if first <= self.position <= end:
            return False
        lost_to = min(first, self._task.end) if self.position < first else self._task.end
        self._losses.report(
            OffsetOutOfRangeError(
                f"{partition} has no offsets {self.position} to {lost_to - 1} any more: it goes from {first}"
                f" to {end}"
            )
        )
        self.position = lost_to
        return True
