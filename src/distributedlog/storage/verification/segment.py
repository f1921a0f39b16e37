"""The first half of a verification: one segment, its log file and its two sparse indexes, in one pass.

The log file is read from its first byte to its last.  Of every batch are checked the CRC, that offsets rise
and lie within the segment (from its base up to the next segment's), and that its records decode and are as
many as the header claims.  Where no sound batch stands the walk goes on at the next one behind it, so that
one damaged place does not hide the rest.

What stands there instead of a batch is judged as recovery would (`recovery`): *torn* if nothing sound is
behind it, no later segment has data, and it lies at or above the recovery point; otherwise *damage*.

Indexes are compared as the walk passes.  An offset entry is right if a batch begins at its position whose
base offset is at most the entry's offset and above the entry before.  If all are right, every batch can be
found: whoever looks for an offset starts at the last entry not above it, which is a batch not behind the
one sought.  A time entry is right if up to its offset the newest timestamp is the one it says; the last of
a sealed segment must hold the segment's newest.

Kafka allocates an index at its full size and cuts it when it closes the segment.  After a crash there are
zeros behind the entries; they are taken for what they are.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from distributedlog.model.errors import CorruptLogError, DlogError, StorageError
from distributedlog.records.kernel import measure_columns
from distributedlog.records.layout import NO_LEADER_EPOCH, BatchHeader
from distributedlog.records.record import decompress_records
from distributedlog.storage.files import Files, ManagedFile
from distributedlog.storage.index import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY
from distributedlog.storage.scan import LIMITS, BadBatchError, LocatedBatch, find_valid_batch_behind, walk
from distributedlog.storage.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from distributedlog.storage.txn_index import TransactionIndex
from distributedlog.storage.verification.findings import Circumstances, Finding, Progress, Severity, Totals
from distributedlog.storage.verification.replay import Replay

PROGRESS_BYTES = 1024 * 1024
INDEX_INTERVAL_BYTES = 4096


class UnsoundPlace(NamedTuple):
    """Where a batch should begin and none does."""

    position: int
    reason: str
    resumes_at: int | None
    """The next sound batch, if one stands behind."""


def walk_through(log: ManagedFile, position: int, end: int) -> Iterator[LocatedBatch | UnsoundPlace]:
    """Every sound batch of a file, and every place between them that is not one."""
    while True:
        try:
            yield from walk(log, position, end)
            return
        except BadBatchError as bad:
            behind = find_valid_batch_behind(log, bad.position, end)
            yield UnsoundPlace(bad.position, bad.reason, behind)
            if behind is None:
                return
            position = behind


def record_flaw(batch: LocatedBatch) -> str | None:
    """Returns why the records of a batch with a right CRC cannot be had; None if they can."""
    header = batch.header
    try:
        section = decompress_records(batch.window, batch.at, header, LIMITS)
        if header.record_count:
            # Walks every field of every record and makes no object of any.
            measure_columns(section, header, LIMITS.headers_per_record_max, 0, 0, False)
        elif len(section):
            return f"the batch claims no record and has {len(section)} bytes of them"
    except DlogError as error:
        return str(error)
    return None


class SegmentPlace(NamedTuple):
    """A segment among the others of its log."""

    directory: str
    base_offset: int
    next_base: int | None
    """Where the next segment begins; None for the last."""
    bytes_behind: int
    """What later segments hold."""

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    @property
    def is_last(self) -> bool:
        return self.next_base is None


class SegmentVerification:
    """Verifies one segment; the state that goes on from segment to segment is in `Replay` and `Totals`."""

    def __init__(
        self,
        files: Files,
        place: SegmentPlace,
        circumstances: Circumstances,
        totals: Totals,
        replay: Replay,
        on_progress: Progress,
    ) -> None:
        self._files = files
        self._place = place
        self._view = circumstances
        self._totals = totals
        self._replay = replay
        self._on_progress = on_progress
        self._log = files.manage(place.path(LOG_SUFFIX), writable=False)
        self._offsets = OffsetIndexCheck(files, place, circumstances)
        self._times = TimeIndexCheck(files, place, circumstances)
        self._reported_position = 0
        self._is_after_damage = False
        self.next_offset = place.base_offset
        """One past the last offset seen."""
        self.first_gap: tuple[int, int] | None = None
        """The first offsets, from and up to, that no batch holds."""
        self.is_rewritten = False
        """A batch shows by itself that compaction was here."""

    def run(self, expected_offset: int | None) -> Iterator[Finding]:
        """Verifies the segment; `expected_offset` is where the one before ended, None for the first."""
        try:
            yield from self._run(expected_offset)
        except StorageError as error:
            self._replay.stop()
            is_gone = self._view.is_live and not self._files.exists(self._log.path)
            yield Finding(
                Severity.NOTE if is_gone else Severity.DAMAGE,
                self._log.path,
                "was deleted while it was read" if is_gone else str(error),
                None,
                self.next_offset,
            )
        finally:
            self._log.close()

    def _run(self, expected_offset: int | None) -> Iterator[Finding]:
        size = self._log.size()
        self._totals.segments += 1
        yield from self._offsets.load(size)
        yield from self._times.load(size)
        self._replay.begin_segment()
        self.next_offset = self._place.base_offset if expected_offset is None else expected_offset
        is_first = expected_offset is None
        for item in walk_through(self._log, 0, size):
            if isinstance(item, UnsoundPlace):
                yield self._pass_unsound(item, size)
                continue
            yield from self._check_batch(item, is_first)
            is_first = False
        self._advance_progress(size, size)
        self._totals.bytes += size + self._offsets.bytes + self._times.bytes
        self._totals.index_entries += self._offsets.count + self._times.count
        yield from self._offsets.finish(self.next_offset, size)
        yield from self._times.finish(self.next_offset, size)
        index = TransactionIndex(self._files, self._place.path(TXN_INDEX_SUFFIX), self._place.base_offset)
        yield from self._replay.end_segment(index, self.next_offset)

    def _advance_progress(self, position: int, size: int) -> None:
        advanced = position - self._reported_position
        if advanced >= PROGRESS_BYTES or position == size:
            self._reported_position = position
            self._on_progress(advanced)

    # --- batches -------------------------------------------------------------------------------

    def _check_batch(self, batch: LocatedBatch, is_first: bool) -> Iterator[Finding]:
        header = batch.header
        flaw = self._range_flaw(batch) or record_flaw(batch)
        if flaw is not None:
            self._replay.stop()
            yield Finding(Severity.DAMAGE, self._log.path, flaw, batch.position, header.base_offset)
        self._note_gaps(batch, is_first)
        self._count(batch, self._totals)
        self._offsets.note(batch)
        if self._offsets.is_due(batch):
            yield from self._offsets.pass_batch(batch)
        self._times.note(header)
        if self._times.is_due(header):
            yield from self._times.pass_batch(header)
        if flaw is None and self._replay.is_due(header):
            yield from self._replay.note(batch)
        self.next_offset = max(self.next_offset, header.next_offset)
        self._advance_progress(batch.position + header.size, -1)

    def _range_flaw(self, batch: LocatedBatch) -> str | None:
        header, place = batch.header, self._place
        if header.base_offset < place.base_offset:
            return f"offset {header.base_offset} lies before the segment's base, {place.base_offset}"
        if header.base_offset < self.next_offset:
            return f"offset {header.base_offset} stands after {self.next_offset - 1}"
        if place.next_base is not None and header.last_offset >= place.next_base:
            return (
                f"offset {header.last_offset} belongs to the next segment, which begins at {place.next_base}"
            )
        if header.leader_epoch < NO_LEADER_EPOCH:
            return f"leader epoch {header.leader_epoch} is none"
        if header.last_offset - place.base_offset > RELATIVE_OFFSET_MAX:
            return f"offset {header.last_offset} is too far from the segment's base for any index"
        return None

    def _note_gaps(self, batch: LocatedBatch, is_first: bool) -> None:
        header = batch.header
        if header.record_count <= header.last_offset_delta or header.has_delete_horizon:
            self.is_rewritten = self._replay.has_gaps = True
        if header.base_offset > self.next_offset:
            if not is_first and not self._is_after_damage and self.first_gap is None:
                self.first_gap = (self.next_offset, header.base_offset)
            self._replay.has_gaps = True
        self._is_after_damage = False

    @staticmethod
    def _count(batch: LocatedBatch, totals: Totals) -> None:
        header = batch.header
        totals.batches += 1
        totals.records += header.record_count
        if totals.first_offset < 0:
            totals.first_offset = header.base_offset
        totals.end_offset = max(totals.end_offset, header.next_offset)
        totals.widen(header.max_timestamp)
        if not header.has_delete_horizon:
            totals.widen(header.base_timestamp)

    # --- what is no batch ----------------------------------------------------------------------

    def _pass_unsound(self, unsound: UnsoundPlace, size: int) -> Finding:
        """Passes over what follows from damage: entries that lead to it, offsets it held."""
        finding = self._judge(unsound, size)
        if finding.severity is Severity.DAMAGE:
            self._is_after_damage = True
            self._replay.stop()
            self._offsets.pass_damage(size if unsound.resumes_at is None else unsound.resumes_at)
            self._times.pass_damage()
        return finding

    def _judge(self, unsound: UnsoundPlace, size: int) -> Finding:
        place = self._place
        if unsound.resumes_at is None and place.bytes_behind == 0:
            torn_bytes = size - unsound.position
            if self._view.is_live:
                severity, message = Severity.NOTE, f"{torn_bytes} bytes are perhaps just being written"
            elif self.next_offset >= self._view.recovery_point:
                severity = Severity.REPAIRABLE
                message = f"a torn write, {torn_bytes} bytes ({unsound.reason}); opening the log cuts it off"
            else:
                severity = Severity.DAMAGE
                message = f"{unsound.reason}; everything below offset {self._view.recovery_point} was synced"
        else:
            severity = Severity.DAMAGE
            behind = (
                f"sound batches go on at position {unsound.resumes_at}"
                if unsound.resumes_at is not None
                else "later segments have data"
            )
            message = f"{unsound.reason}; {behind}"
        return Finding(severity, self._log.path, message, unsound.position, self.next_offset)


# --- indexes -----------------------------------------------------------------------------------


class IndexForm(NamedTuple):
    suffix: str
    entry: struct.Struct
    offset_column: int
    """Which of the two columns is an offset, counted from the segment's base."""


