"""The files of a partition's log: its segments and small files, what of them is synced, and which of them go.

    start_offset ≤ high_watermark ≤ end_offset          recovery_point = flushed_end_offset ≤ end_offset
    ├──── sealed ────┼──── sealed ────┼──── active ────┤
    ▲ start_offset                              ▲ flushed end      ▲ end_offset (the next to be given)

A sync job gathers everything that is not on the disk yet; any thread may run it, the log's own thread begins
and ends it.  Files of deleted segments are renamed at once and removed after `file.delete.delay.ms`, so that
readers may finish.

A crash may lose or tear what was not synced; a renamed file is removed when the log is opened next.
"""

from collections.abc import Callable

from distributedlog.model.config import LogConfig
from distributedlog.model.errors import LogClosedError
from distributedlog.model.limits import RecordLimits
from distributedlog.storage.checkpoints import LEADER_EPOCH_FILE, encode_epochs
from distributedlog.storage.epochs import EpochHistory
from distributedlog.storage.files import Files, ManagedFile
from distributedlog.storage.producer_history import SnapshotFiles
from distributedlog.storage.producers import ProducerStates
from distributedlog.storage.scan import LIMITS
from distributedlog.storage.segment import DELETED_SUFFIX, Segment, SegmentList
from distributedlog.storage.syncs.rounds import EpochWrite, Names, SmallFile, SyncJob

QUARANTINE = "quarantine"
"""The directory of a log in which damaged bytes are kept aside."""


