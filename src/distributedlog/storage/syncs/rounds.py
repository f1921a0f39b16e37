"""Making appends durable: one sync at a time for each log, shared by all appends before it began.

    append ──► begin_sync ──► SyncJob.run (blocks; any thread) ──► end_sync ──► flushed end advances
                  ▲                                                 │
                  └────────── appends meanwhile wait for the next ◄─┘

A job uses names in the log's directory, on a thread of its own.  A log that is deleted meanwhile discards
them (`Names`): the directory is gone by then, or it is already that of another log of the same name.

A sync that found no room has done nothing: its job is kept, and the next one does its work too.

**Rounds.**  `SyncRounds` gathers the logs of a data directory that want a sync in one turn of the loop and
hands them over at once (`ports.round_executor`), those that somebody waits for (`urgent`) before the others.

    of one log    idle ──► gathered ──► running ──► idle, or gathered again
                              ▲            │
                              └── paused ◄─┘

`LogSync.request` is cheap and may be called for every append; while a sync runs, requests gather, and one
more sync serves them all.  Waiters are called when the flushed end has reached their offset, or with the
error that took the directory out of use.  A failed sync is never tried again.  A waiter for what a truncation
has since removed gets an error, whatever is at those offsets by then.

A sync costs the processor as much as many appends do.  So where appends came while one ran, and nobody is
waiting for them (no request was `urgent`), the next one follows after a pause; an urgent request ends it.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from distributedlog.model.errors import DlogError, StorageError
from distributedlog.ports.disk import File
from distributedlog.ports.executor import Outcome
from distributedlog.ports.round_executor import Piece, RoundExecutor
from distributedlog.storage.files import Files, ManagedFile

if TYPE_CHECKING:
    from distributedlog.storage.log import PartitionLog

Waiter = Callable[[BaseException | None], None]
Pause = Callable[[Callable[[], None]], None]
"""Calls a function back a few milliseconds later."""


class Names:
    """The names in a log's directory.  After `discard` has returned nobody uses them any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_discarded = False

    def use(self, work: Callable[[], None]) -> None:
        """Does the work, unless they are discarded: then there is nothing left that it would be done for."""
        with self._lock:
            if not self._is_discarded:
                work()

    def discard(self) -> None:
        """Waits for whoever uses them right now."""
        with self._lock:
            self._is_discarded = True


class SmallFile:
    """One file that jobs on several threads write whole; an older content never replaces a newer."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._lock = threading.Lock()
        self._versions = 0
        self._written_version = 0

    def next_version(self) -> int:
        self._versions += 1
        return self._versions

    def write(self, version: int, data: bytes) -> None:
        with self._lock:
            if version > self._written_version:
                self._files.write_atomically(self._path, data)
                self._written_version = version


class SyncJob:
    """What one sync has to do, gathered by the log; `run` touches nothing of the log."""

    def __init__(
        self,
        files: Files,
        names: Names,
        pinned: list[ManagedFile],
        handles: list[File],
        directory: str | None,
        end_offset: int,
        truncations: int,
        epoch_write: "EpochWrite | None" = None,
    ) -> None:
        """Takes files with a pin of each, and what they are opened as.  `epoch_write` is of a log whose end
        was cut: it has epochs less."""
        self._files = files
        self._names = names
        self.pinned = pinned
        self._handles = handles
        self._directory = directory
        self.end_offset = end_offset
        self.truncations = truncations
        self.epoch_write = epoch_write

    @property
    def syncs_names(self) -> bool:
        return self._directory is not None

    def start(self) -> None:
        self._files.start_writeback(self._handles)

    def run(self) -> None:
        """Blocks until all is on the disk."""
        self._files.sync_all(self._handles)
        if self.epoch_write is not None:
            self.epoch_write.run()
        if self._directory is not None:
            self._names.use(partial(self._files.sync_directory, self._directory))

    def release(self) -> None:
        for managed in self.pinned:
            managed.unpin()


class EpochWrite:
    """One writing of a log's epoch history; `run` touches nothing of the log."""

    def __init__(self, names: Names, file: SmallFile, data: bytes) -> None:
        self._names = names
        self._file = file
        self._data = data
        self.version = file.next_version()

    def run(self) -> None:
        """Blocks until it is on the disk, or a newer one is."""
        self._names.use(lambda: self._file.write(self.version, self._data))


