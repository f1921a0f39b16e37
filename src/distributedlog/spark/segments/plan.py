"""What of a data directory is read, and by which tasks.

**How far.**  Up to the high watermark as the checkpoint beside the partitions has it: what is behind it is
perhaps not committed.  A broker writes it down every few seconds (`replica.high.watermark.checkpoint.
interval.ms`); what came since is for the stream that takes over.  A partition of which the checkpoint says
nothing is read only up to an offset that the caller names.

**What of it.**  With read_committed, only below the first transaction that is not decided, and without the
batches of aborted ones.  Which those are is known from two places: up to the newest snapshot of producers
from the `.txnindex` files, each entry of which is checked against the marker that it names; behind it by
walking the headers of batches.  A snapshot is taken whenever a segment is sealed, so that the walk is about
the last.

**Tasks.**  A partition's offsets are cut where its offset indexes have entries, so that each task has at most
about `taskBytes` of one segment's file.  A segment's tasks are of about one size: a task costs Spark some ten
milliseconds before it has read anything, and a small remainder would not be worth them.  An index that is
damaged or missing costs parallelism, not rows.
"""

import contextlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from distributedlog.client.offset_specs import EARLIEST, LATEST
from distributedlog.model.errors import (
    ConfigError,
    CorruptLogError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
)
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.records.control import read_end_marker
from distributedlog.spark.segments.files import (
    NO_HINT,
    DataDirectory,
    Hint,
    PartitionFiles,
    PartitionPlace,
    find_places,
)
from distributedlog.spark.segments.options import ENDING, STARTING, SegmentOptions
from distributedlog.spark.source.losses import Losses
from distributedlog.spark.source.offsets import Positions
from distributedlog.storage.files import Files
from distributedlog.storage.index import OFFSET_ENTRY
from distributedlog.storage.producer_history import SnapshotFiles, apply_batch
from distributedlog.storage.producers import ProducerStates
from distributedlog.storage.segment import OFFSET_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from distributedlog.storage.txn_index import AbortedTransaction, TransactionIndex

INTERNAL_PREFIX: Final = "__"
UNKNOWN: Final = -1


