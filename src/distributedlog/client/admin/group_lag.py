"""How many records a group has still to read, counted and not inferred from offsets.

The difference of two offsets is not a number of records: transactions leave markers, aborted ones leave
records that nobody is given, and compaction leaves gaps.  A batch's header says how many records are in it;
so lag is the sum over the batches from the committed offset to the end, of those that a reader is given.
The batches are fetched as a reader would, and of most only the header is looked at (docs/decisions/0012).

| the committed offset                 | the lag                                                          |
|--------------------------------------|------------------------------------------------------------------|
| there is none                        | unknown                                                          |
| before the start of the log          | what is left: the records before it are gone, and cannot be read |
| at the end or, after a loss, beyond  | 0                                                                |
| within a batch                       | that batch is decoded, once                                      |

How long the first of them has been waiting is known from its timestamp, which its producer gave it.

The end is the last stable offset for those who read committed records only, else the high watermark.

How much is fetched for a partition is bounded.  Where that does not reach the end, the rest is taken for a
record each offset: `is_exact` is False then, and the number an upper bound.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from distributedlog.client.errors import is_retriable, is_stale_view
from distributedlog.client.fetcher import AbortedFilter, Arrived, Fetcher, FetchOptions, records_of
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import EARLIEST, LATEST, Isolation
from distributedlog.client.offsets import list_offsets
from distributedlog.client.options import MIB
from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse
from distributedlog.records.batch import whole_batches

COUNTED_BYTES_MAX: Final = 64 * MIB
"""The bytes of one partition that are fetched to count records."""


@dataclass(frozen=True, slots=True)
class Lag:
    partition: TopicPartition
    committed_offset: int | None
    start: int
    end: int
    records: int | None
    """None: the group has no committed offset here."""
    is_exact: bool = True
    oldest_ms: int | None = None
    """The timestamp of the first record that is left to read; None if none is, or none was looked at."""

    def seconds_at(self, now_ms: int) -> float | None:
        """Returns how long the first record that is left has been waiting: 0 if none is left, None if not
        known."""
        if self.oldest_ms is not None and self.oldest_ms >= 0:
            return max(0, now_ms - self.oldest_ms) / 1000
        return 0.0 if self.records == 0 else None


async def measure_lag(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int | None],
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    counted_bytes_max: int = COUNTED_BYTES_MAX,
) -> dict[TopicPartition, Lag]:
    """Counts the lag of each partition, given the committed offset in it."""
    if not positions:
        return {}
    starts = await list_offsets(cluster, dict.fromkeys(positions, EARLIEST), isolation)
    ends = await list_offsets(cluster, dict.fromkeys(positions, LATEST), isolation)
    counter = _Counter(cluster, isolation, counted_bytes_max)
    for partition, committed_offset in positions.items():
        if committed_offset is not None:
            begin = max(committed_offset, starts[partition].offset)
            counter.add(partition, begin, ends[partition].offset)
    await counter.count()
    return {
        partition: Lag(
            partition,
            committed_offset,
            starts[partition].offset,
            ends[partition].offset,
            None if committed_offset is None else counter.records[partition],
            counter.is_exact(partition),
            counter.oldest_ms(partition),
        )
        for partition, committed_offset in positions.items()
    }


class _Counter:
    def __init__(self, cluster: Cluster, isolation: Isolation, bytes_max: int) -> None:
        self._cluster = cluster
        self._bytes_max = bytes_max
        self._fetcher = Fetcher(FetchOptions(isolation=isolation, wait_ms_max=100))
        self._ends: dict[TopicPartition, int] = {}
        self._bytes_taken: dict[TopicPartition, int] = {}
        self._oldest_ms: dict[TopicPartition, int] = {}
        self.records: dict[TopicPartition, int] = {}
        self._inexact: set[TopicPartition] = set()

    def add(self, partition: TopicPartition, begin: int, end: int) -> None:
        self.records[partition] = 0
        if begin < end and self._bytes_max > 0:
            self._ends[partition] = end
            self._bytes_taken[partition] = 0
            self._fetcher.assign({partition: begin})
        elif begin < end:
            self.records[partition] = end - begin
            self._inexact.add(partition)

    def is_exact(self, partition: TopicPartition) -> bool:
        return partition not in self._inexact

    def oldest_ms(self, partition: TopicPartition) -> int | None:
        return self._oldest_ms.get(partition)

    async def count(self) -> None:
        while self._fetcher.positions:
            await self._cluster.retrying(self._round)

    async def _round(self) -> None:
        """One fetch of every leader for what is left of its partitions."""
        by_leader = await self._cluster.by_leader(list(self._fetcher.positions))
        outcomes = await asyncio.gather(
            *(self._fetch(leader, partitions) for leader, partitions in by_leader.items()),
            return_exceptions=True,
        )
        failures = [each for each in outcomes if each is not None]
        for failure in failures:
            if isinstance(failure, DlogError) and is_stale_view(failure):
                self._cluster.mark_stale()
        if failures:
            raise next((each for each in failures if not _may_pass(each)), failures[0])

    async def _fetch(self, leader: int, partitions: Iterable[TopicPartition]) -> None:
        prepared = self._fetcher.prepare(partitions, self._cluster.view)
        connection = await self._cluster.connection(leader)
        response = await connection.call(
            prepared.request,
            FetchResponse,
            timeout_ms=self._cluster.options.request_timeout_ms,
            version=connection.version_for(FetchRequest, prepared.version_max),
        )
        arrived, refused = self._fetcher.take(prepared, response)
        # Where something came, a response may have been full before the turn of the others.
        is_empty = all(each.next_offset == each.offset for each in arrived)
        failures = [each.error for each in refused]
        for each in arrived:
            try:
                self._count(each, is_empty=is_empty)
            except DlogError as error:
                self._fetcher.assign({each.partition: each.offset})
                failures.append(error)
        if failures:
            raise failures[0]

    def _count(self, arrived: Arrived, *, is_empty: bool) -> None:
        partition, offset, data, aborted, *_ = arrived
        end = self._ends[partition]
        count, next_offset = count_records(data, offset, aborted, end)
        if count and partition not in self._oldest_ms:
            self._oldest_ms[partition] = first_timestamp(data, offset, aborted)
        self.records[partition] += count
        self._bytes_taken[partition] += len(data)
        is_over = next_offset >= end or is_empty  # nothing came: what is left is one gap
        is_enough = self._bytes_taken[partition] >= self._bytes_max
        if is_enough and not is_over:
            self.records[partition] += end - next_offset
            self._inexact.add(partition)
        if is_enough or is_over:
            self._fetcher.drop(partition)


def _may_pass(failure: BaseException) -> bool:
    return isinstance(failure, DlogError) and is_retriable(failure)


def count_records(
    data: Buffer, offset: int, aborted: Iterable[AbortedTransaction] = (), end: int | None = None
) -> tuple[int, int]:
    """Returns how many records a reader is given from `offset` up to `end` in a run of batches; and the
    offset behind the last whole batch.  What was written since the end was fetched does not count."""
    filtering = AbortedFilter(aborted)
    count, next_offset, read_to = 0, offset, 0
    for at, header in whole_batches(data):
        if end is not None and header.base_offset >= end:
            return count, max(next_offset, end)
        if header.next_offset > offset and filtering.passes(data, at, header):
            if header.base_offset >= offset:
                count += header.record_count
            else:
                count += len(records_of(memoryview(data)[at : at + header.size], offset)[0])
        next_offset = max(next_offset, header.next_offset)
        read_to = at + header.size
    if read_to == 0 and len(data) > 0:
        # Not even one batch came whole: `records_of` says what to do about it.
        records_of(data, offset)
    return count, next_offset


def first_timestamp(data: Buffer, offset: int, aborted: Iterable[AbortedTransaction] = ()) -> int:
    """Returns the timestamp of the first record that a reader at `offset` is given in a run of batches; -1 if
    it is given none."""
    filtering = AbortedFilter(aborted)
    for at, header in whole_batches(data):
        if header.next_offset > offset and filtering.passes(data, at, header):
            records = records_of(memoryview(data)[at : at + header.size], offset)[0]
            if records:
                return int(records[0].timestamp_ms)
    return -1
