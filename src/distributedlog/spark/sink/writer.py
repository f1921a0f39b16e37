"""`df.write|writeStream.format("dlog")`: rows to topics, at least once; `exactly_once` stands on it.

A task gathers what Spark hands it into pieces of a few MiB, gives each row its partition, and encodes the
rows of each partition into batches, all on Arrow's buffers in the kernel; an idempotent producer with
`acks=all` sends them (`worker`).  A task ends when everything it was given is acknowledged.

| who                  | does                                                                                |
|----------------------|-------------------------------------------------------------------------------------|
| the driver, first    | options and types are checked, before any task is started                           |
| a task: `write`      | writes, and tells how many rows each partition got.  It commits nothing             |
| the driver: `commit` | adds up what the tasks that count have told, and says it                            |
| the driver: `abort`  | says so.  What was written stays: at least what tasks that ended have told of       |

**At least once.**  When `commit` was called every row is there.  A row may be there twice: Spark repeats a
task that failed, runs slow ones twice if it is told to speculate, and repeats a micro-batch whose driver
died; each time the rows are written again.  A task that is cancelled sees its input end as if that were all.
That is why nothing a task says counts by itself: only the driver knows which tasks were the ones.

What the driver says goes to Python's logging, from where Spark takes it into `python_worker_logs()` if
`spark.sql.pyspark.worker.logging.enabled` is set.

A broker that is away is waited for, for `kafka.delivery.timeout.ms`.  Within one attempt nothing is doubled:
a batch that is sent again is known by its sequence.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from distributedlog.model.errors import ConfigError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.arrow_write import CutBatch, Route, cut_rows, route_rows
from distributedlog.spark.plain_errors import told_plainly
from distributedlog.spark.sink.columns import PARTITION, TOPIC, RowCheck, SinkColumns, check_schema
from distributedlog.spark.sink.options import BATCH_ID, SinkOptions, parse_sink_options
from distributedlog.spark.sink.worker import SinkProducer, task_producer
from distributedlog.spark.source.kafka_options import warn_once

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

GATHERED_BYTES: Final = 4 * 1024 * 1024
"""Spark hands over ten thousand rows at a time; spread over many partitions that makes small batches."""
HANDED_BYTES: Final = 1024 * 1024
"""The bytes that go to the producer's thread at a time: to change threads costs as much as a small batch."""
LOG: Final = logging.getLogger(__name__)
LOG.setLevel(logging.INFO)  # Spark's worker log takes what a logger lets through, and nobody can set it there


def batch_writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> DataSourceArrowWriter:
    if overwrite:
        raise ConfigError("a topic cannot be overwritten: write with mode append")
    planned = _planned(options, schema)
    if not planned[0].is_exactly_once:
        return DlogWriter(*planned)
    from distributedlog.spark.sink.exactly_once import ExactlyOnceWriter

    return ExactlyOnceWriter(*planned)


