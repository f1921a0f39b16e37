"""A query that goes on: which offsets each micro-batch takes, and how far the query has come.

Spark keeps one process on the driver for a query, and asks it in turns:

| Spark asks            | it is answered                                                                   |
|-----------------------|----------------------------------------------------------------------------------|
| `initialOffset`       | where a new query begins; always the same, however often it is asked             |
| `latestOffset`        | how far the next micro-batch goes; if there is nothing new it waits a moment     |
| `partitions`          | tasks; none where the end is not behind the start                                |
| `commit`              | the progress goes to the group                                                   |

**The first micro-batch.**  What `initialOffset` says is journaled only with the first micro-batch.  If that
one had rows and the driver died in it, the query would begin anew, at what is then the end: the rows before
it would never be seen.  So where the beginning means another offset each time (the end, ten minutes ago), the
first micro-batch is empty, and journals it.  A query that is to run just once has nothing after the first:
it takes what is there.

**Nothing new.**  The wait grows from call to call to half a second, ends at once when something comes, and is
short again after every micro-batch, so that another source of the same query is not held up.

**Topics and partitions** that come while a query runs join it at their first offset.  What is lost is an
error (`topics` says what that is).  The ids of topics are journaled with the offsets (`offsets` says how).
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from distributedlog.client.offset_specs import EARLIEST, LATEST, Isolation
from distributedlog.model.errors import DlogError, OffsetOutOfRangeError, UnknownTopicError
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.spark.connections import close_connections, connect
from distributedlog.spark.plain_errors import rows_told_plainly, told_plainly
from distributedlog.spark.source.fetching import Task, read_task
from distributedlog.spark.source.losses import Losses
from distributedlog.spark.source.offsets import OFFSET_MAX, Positions, positions_of
from distributedlog.spark.source.options import ReadOptions, is_relative_to_now, parse_stream_options
from distributedlog.spark.source.progress import Progress
from distributedlog.spark.source.ranges import Span, is_worth_a_batch, limited, limited_by_bytes, split
from distributedlog.spark.source.sampling import sample
from distributedlog.spark.source.topics import (
    SubscribedPartitions,
    discover,
    ends_of,
    losses_between,
    remade_topics,
    resolve_bound,
)
from distributedlog.spark.source.watching import Watch

if TYPE_CHECKING:
    import pyarrow

Json = dict[str, Any]

IDLE_MS_FIRST: Final = 10
IDLE_MS_MAX: Final = 500
LONG_AGO_MS: Final = -(2**62)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """It is pickled into every task: what a query remembers on the driver is made when it is first asked."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = parse_stream_options(options)
        self._query: Query | None = None

    @property
    def query(self) -> "Query":
        if self._query is None:
            self._query = Query(self._options)
        return self._query

    @told_plainly
    def initialOffset(self) -> Json:  # noqa: N802 (Spark's name, here and below)
        return self.query.initial().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Returns a limit that is never "all": so that where Spark says "all", it is known to be a query that
        runs once."""
        return ReadMaxRows(self._options.limits.offsets_max or OFFSET_MAX)

    @told_plainly
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        rows_max = None if isinstance(limit, ReadAllAvailable) else rows_max_of(limit)
        return self.query.latest(positions_of(start), rows_max).as_json()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        there = self.query.there
        return None if there is None else there.as_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.query.stops_at_the_end = True

    @told_plainly
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        return list(self.query.tasks(positions_of(start), positions_of(end)))

    @rows_told_plainly
    def read(self, partition: InputPartition) -> Iterator["pyarrow.RecordBatch"]:
        assert isinstance(partition, Task)
        return read_task(self._options, partition)

    def commit(self, end: Json) -> None:
        self.query.worked_through(positions_of(end))

    def stop(self) -> None:
        self.query.close()
        close_connections()


def rows_max_of(limit: ReadLimit) -> int:
    assert isinstance(limit, ReadMaxRows)
    return limit.max_rows


class Query:
    """What is remembered of a query while its driver lives.  All of it can be lost: the checkpoint counts."""

    def __init__(self, options: ReadOptions) -> None:
        self.stops_at_the_end = False
        """Whether it takes what is there when it is first asked, and then ends."""
        self.there: Positions | None = None
        """The ends, as they were last seen."""
        self._options = options
        self._connected = connect(options.kafka.bootstrap, options.kafka.client)
        watching = connect(options.kafka.bootstrap, options.kafka.client, "watch")
        self._watching = watching
        self._watch = Watch(watching.cluster, options.kafka.isolation)
        self._progress = Progress(options.kafka.bootstrap, options.kafka.client, options.group_id)
        self._losses = Losses(fails=options.fails_on_data_loss)
        self._clock = self._connected.cluster.clock
        self._initial: Positions | None = None
        self._is_journaled = False
        self._target: Positions | None = None
        self._topic_ids: dict[str, Uuid] = {}
        self._found: SubscribedPartitions | None = None
        self._found_ms = LONG_AGO_MS
        self._batch_ms = LONG_AGO_MS
        self._idle_calls = 0

    # --- where it begins -----------------------------------------------------------------------

    def initial(self) -> Positions:
        if self._initial is None:
            found = self._connected.run(discover(self._connected.cluster, self._options))
            offsets = self._connected.run(
                resolve_bound(
                    self._connected.cluster,
                    self._options.start,
                    found,
                    self._options.kafka.isolation,
                    now_ms=int(time.time() * 1000),
                    is_no_match_latest=self._options.is_no_match_latest,
                )
            )
            self._initial = Positions(offsets, found.topic_ids)
        return self._initial

    # --- how far it goes -----------------------------------------------------------------------

    def latest(self, start: Positions, rows_max: int | None) -> Positions:
        """The end of the next micro-batch.  `rows_max` is None for a query that runs just once."""
        if self._initial is not None and not self._is_journaled:
            self._is_journaled = True
            if is_relative_to_now(self._options.start) and rows_max is not None:
                self.there = start
                return start
        end = self._decide(start, rows_max)
        if end != start:
            self._progress.begin()
            return end
        self._progress.report(start)
        if self.stops_at_the_end or rows_max is None:
            return start
        self._wait()
        return self._decide(start, rows_max)

    def _wait(self) -> None:
        wait_ms = min(IDLE_MS_FIRST << min(self._idle_calls, 10), IDLE_MS_MAX)
        self._idle_calls += 1
        assert self.there is not None
        self._watching.run(self._watch.wait(self.there.offsets, wait_ms))

    def _decide(self, start: Positions, rows_max: int | None) -> Positions:
        there = self._look(start)
        remade = set(remade_topics(start, there.topic_ids))
        news = [each for each in there.offsets if each not in start.offsets or each.topic in remade]
        begins = dict(start.offsets) | self._firsts(news)
        spans = [Span(each, begins[each], end) for each, end in there.offsets.items()]
        ends = dict(there.offsets)
        if rows_max is not None and not self._is_enough(spans):
            return start
        if rows_max is not None:
            ends = limited(spans, rows_max)
        if self._options.limits.bytes_max is not None and rows_max is not None:
            ends = self._within_bytes(
                [Span(each.partition, each.start, ends[each.partition]) for each in spans]
            )
        if ends == start.offsets and not remade:
            return start
        self._batch_ms = self._clock.monotonic_ms()
        return Positions(ends, there.topic_ids)

    def _is_enough(self, spans: list[Span]) -> bool:
        limits = self._options.limits
        waited_ms = self._clock.monotonic_ms() - self._batch_ms
        return self.stops_at_the_end or is_worth_a_batch(
            spans, limits.offsets_min, waited_ms, limits.delay_ms_max
        )

    def _within_bytes(self, spans: list[Span]) -> dict[TopicPartition, int]:
        assert self._options.limits.bytes_max is not None
        begins = {each.partition: each.start for each in spans if each.size > 0}
        per_offset = self._connected.run(sample(self._connected.cluster, begins)) if begins else {}
        return limited_by_bytes(spans, self._options.limits.bytes_max, per_offset)

    def _firsts(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        isolation = Isolation.READ_UNCOMMITTED
        return self._connected.run(ends_of(self._connected.cluster, partitions, EARLIEST, isolation))

    # --- what is there -------------------------------------------------------------------------

    def _look(self, start: Positions) -> Positions:
        """The ends as they are now, or as they were when a query that stops at the end first looked."""
        if self._target is not None:
            return self._target
        before = Positions(start.offsets, {**self._topic_ids, **start.topic_ids})
        for attempt in range(1, self._options.loss_tries + 1):
            found, ends, lost = self._look_once(before)
            if not lost:
                break
            self._found = None
            if attempt < self._options.loss_tries:
                self._connected.run(_pause(self._options.loss_pause_ms))
        for each in lost:
            self._losses.report(each)
        self._topic_ids = dict(found.topic_ids)
        self.there = Positions(ends, found.topic_ids)
        if self.stops_at_the_end:
            self._target = self.there
        return self.there

    def _look_once(
        self, before: Positions
    ) -> tuple[SubscribedPartitions, dict[TopicPartition, int], list[DlogError]]:
        isolation = self._options.kafka.isolation
        deadline_ms = self._clock.monotonic_ms() + self._options.kafka.client.call_timeout_ms
        while True:
            found = self._discover()
            try:
                ends = self._connected.run(
                    ends_of(self._connected.cluster, found.partitions, LATEST, isolation)
                )
            except UnknownTopicError:  # gone since
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise
                self._found = None
                self._connected.run(_pause(self._options.kafka.client.retry_pause_ms))
                continue
            return found, ends, losses_between(before, ends, found, self._options.subscription)

    def _discover(self) -> SubscribedPartitions:
        now_ms = self._clock.monotonic_ms()
        if self._found is None or now_ms - self._found_ms >= self._options.metadata_ms:
            self._found = self._connected.run(
                discover(self._connected.cluster, self._options, must_exist=False)
            )
            self._found_ms = now_ms
        return self._found

    # --- tasks ---------------------------------------------------------------------------------

    def tasks(self, start: Positions, end: Positions) -> Iterator[Task]:
        remade = set(remade_topics(start, end.topic_ids))
        news = [each for each in end.offsets if each not in start.offsets or each.topic in remade]
        firsts = self._firsts(news)
        for partition, first in sorted(firsts.items()):
            if first > 0:
                self._losses.report(
                    OffsetOutOfRangeError(
                        f"{partition} came while the query was running, and begins at {first}: what was"
                        " before it is lost"
                    )
                )
        begins = dict(start.offsets) | firsts
        spans = [Span(each, begins[each], ends) for each, ends in sorted(end.offsets.items())]
        for each in split(spans, self._options.tasks_min, self._options.task_offsets_max):
            topic, index = each.partition
            topic_id = end.topic_ids.get(topic, ZERO_UUID).bytes16
            yield Task(topic, index, each.start, each.end, topic_id)

    # --- progress ------------------------------------------------------------------------------

    def worked_through(self, end: Positions) -> None:
        self._idle_calls = 0
        self._progress.report(end)

    def close(self) -> None:
        self._progress.close()


async def _pause(pause_ms: int) -> None:
    await asyncio.sleep(pause_ms / 1000)
