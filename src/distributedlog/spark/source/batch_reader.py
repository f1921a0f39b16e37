"""A bounded read: where it begins and ends is decided once, when Spark plans it.

Records that come while it runs are not in it.  An offset spec that means another offset each
time it is resolved (the end, ten minutes ago) is resolved once, at one time for both bounds.
"""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from distributedlog.client.offset_specs import LATEST
from distributedlog.model.errors import ConfigError, OffsetOutOfRangeError
from distributedlog.model.ids import ZERO_UUID, TopicPartition
from distributedlog.spark.connections import ConnectedCluster, connect
from distributedlog.spark.plain_errors import rows_told_plainly, told_plainly
from distributedlog.spark.source.fetching import Task, read_task
from distributedlog.spark.source.losses import Losses
from distributedlog.spark.source.options import AtOffsets, parse_batch_options
from distributedlog.spark.source.ranges import Span, split
from distributedlog.spark.source.topics import SubscribedPartitions, discover, ends_of, resolve_bound

if TYPE_CHECKING:
    import pyarrow


class BatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = parse_batch_options(options)

    @told_plainly
    def partitions(self) -> list[InputPartition]:
        options = self._options
        connected = connect(options.kafka.bootstrap, options.kafka.client)
        found = connected.run(discover(connected.cluster, options))
        spans = self._spans(connected, found, int(time.time() * 1000))
        return [
            Task(
                each.partition.topic,
                each.partition.partition,
                each.start,
                each.end,
                found.topic_ids.get(each.partition.topic, ZERO_UUID).bytes16,
            )
            for each in split(spans, options.tasks_min, options.task_offsets_max)
        ] or [InputPartition(None)]

    def _spans(self, connected: ConnectedCluster, found: SubscribedPartitions, now_ms: int) -> list[Span]:
        options = self._options
        isolation = options.kafka.isolation
        starts = connected.run(
            resolve_bound(
                connected.cluster,
                options.start,
                found,
                isolation,
                now_ms=now_ms,
                is_no_match_latest=options.is_no_match_latest,
            )
        )
        ends = connected.run(
            resolve_bound(
                connected.cluster, options.end, found, isolation, now_ms=now_ms, is_no_match_latest=True
            )
        )
        if isinstance(options.end, AtOffsets):
            ends = self._within(
                ends, connected.run(ends_of(connected.cluster, found.partitions, LATEST, isolation))
            )
        spans = [Span(each, starts[each], ends[each]) for each in found.partitions]
        for span in spans:
            if span.size < 0 and isinstance(options.start, AtOffsets):
                raise ConfigError(f"{span.partition} would start at {span.start} and end at {span.end}")
        return spans

    def _within(
        self, ends: dict[TopicPartition, int], there: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Returns the ranges within what is there: what is behind the end would be waited for in vain."""
        losses = Losses(fails=self._options.fails_on_data_loss)
        for partition, end in ends.items():
            if end > there[partition]:
                losses.report(
                    OffsetOutOfRangeError(
                        f"endingOffsets has {end} for {partition}, which ends at {there[partition]}"
                    )
                )
        return {partition: min(end, there[partition]) for partition, end in ends.items()}

    @rows_told_plainly
    def read(self, partition: InputPartition) -> Iterator["pyarrow.RecordBatch"]:
        if not isinstance(partition, Task):  # there is nothing to read, and Spark wants a task all the same
            return iter(())
        return read_task(self._options, partition)
