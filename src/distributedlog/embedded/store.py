"""A data directory opened by a program, shared by its threads, and kept up in the background.

One lock guards the store.  What an append waits for is done outside of it: a sync is led by whichever thread
finds none running, and serves every append that was made before it began (group commit).  Compaction is
planned and committed under the lock and does its work in a child process.  What is rare is done under it:
rolling, deleting, writing checkpoints, looking for a time, making a wrong index anew.

A process that was forked off has copies of all this and must not use them: two writers with one end of the
log would write over each other, and a close would mark a stop as clean while the parent goes on.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from distributedlog.model.config import MINUTE_MS, LogConfig
from distributedlog.model.errors import (
    DiskFullError,
    DlogError,
    InvalidNameError,
    LogClosedError,
    StorageError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import Clock, SystemClock
from distributedlog.ports.disk import Disk, SystemDisk
from distributedlog.ports.executor import Executor, Outcome, SystemExecutor
from distributedlog.ports.randomness import Randomness, SystemRandomness
from distributedlog.storage.append import AppendResult
from distributedlog.storage.compaction.log import (
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

MAINTENANCE_INTERVAL_MS = 1_000
RETENTION_INTERVAL_MS = 10_000
CHECKPOINT_INTERVAL_MS = 1 * MINUTE_MS

_logger = logging.getLogger("distributedlog")

_forks = 0
"""How often this process and those it comes from were forked off.  Cheaper to compare than process ids."""


def _note_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_note_fork)


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
        self._forks = _forks
        self._logged_failures: dict[str, str] = {}
        self._stop = threading.Event()
        self._maintenance: threading.Thread | None = None
        for log in store.logs.values():
            log.advance_high_watermark(log.end_offset)
        for line in store.losses():
            _logger.error("%s", line)
        if background:
            self._maintenance = threading.Thread(
                target=self._maintain_regularly, name="dlog-maintenance", daemon=True
            )
            self._maintenance.start()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
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
        name = os.fspath(path)
        if not name or "\0" in name:
            raise InvalidNameError(f"{name!r} is not the name of a directory")
        store = LogStore.open(
            disk,
            name.rstrip("/") or "/",
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

        with self.lock:
            return Log(self, TopicPartition(topic, partition), self._store.create_log(topic, partition))

    def logs(self) -> list[TopicPartition]:
        with self.lock:
            return sorted(self._store.logs)

    def delete(self, topic: str, partition: int = 0) -> None:
        with self.lock:
            self._store.delete_log(topic, partition)

    # --- what logs ask for ---------------------------------------------------------------------

    @property
    def lock(self) -> threading.Condition:
        if self._forks != _forks:
            raise StorageError(
                f"{self._store.directory} was opened before this process was forked: use it in the parent"
            )
        return self._changed

    @property
    def files(self) -> LogStore:
        return self._store

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def append(self, log: PartitionLog, write: Callable[[], AppendResult]) -> AppendResult:
        """Runs `write` under the lock; when the disk is full, makes what room it may and tries once more."""
        with self.lock:
            try:
                result = write()
            except DiskFullError:
                if self._store.free_space() == 0:
                    raise
                result = write()
            if not log.config.flush_on_commit:
                log.advance_high_watermark(log.end_offset)
            return result

    def take_back(self, log: PartitionLog, end_offset: int) -> None:
        """Removes what an append of several batches wrote before it failed, if it can.  Under the lock.

        That syncs what others wrote before, who wait for it.
        """
        if log.end_offset > end_offset:
            with contextlib.suppress(DlogError):
                log.truncate_to(end_offset, self.now_ms())
            log.advance_high_watermark(log.flushed_end_offset)
            self._changed.notify_all()

    def checkpoint_starts(self) -> None:
        """Writes the log start offsets durably; on a full disk what was deleted makes room for it."""
        with self.lock:
            try:
                self._store.checkpoint_starts()
            except DiskFullError:
                if self._store.free_space() == 0:
                    raise
                self._store.checkpoint_starts()

    def make_durable(self, log: PartitionLog, end_offset: int) -> None:
        """Blocks until everything below `end_offset` is synced; one thread syncs for all that wait."""
        while True:
            with self.lock:
                end_offset = min(end_offset, log.end_offset)  # what was behind it may have been taken back
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
            with self.lock:
                self._syncing.discard(log)
                log.end_sync(job, succeeded=outcome.error is None)
                log.advance_high_watermark(log.flushed_end_offset)
                self._changed.notify_all()
            outcome.value()

    # --- maintenance ---------------------------------------------------------------------------

    def compact(self, partition: TopicPartition, *, force: bool = True) -> CompactionResult | None:
        """Compacts a log now, in a child process; None if there is nothing to do."""
        with self.lock:
            self._check_open()
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
            with self.lock:
                if self._store.logs.get(partition) is log and commit_compaction(log, result, self.now_ms()):
                    self._store.first_dirty_offsets[partition] = result.first_dirty_offset
            return result
        except RuntimeError:
            self._check_open()  # closed between planning and starting
            raise
        finally:
            with self.lock:
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
        """Does retention, compaction where it is due, and removal of deleted files."""
        failures: list[DlogError] = []  # of one log: the others are kept up all the same
        with self.lock:
            try:
                self._store.maintain()
            except StorageError as error:
                failures.append(error)
            compacted = [key for key, log in self._store.logs.items() if log.config.compacts]
        for partition in compacted:
            try:
                self.compact(partition, force=False)
            except DlogError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def flush(self) -> None:
        """Syncs every log, and writes down how far that is."""
        with self.lock:
            logs = [(log, log.end_offset) for log in self._store.logs.values()]
        for log, end_offset in logs:
            self.make_durable(log, end_offset)
        self._checkpoint()

    def _checkpoint(self) -> None:
        with self.lock:
            self._store.checkpoint()

    def _maintain_regularly(self) -> None:
        maintained_ms = checkpointed_ms = self._clock.monotonic_ms()
        while not self._stop.wait(MAINTENANCE_INTERVAL_MS / 1000):
            now_ms = self._clock.monotonic_ms()
            self._attempt(self._flush_due)
            if now_ms - maintained_ms >= RETENTION_INTERVAL_MS:
                self._attempt(self.maintain)
                maintained_ms = now_ms
            if now_ms - checkpointed_ms >= CHECKPOINT_INTERVAL_MS:
                self._attempt(self._checkpoint)
                checkpointed_ms = now_ms
            if self._store.files.failure is not None:
                return  # out of use: whoever appends is told

    def _attempt(self, work: Callable[[], None]) -> None:
        """Tries what may fail now (no room, a damaged log, a child process killed); it is tried again later.

        It is logged when it begins to fail and when the reason changes, not each second.
        """
        name = work.__name__.lstrip("_")
        try:
            work()
        except (DlogError, RuntimeError, OSError) as error:
            if self._logged_failures.get(name) != str(error):
                self._logged_failures[name] = str(error)
                _logger.warning("maintenance of %s cannot %s: %s", self._store.directory, name, error)
        else:
            self._logged_failures.pop(name, None)

    def _flush_due(self) -> None:
        with self.lock:
            logs = self._store.logs.values()
            due = [(log, log.end_offset) for log in logs if log.is_sync_due(self.now_ms())]
        for log, end_offset in due:
            self.make_durable(log, end_offset)

    # --- leaving -------------------------------------------------------------------------------

    def close(self) -> None:
        """Syncs everything and leaves nothing to recover.  In a forked process it does nothing."""
        if self._closed or self._forks != _forks:
            return
        self._closed = True
        self._stop.set()
        if self._maintenance is not None:
            self._maintenance.join()
        self._executor.close()
        with self.lock:
            self._store.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"the data directory {self._store.directory} is closed")

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
