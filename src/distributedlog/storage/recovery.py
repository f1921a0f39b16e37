"""Opening a log: finish what a crash interrupted, find the true end, leave nothing half.

After a clean stop the files are believed.  After any other, everything from the recovery point on is read
and its checksums computed; below the recovery point all was synced once and is not read again.

What is found where a sound batch should stand, and what happens:

    nothing sound behind it            a torn write, never acknowledged   truncated
    a sound batch behind it, or        damage to what was whole once      quarantined: moved, byte for byte,
    more segments                                                         to `quarantine`, and reported
    a hole between two segments        an unsynced tail was lost, the     as the two above; where Kafka has
                                       name of the next file was not      compacted, holes are right
    the log ends below the recovery    synced data is gone                reported (`lost_synced_offsets`)
    point

Nothing is cut silently: `RecoveryReport` says all of it, and a replica that sees damage fetches again from
another.  Every step can be interrupted by a further crash and is then done again.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from distributedlog.model.config import LogConfig
from distributedlog.model.errors import CorruptLogError, DiskFullError
from distributedlog.model.limits import RecordLimits
from distributedlog.ports.randomness import Randomness
from distributedlog.records.layout import LEADER_EPOCH_AT
from distributedlog.storage.checkpoints import LEADER_EPOCH_FILE, decode_epochs, encode_epochs
from distributedlog.storage.epochs import NO_EPOCH, EpochHistory
from distributedlog.storage.files import TEMPORARY_SUFFIX, Files
from distributedlog.storage.index import RELATIVE_OFFSET_MAX
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.log_files import QUARANTINE as QUARANTINE
from distributedlog.storage.producer_history import SnapshotFiles, apply_batch
from distributedlog.storage.producers import ProducerStates
from distributedlog.storage.scan import (
    LIMITS,
    SEARCH_WORK_BYTES,
    WINDOW_BYTES,
    BadBatchError,
    LocatedBatch,
    OutOfOrderError,
    find_valid_batch_behind,
    walk,
)
from distributedlog.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    Segment,
    SegmentList,
    file_name,
)
from distributedlog.storage.syncs.opening import OpeningSyncs

STEM_DIGITS = 20


class Damage(NamedTuple):
    """Bytes that were sound once and are so no longer."""

    path: str
    position: int
    offset: int
    """The first offset that is missing from the log because of it."""
    reason: str
    quarantined: tuple[str, ...] = ()
    """Where the bytes are now."""

    def __str__(self) -> str:
        kept = f"; kept in {', '.join(self.quarantined)}" if self.quarantined else ""
        return (
            f"{self.path} is damaged at position {self.position} (offset {self.offset}): {self.reason}{kept}"
        )


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did."""

    was_clean: bool = False
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    lost_synced_offsets: int = 0
    """How many offsets below the recovery point the log no longer has."""
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_told: bool = True
    """Not so while the quarantine holds files that an opening died over before it could tell of them."""

    @property
    def is_sound(self) -> bool:
        return not self.damage and self.lost_synced_offsets == 0 and self.is_told


def open_log(
    files: Files,
    directory: str,
    config: LogConfig,
    *,
    now_ms: int,
    is_clean: bool = False,
    recovery_point: int = 0,
    start_offset: int = 0,
    first_dirty_offset: int = 0,
    high_watermark: int | None = None,
    randomness: Randomness | None = None,
    limits: RecordLimits = LIMITS,
    syncs: OpeningSyncs | None = None,
) -> tuple[PartitionLog, RecoveryReport]:
    """The log in `directory`, made if it is not there.

    `is_clean`: the last owner closed it.  `recovery_point`, `start_offset` and `first_dirty_offset` (below
    it the log was compacted) come from the checkpoints.  `syncs`: theirs, to be finished by the caller
    before the log is used.
    """
    opening = _Opening(files, directory, config, is_clean, recovery_point, start_offset, first_dirty_offset)
    with contextlib.nullcontext(syncs) if syncs is not None else OpeningSyncs(files) as gathered:
        opening.run(gathered)
    report = opening.report
    log = PartitionLog(
        files,
        directory,
        config,
        segments=opening.segments,
        epochs=opening.epochs,
        producers=opening.producers,
        snapshots=opening.snapshots,
        start_offset=opening.start_offset,
        end_offset=opening.end_offset,
        randomness=randomness,
        limits=limits,
        now_ms=now_ms,
    )
    mark = log.end_offset if high_watermark is None else high_watermark
    log.advance_high_watermark(mark)
    return log, report


