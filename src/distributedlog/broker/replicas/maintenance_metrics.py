"""What maintenance has done, in numbers for a scrape.

    dlog_compaction_runs            that were committed; one that came too late for its log is none
    dlog_compaction_failures        that ended in an error, the child process's own end included
    dlog_compaction_bytes           read, and left when it was done       (label `way`: read, written)
    dlog_compaction_records         before and after                      (label `way`: read, written)
    dlog_compaction_seconds         from the plan to the commit, of the runs; a histogram
    dlog_compaction_running         1 while the child process works
    dlog_compaction_age_seconds     since the last commit; -1 before the first
    dlog_log_dirty_ratio_max        the largest dirty part of a compacted log, of 1
    dlog_retention_runs             rounds over all logs
    dlog_retention_segments, _bytes that went
    dlog_retention_failures         logs that could not be seen to, each time
    dlog_retention_age_seconds      since the last round ended; -1 before the first

Counted on the data loop.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from distributedlog.broker.observability.metrics import Family, FamilyKind, Histogram, Sample, one

if TYPE_CHECKING:
    from distributedlog.storage.compaction.log import CompactionCounts
    from distributedlog.storage.segment import Segment

NEVER = -1.0


class MaintenanceCounters:
    __slots__ = (
        "_committed_ms", "_compaction_seconds", "_failures", "_read", "_retained_ms", "_retention",
        "_retention_failures", "_runs", "_written",
    )  # fmt: skip

    def __init__(self) -> None:
        self._runs = 0
        self._failures = 0
        self._read = [0, 0]
        self._written = [0, 0]
        """Bytes and records."""
        self._compaction_seconds = Histogram()
        self._committed_ms: int | None = None
        self._retention = [0, 0, 0]
        """Rounds, segments and bytes."""
        self._retention_failures = 0
        self._retained_ms: int | None = None

    # --- counting ------------------------------------------------------------------------------

    def compacted(self, counts: "CompactionCounts", began_ms: int, now_ms: int) -> None:
        self._runs += 1
        self._read[0] += counts.bytes_before
        self._read[1] += counts.records_before
        self._written[0] += counts.bytes_after
        self._written[1] += counts.records_after
        self._compaction_seconds.observe((now_ms - began_ms) / 1000)
        self._committed_ms = now_ms

    def compaction_failed(self) -> None:
        self._failures += 1

    def retained(self, gone: "list[Segment]") -> None:
        """Counts what retention removed from one log."""
        self._retention[1] += len(gone)
        self._retention[2] += sum(segment.size for segment in gone)

    def retention_failed(self) -> None:
        self._retention_failures += 1

    def retention_ended(self, now_ms: int) -> None:
        self._retention[0] += 1
        self._retained_ms = now_ms

    # --- a scrape ------------------------------------------------------------------------------

    def families(self, *, now_ms: int, is_compacting: bool, dirty_ratio: float) -> Iterator[Family]:
        counter, gauge = FamilyKind.COUNTER, FamilyKind.GAUGE
        yield one(counter, "dlog_compaction_runs", "Compactions that were committed.", self._runs)
        yield one(counter, "dlog_compaction_failures", "Compactions that failed.", self._failures)
        for at, name in enumerate(("bytes", "records")):
            samples = [Sample({"way": "read"}, self._read[at]), Sample({"way": "written"}, self._written[at])]
            yield Family(counter, f"dlog_compaction_{name}", "What compaction read, and left.", samples)
        yield Family(
            FamilyKind.HISTOGRAM, "dlog_compaction_seconds", "From a compaction's plan to its commit.",
            [Sample({}, self._compaction_seconds.copy())],
        )  # fmt: skip
        yield one(gauge, "dlog_compaction_running", "1 while a log is compacted.", float(is_compacting))
        yield one(
            gauge, "dlog_compaction_age_seconds", "Since the last commit of a compaction; -1 for never.",
            _age_seconds(self._committed_ms, now_ms),
        )  # fmt: skip
        yield one(
            gauge, "dlog_log_dirty_ratio_max", "The largest dirty part of a compacted log.", dirty_ratio
        )
        rounds, segments, gone_bytes = self._retention
        yield one(counter, "dlog_retention_runs", "Rounds of retention over all logs.", rounds)
        yield one(counter, "dlog_retention_segments", "Segments that retention deleted.", segments)
        yield one(counter, "dlog_retention_bytes", "Bytes that retention deleted.", gone_bytes)
        yield one(
            counter, "dlog_retention_failures", "Logs to which retention could not be applied, each time.",
            self._retention_failures,
        )  # fmt: skip
        yield one(
            gauge, "dlog_retention_age_seconds", "Since the last round of retention; -1 for never.",
            _age_seconds(self._retained_ms, now_ms),
        )  # fmt: skip


def _age_seconds(then_ms: int | None, now_ms: int) -> float:
    return NEVER if then_ms is None else (now_ms - then_ms) / 1000
