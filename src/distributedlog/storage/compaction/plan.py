"""The plan and the result of a compaction, and when a log is worth it.

A plan is data, made on the log's own thread and sent to whoever does the work; so is the result.  Neither
holds anything of the log itself.  The cleaned files of a run carry its token in their names, so that a
worker that outlived its broker cannot write into the files of the next.

    first segment                          first_dirty_offset                 end_offset
    ├───────────── clean ──────────────────┼──────────── dirty ───────────────┼──── not to be touched ────┤

What lies at `end_offset` or after is never touched: the active segment, and every segment that holds an
offset which is not committed, not synced, not decided (an open transaction), or, by `min.compaction.lag.ms`,
too young.  A plan is made if the dirty part is a larger part of the cleanable log than
`min.cleanable.dirty.ratio`, or if a dirty record is older than `max.compaction.lag.ms`.
"""

from dataclasses import dataclass, field

from distributedlog.model.limits import RecordLimits
from distributedlog.records.layout import HEADER_BYTES, MAX_TIMESTAMP_AT
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.retention import read_segment_time_ms
from distributedlog.storage.scan import LIMITS
from distributedlog.storage.segment import CLEANED_SUFFIX, Segment
from distributedlog.storage.txn_index import AbortedTransaction

KEYS_MAX = 1_000_000
"""How many keys a run keeps in memory, about 140 bytes each."""


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """A sealed segment, as it was when the plan was made."""

    base_offset: int
    end_offset: int
    """Where the next segment begins."""
    size: int


@dataclass(frozen=True, slots=True)
class ProducerTail:
    """The batches by which an active producer's retries are recognised; they may lose their records."""

    epoch: int
    last_offsets: frozenset[int]
    """The sequences of its latest data batches; none if its epoch is known from a marker only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    directory: str
    segments: tuple[SegmentExtent, ...]
    first_dirty_offset: int
    end_offset: int
    now_ms: int
    truncations: int
    """The log's count: the result is void if it has grown meanwhile."""
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    aborted: tuple[AbortedTransaction, ...] = ()
    producers: dict[int, ProducerTail] = field(default_factory=dict)
    keys_max: int = KEYS_MAX
    limits: RecordLimits = LIMITS

    @property
    def cleaned_suffix(self) -> str:
        return f".{self.now_ms}-{self.first_dirty_offset}-{self.end_offset}{CLEANED_SUFFIX}"


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """One new segment that stands for some old ones.  It takes the first one's base offset."""

    old: tuple[SegmentExtent, ...]
    size: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int

    @property
    def base_offset(self) -> int:
        return self.old[0].base_offset


@dataclass(slots=True)
class CompactionCounts:
    """What a run did, for metrics."""

    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    tombstones_dropped: int = 0
    markers_dropped: int = 0
    keys: int = 0
    """Distinct keys in the dirty part that was looked at."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    directory: str
    cleaned_suffix: str
    truncations: int
    segments: tuple[SegmentExtent, ...]
    """All that were read."""
    groups: tuple[CleanedGroup, ...]
    """Those of them that are to be replaced, in the order of offsets."""
    first_dirty_offset: int
    """The first dirty offset once the result is committed."""
    counts: CompactionCounts


# --- planning ----------------------------------------------------------------------------------


def plan_compaction(
    log: PartitionLog, first_dirty_offset: int, now_ms: int, *, force: bool = False, keys_max: int = KEYS_MAX
) -> CompactionPlan | None:
    """Returns what to compact now, or None.  `first_dirty_offset` is what the last committed run gave, 0 if
    none.

    `force` compacts whatever may be touched, worth it or not: tombstones past their horizon go, too.
    """
    if not log.config.compacts:
        return None
    segments = log.segments.all()
    if not segments[0].base_offset <= first_dirty_offset <= log.end_offset:
        first_dirty_offset = segments[0].base_offset  # segments went, or the log was truncated below it
    extents = _cleanable(log, first_dirty_offset, now_ms)
    if not extents or not (force or _is_worth_it(log, extents, first_dirty_offset, now_ms)):
        return None
    end_offset = extents[-1].end_offset
    config = log.config
    return CompactionPlan(
        directory=log.directory,
        segments=tuple(extents),
        first_dirty_offset=first_dirty_offset,
        end_offset=end_offset,
        now_ms=now_ms,
        truncations=log.truncations,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.index_bytes_max,
        index_interval_bytes=config.index_interval_bytes,
        aborted=tuple(log.find_aborted_transactions(extents[0].base_offset, end_offset)),
        producers=_producer_tails(log, end_offset),
        keys_max=keys_max,
        limits=log.limits,
    )


def _cleanable(log: PartitionLog, first_dirty_offset: int, now_ms: int) -> list[SegmentExtent]:
    """The segments up to the first that must not be touched."""
    bound = min(log.last_stable_offset, log.flushed_end_offset)
    lag_ms = log.config.min_compaction_lag_ms
    extents: list[SegmentExtent] = []
    for segment, following in zip(log.segments.sealed, log.segments.all()[1:], strict=True):
        end_offset = following.base_offset
        is_dirty = end_offset > first_dirty_offset
        if end_offset > bound or (
            is_dirty and lag_ms > 0 and read_segment_time_ms(log, segment) > now_ms - lag_ms
        ):
            break
        extents.append(SegmentExtent(segment.base_offset, end_offset, segment.size))
    return extents


def _is_worth_it(
    log: PartitionLog, extents: list[SegmentExtent], first_dirty_offset: int, now_ms: int
) -> bool:
    total_bytes = sum(extent.size for extent in extents)
    dirty = [extent for extent in extents if extent.end_offset > first_dirty_offset]
    dirty_bytes = sum(extent.size for extent in dirty)
    if dirty_bytes == 0:
        return False
    if dirty_bytes / total_bytes > log.config.min_cleanable_dirty_ratio:
        return True
    overdue_ms = now_ms - log.config.max_compaction_lag_ms
    return any(
        0 <= _first_timestamp(segment) < overdue_ms
        for segment in log.segments.from_offset(dirty[0].base_offset)[: len(dirty)]
    )


def compute_dirty_ratio(log: PartitionLog, first_dirty_offset: int) -> float:
    """Returns which part of the sealed segments no run has looked at yet."""
    total_bytes = dirty_bytes = 0
    for segment, following in zip(log.segments.sealed, log.segments.all()[1:], strict=True):
        total_bytes += segment.size
        if following.base_offset > first_dirty_offset:
            dirty_bytes += segment.size
    return dirty_bytes / total_bytes if total_bytes else 0.0


def _first_timestamp(segment: Segment) -> int:
    """The newest timestamp of the first batch, -1 if there is none: a segment is as old as its beginning."""
    if segment.size < HEADER_BYTES:
        return -1
    return int.from_bytes(segment.log.read_at(MAX_TIMESTAMP_AT, 8), "big", signed=True)


def _producer_tails(log: PartitionLog, end_offset: int) -> dict[int, ProducerTail]:
    return {
        state.producer_id: ProducerTail(state.epoch, frozenset(batch.last_offset for batch in state.batches))
        for state in log.producers
        if not state.batches or state.batches[0].last_offset < end_offset
    }
