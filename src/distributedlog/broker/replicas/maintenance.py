"""What a data directory needs from time to time, done on the data loop without holding it up.

| every                                          | what                                                    |
|------------------------------------------------|---------------------------------------------------------|
| second                                         | syncs by `flush.ms` and what a full disk held up;       |
|                                                | producers beyond PRODUCERS_MAX are forgotten            |
| `replica.high.watermark.checkpoint.interval.ms`| high watermarks                                         |
| `log.flush.offset.checkpoint.interval.ms`      | recovery points, log starts, how far compaction is      |
| `log.retention.check.interval.ms`              | retention, and producers that have expired, where we    |
|                                                | lead: followers remember whom their leader remembers    |
| `log.cleaner.backoff.ms`                       | compaction, one log at a time, in the child process,    |
|                                                | unless `log.cleaner.enable` is off                      |
| ten seconds                                    | files deleted a while ago, strays kept for long enough  |

Checkpoints are encoded here and written by the executor.  Work that visits every log, and that may rename,
delete or sync, is done in slices of some milliseconds; between them the loop serves others.

What was done is counted (`maintenance_metrics`).

What cannot be done now (no room, a damaged log, a child process that was killed) is logged when it begins
to fail and when the reason changes, and is tried again.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from distributedlog.broker.replicas.maintenance_metrics import MaintenanceCounters
from distributedlog.broker.replicas.synced_commits import SyncedCommits
from distributedlog.model.config import SECOND_MS
from distributedlog.model.errors import CorruptLogError, DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import Clock
from distributedlog.ports.disk import Disk
from distributedlog.ports.executor import Executor, Outcome
from distributedlog.ports.scheduler import Scheduler
from distributedlog.replication.checkpoints import OffsetCheckpoint, Written
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.retention import enforce_retention
from distributedlog.storage.store import LOG_START_COPY_FILE

if TYPE_CHECKING:
    from distributedlog.broker.observability.metrics import Family
    from distributedlog.broker.replicas.partitions import PartitionSet
    from distributedlog.storage.compaction.log import CompactionResult

TICK_MS: Final = 1 * SECOND_MS
SLICE_MS: Final = 5
DELETED_FILES_INTERVAL_MS: Final = 10 * SECOND_MS
PRODUCERS_PER_LOG_MAX: Final = 50_000
"""All of them are written with every new segment, on the loop."""
PRODUCERS_MAX: Final = 500_000
"""The producers that all logs together remember, at 0.5 to 1.4 KB each."""
SHED_PART: Final = 10
"""A tenth of the bound is made free at once: forgetting sorts all that there are."""

_logger = logging.getLogger("distributedlog.broker")


class LogMaintenance:
    def __init__(
        self,
        partitions: "PartitionSet",
        settings: NodeSettings,
        *,
        clock: Clock,
        scheduler: Scheduler,
        executor: Executor,
        disk: Disk,
    ) -> None:
        self._partitions = partitions
        self._store = partitions.store
        self._clock = clock
        self._scheduler = scheduler
        self._executor = executor
        self._disk = disk
        self._stray_retention_ms = settings.stray_retention_ms
        self.synced_commits = SyncedCommits(self._store.files, self._store.directory)
        self._is_running = False
        self._logged_failures: dict[str, str] = {}
        self._counts = MaintenanceCounters()
        self._compacting: TopicPartition | None = None
        self._to_compact: list[TopicPartition] = []
        self._visiting: set[str] = set()
        self._high_watermarks = self._file(HIGH_WATERMARK_FILE)
        self._recovery_points = self._file(RECOVERY_POINT_FILE)
        self._starts = self._file(LOG_START_FILE, LOG_START_COPY_FILE)
        self._cleaner_offsets = self._file(CLEANER_FILE)
        self._checkpoints = (
            self._high_watermarks,
            self._recovery_points,
            self._starts,
            self._cleaner_offsets,
        )
        self._tasks: list[tuple[int, Callable[[], None]]] = [
            (TICK_MS, self._sync_due),
            (settings.high_watermark_checkpoint_interval_ms, self._checkpoint_high_watermarks),
            (settings.offset_checkpoint_interval_ms, self._checkpoint_offsets),
            (settings.retention_check_interval_ms, self._apply_retention),
            (DELETED_FILES_INTERVAL_MS, self._remove_deleted_files),
            (DELETED_FILES_INTERVAL_MS, self._remove_expired_strays),
        ]
        if settings.compaction_enabled:
            self._tasks.append((settings.compaction_interval_ms, self._compact_due))
        self._done_ms = [0] * len(self._tasks)
        partitions.signals.start_followed.append(
            lambda _partition: self.checkpoint_starts(self._written(LOG_START_FILE))
        )

    def _file(self, *names: str) -> OffsetCheckpoint:
        paths = tuple(f"{self._store.directory}/{name}" for name in names)
        return OffsetCheckpoint(self._store.files, paths, self._executor)

    # --- the rhythm ----------------------------------------------------------------------------

    def start(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._is_running = True
        self._done_ms = [now_ms] * len(self._tasks)
        self._scheduler.call_at(now_ms + TICK_MS, self._tick)

    def stop(self) -> None:
        self._is_running = False

    @property
    def _is_ended(self) -> bool:
        return not self._is_running or self._store.files.failure is not None

    def _tick(self) -> None:
        if self._is_ended:
            return
        now_ms = self._clock.monotonic_ms()
        for at, (interval_ms, task) in enumerate(self._tasks):
            if now_ms - self._done_ms[at] >= interval_ms:
                self._done_ms[at] = now_ms
                self._attempt(task.__name__.strip("_"), task)
        self._scheduler.call_at(now_ms + TICK_MS, self._tick)

    def _attempt(self, name: str, work: Callable[[], None]) -> bool:
        """Returns whether it was done."""
        try:
            work()
        except DlogError as error:
            self._log_failure(name, error)
            return False
        self._logged_failures.pop(name, None)
        return True

    def _log_failure(self, name: str, error: BaseException) -> None:
        if self._logged_failures.get(name) != str(error):
            self._logged_failures[name] = str(error)
            _logger.warning("cannot %s: %s", name.replace("_", " "), error)

    def _in_slices(self, name: str, steps: Iterator[None], done: Callable[[], None]) -> None:
        """Goes on with `steps` for a slice, then lets others run."""
        if self._is_ended:
            done()
            return
        ends_ms = self._clock.monotonic_ms() + SLICE_MS
        try:
            for _ in steps:
                if self._clock.monotonic_ms() >= ends_ms:
                    self._scheduler.post(partial(self._in_slices, name, steps, done))
                    return
        except DlogError as error:
            self._log_failure(name, error)
        done()

    # --- tasks ---------------------------------------------------------------------------------

    def _sync_due(self) -> None:
        now_ms = self._clock.wall_ms()
        producers = 0
        for partition in self._partitions:
            partition.sync_if_due(now_ms)
            producers += len(partition.log.producers)
        self._partitions.retry_postponed()
        self._shed_producers(producers)
        self._write_synced_commits()

    def take_broker_epoch(self, broker_epoch: int) -> None:
        """Another epoch has begun: what is claimed for the last one says nothing of it."""
        self.synced_commits.broker_epoch = broker_epoch
        self._attempt("write that all is synced", self._write_synced_commits)

    def _write_synced_commits(self) -> None:
        self.synced_commits.write_if_due(self._store.logs.values())

    def _shed_producers(self, total: int) -> None:
        """Forgets producers of the logs with most of them; those of other logs stay."""
        if total <= PRODUCERS_PER_LOG_MAX:
            return
        fullest = sorted((log.producers for log in self._store.logs.values()), key=len, reverse=True)
        spare = PRODUCERS_PER_LOG_MAX // SHED_PART
        for producers in fullest:
            surplus = max(len(producers) - PRODUCERS_PER_LOG_MAX, total - PRODUCERS_MAX)
            if surplus <= 0:
                return
            total -= producers.shed(surplus + spare)

    def _checkpoint_high_watermarks(self) -> None:
        high_watermarks = {key: log.high_watermark for key, log in self._store.logs.items()}
        high_watermarks = self._store.add_absent(HIGH_WATERMARK_FILE, high_watermarks)
        self._high_watermarks.write(high_watermarks, self._written(HIGH_WATERMARK_FILE))

    def _checkpoint_offsets(self) -> None:
        """Writes the epoch histories that have changed, in one piece of work, and then the rest: a recovery
        point means that they are there up to it."""
        writes = [
            (log, write)
            for log in self._store.logs.values()
            if not log.is_closed and (write := log.begin_epoch_write()) is not None
        ]

        def written(outcome: Outcome[list[Outcome[None]]]) -> None:
            for (log, write), each in zip(writes, outcome.value(), strict=True):
                log.end_epoch_write(write, succeeded=each.error is None)
                if each.error is not None and self._is_running:
                    self._log_failure("write the epoch histories", each.error)
            if not self._is_ended:
                self._checkpoint_recovery_points()

        if writes:
            self._executor.run_blocking(lambda: [Outcome.of(write.run) for _, write in writes], written)
        else:
            self._checkpoint_recovery_points()

    def _checkpoint_recovery_points(self) -> None:
        """The indexes go first: a recovery point means that they are there up to it."""
        points: dict[TopicPartition, int] = {}

        def steps() -> Iterator[None]:
            for key, log in list(self._store.logs.items()):
                if not log.is_closed:
                    self._attempt(f"write the indexes of {key}", partial(_note, points, key, log))
                yield

        def done() -> None:
            if not self._is_ended:
                self._write_offsets(points)

        self._in_slices("write the indexes", steps(), done)

    def _write_offsets(self, points: dict[TopicPartition, int]) -> None:
        logs = self._store.logs
        # Meanwhile a log may have been truncated, or deleted and made again.
        settled = {key: min(point, logs[key].recovery_point) for key, point in points.items() if key in logs}
        settled = self._store.add_absent(RECOVERY_POINT_FILE, settled)
        self._recovery_points.write(settled, self._written(RECOVERY_POINT_FILE))
        self._cleaner_offsets.write(self._store.first_dirty_offsets, self._written(CLEANER_FILE))
        self.checkpoint_starts(self._written(LOG_START_FILE))

    def _written(self, name: str) -> Written:
        def written(error: BaseException | None) -> None:
            if error is not None and self._is_running:
                self._log_failure(f"write {name}", error)

        return written

    def checkpoint_starts(self, written: Written | None = None) -> None:
        """Checkpoints the log start offsets; `written` is called when they are durable."""
        moved = self._moved_starts()
        logs = self._store.logs
        truncations = {logs[key]: logs[key].truncations for key in moved if key in logs}

        def done(error: BaseException | None) -> None:
            if error is None:
                self._note_starts(moved, truncations)
            if written is not None:
                written(error)

        self._starts.write(moved, done)

    def _note_starts(self, stored: dict[TopicPartition, int], truncations: dict[PartitionLog, int]) -> None:
        """Tells partitions what is stored, unless their logs were truncated meanwhile: that took it back."""
        for key, offset in stored.items():
            partition = self._partitions.get(key.topic, key.partition)
            if partition is not None and truncations.get(partition.log) == partition.log.truncations:
                partition.note_start_stored(offset)

    def _moved_starts(self) -> dict[TopicPartition, int]:
        """Returns the log start offsets that the first segment's name does not say."""
        moved = {
            key: log.start_offset
            for key, log in self._store.logs.items()
            if log.start_offset > log.segments.first.base_offset
        }
        return self._store.add_absent(LOG_START_FILE, moved)

    def checkpoint_before_close(self) -> None:
        """A write that is still under way must not come after those of the store's own closing."""
        if self._store.files.failure is None:
            self._attempt("write the checkpoints", self._checkpoint_now)

    def _checkpoint_now(self) -> None:
        logs = self._store.logs.items()
        absent = self._store.add_absent
        marks = {key: log.high_watermark for key, log in logs}
        self._high_watermarks.write_now(absent(HIGH_WATERMARK_FILE, marks))
        for _, log in logs:
            log.write_epochs()
        points = {key: log.recovery_point for key, log in logs}
        self._recovery_points.write_now(absent(RECOVERY_POINT_FILE, points))
        self._cleaner_offsets.write_now(self._store.first_dirty_offsets)
        self._starts.write_now(self._moved_starts())

    # --- lowering checkpoints ------------------------------------------------------------------

    def lower_before_truncations(self, key: TopicPartition, log: PartitionLog) -> None:
        """Lowers the checkpoints before the log is cut, if that has not been done for many logs at once."""
        log.before_truncation = lambda offset: self.lower({key: offset})

    def lower(self, ends: Mapping[TopicPartition, int]) -> None:
        """Lowers what checkpoints say of logs that are about to end there, durably: each file is written at
        most once by the store and once here, whatever the number of logs."""
        self._store.lower_checkpoints(ends)
        for checkpoint in self._checkpoints:
            checkpoint.lower(ends)
            checkpoint.write_again_after_store(ends)

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Takes what was noted of logs that are about to be deleted out of every checkpoint, durably."""
        gone = set(keys)
        self._store.forget_checkpoints(gone)
        for checkpoint in self._checkpoints:
            checkpoint.forget(gone)

    @contextlib.contextmanager
    def forgetting_name(self, key: TopicPartition) -> Iterator[None]:
        """Lets the store make a new log of this name in the block: nothing that was noted of an older one is
        left."""
        for checkpoint in self._checkpoints:
            checkpoint.lower({key: 0})
        yield
        for checkpoint in self._checkpoints:
            checkpoint.write_again_after_store({key: 0})

    # --- retention -----------------------------------------------------------------------------

    def _apply_retention(self) -> None:
        self._visit_logs("apply retention", self._retain, self._clock.wall_ms())

    def _remove_deleted_files(self) -> None:
        self._visit_logs("remove deleted files", _remove_deleted_files, self._clock.wall_ms())

    def _remove_expired_strays(self) -> None:
        for name in self._store.strays.remove_expired(self._clock.wall_ms(), self._stray_retention_ms):
            _logger.warning("the stray %s was kept for long enough, and is deleted", name)

    def _visit_logs(
        self, name: str, visit: Callable[[TopicPartition, PartitionLog, int], None], now_ms: int
    ) -> None:
        """Visits each log once, in slices; not again before all were visited."""
        if name in self._visiting:
            return
        self._visiting.add(name)
        self._in_slices(name, self._visits(name, visit, now_ms), partial(self._visited, name, visit))

    def _visits(
        self, name: str, visit: Callable[[TopicPartition, PartitionLog, int], None], now_ms: int
    ) -> Iterator[None]:
        for key, log in list(self._store.logs.items()):
            if (
                not log.is_closed
                and not self._attempt(f"{name} of {key}", partial(visit, key, log, now_ms))
                and visit == self._retain
            ):
                self._counts.retention_failed()
            yield

    def _visited(self, name: str, visit: Callable[[TopicPartition, PartitionLog, int], None]) -> None:
        self._visiting.discard(name)
        if visit == self._retain:
            self._counts.retention_ended(self._clock.monotonic_ms())

    def _retain(self, key: TopicPartition, log: PartitionLog, now_ms: int) -> None:
        partition = self._partitions.get(key.topic, key.partition)
        if partition is not None and partition.is_leader:
            # By a clock that does not jump: a retry after that would be appended twice.
            log.producers.expire(self._clock.monotonic_ms(), log.config.producer_id_expiration_ms)
        self._counts.retained(enforce_retention(log, now_ms))

    # --- compaction ----------------------------------------------------------------------------

    def _compact_due(self) -> None:
        """Begins a round over the compacted logs, unless one is under way."""
        if self._compacting is None and not self._to_compact:
            self._to_compact = [key for key, log in self._store.logs.items() if log.config.compacts]
            self._compact_next()

    def _compact_next(self) -> None:
        steps = self._plan_each()
        self._in_slices("plan compaction", steps, lambda: None)

    def _plan_each(self) -> Iterator[None]:
        while self._to_compact and self._compacting is None:
            key = self._to_compact.pop()
            self._attempt(f"compact {key}", partial(self._compact, key))
            yield

    def _compact(self, key: TopicPartition) -> None:
        log = self._store.logs.get(key)
        if log is None or log.is_closed:
            return
        from distributedlog.storage.compaction.log import plan_compaction, run_compaction  # not to start with

        first_dirty = self._store.first_dirty_offsets.get(key, log.start_offset)
        plan = plan_compaction(log, first_dirty, self._clock.wall_ms())
        if plan is not None:
            self._compacting = key
            done = partial(self._compacted, key, log, self._clock.monotonic_ms())
            self._executor.run_cpu(run_compaction, (plan, self._disk), done)

    def _compacted(
        self, key: TopicPartition, log: PartitionLog, began_ms: int, outcome: "Outcome[CompactionResult]"
    ) -> None:
        self._compacting = None
        if self._is_ended:
            return  # what it wrote is removed when the log is opened next
        if self._store.logs.get(key) is not log:
            pass  # what it wrote went with the log; the others of the round are still to come
        elif outcome.error is not None:
            self._log_failure(f"compact {key}", outcome.error)
            self._counts.compaction_failed()
            self._suspect(key, outcome.error)
        elif not self._attempt(f"compact {key}", partial(self._commit, key, log, began_ms, outcome.value())):
            self._counts.compaction_failed()
        self._compact_next()

    def _suspect(self, key: TopicPartition, error: BaseException) -> None:
        """Looks into what could not be compacted, as into what could not be read."""
        partition = self._partitions.get(key.topic, key.partition)
        if partition is not None and isinstance(error, CorruptLogError) and error.offset is not None:
            self._partitions.suspect(partition, error.offset)

    def _commit(
        self, key: TopicPartition, log: PartitionLog, began_ms: int, result: "CompactionResult"
    ) -> None:
        from distributedlog.storage.compaction.log import commit_compaction

        if commit_compaction(log, result, self._clock.wall_ms()):
            self._store.first_dirty_offsets[key] = result.first_dirty_offset
            self._counts.compacted(result.counts, began_ms, self._clock.monotonic_ms())

    # --- a scrape ------------------------------------------------------------------------------

    def families(self) -> "Iterator[Family]":
        from distributedlog.storage.compaction.log import compute_dirty_ratio

        dirty = self._store.first_dirty_offsets
        ratios = (
            compute_dirty_ratio(log, dirty.get(key, log.start_offset))
            for key, log in self._store.logs.items()
            if log.config.compacts and not log.is_closed
        )
        return self._counts.families(
            now_ms=self._clock.monotonic_ms(),
            is_compacting=self._compacting is not None,
            dirty_ratio=max(ratios, default=0.0),
        )


def _note(points: dict[TopicPartition, int], key: TopicPartition, log: PartitionLog) -> None:
    points[key] = log.checkpoint()


def _remove_deleted_files(_: TopicPartition, log: PartitionLog, now_ms: int) -> None:
    log.remove_deleted_files(now_ms)