class Aborted(NamedTuple):
    """Records of this producer between the two offsets do not count."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass
class SegmentTask(InputPartition):
    """What is pickled for a worker."""

    directory: str
    topic: str
    index: int
    start: int
    end: int
    hint: Hint = NO_HINT
    aborted: tuple[Aborted, ...] = ()

    @property
    def place(self) -> PartitionPlace:
        return PartitionPlace(TopicPartition(self.topic, self.index), self.directory)


@dataclass(frozen=True, slots=True)
class Extent:
    """What can be read of a partition."""

    place: PartitionPlace
    start: int
    end: int
    """UNKNOWN if nothing says how far it is committed."""
    topic_id: Uuid = ZERO_UUID


# --- how far -----------------------------------------------------------------------------------


def extents(options: SegmentOptions, files: Files) -> list[Extent]:
    """The partitions that are meant, each with what is there of it."""
    root, places = find_places(options.path, files)
    directory = DataDirectory(root, files)
    found = []
    for place in _chosen(options, places):
        bases = PartitionFiles(files, place).bases()
        if not bases:
            raise ConfigError(f"{place.directory} has no segments")
        start = max(bases[0], directory.start_of(place.partition))
        end = directory.high_watermarks.get(place.partition, UNKNOWN)
        if end != UNKNOWN:
            end = max(start, end)
        found.append(Extent(place, start, end, directory.topic_id(place)))
    return found


def _chosen(options: SegmentOptions, places: list[PartitionPlace]) -> list[PartitionPlace]:
    wanted = options.subscription
    if wanted is None:
        named = [each for each in places if not each.partition.topic.startswith(INTERNAL_PREFIX)]
        return named if len(places) > 1 else places
    if wanted.partitions is not None:
        missing = sorted(set(wanted.partitions) - {place.partition for place in places})
        chosen = [place for place in places if place.partition in wanted.partitions]
    elif wanted.pattern is not None:
        missing, chosen = [], [each for each in places if _is_found(wanted.pattern, each.partition.topic)]
    else:
        there = {place.partition.topic for place in places}
        missing = [TopicPartition(name, 0) for name in wanted.names or () if name not in there]
        chosen = [place for place in places if place.partition.topic in (wanted.names or ())]
    if missing:
        raise ConfigError(f"{options.path} has nothing of {', '.join(sorted({e.topic for e in missing}))}")
    return chosen


def _is_found(pattern: str, topic: str) -> bool:
    return not topic.startswith(INTERNAL_PREFIX) and re.search(pattern, topic) is not None


class Bounds(NamedTuple):
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def bounds(options: SegmentOptions, found: list[Extent]) -> Bounds:
    """Returns where each partition is to begin and to end, by what is asked for and what is there."""
    losses = Losses(fails=options.fails_on_data_loss)
    starts, ends = {}, {}
    for extent in found:
        partition = extent.place.partition
        start = _wanted(options.start, extent, STARTING)
        end = _wanted(options.end, extent, ENDING)
        start = extent.start if start == EARLIEST else start
        if end == LATEST:
            end = _known_end(extent)
        if start < extent.start:
            losses.report(
                OffsetOutOfRangeError(
                    f"{STARTING} has {start} for {partition}, which begins at {extent.start}"
                )
            )
            start = extent.start
        if extent.end != UNKNOWN and end > extent.end:
            losses.report(
                OffsetOutOfRangeError(
                    f"{ENDING} has {end} for {partition}, of which {extent.end} is committed"
                )
            )
            end = extent.end
        if start > end:
            raise ConfigError(f"{partition} would start at {start} and end at {end}")
        starts[partition], ends[partition] = start, end
    return Bounds(starts, ends)


def _known_end(extent: Extent) -> int:
    if extent.end == UNKNOWN:
        raise ConfigError(
            f"how far {extent.place.partition} is committed is not known: there is no"
            f" replication-offset-checkpoint that says it beside {extent.place.directory}; say with {ENDING}"
            " up to where to read"
        )
    return extent.end


def _wanted(bound: int | Positions, extent: Extent, option: str) -> int:
    if not isinstance(bound, Positions):
        return bound
    partition = extent.place.partition
    if partition not in bound.offsets:
        raise ConfigError(f"{option} says nothing of {partition}: name every partition (-2 first, -1 end)")
    topic_id = bound.topic_ids.get(partition.topic, ZERO_UUID)
    if ZERO_UUID not in (topic_id, extent.topic_id) and topic_id != extent.topic_id:
        raise UnknownTopicIdError(
            f"{option} is about a topic {partition.topic!r} with the id {topic_id}; the one in"
            f" {extent.place.directory} has {extent.topic_id}: it was deleted and made again"
        )
    return bound.offsets[partition]


# --- what of it --------------------------------------------------------------------------------


class TransactionOutcomes(NamedTuple):
    """How far every transaction is decided, and which were aborted."""

    last_stable_offset: int
    aborted: tuple[Aborted, ...]


def find_transaction_outcomes(
    files: Files, log: PartitionFiles, place: PartitionPlace, start: int, end: int
) -> TransactionOutcomes:
    """Finds up to where every transaction is decided, if all up to `end` is committed; and what was aborted
    of the offsets from `start` on.  A marker at `end` or behind it decides nothing yet."""
    bases = log.bases() or [start]
    walked_from, states = _newest_snapshot(files, place, bases, end)
    aborted: list[AbortedTransaction] = []
    for base, next_base in zip(bases, [*bases[1:], end], strict=True):
        if next_base > start and base < walked_from:
            index = TransactionIndex(files, log.path(base, TXN_INDEX_SUFFIX), base)
            entries = [each for each in index.entries() if each.last_offset < walked_from]
            for entry in entries:
                _check_marker(log, entry)
            aborted += entries
    for batch in log.batches(walked_from, end, headers_only=True):
        if batch.header.is_transactional and batch.header.base_offset >= walked_from:
            ended = apply_batch(states, batch)
            aborted += [] if ended is None else [ended]
    undecided = states.first_undecided_offset
    stable = end if undecided is None else max(start, min(undecided, end))
    return TransactionOutcomes(
        stable, tuple(Aborted(*entry[:3]) for entry in aborted if entry.last_offset >= start)
    )


def _newest_snapshot(
    files: Files, place: PartitionPlace, bases: list[int], end: int
) -> tuple[int, ProducerStates]:
    """Returns the newest snapshot before `end`; without any, nothing is known at the log's first offset."""
    snapshots = SnapshotFiles(files, place.directory)
    with contextlib.suppress(FileNotFoundError):  # the topic was deleted: who reads it tells
        snapshots.find()
    for offset in reversed(snapshots.offsets):
        if bases[0] <= offset <= end:
            states = snapshots.at(offset)
            if states is not None:
                return offset, states
    return bases[0], ProducerStates()


def _check_marker(log: PartitionFiles, entry: AbortedTransaction) -> None:
    """An index has no checksum: the marker that an entry names must be there and say the same."""
    hint = _hint_before(log, entry.last_offset)
    batch = next(iter(log.batches(entry.last_offset, entry.last_offset + 1, hint=hint)), None)
    header = None if batch is None else batch.header
    if (
        batch is None
        or header is None
        or not header.is_control
        or header.producer_id != entry.producer_id
        or header.base_offset != entry.last_offset
        or read_end_marker(batch.window, batch.at, header).is_commit
    ):
        raise CorruptLogError(
            f"the transaction index of {log.partition} says that {entry.producer_id} aborted at"
            f" {entry.last_offset}, and the log does not: run dlog log index, or read through the broker"
        )


# --- tasks -------------------------------------------------------------------------------------


