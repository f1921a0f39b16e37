"""How batches and records ended, and what producers and consumers count."""

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition


class BatchReport(NamedTuple):
    """How a batch ended."""

    partition: TopicPartition
    record_count: int
    base_offset: int
    """-1 where it is not known: with acks 0, or if a retry found it written already."""
    append_time_ms: int = -1
    error: DlogError | None = None
    """The first one, where it was sent in parts."""
    parts: "tuple[tuple[int, BatchReport], ...]" = ()
    """How the parts ended in which it was sent where it was too large; each by its first record's place."""

    def of_record(self, index: int) -> "tuple[BatchReport, int]":
        """The report that is about this record, and its place in the batch that was written."""
        if not self.parts:
            return self, index
        first_index, part = self.parts[bisect_right(self.parts, index, key=itemgetter(0)) - 1]
        return part, index - first_index

    def offset_of(self, index: int) -> int:
        """Raises what the record failed with."""
        report, at = self.of_record(index)
        if report.error is not None:
            raise report.error
        return -1 if report.base_offset < 0 else report.base_offset + at


class BatchEnd:
    """How a batch will have ended, also if it is sent in parts: `reported` once all of them have."""

    __slots__ = ("_parts", "reported")

    def __init__(self) -> None:
        self.reported: asyncio.Future[BatchReport] = asyncio.get_running_loop().create_future()
        self._parts: list[tuple[int, BatchReport]] = []

    def take(self, report: BatchReport, first_index: int = 0, whole_count: int | None = None) -> None:
        """Takes the report of the whole, or of the part of so many records that begins there."""
        if self.reported.done():
            return
        if whole_count is None:
            self.reported.set_result(report)
            return
        self._parts.append((first_index, report))
        if sum(each.record_count for _, each in self._parts) == whole_count:
            self.reported.set_result(_joined(sorted(self._parts, key=itemgetter(0)), whole_count))


def _joined(parts: list[tuple[int, BatchReport]], whole_count: int) -> BatchReport:
    _, first = parts[0]
    error = next((each.error for _, each in parts if each.error is not None), None)
    return first._replace(record_count=whole_count, error=error, parts=tuple(parts))


@dataclass(slots=True)
class ProducerMetrics:
    """Counts since the producer was made."""

    records_delivered: int = 0
    records_failed: int = 0
    batches_delivered: int = 0
    bytes_delivered: int = 0
    """The bytes of batches as they travelled."""
    batches_failed: int = 0
    retries: int = 0
    delivery_ms_total: int = 0
    """The time that delivered batches took, from their first record to the acknowledgement, all together."""
    delivery_ms_max: int = 0

    def count(self, report: BatchReport, batch_bytes: int, took_ms: int) -> None:
        if report.error is not None:
            self.records_failed += report.record_count
            self.batches_failed += 1
            return
        self.records_delivered += report.record_count
        self.batches_delivered += 1
        self.bytes_delivered += batch_bytes
        self.delivery_ms_total += took_ms
        self.delivery_ms_max = max(self.delivery_ms_max, took_ms)


@dataclass(slots=True)
class FetchMetrics:
    """Counts since the consumer was made, and what fetches have told."""

    fetches: int = 0
    fetch_bytes: int = 0
    """The bytes of batches as they travelled."""
    fetch_ms_total: int = 0
    """The time that fetches took, the wait for records included, all together."""
    fetch_ms_max: int = 0
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """Where partitions ended when they were fetched last."""

    def count(self, fetched_bytes: int, took_ms: int) -> None:
        self.fetches += 1
        self.fetch_bytes += fetched_bytes
        self.fetch_ms_total += took_ms
        self.fetch_ms_max = max(self.fetch_ms_max, took_ms)

    def figures(self, positions: Mapping[TopicPartition, int]) -> dict[str, int]:
        """All of it, with the lag of these positions.  May be asked from another thread."""
        ends = self.ends.copy()
        lags = [max(0, ends[each] - at) for each, at in dict(positions).items() if each in ends]
        return {
            "fetches": self.fetches,
            "fetch_bytes": self.fetch_bytes,
            "fetch_ms_total": self.fetch_ms_total,
            "fetch_ms_max": self.fetch_ms_max,
            "lag": sum(lags),
            "lag_max": max(lags, default=0),
        }


class Delivered(NamedTuple):
    partition: TopicPartition
    offset: int


class Delivery:
    """How one record will have ended."""

    __slots__ = ("_ended", "_index")

    def __init__(self, ended: "asyncio.Future[BatchReport]", index: int) -> None:
        self._ended = ended
        self._index = index

    @property
    def is_done(self) -> bool:
        return self._ended.done()

    async def wait(self) -> Delivered:
        """Returns where the record is.  Raises what its batch failed with."""
        report = await asyncio.shield(self._ended)
        return Delivered(report.partition, report.offset_of(self._index))
