"""The log of one partition: an ordered list of segments that is appended to at its end.

Invariants: offsets rise and are given once; a batch is in the file before `end_offset` passes it; nothing
below `flushed_end_offset` is lost by a power cut; only `truncate_to`, `restart_at` and `set_aside_from` move
the end back.  One writer, on one thread.

| where       | what                                                                              |
|-------------|-----------------------------------------------------------------------------------|
| `log_files` | the segments and small files, syncing them, deleting them                         |
| `log_reads` | reading by offset and by timestamp, the high watermark, the last stable offset    |
| here        | appending, rolling segments, truncating the end, advancing the start              |

A crash may lose or tear what was not synced; `recovery.open_log` is the only way in and mends it.
"""

import contextlib

from distributedlog.model.buffers import Buffer, MutableBuffer
from distributedlog.model.config import INT32_MAX, LogConfig
from distributedlog.model.errors import CorruptLogError, DiskFullError, OffsetOutOfRangeError
from distributedlog.model.limits import RecordLimits
from distributedlog.ports.randomness import Randomness
from distributedlog.records.batch import HEADER_BYTES, LOG_OVERHEAD, BatchHeader, read_header
from distributedlog.records.control import read_end_marker
from distributedlog.records.layout import CONTROL_BIT, BatchRun
from distributedlog.storage import lookups
from distributedlog.storage.append import (
    AppendResult,
    AppendRules,
    Origin,
    check_follower_append,
    cut_at_segments,
)
from distributedlog.storage.epochs import EpochHistory
from distributedlog.storage.files import Files
from distributedlog.storage.index import RELATIVE_OFFSET_MAX
from distributedlog.storage.log_reads import ReadableLog
from distributedlog.storage.log_reads import ReadResult as ReadResult
from distributedlog.storage.producer_history import SnapshotFiles, apply_batch, apply_marker
from distributedlog.storage.producers import ProducerStates
from distributedlog.storage.scan import LIMITS, LocatedBatch
from distributedlog.storage.segment import DELETED_SUFFIX, Segment, SegmentList
from distributedlog.storage.txn_index import AbortedTransaction