class LogFiles:
    """A log's files and offsets, and the syncing and deleting of them."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        *,
        segments: SegmentList,
        epochs: EpochHistory,
        producers: ProducerStates,
        snapshots: SnapshotFiles,
        start_offset: int,
        end_offset: int,
        limits: RecordLimits = LIMITS,
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.snapshots = snapshots
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.flushed_end_offset = end_offset
        self.high_watermark = start_offset
        self.limits = limits
        self.is_closed = False
        self._active = segments.active
        self.before_truncation: Callable[[int], None] | None = None
        """Called before all from an offset on is removed: whoever wrote down more must lower it."""
        self.after_change: Callable[[], None] | None = None
        """Called when the start, the end or the settings have changed, but for appends."""
        self._truncated_ends: list[int] = []
        self.names = Names()
        self._epoch_writes: dict[int, int] = {}
        """The offset from which on the epoch file is old, while a writing is under way, by its version."""
        self._epoch_file = SmallFile(files, f"{directory}/{LEADER_EPOCH_FILE}")
        self._unsynced_names = False
        self._unsynced_indexes: list[ManagedFile] = []
        self._sealed_unsynced: list[Segment] = []
        self._unsynced_since_ms: int | None = None
        self._running_syncs: list[SyncJob] = []
        self._undone_syncs: list[SyncJob] = []
        self._unsynced_cut: ManagedFile | None = None
        """The file that a truncation has cut and not synced: nothing is written before that is done, and the
        epoch file with it, or what that says of what is gone would be taken for what comes."""
        self._deleted: list[tuple[int, list[str], Segment]] = []

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def truncations(self) -> int:
        """How often: work done elsewhere on what was read is void if this has grown meanwhile."""
        return len(self._truncated_ends)

    def find_lowest_end_since(self, truncations: int) -> int:
        """Returns where the log ended at the lowest, since there had been so many truncations."""
        if truncations == len(self._truncated_ends):
            return self.end_offset
        return min([*self._truncated_ends[truncations:], self.end_offset])

    # --- syncing -------------------------------------------------------------------------------

    @property
    def has_unsynced_cut(self) -> bool:
        """Whether a crash may bring back what was truncated last."""
        return self._unsynced_cut is not None

    def begin_sync(self, *, also_running: bool = False) -> SyncJob | None:
        """Gathers what must reach the disk so that everything appended so far is durable; None if nothing.

        Whoever runs the job must `end_sync` it.  `also_running` syncs again what a running job syncs.
        """
        self.check_open()
        self.files.check_usable()
        active = self._active
        dirty = [active] if active.is_dirty else []
        others: list[ManagedFile] = []
        if self._has_more_to_sync or also_running:
            # A truncation may have made a sealed one the active one again.
            sealed = [each for each in self._sealed_unsynced if each.is_dirty and each is not active]
            dirty = sealed + dirty
            others = self._find_more_to_sync(dirty, also_running)
        if not dirty and not others and not self._unsynced_names:
            if not self._running_syncs:
                self.flushed_end_offset = self.end_offset
            return None
        other_handles = [managed.pin() for managed in others]
        job = SyncJob(
            self.files,
            self.names,
            [segment.log for segment in dirty] + others,
            [segment.hand_over() for segment in dirty] + other_handles,
            self.directory if self._unsynced_names or also_running else None,
            self.end_offset,
            self.truncations,
            None if self._unsynced_cut is None else self._begin_epoch_write_again(),
        )
        for undone in self._undone_syncs:
            undone.release()
        self._undone_syncs = []
        self._sealed_unsynced = []
        self._unsynced_indexes = []
        self._unsynced_names = False
        self._unsynced_since_ms = None
        self._running_syncs.append(job)
        return job

    @property
    def _has_more_to_sync(self) -> bool:
        """Whether anything but the active segment may have to be synced."""
        more = self._sealed_unsynced or self._unsynced_indexes or self._undone_syncs
        return bool(more) or self._unsynced_cut is not None

    def _find_more_to_sync(self, dirty: list[Segment], also_running: bool) -> list[ManagedFile]:
        """Returns the files that are to be synced besides the segments that were written to."""
        found = [managed for managed in self._unsynced_indexes if self.files.exists(managed.path)]
        cut = self._unsynced_cut
        if cut is not None and all(segment.log is not cut for segment in dirty):
            found.append(cut)
        also = self._undone_syncs + (self._running_syncs if also_running else [])
        return found + [managed for job in also for managed in job.pinned]

    def end_sync(self, job: SyncJob, *, succeeded: bool) -> None:
        """Ends a sync: if it succeeded all up to its end is durable, unless the log was truncated
        meanwhile."""
        self._running_syncs.remove(job)
        if job.epoch_write is not None:
            self.end_epoch_write(job.epoch_write, succeeded=succeeded)
        if not succeeded:  # there was no room, or the directory is out of use and nothing matters any more
            self._undone_syncs.append(job)
            self._unsynced_names |= job.syncs_names
            return
        job.release()
        if job.truncations == self.truncations:
            self.flushed_end_offset = max(self.flushed_end_offset, job.end_offset)
            self._unsynced_cut = None

    def sync(self) -> None:
        """Blocks until everything appended is durable."""
        job = self.begin_sync(also_running=True)
        if job is None:
            return
        succeeded = False
        try:
            job.run()
            succeeded = True
        finally:
            self.end_sync(job, succeeded=succeeded)

    # --- the epoch history ---------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """The end of what is synced and of whose batches the epoch file knows the epochs."""
        return min(self.flushed_end_offset, self.epochs.changed_from, *self._epoch_writes.values())

    def begin_epoch_write(self) -> EpochWrite | None:
        """Gathers what the epoch file lacks; None if nothing.  Whoever runs it must `end_epoch_write` it."""
        if not self.epochs.changed:
            return None
        write = EpochWrite(self.names, self._epoch_file, encode_epochs(self.epochs.entries))
        self._epoch_writes[write.version] = self.epochs.changed_from
        self.epochs.mark_written()
        return write

    def end_epoch_write(self, write: EpochWrite, *, succeeded: bool) -> None:
        if succeeded:  # and all that earlier ones were to write is in this one
            ended = [version for version in self._epoch_writes if version <= write.version]
            for version in ended:
                del self._epoch_writes[version]
        elif write.version in self._epoch_writes:
            self.epochs.changed = True
            self.epochs.changed_from = min(self.epochs.changed_from, self._epoch_writes.pop(write.version))

    def _begin_epoch_write_again(self) -> EpochWrite | None:
        """Gathers also what is being written elsewhere: that may come later, or fail."""
        self.epochs.changed |= bool(self._epoch_writes)
        return self.begin_epoch_write()

    def write_epochs(self) -> None:
        """Blocks until the epoch file is as the history is, also if that is being written elsewhere."""
        write = self._begin_epoch_write_again()
        if write is None:
            return
        succeeded = False
        try:
            write.run()
            succeeded = True
        finally:
            self.end_epoch_write(write, succeeded=succeeded)

    # --- syncs that are due --------------------------------------------------------------------

    def is_sync_due(self, now_ms: int) -> bool:
        """Returns whether `flush.messages` or `flush.ms` demand a sync."""
        if self._unsynced_since_ms is None:
            return False
        return (
            self.end_offset - self.flushed_end_offset >= self.config.flush_messages
            or now_ms - self._unsynced_since_ms >= self.config.flush_ms
        )

    # --- files that go -------------------------------------------------------------------------

    def _schedule_deletion(self, gone: list[Segment], now_ms: int) -> None:
        """Renames the files now, oldest first, and removes them after a delay in which readers may finish."""
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in gone:
            self._deleted.append((due_ms, self.rename_deleted(segment), segment))

    def rename_deleted(self, segment: Segment) -> list[str]:
        segment.mark_synced()
        paths = []
        for managed in (
            segment.log,
            segment.offset_index.file,
            segment.time_index.file,
            segment.txn_index.file,
        ):
            if managed.path.endswith(DELETED_SUFFIX):
                paths.append(managed.path)
            elif self.files.exists(managed.path):
                self.files.rename_managed(managed, managed.path + DELETED_SUFFIX)
                paths.append(managed.path)
        self._unsynced_names = True
        return paths

    def _remove_now(self, gone: list[Segment]) -> None:
        """Removes files, newest first: a crash in between leaves a log without a hole."""
        if not gone:
            return
        for segment in sorted(gone, key=lambda segment: -segment.base_offset):
            segment.mark_synced()
            segment.log.generation += 1
            for path in segment.paths():
                self.files.remove(path)
            segment.close()
        self.files.sync_directory(self.directory)

    def _move_to_quarantine(self, segment: Segment) -> str:
        """Moves the log file of a segment aside, durably, and removes its indexes; returns where it is."""
        home = f"{self.directory}/{QUARANTINE}"
        self.files.make_directory(home)
        segment.mark_synced()
        segment.log.generation += 1
        source, *indexes = segment.paths()
        target = self.files.find_free_path(f"{home}/{source.rpartition('/')[2]}")
        self.files.rename_managed(segment.log, target)
        for path in indexes:
            self.files.remove(path)
        segment.close()
        self.files.sync_directory(home)
        self.files.sync_directory(self.directory)
        return target

    def remove_deleted_files(self, now_ms: int) -> int:
        """Unlinks the files whose delay is over; how many bytes that freed."""
        freed = 0
        due = [entry for entry in self._deleted if entry[0] <= now_ms]
        self._deleted = [entry for entry in self._deleted if entry[0] > now_ms]
        for _, paths, segment in due:
            for path in paths:
                self.files.remove(path)
            segment.close()
            freed += segment.size
        return freed

    # --- leaving -------------------------------------------------------------------------------

    def checkpoint(self) -> int:
        """Writes the active segment's indexes out; the offset from which a recovery would have to scan.

        `write_epochs` before it: the recovery point does not pass what the epoch file lacks.
        """
        self.check_open()
        recovery_point = self.recovery_point
        self._active.write_out_indexes()
        return recovery_point

    def close(self) -> None:
        """Leaves nothing to recover: all synced, indexes and producers written."""
        if self.is_closed:
            return
        if self.files.failure is None:
            self._active.finish_indexes()
            self._unsynced_indexes += [self._active.offset_index.file, self._active.time_index.file]
            if self._active.txn_index.entries():
                self._unsynced_indexes.append(self._active.txn_index.file)
            if self.end_offset not in self.snapshots.offsets:
                self._unsynced_indexes.append(self.snapshots.write(self.end_offset, self.producers))
            self._unsynced_names = True
            self.write_epochs()
            self.sync()
        self.abandon()

    def abandon(self) -> None:
        """Closes files and leaves everything as a crash would."""
        self.is_closed = True
        for segment in self.segments:
            segment.mark_synced()
            segment.close()
        for _, _, segment in self._deleted:
            segment.close()

    def check_open(self) -> None:
        if self.is_closed:
            self._refuse()

    def _refuse(self) -> None:
        raise LogClosedError(f"the log in {self.directory} is closed")
