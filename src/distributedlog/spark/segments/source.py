"""`option("segments", DIR)`: a bounded read of segment files, with no broker in between.

The same rows as through a broker: the same columns, the same offsets.  It must see the files, on the driver
and on every worker: one machine, or a file system that they share.  What is read, and how far, is decided on
the driver (`plan`); tasks read what they are told (`files`) and turn it into rows in the
kernel, as the source does with what it fetches.

**From backfill to live.**  `segment_offsets` says up to where a directory can be read now, as offsets in
JSON.  Read the segments with these as `endingOffsets`, and start the stream with the same ones as
`startingOffsets`: every row is in one of the two, and none in both.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from distributedlog.model.errors import CorruptBatchError, CorruptLogError
from distributedlog.model.ids import TopicPartition
from distributedlog.spark.plain_errors import rows_told_plainly, told_plainly
from distributedlog.spark.segments.files import PartitionFiles, open_files
from distributedlog.spark.segments.options import SEGMENTS, SegmentOptions, parse_segment_options
from distributedlog.spark.segments.plan import (
    Aborted,
    SegmentTask,
    bounds,
    extents,
    find_transaction_outcomes,
    plan,
)
from distributedlog.spark.source.columns import RowMaker, Run
from distributedlog.spark.source.losses import Losses
from distributedlog.spark.source.offsets import Positions
from distributedlog.spark.worker_memory import settle
from distributedlog.storage.scan import LocatedBatch
from distributedlog.storage.txn_index import AbortedRanges

if TYPE_CHECKING:
    import pyarrow

RECORDS_GATHERED: Final = 32_768
"""Rows are handed to Spark about so many at a time."""
BYTES_GATHERED: Final = 2 * 1024 * 1024


class SegmentReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = parse_segment_options(options)

    @told_plainly
    def partitions(self) -> list[InputPartition]:
        files = open_files()
        try:
            return [*plan(self._options, files)] or [InputPartition(None)]
        finally:
            files.close()

    @rows_told_plainly
    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        if not isinstance(partition, SegmentTask):  # nothing to read, and Spark wants a task all the same
            return iter(())
        return read_segments(self._options, partition)


def segment_offsets(path: str, **options: str) -> str:
    """Returns up to where `path` can be read now: JSON for `endingOffsets` of the backfill, and for
    `startingOffsets` of the stream that goes on from there.  `options` are those of the source that say which
    topics are meant."""
    parsed = parse_segment_options({SEGMENTS: path, **options})
    files = open_files()
    try:
        found = extents(parsed, files)
        limits = bounds(parsed, found)
        ends: dict[TopicPartition, int] = {}
        for extent in found:
            partition = extent.place.partition
            ends[partition] = limits.ends[partition]
            if parsed.is_committed_only and extent.start < ends[partition]:
                log = PartitionFiles(files, extent.place)
                ends[partition] = find_transaction_outcomes(
                    files, log, extent.place, extent.start, ends[partition]
                ).last_stable_offset
        topic_ids = {extent.place.partition.topic: extent.topic_id for extent in found}
        return json.dumps(Positions(ends, topic_ids).as_json())
    finally:
        files.close()


# --- a task ------------------------------------------------------------------------------------


def read_segments(options: SegmentOptions, task: SegmentTask) -> "Iterator[pyarrow.RecordBatch]":
    settle()
    files = open_files()
    losses = Losses(fails=options.fails_on_data_loss)
    log = PartitionFiles(files, task.place)
    maker = RowMaker(task.place.partition, options.columns)
    batches = log.batches(task.start, task.end, hint=task.hint, on_loss=losses.report)
    try:
        for runs in gathered_runs(batches, task.aborted):
            yield from maker.rows(runs, task.start, task.end)
    except CorruptBatchError as error:
        raise CorruptLogError(f"{task.directory}, from offset {task.start} on: {error}") from None
    finally:
        files.close()


def gathered_runs(batches: Iterator[LocatedBatch], aborted: tuple[Aborted, ...]) -> Iterator[list[Run]]:
    """Batches that stand beside each other as one piece, without those that carry no rows."""
    dropped = AbortedRanges(aborted)
    runs: list[Run] = []
    pending: list[LocatedBatch] = []
    held_records = held_bytes = 0
    for batch in batches:
        is_wanted = not batch.header.is_control and not dropped.holds(batch.header)
        if pending and not (is_wanted and _follows(pending[-1], batch)):
            runs.append(_run(pending))
            pending = []
        if not is_wanted:
            continue
        pending.append(batch)
        held_records += batch.header.record_count
        held_bytes += batch.header.size
        if held_records >= RECORDS_GATHERED or held_bytes >= BYTES_GATHERED:
            yield [*runs, _run(pending)]
            runs, pending, held_records, held_bytes = [], [], 0, 0
    if pending:
        runs.append(_run(pending))
    if runs:
        yield runs


def _follows(before: LocatedBatch, batch: LocatedBatch) -> bool:
    """Returns whether it is in the same window, right behind it, and with times of the same kind."""
    return (
        batch.window is before.window
        and batch.at == before.at + before.header.size
        and batch.header.is_log_append_time == before.header.is_log_append_time
    )


def _run(together: list[LocatedBatch]) -> Run:
    first, last = together[0], together[-1]
    view = memoryview(first.window)[first.at : last.at + last.header.size]
    return Run(view, first.header.is_log_append_time, sum(batch.header.record_count for batch in together))