class PartitionLog(ReadableLog):
    """A partition's log, for its one writer."""

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
        super().__init__(
            files,
            directory,
            config,
            segments=segments,
            epochs=epochs,
            producers=producers,
            snapshots=snapshots,
            start_offset=start_offset,
            end_offset=end_offset,
            limits=limits,
        )
        self.rules = AppendRules.of(config, limits)
        self._randomness = randomness
        self._active_since_ms = now_ms
        self._segment_ms = self._jittered_segment_ms()

    # --- appending -----------------------------------------------------------------------------

    def append_as_leader(
        self,
        data: MutableBuffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        is_validated: bool = False,
    ) -> AppendResult:
        """Checks the batches in `data`, gives them offsets (in place) and writes them.  Not yet synced.

        With `is_validated` their records are not walked again: they were encoded here, or
        `AppendRules.prepare` has checked them.
        """
        if self.is_closed:
            self._refuse()
        base_offset, rules = self.end_offset, self.rules
        data = data if rules.codec is None else rules.recompress(data, origin)
        headers = rules.place(data, base_offset, leader_epoch, now_ms, origin, is_validated)
        first, marker = headers[0], None
        has_producer = first.producer_id >= 0
        if has_producer and first.attributes & CONTROL_BIT:
            marker = read_end_marker(data, 0, first)
            self.producers.check_marker(first, marker, origin=origin)
        elif has_producer:
            earlier = self.producers.check(first, origin=origin)
            if earlier is not None:
                _, _, first_offset, last_offset, timestamp = earlier
                append_time_ms = timestamp if rules.stamps_time else -1
                return AppendResult(first_offset, last_offset, append_time_ms, is_duplicate=True)
        last = headers[-1]
        last_offset = last.base_offset + last.last_offset_delta
        self._write(data, headers, last_offset, now_ms)
        if marker is not None:
            self._note_aborted(apply_marker(self.producers, first, marker))
        elif has_producer:  # and then it is alone
            self.producers.append(first)
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, base_offset)
        append_time_ms = now_ms if rules.stamps_time else -1
        # Past the constructor, which costs as much as the system call's way into the kernel.
        return tuple.__new__(AppendResult, (base_offset, last_offset, append_time_ms, False))

    def append_as_follower(self, data: Buffer, *, now_ms: int, leader_epoch: int = INT32_MAX) -> AppendResult:
        """Writes batches as the leader gave them, offsets and all.  Those of a later epoch than the one it
        leads in are not written, nor what comes behind them: they are another leader's to give.

        What does not fit the active segment begins the next one.  On a disk that gets full on the way the
        log ends after what was written; if that is nothing, DiskFullError is raised.
        """
        self.check_open()
        start_offset = self._begin_with_batch(data, now_ms)
        run = check_follower_append(data, self.end_offset, leader_epoch, self.limits)
        headers, length = run.headers, run.length
        view = memoryview(data)
        if self._active.size + length <= self.config.segment_bytes and self._spans_no_gap(headers):
            self._write_replicated(view[:length], headers, run, now_ms)
        else:
            self._write_parts(view, run, now_ms)
        if start_offset > self.start_offset:
            self.start_offset = self.high_watermark = start_offset
        return AppendResult(headers[0].base_offset, self.end_offset - 1, -1)

    def _begin_with_batch(self, data: Buffer, now_ms: int) -> int:
        """Returns where the log is to start.  A leader's log may start inside a batch, of which it gives the
        whole: a log that is empty and begins there begins with that batch instead."""
        if self.start_offset == self.end_offset and not self._active.size and len(data) >= HEADER_BYTES:
            header = read_header(data)
            if header.base_offset < self.end_offset <= header.last_offset:
                start_offset = self.start_offset
                self.restart_at(header.base_offset, now_ms)
                return start_offset
        return self.start_offset

    def _spans_no_gap(self, headers: list[BatchHeader]) -> bool:
        return headers[-1].last_offset - headers[0].base_offset <= RELATIVE_OFFSET_MAX

    def _write_parts(self, data: memoryview, run: BatchRun, now_ms: int) -> None:
        position = 0
        for headers, length in cut_at_segments(
            run.headers, self._active.size, self.config.segment_bytes, RELATIVE_OFFSET_MAX
        ):
            try:
                self._write_replicated(data[position : position + length], headers, run, now_ms)
            except DiskFullError:
                if position == 0:
                    raise
                return
            position += length

    def _write_replicated(
        self, data: memoryview, headers: list[BatchHeader], run: BatchRun, now_ms: int
    ) -> None:
        position = self._write(data, headers, headers[-1].last_offset, now_ms)
        if run.has_producers:
            self._note_producers(data, headers, position)
        if run.epoch_max > self.epochs.latest_epoch:
            for header in headers:
                if header.leader_epoch > self.epochs.latest_epoch:
                    self.epochs.assign(header.leader_epoch, header.base_offset)

    def _write(self, data: Buffer, headers: list[BatchHeader], last_offset: int, now_ms: int) -> int:
        """Returns the position in the active segment."""
        if self._unsynced_cut is not None:
            self.sync()
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
        return position

    def _note_producers(self, data: Buffer, headers: list[BatchHeader], position: int) -> None:
        at = 0
        for header in headers:
            if header.producer_id >= 0 and not header.attributes & CONTROL_BIT:
                self.producers.append(header)
            elif header.producer_id >= 0:
                self._note_aborted(apply_batch(self.producers, LocatedBatch(position + at, header, data, at)))
            at += LOG_OVERHEAD + header.batch_length

    def _note_aborted(self, aborted: AbortedTransaction | None) -> None:
        if aborted is not None:
            self._active.txn_index.append(aborted)

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
        if segment.index_bytes_wanted > config.index_bytes_max:
            return True
        if segment.first_timestamp >= 0:
            return timestamp - segment.first_timestamp > self._segment_ms
        return now_ms - self._active_since_ms > self._segment_ms

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seals the active segment and begins the next.  On DiskFullError nothing has changed."""
        self.check_open()
        sealed = self._active
        base_offset = self.end_offset if base_offset is None else base_offset
        if sealed.size == 0 and sealed.base_offset == base_offset:
            return sealed
        if self._unsynced_cut is not None:
            self.sync()
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
            self._schedule_deletion([sealed], now_ms)
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
        """Applies other settings from now on; what is written stays as it is."""
        self.config = config
        self.rules = AppendRules.of(config, self.limits)
        self._segment_ms = self._jittered_segment_ms()
        self._notify_change()

    # --- shrinking -----------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int, *, sync: bool = True) -> None:
        """Removes the batch that holds `offset` and everything after it; durable on return, or with `sync`
        off when the next sync has ended (`has_unsynced_cut`), which writes the epoch file as well.

        The log then ends where its last batch does, so that it ends there also when it is opened again.
        """
        self.check_open()
        if offset >= self.end_offset:
            return
        offset = max(offset, self.start_offset)
        gone = [segment for segment in self.segments if segment.base_offset > offset]
        keep = self.segments.from_offset(offset)[0]
        lookups.verify_txn_index(self, keep)
        self._note_truncation(self.find_truncated_end(offset))
        self.segments.replace(gone, [])
        self._remove_now(gone)  # before the cut: a crash in between must not leave a hole
        self._start_active(keep, now_ms)
        end_offset = keep.truncate_to(offset, sync=sync)
        self._unsynced_cut = None if sync else keep.log
        self._set_end(end_offset, now_ms, sync=sync)
        self._notify_change()

    def find_truncated_end(self, offset: int) -> int:
        """Returns where the log would end after `truncate_to`."""
        if offset >= self.end_offset:
            return self.end_offset
        offset = max(offset, self.start_offset)
        return self.segments.from_offset(offset)[0].find_end_before(offset)

    def _notify_change(self) -> None:
        if self.after_change is not None:
            self.after_change()

    def _note_truncation(self, offset: int) -> None:
        if self.before_truncation is not None:
            self.before_truncation(offset)
        self._truncated_ends.append(offset)
        self._unsynced_cut = None

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Removes everything and goes on at `offset`: a follower too far behind its leader's start."""
        self.check_open()
        self._note_truncation(0)
        gone = self.segments.all()
        self._remove_now(list(gone))
        self.snapshots.remove_above(-1)
        fresh = Segment.create(self.files, self.directory, offset, self.config.index_interval_bytes)
        self.files.sync_directory(self.directory)
        self.segments.replace(gone, [fresh])
        self._start_active(fresh, now_ms)
        self.start_offset = offset
        self.epochs.clear()
        self._set_end(offset, now_ms)
        self.flushed_end_offset = offset  # nothing is before it that could be lost
        self.high_watermark = offset
        self._notify_change()

    def set_aside_from(self, base_offset: int, now_ms: int) -> str:
        """Ends the log before the segment that begins at `base_offset`: its log file goes to the quarantine,
        what is behind it goes; durable on return.  Returns where the file is kept.

        Nothing of it is read, so it does not matter what is wrong with it.  A crash leaves a log that ends
        there, or one that still has some of the segments; never one with a hole.
        """
        self.check_open()
        damaged, *later = self.segments.from_offset(base_offset)
        is_first = damaged is self.segments.first
        end_offset = max(damaged.base_offset, self.start_offset)
        self._note_truncation(0 if is_first else end_offset)
        self._remove_now(later)
        if is_first:
            self.snapshots.remove_above(-1)
        kept = self._move_to_quarantine(damaged)
        fresh = Segment.create(self.files, self.directory, end_offset, self.config.index_interval_bytes)
        self.files.sync_directory(self.directory)
        self.segments.replace([damaged, *later], [fresh])
        self._start_active(fresh, now_ms)
        if is_first:
            self.epochs.clear()
        self._set_end(end_offset, now_ms)
        self.flushed_end_offset = end_offset
        return kept

    def _set_end(self, end_offset: int, now_ms: int, *, sync: bool = True) -> None:
        self.end_offset = end_offset
        self.start_offset = min(self.start_offset, end_offset)
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.epochs.truncate_from_end(end_offset)
        self.snapshots.remove_above(end_offset)
        self.producers = self.restore_producers_at(end_offset)
        self.producers.advance_high_watermark(self.high_watermark)
        if sync:
            self.write_epochs()
            self.sync()

    def advance_start_offset(
        self, offset: int, now_ms: int, *, high_watermark: int | None = None
    ) -> list[Segment]:
        """Everything below `offset` is gone for readers; segments wholly below it are deleted.

        `high_watermark`: the one that the log is about to get."""
        self.check_open()
        committed = self.high_watermark if high_watermark is None else high_watermark
        if offset > committed:
            raise OffsetOutOfRangeError(f"the start cannot move to {offset}: only {committed} is committed")
        if offset <= self.start_offset:
            return []
        self.start_offset = offset
        self.epochs.truncate_from_start(offset)
        self._notify_change()
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
            self._schedule_deletion(gone, now_ms)
            self._notify_change()
            self.files.sync_directory(self.directory)
        return gone

    def _keep_producers_at(self, offset: int) -> None:
        """The records below go: what only they say of producers must be on the disk before.

        If it cannot be known or written the records go all the same; a full disk must not stay so.
        """
        with contextlib.suppress(CorruptLogError, DiskFullError):
            if offset not in self.snapshots.offsets:
                self.snapshots.write(offset, self.restore_producers_at(offset))
            self.snapshots.sync(offset)

    def replace_segments(self, old: list[Segment], new: list[Segment], now_ms: int) -> None:
        """Swaps segments for compacted ones, once the files are in place: readers that hold old segments keep
        them."""
        self.check_open()
        self.segments.replace(old, new)
        self._schedule_deletion(
            [segment for segment in old if segment.log.path.endswith(DELETED_SUFFIX)], now_ms
        )