class SyncRounds:
    """The syncs of all logs of one data directory.  All but the jobs themselves on the thread of the logs."""

    def __init__(
        self,
        executor: RoundExecutor,
        *,
        post: Callable[[Callable[[], None]], None] | None = None,
        pause: Pause | None = None,
    ) -> None:
        """`post` calls a function in the next turn of the loop; without it each request is a round."""
        self._executor = executor
        self._post = post
        self.pause = pause
        self._gathered: dict[LogSync, bool] = {}
        self._is_posted = False
        self._running: dict[Piece, LogSync] = {}
        self.round_count = 0
        self.log_count = 0
        """Rounds that were handed over, and the logs in all of them."""

    def add(self, sync: "LogSync", *, urgent: bool) -> None:
        """Syncs the log in the next round."""
        self._gathered[sync] = urgent or self._gathered.get(sync, False)
        if self._post is None:
            self._begin_round()
        elif not self._is_posted:
            self._is_posted = True
            self._post(self._begin_round)

    def hurry(self, job: SyncJob) -> None:
        """Somebody waits for what comes after this job."""
        self._executor.hurry(job)

    def _begin_round(self) -> None:
        self._is_posted = False
        gathered, self._gathered = iter(self._gathered.items()), {}
        lanes: tuple[list[Piece], list[Piece]] = ([], [])
        try:
            for sync, is_urgent in gathered:
                job = sync.begin()
                if job is not None:
                    self._running[job] = sync
                    lanes[0 if is_urgent else 1].append(job)
        finally:  # a waiter that raises, a defect, must not keep the other logs from being synced
            for sync, is_urgent in gathered:
                self.add(sync, urgent=is_urgent)
            count = len(lanes[0]) + len(lanes[1])
            if count:
                self.round_count += 1
                self.log_count += count
                self._executor.run_round(*lanes, self._end_one)

    def _end_one(self, job: Piece, outcome: Outcome[None]) -> None:
        self._running.pop(job).end(outcome)


class LogSync:
    """Runs a log's syncs one after the other and calls the waiters."""

    def __init__(self, log: "PartitionLog", rounds: SyncRounds) -> None:
        self._log = log
        self._rounds = rounds
        self._job: SyncJob | None = None
        self._is_paused = False
        self._wanted = False
        self._urgent = False
        self._waiters: list[tuple[int, int, Waiter]] = []

    def request(self, *, urgent: bool = True) -> None:
        """Everything appended so far shall be synced soon: in the next round if none runs, after a pause if
        that is not urgent and one has just run."""
        if self._job is not None:
            self._wanted = True
            if urgent and not self._urgent:
                self._urgent = True
                self._rounds.hurry(self._job)
        elif self._is_paused and not urgent:
            self._wanted = True
        else:
            self._is_paused = False
            self._rounds.add(self, urgent=urgent)

    def wait_for(self, offset: int, waiter: Waiter, *, urgent: bool = True) -> None:
        """Calls `waiter` once everything below `offset` is synced, and what was truncated is gone for good;
        with the error if that cannot be."""
        if self._has_reached(offset):
            waiter(None)
            return
        self._waiters.append((offset, self._log.truncations, waiter))
        self.request(urgent=urgent)

    def begin(self) -> SyncJob | None:
        """Returns what is to be synced; None if nothing is, or nothing can be."""
        self._wanted = self._urgent = False
        try:
            job = self._log.begin_sync()
        except DlogError as error:
            self._notify_all(error)
            return None
        if job is None:
            self._notify_reached()
        else:
            self._job = job
        return job

    def end(self, outcome: Outcome[None]) -> None:
        job, self._job = self._job, None
        assert job is not None
        self._log.end_sync(job, succeeded=outcome.error is None)
        if outcome.error is not None:
            self._notify_all(outcome.error)
            return
        wanted, urgent, pause = self._wanted, self._urgent, self._rounds.pause
        self._wanted = self._urgent = False
        self._is_paused = pause is not None and wanted and not urgent
        self._notify_reached()
        if self._is_paused and pause is not None:
            pause(self._end_pause)
        elif (wanted or self._waiters) and self._job is None:
            self.request(urgent=urgent or not wanted)

    def _end_pause(self) -> None:
        """Ends a pause; one that was ended before may end the next one early, which does no harm."""
        if self._is_paused:
            self._is_paused = False
            self._rounds.add(self, urgent=False)

    def _notify_reached(self) -> None:
        log, waiting = self._log, self._waiters
        self._waiters = []
        for offset, truncations, waiter in waiting:
            if offset > log.find_lowest_end_since(truncations):
                waiter(StorageError(f"offset {offset - 1} was truncated away before it was synced"))
            elif self._has_reached(offset):
                waiter(None)
            else:
                self._waiters.append((offset, truncations, waiter))

    def _has_reached(self, offset: int) -> bool:
        return self._log.flushed_end_offset >= offset and not self._log.has_unsynced_cut

    def _notify_all(self, error: BaseException) -> None:
        waiters, self._waiters = self._waiters, []
        for _, _, waiter in waiters:
            waiter(error)
