"""How batches and records ended, and what a producer counts."""

import asyncio
from dataclasses import dataclass
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


@dataclass(slots=True)
class ProducerMetrics:
    """Counts since the producer was made."""

    records_delivered: int = 0
    records_failed: int = 0
    batches_delivered: int = 0
    bytes_delivered: int = 0
    """The bytes of batches as they travelled."""
    retries: int = 0


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
        if report.error is not None:
            raise report.error
        offset = -1 if report.base_offset < 0 else report.base_offset + self._index
        return Delivered(report.partition, offset)