def plan(options: SegmentOptions, files: Files) -> list[SegmentTask]:
    found = extents(options, files)
    limits = bounds(options, found)
    task_bytes = _task_bytes(options, files, found)
    tasks: list[SegmentTask] = []
    for extent in found:
        partition = extent.place.partition
        start, end = limits.starts[partition], limits.ends[partition]
        aborted: tuple[Aborted, ...] = ()
        log = PartitionFiles(files, extent.place)
        if options.is_committed_only and start < end:
            # An end in the middle of a transaction: whether it was aborted is said further on.
            committed = end if extent.end == UNKNOWN else extent.end
            stable, aborted = find_transaction_outcomes(files, log, extent.place, start, committed)
            if stable < end:
                end = _stable_end(options, partition, stable)
        tasks += _divided(extent.place, log, start, end, aborted, task_bytes)
    return tasks


def _stable_end(options: SegmentOptions, partition: TopicPartition, stable: int) -> int:
    if isinstance(options.end, Positions) and options.end.offsets[partition] > stable:
        Losses(fails=options.fails_on_data_loss).report(
            OffsetOutOfRangeError(
                f"{ENDING} has {options.end.offsets[partition]} for {partition}, which is decided up to"
                f" {stable}: a transaction is open"
            )
        )
    return stable


def _task_bytes(options: SegmentOptions, files: Files, found: list[Extent]) -> int:
    """Returns the bytes of a task: fewer if so many tasks are wanted."""
    if options.tasks_min <= 1:
        return options.task_bytes
    logs = [PartitionFiles(files, extent.place) for extent in found]
    total = sum(log.log_bytes(base) for log in logs for base in log.bases())
    return max(1, min(options.task_bytes, total // options.tasks_min))


def _divided(
    place: PartitionPlace,
    log: PartitionFiles,
    start: int,
    end: int,
    aborted: tuple[Aborted, ...],
    task_bytes: int,
) -> Iterator[SegmentTask]:
    """Tasks one behind the other; a task ends where the next begins."""
    cuts: list[tuple[int, Hint]] = []
    for offset, hint in _cuts(log, task_bytes):
        if offset < end and (not cuts or cuts[-1][0] < offset):  # an index may lie; tasks must not overlap
            cuts.append((offset, hint))
    if start < end and (not cuts or cuts[0][0] > start):
        cuts.insert(0, (start, NO_HINT))  # what was there was deleted meanwhile: its task tells
    first = max(0, bisect_right([offset for offset, _ in cuts], start) - 1)
    for number in range(first, len(cuts)):
        offset, hint = cuts[number]
        task_start = max(start, offset)
        task_end = cuts[number + 1][0] if number + 1 < len(cuts) else end
        if task_start < task_end:
            yield SegmentTask(
                place.directory,
                place.partition.topic,
                place.partition.partition,
                task_start,
                task_end,
                hint,
                tuple(
                    each
                    for each in aborted
                    if each.last_offset >= task_start and each.first_offset < task_end
                ),
            )


def _cuts(log: PartitionFiles, task_bytes: int) -> Iterator[tuple[int, Hint]]:
    """Returns where tasks may begin: at the offset, and where to look for it."""
    for base in log.bases():
        yield base, Hint(base, 0)
        index = IndexEntries(log, base)
        log_bytes = log.log_bytes(base)
        step_bytes = ceil(log_bytes / max(1, ceil(log_bytes / task_bytes)))
        position = 0
        while (slot := index.slot_at(position + step_bytes)) < len(index):
            if index.position(slot) <= position:  # it does not rise: it is damaged
                break
            position = index.position(slot)
            yield index.offset(slot) + 1, Hint(base, position)


def _hint_before(log: PartitionFiles, offset: int) -> Hint:
    base = max((base for base in log.bases() if base <= offset), default=-1)
    index = IndexEntries(log, base)
    slot = index.slot_of(offset) - 1
    return NO_HINT if slot < 0 else Hint(base, index.position(slot))


class IndexEntries:
    """An offset index as it lies on the disk; none if it is not there or cut off.  An entry says: the batch
    at the position ends with the offset, or soon after it one does."""

    def __init__(self, log: PartitionFiles, base: int) -> None:
        self._base = base
        self._data = log.small_file(base, OFFSET_INDEX_SUFFIX) if base >= 0 else b""
        if len(self._data) % OFFSET_ENTRY.size:
            self._data = b""

    def __len__(self) -> int:
        return len(self._data) // OFFSET_ENTRY.size

    def offset(self, slot: int) -> int:
        relative: int = OFFSET_ENTRY.unpack_from(self._data, slot * OFFSET_ENTRY.size)[0]
        return self._base + relative

    def position(self, slot: int) -> int:
        position: int = OFFSET_ENTRY.unpack_from(self._data, slot * OFFSET_ENTRY.size)[1]
        return position

    def slot_at(self, position: int) -> int:
        """The first entry at the position or behind it."""
        return bisect_left(range(len(self)), position, key=self.position)

    def slot_of(self, offset: int) -> int:
        """The first entry for the offset or a later one."""
        return bisect_left(range(len(self)), offset, key=self.offset)
