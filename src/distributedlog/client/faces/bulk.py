"""Records by the table: rows of Arrow to batches and back, with no Python object for each.

Rows are routed to partitions and cut into batches in the record kernel, by `records/arrow_write`; from
there on they have the life of every other batch.  A `RowsDelivery` is done when every row is delivered or
has failed.
"""

import asyncio
import concurrent.futures
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from distributedlog.client.faces.loop_thread import LoopThread
from distributedlog.client.fetcher import Fetched
from distributedlog.client.metadata import Cluster
from distributedlog.client.producer import BatchReport, Producer
from distributedlog.model.errors import DlogError, InvalidRecordError, RequestTimedOutError
from distributedlog.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow


class BatchMetadata(NamedTuple):
    """What became of rows that were sent together."""

    rows: int
    batches: int


class RowsDelivery:
    """How a table of rows will have ended; awaited."""

    def __init__(self, rows: int) -> None:
        self._left = self._rows = rows
        self._batches = 0
        self._error: DlogError | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.take(None)

    def take(self, report: BatchReport | None) -> None:
        if report is not None:
            self._left -= report.record_count
            self._batches += 1
            self._error = self._error or report.error
        if self._left == 0 and not self._ended.done():
            self._ended.set_result(None)

    def done(self) -> bool:
        return self._ended.done()

    def __await__(self) -> Generator[Any, None, BatchMetadata]:
        return self.wait().__await__()

    async def wait(self) -> BatchMetadata:
        """Raises what the first batch that failed did so with; others may be delivered then."""
        if not self._ended.done():
            await asyncio.wait([self._ended])
        return self.result()

    def result(self) -> BatchMetadata:
        """The same once it is done."""
        if self._error is not None:
            raise self._error
        return BatchMetadata(self._rows, self._batches)


class BlockingRowsDelivery:
    """The same for another thread than the loop's."""

    def __init__(self, delivery: RowsDelivery, thread: LoopThread) -> None:
        self._delivery = delivery
        self._thread = thread

    def done(self) -> bool:
        return self._delivery.done()

    def result(self, timeout: float | None = None) -> BatchMetadata:
        """Waits, for at most `timeout` seconds; raises what the first batch that failed did so with."""
        if self._delivery.done():
            return self._delivery.result()
        waiting = self._thread.submit(self._delivery.wait())
        try:
            return waiting.result(timeout)
        except concurrent.futures.TimeoutError:
            waiting.cancel()
            raise RequestTimedOutError(f"the rows were not delivered within {timeout} s") from None


def as_batches(rows: Any) -> "list[pyarrow.RecordBatch]":
    """Rows of pyarrow, pandas or polars as Arrow's record batches."""
    import pyarrow as pa

    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if not isinstance(rows, pa.Table):
        if hasattr(rows, "to_arrow"):  # polars
            rows = rows.to_arrow()
        elif hasattr(rows, "iloc"):  # pandas
            rows = pa.Table.from_pandas(rows, preserve_index=False)
        else:
            raise InvalidRecordError(
                f"rows are a table of pyarrow or a frame of pandas or polars, not {type(rows).__name__}"
            )
    return [each for each in rows.combine_chunks().to_batches() if each.num_rows]


async def send_rows(core: Producer, cluster: Cluster, topic: str, rows: Any) -> RowsDelivery:
    from distributedlog.records.arrow_write import cut_rows, route_rows

    batches = as_batches(rows)
    count = await core.learn(topic)
    delivery = RowsDelivery(sum(each.num_rows for each in batches))
    for each in batches:
        written, partitions = _split_partitions(each, count, topic)
        rows_each = max(1, written.num_rows * core.options.batch_bytes_max // max(1, written.nbytes))
        route = route_rows(
            written,
            count,
            partitions=partitions,
            keyless_first=cluster.draw(count),
            keyless_rows_each=rows_each,
        )
        for part in route.parts:
            cuts = cut_rows(
                part.rows,
                batch_bytes_max=core.options.batch_bytes_max,
                single_bytes_max=core.options.request_bytes_max,
                default_timestamp_ms=cluster.clock.wall_ms(),
            )
            for cut in cuts:
                await core.send_cut(TopicPartition(topic, part.partition), cut, delivery.take)
    return delivery


def _split_partitions(
    rows: "pyarrow.RecordBatch", count: int, topic: str
) -> "tuple[pyarrow.RecordBatch, pyarrow.Array | None]":
    """The rows without their partitions, and these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = rows.schema.names
    written = rows.select([each for each in names if each != "partition"])
    if "partition" not in names:
        return written, None
    try:
        partitions = rows.column("partition").cast(pa.int32())
    except pa.ArrowInvalid as error:
        raise InvalidRecordError(f"the column partition cannot become int32: {error}") from error
    bounds = pc.min_max(partitions).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < count:
        raise InvalidRecordError(
            f"a row is for a partition that topic {topic!r} does not have: 0 to {count - 1}"
        )
    return written, partitions


def table_of(fetched: Sequence[Fetched]) -> "pyarrow.Table":
    """The rows of all, with their topics and partitions."""
    import pyarrow as pa

    from distributedlog.records.arrow import row_schema

    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), *row_schema()])
    tables = []
    for each in fetched:
        if each.rows is not None:
            topics = pa.repeat(pa.scalar(each.partition.topic, pa.string()), each.rows.num_rows)
            indexes = pa.repeat(pa.scalar(each.partition.partition, pa.int32()), each.rows.num_rows)
            tables.append(pa.Table.from_arrays([topics, indexes, *each.rows.columns], schema=schema))
    return pa.concat_tables(tables) if tables else schema.empty_table()