class _Opening:
    """The steps of opening one log, with what they learn."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        is_clean: bool,
        recovery_point: int,
        start_offset: int,
        first_dirty_offset: int,
    ) -> None:
        self.files = files
        self.directory = directory
        self.interval = config.index_interval_bytes
        self.compacts = config.compacts
        self.first_dirty_offset = first_dirty_offset
        self.recovery_point = recovery_point
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.report = RecoveryReport(was_clean=is_clean)
        self.snapshots = SnapshotFiles(files, directory)
        self.segments = SegmentList()
        self.epochs = EpochHistory()
        self.producers = ProducerStates()
        self._epochs_known = True

    def run(self, syncs: OpeningSyncs) -> None:
        if not self.files.is_directory(self.directory):
            self.files.make_directory(self.directory)
        self.files.refuse_link(f"{self.directory}/{QUARANTINE}")
        self._finish_interrupted_work()
        self.snapshots.find()
        self.segments = SegmentList(self._find_segments())
        self.epochs = self._load_epochs()
        self.start_offset = max(self.start_offset, self.segments.first.base_offset)
        if not self.report.was_clean or not self._believe_clean_stop():
            self._scan(syncs)
        self.report.lost_synced_offsets = max(0, self.recovery_point - self.end_offset)
        self._settle_start()
        self._settle_epochs()

    # --- names ---------------------------------------------------------------------------------

    def _finish_interrupted_work(self) -> None:
        """A swap that was begun is completed, in an order that a further crash does not upset."""
        names = self.files.names(self.directory)
        for name in names:
            if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, TEMPORARY_SUFFIX)):
                self.files.remove(f"{self.directory}/{name}")
        swaps = [
            name.removesuffix(LOG_SUFFIX + SWAP_SUFFIX)
            for name in names
            if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and _is_stem(name.partition(".")[0])
        ]
        for stem in swaps:
            self._complete_swap(int(stem))
        for name in names:
            if name.endswith(SWAP_SUFFIX) and not name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
                self.files.remove(f"{self.directory}/{name}")
        if swaps:
            self.files.sync_directory(self.directory)

    def _complete_swap(self, base_offset: int) -> None:
        """The swapped-in file stands for every segment that begins within its offsets."""
        swap = f"{self.directory}/{file_name(base_offset, LOG_SUFFIX + SWAP_SUFFIX)}"
        end_offset = base_offset
        managed = self.files.manage(swap)
        try:
            for batch in walk(managed, 0, managed.size()):
                end_offset = batch.header.next_offset
        except BadBatchError as error:
            self.report.notes.append(f"{swap} {error}: the segments it was to replace are kept")
            managed.close()
            self.files.remove(swap)
            return
        managed.close()
        for old in self._bases():
            if base_offset < old < end_offset:
                for suffix in SEGMENT_SUFFIXES:
                    self.files.remove(f"{self.directory}/{file_name(old, suffix)}")
        for suffix in SEGMENT_SUFFIXES[1:]:
            self.files.remove(f"{self.directory}/{file_name(base_offset, suffix)}")
        self.files.rename(swap, swap.removesuffix(SWAP_SUFFIX))
        self.report.notes.append(f"completed the compaction of {swap.removesuffix(SWAP_SUFFIX)}")

    def _bases(self) -> list[int]:
        return [
            int(name.removesuffix(LOG_SUFFIX))
            for name in self.files.names(self.directory)
            if name.endswith(LOG_SUFFIX) and _is_stem(name.removesuffix(LOG_SUFFIX))
        ]

    def _find_segments(self) -> list[Segment]:
        bases = self._bases()
        known = set(bases)
        for name in self.files.names(self.directory):
            stem, dot, ending = name.partition(".")
            if _is_stem(stem) and dot + ending in SEGMENT_SUFFIXES[1:] and int(stem) not in known:
                self.files.remove(f"{self.directory}/{name}")
        if not bases:
            segment = Segment.create(self.files, self.directory, self.start_offset, self.interval)
            self.files.sync_directory(self.directory)
            return [segment]
        return [Segment.open(self.files, self.directory, base, self.interval) for base in bases]

    # --- the end -------------------------------------------------------------------------------

    def _believe_clean_stop(self) -> bool:
        """Takes the tail as it was left; False if it is not as a clean stop leaves it."""
        active = self.segments.active
        try:
            self.end_offset = max(active.recount_tail(), active.base_offset)
            active.first_timestamp = active.read_timestamp_at(0)
            self._check_closed_end(active)
            self.producers = self._states_at(self.end_offset)
        except (CorruptLogError, BadBatchError) as error:
            self.report.notes.append(f"a clean stop was marked, but {error}")
            self.report.was_clean = False
            return False
        return True

    def _check_closed_end(self, active: Segment) -> None:
        """A clean stop leaves the recovery point at the end.  Offsets are not under a batch's checksum."""
        if 0 < self.recovery_point < self.end_offset:
            reason = f"it ends at offset {self.end_offset} and was closed at {self.recovery_point}"
            self.report.damage.append(Damage(active.log.path, active.size, self.recovery_point, reason))
            raise CorruptLogError(f"{active.log.path}: {reason}")

    def _scan(self, syncs: OpeningSyncs) -> None:
        try:
            self._scan_from(min(self.recovery_point, self.segments.active.base_offset), syncs)
        except CorruptLogError as error:
            self.report.notes.append(f"everything is read, because {error}")
            self._scan_from(self.segments.first.base_offset, syncs)
        syncs.add_directory(self.directory)

    def _scan_from(self, offset: int, syncs: OpeningSyncs) -> None:
        """Reads every batch from the one that holds `offset`; the log ends before the first unsound one."""
        checked = self.segments.from_offset(offset)
        first = checked[0]
        position = self._trust_below(first, offset)
        self.snapshots.remove_above(self.end_offset)
        self.producers = self._states_at(self.end_offset)
        for previous, segment in zip((first, *checked), checked, strict=False):
            if segment.base_offset > self.end_offset and self._ends_before(previous, segment):
                break
            if position == 0:
                segment.reset_indexes()
                segment.txn_index.start_empty()
            bad = self._scan_segment(segment, position)
            with contextlib.suppress(DiskFullError):  # they stay in memory, and the log can be read
                segment.finish_indexes()
            if segment.size > 0:
                syncs.add(segment.log)  # a killed process leaves it in memory; from here on it is synced
            if bad is not None and segment.base_offset > self.end_offset:  # nothing of it is sound
                self._cut(previous, BadBatchError(previous.size, bad.reason))
                break
            if bad is not None:
                self._cut(segment, bad)
                break
            position = 0
        for segment in self.segments.sealed:
            segment.offset_index.release()
            segment.time_index.release()

    def _ends_before(self, previous: Segment, following: Segment) -> bool:
        """Returns whether the log ends with `previous`, because what should stand before `following` is
        missing.

        Kafka's compaction leaves segments that end early, ours does not: a gap is right only where the log
        was compacted, or where a copy of such a log has one that no index spans.
        """
        reason = f"the next segment begins at {following.base_offset}, the log ends at {self.end_offset}"
        behind = self.segments.from_offset(following.base_offset)
        is_right = (
            following.base_offset <= self.first_dirty_offset
            or following.base_offset - previous.base_offset > RELATIVE_OFFSET_MAX
        )
        if is_right and any(segment.size for segment in behind):
            self.report.notes.append(f"{previous.log.path}: {reason}")
            return False
        self._cut(previous, BadBatchError(previous.size, reason))
        return True

    def _trust_below(self, segment: Segment, offset: int) -> int:
        """Takes what lies below `offset` as it is, by the indexes; the position from which to scan.

        0, and so nothing is trusted, if the indexes do not lead there.
        """
        self.end_offset = segment.base_offset
        if offset <= segment.base_offset:
            return 0
        try:
            place = segment.locate(offset)
            position = segment.size if place is None else place.position
            if place is not None:
                segment.offset_index.truncate_to_position(position)
                segment.time_index.truncate_to_offset(place.base_offset)
                segment.txn_index.truncate_to_offset(place.base_offset)
            self.end_offset = max(self._trusted_tail(segment, position), segment.base_offset)
            return position
        except (CorruptLogError, BadBatchError) as error:
            self.report.notes.append(f"{segment.log.path} is scanned whole: {error}")
            self.end_offset = segment.base_offset
            return 0

    def _trusted_tail(self, segment: Segment, position: int) -> int:
        """Counts the part before `position` from its last index entry; the offset at its end."""
        if position == 0:
            return segment.base_offset
        size, segment.size = segment.size, position
        try:
            segment.first_timestamp = segment.read_timestamp_at(0)
            return segment.recount_tail()
        finally:
            segment.size = size

    def _scan_segment(self, segment: Segment, position: int) -> BadBatchError | None:
        """Takes every batch in, up to the first that is not sound."""
        size, start = segment.size, position
        try:
            for batch in self._sound(segment, position):
                self._check_offsets(segment, batch)
                segment.note(batch.header, batch.position)
                self.epochs.note(batch.header.leader_epoch, batch.header.base_offset)
                aborted = apply_batch(self.producers, batch)
                if aborted is not None:
                    segment.txn_index.append(aborted)
                self.end_offset = batch.header.next_offset
        except BadBatchError as error:
            self.report.scanned_bytes += error.position - start
            return error
        self.report.scanned_bytes += size - start
        return None

    def _sound(self, segment: Segment, position: int) -> Iterator[LocatedBatch]:
        """Yields each batch once the next is seen: of two that overlap, one behind a gap is the wrong one."""
        pending: LocatedBatch | None = None
        try:
            for batch in walk(segment.log, position, segment.size):
                if pending is not None:
                    yield pending
                pending = batch
        except OutOfOrderError as error:
            if pending is not None and pending.header.base_offset > self.end_offset and not self.compacts:
                raise BadBatchError(pending.position, error.reason) from error
            if pending is not None:
                yield pending
            raise
        except BadBatchError:
            if pending is not None:
                yield pending
            raise
        if pending is not None:
            yield pending

    def _check_offsets(self, segment: Segment, batch: LocatedBatch) -> None:
        """They are not under the checksum."""
        header = batch.header
        highest = segment.base_offset + RELATIVE_OFFSET_MAX
        next_base = self.segments.next_base(segment)
        if next_base is not None:
            highest = min(highest, next_base - 1)
        if header.base_offset < self.end_offset or header.last_offset > highest:
            reason = f"offsets {header.base_offset} to {header.last_offset} stand after {self.end_offset - 1}"
            raise BadBatchError(batch.position, f"{reason} in a segment that ends at {highest} or before")
        if header.base_offset > self.end_offset and not self.compacts:
            self.report.notes.append(
                f"{segment.log.path} at position {batch.position}: offset {header.base_offset} follows "
                f"{self.end_offset - 1}, which is right only if a compacted log was copied"
            )

    def _cut(self, segment: Segment, bad: BadBatchError) -> None:
        """Ends the log at `bad`.  What lies behind goes first, durably: otherwise a crash leaves a hole."""
        later = [other for other in self.segments if other.base_offset > segment.base_offset]
        # From the bad one itself on: a batch that is whole and has impossible offsets was never torn.
        suspects = [(segment, bad.position - 1), *((other, -1) for other in later)]
        is_torn = self.end_offset >= self.recovery_point and all(
            find_valid_batch_behind(each.log, position, each.size, work_bytes_max=SEARCH_WORK_BYTES) is None
            for each, position in suspects
        )
        if is_torn:
            self.report.truncated_bytes += segment.size - bad.position + sum(other.size for other in later)
        else:
            moved = self._quarantine(segment, bad.position, later)
            self.report.damage.append(
                Damage(segment.log.path, bad.position, self.end_offset, bad.reason, tuple(moved))
            )
        self.segments.replace(later, [])
        for other in reversed(later):
            self._remove(other)
        self.files.sync_directory(self.directory)
        if bad.position < segment.size:
            segment.log.truncate(bad.position)
            segment.log.sync()
            segment.size = bad.position
        segment.damage = None

    def _remove(self, segment: Segment) -> None:
        """Removes the files, but not a log file that was moved away."""
        for path in segment.paths():
            if path.startswith(f"{self.directory}/{QUARANTINE}/"):
                continue
            self.files.remove(path)
        segment.close()

    def _quarantine(self, segment: Segment, position: int, later: list[Segment]) -> list[str]:
        """Copies the tail, then moves the segments behind it.  Interrupted, it is done again.

        Nothing that was quarantined before is written over: an interrupted run may leave a copy twice.
        """
        home = f"{self.directory}/{QUARANTINE}"
        self.files.make_directory(home)
        moved = []
        if position < segment.size:
            name = f"{file_name(segment.base_offset, LOG_SUFFIX)}.{position}"
            moved.append(self.files.find_free_path(f"{home}/{name}"))
            self._copy(segment, position, moved[0])
        for other in later:
            source = other.log.path
            path = self.files.find_free_path(f"{home}/{file_name(other.base_offset, LOG_SUFFIX)}")
            self.files.rename_managed(other.log, path)
            self.files.remove(source)  # a crash may have left one file under two names
            other.log.close()
            moved.append(path)
        self.files.sync_directory(home)
        return moved

    def _copy(self, segment: Segment, position: int, target: str) -> None:
        copy = self.files.create(target)
        done = 0
        while position + done < segment.size:
            part = segment.log.read_at(position + done, min(WINDOW_BYTES, segment.size - position - done))
            if not part:
                raise CorruptLogError(f"{segment.log.path} ends at {position + done} by now")
            copy.append_at(done, part)
            done += len(part)
        copy.sync()
        copy.close()

    # --- what follows from the end -------------------------------------------------------------

    def _states_at(self, offset: int) -> ProducerStates:
        """Returns states, by a walk without checksums: what was synced or is about to be scanned anyway."""
        known = self.snapshots.offsets
        states = self.snapshots.restore_states_at(offset, self.segments.first.base_offset, self._walk)
        for unsound in sorted(set(known) - set(self.snapshots.offsets)):
            path = self.snapshots.path(unsound)
            self.report.notes.append(f"{path} was damaged: what producers did is taken from the log alone")
        return states

    def _walk(self, start: int, end: int) -> Iterator[LocatedBatch]:
        for segment in self.segments.from_offset(start):
            if segment.base_offset >= end:
                return
            place = segment.locate(start)
            if place is None:
                continue
            try:
                for batch in walk(segment.log, place.position, segment.size, check_crc=False):
                    if batch.header.base_offset >= end:
                        return
                    yield batch
            except BadBatchError as error:
                raise CorruptLogError(f"{segment.log.path} {error}") from error

    def _settle_start(self) -> None:
        """A start behind the end: all that is here was deleted on purpose, and what came after is lost.

        Or the checkpoint that says so is damaged; so what is here is kept aside.
        """
        if self.start_offset <= self.end_offset:
            return
        reason = f"the log ends at {self.end_offset}, before its start {self.start_offset}"
        gone = [segment for segment in self.segments if segment.size > 0]
        first = self.segments.first
        moved = self._quarantine(first, first.size, gone) if gone else []
        self.report.damage.append(Damage(first.log.path, 0, self.end_offset, reason, tuple(moved)))
        for segment in self.segments:
            self._remove(segment)
        fresh = Segment.create(self.files, self.directory, self.start_offset, self.interval)
        self.files.sync_directory(self.directory)
        self.segments = SegmentList([fresh])
        self.end_offset = self.start_offset

    def _load_epochs(self) -> EpochHistory:
        data = self.files.read_small(f"{self.directory}/{LEADER_EPOCH_FILE}")
        if data is None:
            self._epochs_known = False
            return EpochHistory()
        try:
            entries = decode_epochs(data)
            history = EpochHistory(entries)
            if history.entries != entries:
                raise CorruptLogError(f"{LEADER_EPOCH_FILE} has epochs or offsets that do not rise")
            return history
        except CorruptLogError as error:
            self.report.notes.append(f"the epoch history is made anew from the log: {error}")
            self._epochs_known = False
            return EpochHistory()

    def _settle_epochs(self) -> None:
        self.epochs.truncate_from_end(self.end_offset)
        self.epochs.truncate_from_start(self.start_offset)
        try:
            if not self._epochs_known or not self._epochs_agree():
                self.epochs = EpochHistory()
                for batch in self._walk(self.start_offset, self.end_offset):
                    epoch, offset = batch.header.leader_epoch, batch.header.base_offset
                    self.epochs.note(epoch, max(offset, self.start_offset))
        except CorruptLogError as error:  # the log can be read on both sides of the damage
            self.report.notes.append(f"the epoch history cannot be compared with the log: {error}")
        if self.epochs.changed and (self.report.truncated_bytes or self.report.damage):
            # What is only behind the log a checkpoint writes: until then the recovery point stays.
            with contextlib.suppress(DiskFullError):
                data = encode_epochs(self.epochs.entries)
                self.files.write_atomically(f"{self.directory}/{LEADER_EPOCH_FILE}", data)
                self.epochs.mark_written()

    def _epochs_agree(self) -> bool:
        """Returns whether the batches on both sides of each epoch's start say the same.  The file has no
        checksum."""
        entries = self.epochs.entries
        previous_epoch = NO_EPOCH
        for entry, following in zip_longest(entries, entries[1:]):
            end = self.end_offset if following is None else following.start_offset
            inside = self._epoch_at(entry.start_offset, end)
            before = None
            if entry.start_offset > self.start_offset:
                before = self._epoch_at(entry.start_offset - 1, entry.start_offset)
            if inside not in (None, entry.epoch) or (before is not None and before > previous_epoch):
                self.report.notes.append(
                    f"{self.directory}/{LEADER_EPOCH_FILE} says that epoch {entry.epoch} begins at "
                    f"{entry.start_offset}, the log does not: made anew"
                )
                return False
            previous_epoch = entry.epoch
        return True

    def _epoch_at(self, start: int, end: int) -> int | None:
        """Returns what the first batch from `start` up to `end` says."""
        for segment in self.segments.from_offset(start):
            place = segment.locate(start) if segment.base_offset < end else None
            if place is not None and place.base_offset < end:
                epoch = segment.log.read_at(place.position + LEADER_EPOCH_AT, 4)
                return int.from_bytes(epoch, "big", signed=True)
            if place is not None or segment.base_offset >= end:
                return None
        return None


def _is_stem(text: str) -> bool:
    return len(text) == STEM_DIGITS and text.isdecimal()