def stream_writer(
    options: Mapping[str, str], schema: "StructType", overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Makes a writer; `overwrite` is Spark's word for output mode complete: as in its Kafka sink, the whole
    result is appended each time."""
    planned = _planned(options, schema)
    if planned[0].batch_id is not None:
        raise ConfigError(f"the option {BATCH_ID} is for batch writes: the batches of a stream have numbers")
    if not planned[0].is_exactly_once:
        return DlogStreamWriter(*planned)
    from distributedlog.spark.sink.exactly_once import ExactlyOnceStreamWriter

    return ExactlyOnceStreamWriter(*planned)


def _planned(options: Mapping[str, str], schema: "StructType") -> tuple[SinkOptions, SinkColumns]:
    parsed = parse_sink_options(options)
    for name in parsed.without_effect:
        warn_once(f"the option {name} has no effect on the sink")
    return parsed, check_schema(schema, parsed.topic)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task wrote: rows by topic and partition."""

    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(sum(partitions.values()) for partitions in self.counts.values())


class DlogWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    @told_plainly
    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        return write_task(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        LOG.info("written: %s", spelled(total(messages)))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        LOG.warning("%s", not_all_written(messages))


class DlogStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    @told_plainly
    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        return write_task(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        LOG.info("batch %d: written: %s", batchId, spelled(total(messages)))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        LOG.warning("batch %d: %s", batchId, not_all_written(messages))


def total(messages: Sequence[WriterCommitMessage | None]) -> Written:
    """Returns the total of all tasks that count; those that failed have no message."""
    counts: dict[str, dict[int, int]] = {}
    for message in messages:
        if not isinstance(message, Written):
            continue
        for topic, partitions in message.counts.items():
            known = counts.setdefault(topic, {})
            for partition, rows in partitions.items():
                known[partition] = known.get(partition, 0) + rows
    return Written(counts)


def spelled(written: Written) -> str:
    """Spells the counts: `7 rows: orders {0: 4, 2: 3}`."""
    topics = (f"{name} {dict(sorted(rows.items()))}" for name, rows in sorted(written.counts.items()))
    return ": ".join(filter(None, (f"{written.rows} rows", ", ".join(topics))))


def not_all_written(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Says what a write that failed has left: a lower bound, where a task has told one."""
    known = total(messages)
    left = f"at least {spelled(known)}" if known.rows else "how much, no task has told"
    return f"not all was written; what was stays: {left}"


# --- a task ------------------------------------------------------------------------------------


def write_task(
    options: SinkOptions, columns: SinkColumns, iterator: "Iterator[pyarrow.RecordBatch]"
) -> Written:
    with task_producer(options) as producer:
        return Written(send_rows(options, columns, producer, iterator))


def send_rows(
    options: SinkOptions,
    columns: SinkColumns,
    producer: SinkProducer,
    iterator: "Iterator[pyarrow.RecordBatch]",
) -> dict[str, dict[int, int]]:
    """Sends all rows; returns how many each partition got, by topic, when they are acknowledged."""
    rows = RowSender(options, columns, producer)
    for piece in gathered(iterator, GATHERED_BYTES):
        rows.send(piece)
    found: dict[str, dict[int, int]] = {}
    for partition, count in producer.finish().items():
        found.setdefault(partition.topic, {})[partition.partition] = count
    return found


def gathered(iterator: "Iterator[pyarrow.RecordBatch]", bytes_wanted: int) -> "Iterator[pyarrow.RecordBatch]":
    """The same rows in larger pieces; none is empty."""
    pieces: list[pyarrow.RecordBatch] = []
    held_bytes = 0
    for piece in iterator:
        if not piece.num_rows:
            continue
        pieces.append(piece)
        held_bytes += piece.nbytes
        if held_bytes >= bytes_wanted:
            yield _joined(pieces)
            pieces, held_bytes = [], 0
    if pieces:
        yield _joined(pieces)


def _joined(pieces: "list[pyarrow.RecordBatch]") -> "pyarrow.RecordBatch":
    import pyarrow as pa

    if len(pieces) == 1:
        return pieces[0]
    (joined,) = pa.Table.from_batches(pieces).combine_chunks().to_batches()
    return joined


class RowSender:
    """Rows to batches of partitions, and those to the producer."""

    def __init__(self, options: SinkOptions, columns: SinkColumns, producer: SinkProducer) -> None:
        self._options = options
        self._columns = columns
        self._producer = producer
        self._check = RowCheck(options.producer.request_bytes_max)
        self._keyless_at: dict[str, int] = {}
        """Where rows without a key go on, by topic."""

    def send(self, rows: "pyarrow.RecordBatch") -> None:
        import pyarrow.compute as pc

        self._check.sizes(rows)
        self._check.headers(rows)
        if self._options.topic is not None:
            self._send_to(self._options.topic, rows, None)
        else:
            topics = self._check.topics(rows)
            for topic in topics:
                is_for_topic = pc.equal(rows.column(TOPIC), topic) if len(topics) > 1 else None
                self._send_to(topic, rows, is_for_topic)
        self._check.rows_seen += rows.num_rows

    def _send_to(self, topic: str, rows: "pyarrow.RecordBatch", is_for_topic: Any) -> None:
        count = self._partition_count(topic, rows, is_for_topic)
        if is_for_topic is not None:
            rows = rows.filter(is_for_topic)
        partitions = rows.column(PARTITION) if self._columns.has_partition else None
        written = rows.select(list(self._columns.written))
        batch_bytes = self._options.producer.batch_bytes_max
        keyless_at = self._keyless_at.get(topic)
        keyless_at = self._producer.draw(count) if keyless_at is None else keyless_at
        rows_each = max(1, written.num_rows * batch_bytes // max(1, written.nbytes))
        route = route_rows(
            written, count, partitions=partitions, keyless_first=keyless_at, keyless_rows_each=rows_each
        )
        self._keyless_at[topic] = (keyless_at + -(-route.keyless_count // rows_each)) % count
        now_ms = self._producer.wall_ms()
        batches: list[tuple[TopicPartition, CutBatch]] = []
        held_bytes = 0
        for partition, cut in self._cut(topic, route, now_ms):
            batches.append((partition, cut))
            held_bytes += cut.size_bytes
            if held_bytes >= HANDED_BYTES:
                self._producer.send(batches)
                batches, held_bytes = [], 0
        if batches:
            self._producer.send(batches)

    def _partition_count(self, topic: str, rows: "pyarrow.RecordBatch", is_for_topic: Any) -> int:
        """Returns how many the topic has, and that no row asks for another."""
        count = self._producer.partition_count(topic)
        if not self._columns.has_partition:
            return count
        highest = _highest(rows.column(PARTITION))
        if highest >= count:
            count = self._producer.partition_count(topic, afresh=True)
        self._check.partitions(rows, topic, count, is_for_topic)
        return count

    def _cut(self, topic: str, route: Route, now_ms: int) -> Iterator[tuple[TopicPartition, CutBatch]]:
        options = self._options.producer
        for part in route.parts:
            for cut in cut_rows(
                part.rows,
                batch_bytes_max=options.batch_bytes_max,
                single_bytes_max=options.request_bytes_max,
                default_timestamp_ms=now_ms,
            ):
                yield TopicPartition(topic, part.partition), cut


def _highest(column: Any) -> int:
    import pyarrow.compute as pc

    found = pc.max(column).as_py()
    return -1 if found is None else int(found)
