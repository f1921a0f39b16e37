"""The log of one partition: an ordered list of segments that is appended to at its end.

    start_offset ≤ high_watermark ≤ end_offset          recovery_point = flushed_end_offset ≤ end_offset
    ├──── sealed ────┼──── sealed ────┼──── active ────┤
    ▲ start_offset                              ▲ flushed end      ▲ end_offset (the next to be given)

Invariants: offsets rise and are given once; a batch is in the file before `end_offset` passes it; nothing
below `flushed_end_offset` is lost by a power cut; only `truncate_to` moves the end back.  One writer, on one
thread; readers take regions (see `files`), which outlive deletion and notice truncation.

A crash may lose or tear what was not synced; `recovery.open_log` is the only way in and mends it.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from distributedlog.model.buffers import Buffer, MutableBuffer
from distributedlog.model.config import LogConfig, RecordLimits
from distributedlog.model.errors import (
    CorruptLogError,
    DiskFullError,
    LogClosedError,
    OffsetOutOfRangeError,
)
from distributedlog.ports.randomness import Randomness
from distributedlog.records.batch import LOG_OVERHEAD, BatchHeader
from distributedlog.records.control import read_end_marker
from distributedlog.storage import lookups
from distributedlog.storage.append import AppendResult, AppendRules, Origin, check_follower_append
from distributedlog.storage.checkpoints import LEADER_EPOCH_FILE, encode_epochs
from distributedlog.storage.epochs import EpochHistory
from distributedlog.storage.files import FileRegion, Files, ManagedFile
from distributedlog.storage.index import RELATIVE_OFFSET_MAX
from distributedlog.storage.lookups import TimestampOffset
from distributedlog.storage.producer_history import SnapshotFiles, apply_batch
from distributedlog.storage.producers import BatchMetadata, ProducerStates
from distributedlog.storage.scan import LIMITS, BadBatchError, LocatedBatch, walk
from distributedlog.storage.segment import DELETED_SUFFIX, Segment
from distributedlog.storage.segments import SegmentList
from distributedlog.storage.sync import SmallFile, SyncJob
from distributedlog.storage.txn_index import AbortedTransaction


class ReadResult(NamedTuple):
    """Batches from the one that holds the offset asked for.  The last may be cut off by the byte limit."""

    region: FileRegion | None
    """None when there is nothing to read yet.  Close it when done."""
    base_offset: int
    """Of the first batch, which may begin before the offset asked for."""

    @property
    def length(self) -> int:
        return 0 if self.region is None else self.region.length


class PartitionLog:
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
        randomness: Randomness | None = None,
        limits: RecordLimits = LIMITS,
        now_ms: int = 0,
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
        self._rules = AppendRules.of(config, limits)
        self.is_closed = False
        self._randomness = randomness
        self._active = segments.active
        self._active_since_ms = now_ms
        self._segment_ms = self._jittered_segment_ms()
        self.before_end_moves_back: Callable[[int], None] | None = None
        """Called before all from an offset on is removed: whoever wrote down more must take it back."""
        self._truncated_ends: list[int] = []
        self._epoch_file = SmallFile(files, f"{directory}/{LEADER_EPOCH_FILE}")
        self._unsynced_names = False
        self._unsynced_indexes: list[ManagedFile] = []
        self._sealed_unsynced: list[Segment] = []
        self._unsynced_since_ms: int | None = None
        self._running_syncs: list[SyncJob] = []
        self._undone_syncs: list[SyncJob] = []
        self._doomed: list[tuple[int, list[str], Segment]] = []

    # --- appending -----------------------------------------------------------------------------

    def append_as_leader(
        self, data: MutableBuffer, *, leader_epoch: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendResult:
        """Checks the batches in `data`, gives them offsets (in place) and writes them.  Not yet synced."""
        if self.is_closed:
            self._refuse()
        base_offset, rules = self.end_offset, self._rules
        data = data if rules.codec is None else rules.recompressed(data, origin)
        headers = rules.place(data, base_offset, leader_epoch, now_ms, origin)
        if headers[0].producer_id >= 0:
            earlier = self._check_producer(data, headers[0], origin)
            if earlier is not None:
                _, _, first_offset, last_offset, timestamp = earlier
                append_time_ms = timestamp if rules.stamps_time else -1
                return AppendResult(first_offset, last_offset, append_time_ms, is_duplicate=True)
        last = headers[-1]
        last_offset = last.base_offset + last.last_offset_delta
        self._write(data, headers, last_offset, now_ms)
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, base_offset)
        append_time_ms = now_ms if rules.stamps_time else -1
        # Past the constructor, which costs as much as the system call's way into the kernel.
        return tuple.__new__(AppendResult, (base_offset, last_offset, append_time_ms, False))

    def append_as_follower(self, data: Buffer, *, now_ms: int) -> AppendResult:
        """Writes batches as the leader gave them, offsets and all."""
        self._check_open()
        headers = check_follower_append(data, self.end_offset, self.limits)
        last_offset = headers[-1].last_offset
        self._write(data, headers, last_offset, now_ms)
        for header in headers:
            if header.leader_epoch > self.epochs.latest_epoch:
                self.epochs.assign(header.leader_epoch, header.base_offset)
        return AppendResult(headers[0].base_offset, last_offset, -1)

    def _write(self, data: Buffer, headers: list[BatchHeader], last_offset: int, now_ms: int) -> None:
        segment = self._active
        if self._must_roll(segment, len(data), headers[-1].max_timestamp, last_offset, now_ms):
            # Behind a gap that no index could span, as compaction leaves them, the next segment begins there.
            fits = last_offset - self.end_offset <= RELATIVE_OFFSET_MAX
            segment = self.roll(now_ms, self.end_offset if fits else headers[0].base_offset)
        position = segment.size
        segment.append(data, headers)
        self.end_offset = last_offset + 1
        if self._unsynced_since_ms is None:
            self._unsynced_since_ms = now_ms
        if len(headers) > 1 or headers[0].producer_id >= 0:
            self._note_producers(data, headers, position)

    def _check_producer(self, data: Buffer, header: BatchHeader, origin: Origin) -> BatchMetadata | None:
        if header.is_control:
            self.producers.check_marker(header, read_end_marker(data, 0, header), origin=origin)
            return None
        return self.producers.check(header, origin=origin)

    def _note_producers(self, data: Buffer, headers: list[BatchHeader], position: int) -> None:
        at = 0
        for header in headers:
            if header.producer_id >= 0:
                aborted = apply_batch(self.producers, LocatedBatch(position + at, header, data, at))
                if aborted is not None:
                    self._active.txn_index.append(aborted)
            at += LOG_OVERHEAD + header.batch_length

    # --- rolling -------------------------------------------------------------------------------

    def _must_roll(
        self, segment: Segment, incoming_bytes: int, timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        if not 0 <= last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX:
            return True
        size = segment.size
        if size == 0:
            return False
        config = self.config
        if size + incoming_bytes > config.segment_bytes:
            return True
        if segment.index_bytes_wanted > config.segment_index_bytes:
            return True
        if segment.first_timestamp >= 0:
            return timestamp - segment.first_timestamp > self._segment_ms
        return now_ms - self._active_since_ms > self._segment_ms

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seals the active segment and begins the next.  On DiskFullError nothing has changed."""
        self._check_open()
        sealed = self._active
        base_offset = self.end_offset if base_offset is None else base_offset
        if sealed.size == 0 and sealed.base_offset == base_offset:
            return sealed
        sealed.finish_indexes()
        snapshot = self.snapshots.write(base_offset, self.producers)
        fresh = Segment.create(self.files, self.directory, base_offset, self.config.index_interval_bytes)
        sealed.seal()
        self._sealed_unsynced.append(sealed)
        self._unsynced_names = True
        self._unsynced_indexes += [sealed.offset_index.file, sealed.time_index.file, snapshot]
        if sealed.txn_index.entries():
            self._unsynced_indexes.append(sealed.txn_index.file)
        self._start_active(fresh, now_ms)
        if sealed.size == 0:  # nothing was ever in it: it would only stand in the way
            self.segments.replace([sealed], [fresh])
            self._doom([sealed], now_ms)
        else:
            self.segments.add(fresh)
        return fresh

    def _start_active(self, segment: Segment, now_ms: int) -> None:
        self._active = segment
        self._active_since_ms = now_ms
        self._segment_ms = self._jittered_segment_ms()

    def _jittered_segment_ms(self) -> int:
        config = self.config
        # Only what is sealed is compacted: a record that must be soon cannot wait for `segment.ms`.
        segment_ms = config.segment_ms
        if config.compacts:
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        jitter_ms = min(config.segment_jitter_ms, segment_ms)
        if jitter_ms == 0 or self._randomness is None:
            return segment_ms
        return segment_ms - self._randomness.between(0, jitter_ms)

    def reconfigure(self, config: LogConfig) -> None:
        """From now on; what is written stays as it is."""
        self.config = config
        self._rules = AppendRules.of(config, self.limits)
        self._segment_ms = self._jittered_segment_ms()

    # --- syncing -------------------------------------------------------------------------------

    def begin_sync(self, *, also_running: bool = False) -> SyncJob | None:
        """Gathers what must reach the disk so that everything appended so far is durable; None if nothing.

        Whoever runs the job must `end_sync` it.  `also_running` syncs again what a running job syncs.
        """
        self._check_open()
        self.files.check_usable()
        dirty = [segment for segment in (*self._sealed_unsynced, self._active) if segment.is_dirty]
        pinned = [segment.log for segment in dirty]
        pinned += [managed for managed in self._unsynced_indexes if self.files.exists(managed.path)]
        also = self._undone_syncs + (self._running_syncs if also_running else [])
        pinned += [managed for job in also for managed in job.pinned]
        if any(job.writes_small_file for job in also):
            self.epochs.changed = True
        if not pinned and not self._unsynced_names and not self.epochs.changed:
            if not self._running_syncs:
                self.flushed_end_offset = self.end_offset
            return None
        job = SyncJob(
            self.files,
            pinned,
            self.directory if self._unsynced_names or also_running else None,
            self._epochs_to_write(),
            self.end_offset,
            self.truncations,
        )
        for segment in dirty:
            segment.mark_synced()
        for undone in self._undone_syncs:
            undone.release()
        self._undone_syncs = []
        self._sealed_unsynced = []
        self._unsynced_indexes = []
        self._unsynced_names = False
        self._unsynced_since_ms = None
        self._running_syncs.append(job)
        return job

    def _epochs_to_write(self) -> tuple[SmallFile, int, bytes] | None:
        if not self.epochs.changed:
            return None
        self.epochs.changed = False
        return self._epoch_file, self._epoch_file.next_version(), encode_epochs(self.epochs.entries)

    def end_sync(self, job: SyncJob, *, succeeded: bool) -> None:
        """If it succeeded all up to its end is durable, unless the log was truncated meanwhile."""
        self._running_syncs.remove(job)
        if not succeeded:  # there was no room, or the directory is out of use and nothing matters any more
            self._undone_syncs.append(job)
            self._unsynced_names |= job.syncs_names
            return
        job.release()
        if job.truncations == self.truncations:
            self.flushed_end_offset = max(self.flushed_end_offset, job.end_offset)

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

    def is_sync_due(self, now_ms: int) -> bool:
        """By `flush.messages` or `flush.ms`."""
        if self._unsynced_since_ms is None:
            return False
        return (
            self.end_offset - self.flushed_end_offset >= self.config.flush_messages
            or now_ms - self._unsynced_since_ms >= self.config.flush_ms
        )

    # --- reading -------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided, and its marker committed."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return max(min(unstable, self.high_watermark), self.start_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed.  It never goes back, but with a truncation."""
        if offset > self.high_watermark:
            self.high_watermark = min(offset, self.end_offset)
            self.producers.advance_high_watermark(self.high_watermark)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def read(
        self, offset: int, max_bytes: int, *, up_to: int | None = None, at_least_one: bool = True
    ) -> ReadResult:
        """Whole batches from the one that holds `offset`, none with records at `up_to` or after.

        At most `max_bytes`; a first batch that is larger is returned whole if `at_least_one`, else nothing.
        """
        self._check_open()
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not in the log, which holds {self.start_offset} to {self.end_offset - 1}"
            )
        bound = self.end_offset if up_to is None else min(up_to, self.end_offset)
        if offset >= bound or (max_bytes <= 0 and not at_least_one):
            return ReadResult(None, offset)
        for segment in self.segments.from_offset(offset):
            place = segment.locate(offset)
            if place is None:
                continue
            segment_end = lookups.end_of(self, segment)
            lookups.check_extent(segment, place.position, place.next_offset, segment_end)
            if place.base_offset >= bound:
                break
            end = segment.size if bound >= segment_end else self._end_position(segment, bound)
            length = min(max(max_bytes, place.size), end - place.position)
            if length <= 0 or (max_bytes < place.size and not at_least_one):
                break
            return ReadResult(segment.region(place.position, length), place.base_offset)
        return ReadResult(None, offset)

    def _end_position(self, segment: Segment, bound: int) -> int:
        place = segment.locate(bound)
        return segment.size if place is None else place.position

    def walk(self, start: int, end: int, *, check_crc: bool = True) -> Iterator[LocatedBatch]:
        """The batches that hold offsets from `start` up to, not including, `end`."""
        for segment in self.segments.from_offset(start):
            if segment.base_offset >= end:
                return
            place = segment.locate(start)
            if place is None:
                continue
            try:
                segment_end = lookups.end_of(self, segment)
                for batch in walk(segment.log, place.position, segment.size, check_crc=check_crc):
                    lookups.check_extent(segment, batch.position, batch.header.next_offset, segment_end)
                    if batch.header.base_offset >= end:
                        return
                    yield batch
            except BadBatchError as error:
                raise CorruptLogError(f"{segment.log.path} {error}") from error

    def find_timestamp(self, timestamp_ms: int, *, up_to: int | None = None) -> TimestampOffset | None:
        """The first record at or after a time."""
        self._check_open()
        return lookups.find_timestamp(self, timestamp_ms, self.end_offset if up_to is None else up_to)

    def newest_timestamp(self) -> TimestampOffset | None:
        """The record with the highest timestamp, the first of them if several have it."""
        self._check_open()
        return lookups.newest_timestamp(self)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with records from `start` up to `end`: a read_committed reader drops them."""
        self._check_open()
        return lookups.aborted_transactions(self, start, end)

    def producers_at(self, offset: int) -> ProducerStates:
        """What was known of producers when the log ended at `offset`."""
        return self.snapshots.states_at(offset, self.segments.first.base_offset, self.walk)

    # --- shrinking -----------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Removes the batch that holds `offset` and everything after it; durable on return.

        The log then ends where its last batch does, so that it ends there also when it is opened again.
        """
        self._check_open()
        if offset >= self.end_offset:
            return
        offset = max(offset, self.start_offset)
        gone = [segment for segment in self.segments if segment.base_offset > offset]
        keep = self.segments.from_offset(offset)[0]
        lookups.verify_txn_index(self, keep)
        self._end_moves_back(keep.end_before(offset))
        self.segments.replace(gone, [])
        self._remove_now(gone)  # before the cut: a crash in between must not leave a hole
        self._start_active(keep, now_ms)
        self._end_moved_to(keep.truncate_to(offset), now_ms)

    @property
    def truncations(self) -> int:
        """How often: work done elsewhere on what was read is void if this has grown meanwhile."""
        return len(self._truncated_ends)

    def lowest_end_since(self, truncations: int) -> int:
        """Where the log ended at the lowest, since there had been so many truncations."""
        return min([*self._truncated_ends[truncations:], self.end_offset])

    def _end_moves_back(self, offset: int) -> None:
        if self.before_end_moves_back is not None:
            self.before_end_moves_back(offset)
        self._truncated_ends.append(offset)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Removes everything and goes on at `offset`: a follower too far behind its leader's start."""
        self._check_open()
        self._end_moves_back(0)
        gone = self.segments.all()
        self._remove_now(list(gone))
        fresh = Segment.create(self.files, self.directory, offset, self.config.index_interval_bytes)
        self.files.sync_directory(self.directory)
        self.segments.replace(gone, [fresh])
        self._start_active(fresh, now_ms)
        self.start_offset = offset
        self.snapshots.remove_above(-1)
        self.epochs.clear()
        self._end_moved_to(offset, now_ms)
        self.high_watermark = offset

    def _end_moved_to(self, end_offset: int, now_ms: int) -> None:
        self.end_offset = end_offset
        self.start_offset = min(self.start_offset, end_offset)
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.epochs.truncate_from_end(end_offset)
        self.snapshots.remove_above(end_offset)
        self.producers = self.producers_at(end_offset)
        self.producers.advance_high_watermark(self.high_watermark)
        self.sync()

    def advance_start_offset(self, offset: int, now_ms: int) -> list[Segment]:
        """Everything below `offset` is gone for readers; segments wholly below it are deleted."""
        self._check_open()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"the start cannot move to {offset}: only {self.high_watermark} is committed"
            )
        if offset <= self.start_offset:
            return []
        self.start_offset = offset
        self.epochs.truncate_from_start(offset)
        return self.delete_segments_below(offset, now_ms)

    def delete_segments_below(self, offset: int, now_ms: int) -> list[Segment]:
        """Deletes the segments all of whose offsets lie below `offset`; never the active one."""
        gone = [
            segment
            for segment in self.segments.sealed
            if (self.segments.next_base(segment) or offset + 1) <= offset
        ]
        if gone:
            self._keep_producers_at(self.segments.next_base(gone[-1]) or offset)
            self.segments.replace(gone, [])
            self.start_offset = max(self.start_offset, self.segments.first.base_offset)
            self.epochs.truncate_from_start(self.start_offset)
            self.snapshots.remove_below(self.segments.first.base_offset)
            self._doom(gone, now_ms)
            self.files.sync_directory(self.directory)
        return gone

    def _keep_producers_at(self, offset: int) -> None:
        """The records below go: what only they say of producers must be on the disk before.

        If it cannot be known or written the records go all the same; a full disk must not stay so.
        """
        with contextlib.suppress(CorruptLogError, DiskFullError):
            if offset not in self.snapshots.offsets:
                self.snapshots.write(offset, self.producers_at(offset))
            self.snapshots.sync(offset)

    def replace_segments(self, old: list[Segment], new: list[Segment], now_ms: int) -> None:
        """Compaction's swap, once the files are in place: readers that hold old segments keep them."""
        self._check_open()
        self.segments.replace(old, new)
        self._doom([segment for segment in old if segment.log.path.endswith(DELETED_SUFFIX)], now_ms)

    # --- files that go -------------------------------------------------------------------------

    def _doom(self, gone: list[Segment], now_ms: int) -> None:
        """Renamed now, oldest first, and removed after a delay in which readers may finish."""
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in gone:
            self._doomed.append((due_ms, self.rename_deleted(segment), segment))

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
        """Newest first: a crash in between leaves a log without a hole."""
        for segment in sorted(gone, key=lambda segment: -segment.base_offset):
            segment.mark_synced()
            segment.log.generation += 1
            for path in segment.paths():
                self.files.remove(path)
            segment.close()
        self.files.sync_directory(self.directory)

    def remove_doomed(self, now_ms: int) -> int:
        """Unlinks the files whose delay is over; how many bytes that freed."""
        freed = 0
        due = [entry for entry in self._doomed if entry[0] <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        for _, paths, segment in due:
            for path in paths:
                self.files.remove(path)
            segment.close()
            freed += segment.size
        return freed

    # --- leaving -------------------------------------------------------------------------------

    def checkpoint(self) -> int:
        """Writes the active segment's indexes out; the offset from which a recovery would have to scan."""
        self._check_open()
        recovery_point = self.flushed_end_offset
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
            self.sync()
        self._close_files()

    def abandon(self) -> None:
        """Closes files and leaves everything as a crash would."""
        self._close_files()

    def _close_files(self) -> None:
        self.is_closed = True
        for segment in self.segments:
            segment.mark_synced()
            segment.close()
        for _, _, segment in self._doomed:
            segment.close()

    def _check_open(self) -> None:
        if self.is_closed:
            self._refuse()

    def _refuse(self) -> None:
        raise LogClosedError(f"the log in {self.directory} is closed")
