"""A data directory opened by a program, shared by its threads, and kept up in the background.

One lock guards the store; nothing slow happens under it.  A sync runs outside of it, led by whichever
thread finds none running, and serves every append that was made before it began (group commit).
Compaction is planned and committed under the lock and does its work in a child process.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from distributedlog.model.config import MINUTE_MS, LogConfig
from distributedlog.model.errors import DiskFullError, DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import Clock, SystemClock
from distributedlog.ports.disk import Disk, SystemDisk
from distributedlog.ports.executor import Executor, Outcome, SystemExecutor
from distributedlog.ports.randomness import Randomness, SystemRandomness
from distributedlog.storage.append import AppendResult
from distributedlog.storage.compaction import (
    CompactionResult,
    commit_compaction,
    plan_compaction,
    run_compaction,
)
from distributedlog.storage.files import OPEN_FILES_MAX
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.store import LogStore

if TYPE_CHECKING:
    from distributedlog.embedded.log import Log

UPKEEP_INTERVAL_MS = 1_000
RETENTION_INTERVAL_MS = 10_000
CHECKPOINT_INTERVAL_MS = 1 * MINUTE_MS


class Store:
    """Many logs in one data directory.

        with Store.open("data") as store:
            store.log("orders").append(b"...")
            store.log("payments", partition=3).append(b"...")

    The directory is laid out as a broker's; one process at a time may have it open.
    """

    def __init__(
        self, store: LogStore, *, disk: Disk, clock: Clock, executor: Executor, background: bool
    ) -> None:
        self._store = store
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._changed = threading.Condition(threading.RLock())
        self._syncing: set[PartitionLog] = set()
        self._compacting: set[TopicPartition] = set()
        self._closed = False
        self._stop = threading.Event()
        self._upkeep: threading.Thread | None = None
        for log in store.logs.values():
            log.advance_high_watermark(log.end_offset)
        if background:
            self._upkeep = threading.Thread(target=self._keep_up, name="dlog-upkeep", daemon=True)
            self._upkeep.start()

    @classmethod
    def open(
        cls,
        path: str,
        *,
        config: LogConfig | None = None,
        background: bool = True,
        open_files_max: int = OPEN_FILES_MAX,
        disk: Disk | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        executor: Executor | None = None,
    ) -> "Store":
        """Opens a data directory, making it if need be, and recovers every log in it.

        `config` is for all logs of the store.  With `background` a thread applies retention, compaction and
        `flush.ms`; without it, call `maintain` yourself.  The last four are the ports, for tests.
        """
        disk, clock = disk or SystemDisk(), clock or SystemClock()
        store = LogStore.open(
            disk,
            path.rstrip("/") or "/",
            clock=clock,
            randomness=randomness or SystemRandomness(),
            config=config,
            open_files_max=open_files_max,
        )
        return cls(
            store, disk=disk, clock=clock, executor=executor or SystemExecutor(), background=background
        )

    def log(self, topic: str = "log", partition: int = 0) -> "Log":
        """A log of this store, created on first use."""
        from distributedlog.embedded.log import Log

        with self._changed:
            return Log(self, TopicPartition(topic, partition), self._store.create_log(topic, partition))

    def logs(self) -> list[TopicPartition]:
        with self._changed:
            return sorted(self._store.logs)

    def delete(self, topic: str, partition: int = 0) -> None:
        with self._changed:
            self._store.delete_log(topic, partition)

    # --- what logs ask for ---------------------------------------------------------------------

    @property
    def lock(self) -> threading.Condition:
        return self._changed

    @property
    def files(self) -> LogStore:
        return self._store

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def append(self, log: PartitionLog, write: Callable[[], AppendResult]) -> AppendResult:
        """Runs `write` under the lock; when the disk is full, makes what room it may and tries once more."""
        with self._changed:
            try:
                result = write()
            except DiskFullError:
                if self._store.free_space() == 0:
                    raise
                result = write()
            if not log.config.flush_on_commit:
                log.advance_high_watermark(log.end_offset)
            return result

    def make_durable(self, log: PartitionLog, end_offset: int) -> None:
        """Blocks until everything below `end_offset` is synced; one thread syncs for all that wait."""
        while True:
            with self._changed:
                if log.flushed_end_offset >= end_offset:
                    return
                if log in self._syncing:
                    self._changed.wait()
                    continue
                self._store.files.check_usable()
                job = log.begin_sync()
                if job is None:
                    log.advance_high_watermark(log.flushed_end_offset)
                    continue
                self._syncing.add(log)
            outcome = Outcome.of(job.run)
            with self._changed:
                self._syncing.discard(log)
                log.end_sync(job, succeeded=outcome.error is None)
                log.advance_high_watermark(log.flushed_end_offset)
                self._changed.notify_all()
            outcome.value()

    # --- upkeep --------------------------------------------------------------------------------

    def compact(self, partition: TopicPartition, *, force: bool = True) -> CompactionResult | None:
        """Compacts a log now, in a child process; None if there is nothing to do."""
        with self._changed:
            log = self._store.logs.get(partition)
            if log is None or partition in self._compacting:
                return None
            first_dirty = self._store.first_dirty_offsets.get(partition, log.start_offset)
            plan = plan_compaction(log, first_dirty, self.now_ms(), force=force)
            if plan is None:
                return None
            self._compacting.add(partition)
        try:
            result = self._run_cpu_and_wait(
                lambda done: self._executor.run_cpu(run_compaction, (plan, self._disk), done)
            )
            with self._changed:
                if self._store.logs.get(partition) is log and commit_compaction(log, result, self.now_ms()):
                    self._store.first_dirty_offsets[partition] = result.first_dirty_offset
            return result
        finally:
            with self._changed:
                self._compacting.discard(partition)

    @staticmethod
    def _run_cpu_and_wait(
        start: Callable[[Callable[[Outcome[CompactionResult]], None]], None],
    ) -> CompactionResult:
        finished = threading.Event()
        outcomes: list[Outcome[CompactionResult]] = []

        def done(outcome: Outcome[CompactionResult]) -> None:
            outcomes.append(outcome)
            finished.set()

        start(done)
        finished.wait()
        return outcomes[0].value()

    def maintain(self) -> None:
        """Retention, compaction where it is due, and removal of deleted files."""
        with self._changed:
            self._store.maintain()
            compacted = [key for key, log in self._store.logs.items() if log.config.compacts]
        for partition in compacted:
            self.compact(partition, force=False)

    def flush(self) -> None:
        """Syncs every log, and writes down how far that is."""
        with self._changed:
            logs = list(self._store.logs.values())
        for log in logs:
            self.make_durable(log, log.end_offset)
        with self._changed:
            self._store.checkpoint()

    def _keep_up(self) -> None:
        maintained_ms = checkpointed_ms = self._clock.monotonic_ms()
        while not self._stop.wait(UPKEEP_INTERVAL_MS / 1000):
            now_ms = self._clock.monotonic_ms()
            try:
                self._flush_due()
                if now_ms - maintained_ms >= RETENTION_INTERVAL_MS:
                    self.maintain()
                    maintained_ms = now_ms
                if now_ms - checkpointed_ms >= CHECKPOINT_INTERVAL_MS:
                    with self._changed:
                        self._store.checkpoint()
                    checkpointed_ms = now_ms
            except DiskFullError:
                continue  # appends say so to their callers; there may be room next time
            except (DlogError, RuntimeError):  # the latter if the child process was killed
                if self._store.files.failure is not None:
                    return  # out of use: whoever appends is told

    def _flush_due(self) -> None:
        with self._changed:
            due = [log for log in self._store.logs.values() if log.is_sync_due(self.now_ms())]
        for log in due:
            self.make_durable(log, log.end_offset)

    # --- leaving -------------------------------------------------------------------------------

    def close(self) -> None:
        """Syncs everything and leaves nothing to recover."""
        if self._closed:
            return
        self._closed = True
        self._stop.set()
        if self._upkeep is not None:
            self._upkeep.join()
        self._executor.close()
        with self._changed:
            self._store.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