OFFSET_FORM = IndexForm(OFFSET_INDEX_SUFFIX, OFFSET_ENTRY, 0)
TIME_FORM = IndexForm(TIME_INDEX_SUFFIX, TIME_ENTRY, 1)


def read_entries(data: bytes, form: IndexForm, base_offset: int) -> tuple[list[tuple[int, int]], int]:
    """The entries of an index file, with whole offsets, and how many zeros are allocated behind them.

    A lone entry of zeros is one: time 0, the first offset.
    """
    size = form.entry.size
    stripped = len(data.rstrip(b"\0"))
    used = size if stripped == 0 and len(data) == size else -(-stripped // size) * size
    if used > len(data):
        raise CorruptLogError(f"has {len(data)} bytes, not a whole number of entries")
    bases = (base_offset, 0) if form.offset_column == 0 else (0, base_offset)
    entries = [(first + bases[0], second + bases[1]) for first, second in form.entry.iter_unpack(data[:used])]
    return entries, len(data) - used


class IndexCheck:
    """What the two have in common: entries from the file, compared while the walk passes."""

    form: IndexForm

    def __init__(self, files: Files, place: SegmentPlace, circumstances: Circumstances) -> None:
        self._files = files
        self._place = place
        self._view = circumstances
        self._entries: list[tuple[int, int]] = []
        self._next = 0
        self._is_settled = True
        """Nothing more is to be said: it is missing, or was found wrong."""
        self._is_unfinished = False
        self.path = place.path(self.form.suffix)
        self.bytes = 0
        self.count = 0

    @property
    def _may_lag(self) -> bool:
        """A live owner has the newest entries in memory."""
        return self._view.is_live and self._place.is_last

    def wrong(self, message: str, offset: int | None = None) -> Finding:
        """One finding is enough for one index: it is rebuilt as a whole."""
        self._is_settled = True
        severity = Severity.NOTE if self._may_lag else Severity.REPAIRABLE
        return Finding(severity, self.path, message, None, offset)

    def load(self, log_bytes: int) -> Iterator[Finding]:
        try:
            data = self._files.read_small(self.path)
        except CorruptLogError as error:
            yield self.wrong(str(error))
            return
        if data is None:
            if log_bytes and not self._may_lag:
                yield self.wrong("is missing; it is rebuilt from the log")
            return
        self._is_settled = False
        self.bytes = len(data)
        try:
            self._entries, spare = read_entries(data, self.form, self._place.base_offset)
        except CorruptLogError as error:
            yield self.wrong(str(error))
            return
        self.count = len(self._entries)
        if spare:
            yield self.wrong(
                f"has {spare} bytes allocated and not used, as Kafka leaves it when it is killed"
            )
            self._is_settled = False  # the entries in front of them are compared all the same
            self._is_unfinished = True
        yield from self._check_rising()

    def _check_rising(self) -> Iterator[Finding]:
        for at in range(1, len(self._entries)):
            left, right = self._entries[at - 1], self._entries[at]
            if left[0] >= right[0] or left[1] >= right[1]:
                yield self.wrong(f"entry {at} ({right[0]}, {right[1]}) does not rise above the one before it")
                return


class OffsetIndexCheck(IndexCheck):
    form = OFFSET_FORM

    def __init__(self, files: Files, place: SegmentPlace, circumstances: Circumstances) -> None:
        super().__init__(files, place, circumstances)
        self._previous_offset = place.base_offset - 1
        self._uncovered_from = 0
        self._widest_bytes = INDEX_INTERVAL_BYTES
        self._largest_batch_bytes = 0
        self._has_holes = False

    def note(self, batch: LocatedBatch) -> None:
        """Keeps the size of the largest batch; called for every batch."""
        self._largest_batch_bytes = max(self._largest_batch_bytes, batch.header.size)

    def is_due(self, batch: LocatedBatch) -> bool:
        return (
            not self._is_settled
            and self._next < len(self._entries)
            and self._entries[self._next][1] <= batch.position
        )

    def pass_batch(self, batch: LocatedBatch) -> Iterator[Finding]:
        while self.is_due(batch):
            offset, position = self._entries[self._next]
            if position < batch.position:
                yield self.wrong(
                    f"offset {offset} leads to position {position}, where no batch begins", offset
                )
            elif not self._previous_offset < batch.header.base_offset <= offset:
                yield self.wrong(
                    f"offset {offset} leads to position {position}, where offset {batch.header.base_offset} "
                    "stands",
                    offset,
                )
            self._widest_bytes = max(self._widest_bytes, position - self._uncovered_from)
            self._previous_offset, self._uncovered_from = offset, position
            self._next += 1

    def pass_damage(self, position: int) -> None:
        """Entries below `position` lead to what is damaged: they may be right, and nobody can tell."""
        while self._next < len(self._entries) and self._entries[self._next][1] < position:
            self._previous_offset, self._uncovered_from = self._entries[self._next]
            self._next += 1
        self._has_holes = True

    def finish(self, end_offset: int, log_bytes: int) -> Iterator[Finding]:
        if self._is_settled:
            return
        if self._next < len(self._entries):
            offset, position = self._entries[self._next]
            yield self.wrong(f"offset {offset} leads to position {position}, behind the last batch", offset)
        elif self._previous_offset >= end_offset and not self._has_holes:
            yield self.wrong(f"names offset {self._previous_offset}, and the log ends at {end_offset}")
        elif log_bytes - self._uncovered_from > 4 * self._widest_bytes + 2 * self._largest_batch_bytes:
            missing = log_bytes - self._uncovered_from
            finding = self.wrong(
                f"has no entry for the last {missing} bytes of the log; it is older than that"
            )
            yield finding


class TimeIndexCheck(IndexCheck):
    form = TIME_FORM

    def __init__(self, files: Files, place: SegmentPlace, circumstances: Circumstances) -> None:
        super().__init__(files, place, circumstances)
        self._newest = -1

    def note(self, header: BatchHeader) -> None:
        """Keeps the newest timestamp so far; called for every batch."""
        self._newest = max(self._newest, header.max_timestamp)

    def is_due(self, header: BatchHeader) -> bool:
        return (
            not self._is_settled
            and self._next < len(self._entries)
            and self._entries[self._next][1] <= header.last_offset
        )

    def pass_batch(self, header: BatchHeader) -> Iterator[Finding]:
        while self.is_due(header):
            timestamp, offset = self._entries[self._next]
            if timestamp != self._newest and not self._is_empty_entry(timestamp, offset):
                yield self.wrong(
                    f"says that up to offset {offset} nothing is newer than {timestamp}; the log says "
                    f"{self._newest}",
                    offset,
                )
            self._next += 1

    def pass_damage(self) -> None:
        """The newest timestamp may have stood there: from here on there is nothing to compare with."""
        self._is_settled = True

    def _is_empty_entry(self, timestamp: int, offset: int) -> bool:
        return timestamp < 0 and offset == self._place.base_offset

    def finish(self, end_offset: int, log_bytes: int) -> Iterator[Finding]:
        if self._is_settled:
            return
        if self._next < len(self._entries):
            timestamp, offset = self._entries[self._next]
            if not self._is_empty_entry(timestamp, offset):
                yield self.wrong(f"names offset {offset}, and the segment ends at {end_offset}", offset)
        elif self._newest >= 0 and not self._may_lag and not self._is_unfinished:
            last = self._entries[-1][0] if self._entries else -1
            if last != self._newest:
                yield self.wrong(f"ends with timestamp {last}; the newest of the segment is {self._newest}")
