"""Reading a whole log, or a whole data directory, to say whether it is sound.  Nothing is changed.

What is read, and what it must agree with:

    names                       every file is one that a log has; nothing is left over from work cut short
    {base}.log                  each batch by itself, and in its place          (`segment`)
    {base}.index, .timeindex    lead to where they say                          (`segment`)
    {base}.txnindex, .snapshot, the same that a replay of the batches gives     (`replay`)
    leader-epoch-checkpoint
    the data directory's        can be read, and say nothing that the logs contradict
    checkpoints

What a crash leaves is told apart from damage by what the data directory says: below the recovery point all
was synced, and after a clean stop everything was.  A log that stands alone, without its data directory, is
given the benefit of the doubt.  A log that another process has open may change while it is read: what its
owner has not written out yet, or has just removed, is not reported as missing.

`PartitionVerification` and `DirectoryVerification` yield their findings as they come upon them, and have
their totals when they are done.
"""

from collections.abc import Callable, Iterator

from distributedlog.model.errors import CorruptLogError, InvalidNameError, StorageError
from distributedlog.model.ids import TopicPartition
from distributedlog.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
)
from distributedlog.storage.files import TEMPORARY_SUFFIX, Files
from distributedlog.storage.recovery import QUARANTINE
from distributedlog.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
)
from distributedlog.storage.store import DELETED_DIRECTORY_SUFFIX, LOG_START_COPY_FILE
from distributedlog.storage.verification.findings import (
    Circumstances,
    Finding,
    Progress,
    Severity,
    Totals,
    no_progress,
)
from distributedlog.storage.verification.replay import Replay
from distributedlog.storage.verification.segment import SegmentPlace, SegmentVerification

OFFSET_CHECKPOINTS = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, CLEANER_FILE)
RAFT_FILES = ("quorum-state", "quorum-state.tmp")
RAFT_SNAPSHOT_SUFFIX = ".checkpoint"
STEM_DIGITS = 20

_LEFTOVERS = {
    DELETED_SUFFIX: "was deleted and not yet removed",
    CLEANED_SUFFIX: "is of a compaction that was cut short",
    SWAP_SUFFIX: "is of a compaction that was cut short after it was decided",
    TEMPORARY_SUFFIX: "is of a write that was cut short",
}


def segment_bases(names: list[str]) -> list[int]:
    """The base offsets of the segments in a directory with these names, rising."""
    stems = (name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX))
    return sorted(int(stem) for stem in stems if is_stem(stem))


def is_stem(text: str) -> bool:
    return len(text) == STEM_DIGITS and text.isdecimal() and text.isascii()


class PartitionVerification:
    """Verifies the log in one directory."""

    def __init__(
        self,
        files: Files,
        directory: str,
        circumstances: Circumstances | None = None,
        *,
        on_progress: Progress = no_progress,
    ) -> None:
        self._files = files
        self._directory = directory
        self._view = circumstances or Circumstances()
        self._on_progress = on_progress
        self._is_damaged = False
        self.totals = Totals()

    def run(self) -> Iterator[Finding]:
        names = self._files.names(self._directory)
        bases = segment_bases(names)
        yield from self._check_names(names, set(bases))
        yield from self._check_metadata()
        for finding in self._check_segments(bases):
            self._is_damaged |= finding.severity is Severity.DAMAGE
            yield finding
        yield from self._check_bounds(bases)

    # --- names ---------------------------------------------------------------------------------

    def _check_names(self, names: list[str], bases: set[int]) -> Iterator[Finding]:
        severity = Severity.NOTE if self._view.is_live else Severity.REPAIRABLE
        for name in names:
            path = f"{self._directory}/{name}"
            ending = next((suffix for suffix in _LEFTOVERS if name.endswith(suffix)), None)
            if ending is not None:
                # Deletion is put off for readers' sake, so it is nothing unusual; the others were cut short.
                usual = Severity.NOTE if ending == DELETED_SUFFIX else severity
                yield Finding(usual, path, f"{_LEFTOVERS[ending]}; opening the log settles it")
                continue
            stem, dot, kind = name.partition(".")
            if is_stem(stem) and dot + kind in SEGMENT_SUFFIXES and int(stem) not in bases:
                yield Finding(severity, path, "has no log file beside it; opening the log removes it")
            elif name == QUARANTINE:
                yield Finding(Severity.NOTE, path, "holds damaged bytes that a recovery set aside")
            elif not _is_known(name):
                yield Finding(Severity.NOTE, path, "is no file of a log")

    def _check_metadata(self) -> Iterator[Finding]:
        path = f"{self._directory}/{PARTITION_METADATA_FILE}"
        try:
            data = self._files.read_small(path)
            if data is not None:
                decode_partition_metadata(data, PARTITION_METADATA_FILE)
        except (CorruptLogError, StorageError) as error:
            yield Finding(Severity.DAMAGE, path, str(error))

    # --- segments ------------------------------------------------------------------------------

    def _check_segments(self, bases: list[int]) -> Iterator[Finding]:
        if not bases:
            return
        replay = Replay(self._files, self._directory, bases, self._view, self.totals)
        yield from replay.begin()
        expected: int | None = None
        gap: tuple[int, int] | None = None
        was_rewritten = False
        for place in self._places(bases):
            segment = SegmentVerification(
                self._files, place, self._view, self.totals, replay, self._on_progress
            )
            yield from segment.run(expected)
            expected = segment.next_offset
            gap = gap or segment.first_gap
            was_rewritten |= segment.is_rewritten
        yield from replay.finish(max(self.totals.end_offset, bases[-1]))
        if gap is not None:
            yield self._gap(gap, was_rewritten)

    def _places(self, bases: list[int]) -> Iterator[SegmentPlace]:
        sizes = [self._log_bytes(base) for base in bases]
        behind = sum(sizes)
        for at, base in enumerate(bases):
            behind -= sizes[at]
            yield SegmentPlace(self._directory, base, bases[at + 1] if at + 1 < len(bases) else None, behind)

    def _log_bytes(self, base: int) -> int:
        try:
            return self._files.size(f"{self._directory}/{base:0{STEM_DIGITS}d}{LOG_SUFFIX}")
        except FileNotFoundError:
            return 0  # a live log removed it meanwhile; the segment says so itself

    def _gap(self, gap: tuple[int, int], was_rewritten: bool) -> Finding:
        """Judges a gap: only compaction makes them, and after a clean stop its traces are there."""
        first, end = gap
        is_explained = was_rewritten or self._view.was_compacted is not False or not self._view.was_clean
        if is_explained or self._is_damaged:
            message = f"offsets {first} to {end - 1} hold no batch, as compaction leaves it"
            return Finding(Severity.NOTE, self._directory, message, None, first)
        message = f"offsets {first} to {end - 1} are missing, and the log was never compacted"
        return Finding(Severity.DAMAGE, self._directory, message, None, first)

    def _check_bounds(self, bases: list[int]) -> Iterator[Finding]:
        view, end_offset = self._view, max([0, self.totals.end_offset, *bases[-1:]])
        if end_offset < view.recovery_point and not self._is_damaged and not view.is_live:
            yield Finding(
                Severity.DAMAGE, self._directory,
                f"the log ends at {end_offset}, and everything below {view.recovery_point} was synced",
                None, end_offset,
            )  # fmt: skip
        if view.high_watermark is not None and view.high_watermark > end_offset and not view.is_live:
            yield Finding(
                Severity.NOTE, self._directory,
                f"the log ends at {end_offset}, below its high watermark {view.high_watermark}",
                None, end_offset,
            )  # fmt: skip


def _is_known(name: str) -> bool:
    if name in (LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, *RAFT_FILES):
        return True
    stem, dot, kind = name.partition(".")
    return name.endswith(RAFT_SNAPSHOT_SUFFIX) or (
        is_stem(stem) and dot + kind in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)
    )


class DirectoryVerification:
    """Verifies a data directory: its own files, and the partitions in it that are wanted."""

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        is_wanted: Callable[[TopicPartition], bool] = lambda _: True,
        is_live: bool = False,
        on_progress: Progress = no_progress,
    ) -> None:
        self._files = files
        self._directory = directory
        self._is_wanted = is_wanted
        self._is_live = is_live
        self._on_progress = on_progress
        self._checkpoints: dict[str, dict[TopicPartition, int]] = {}
        self.totals = Totals()
        self.partitions: dict[TopicPartition, Totals] = {}

    def run(self) -> Iterator[Finding]:
        yield from self._check_meta()
        yield from self._read_checkpoints()
        for name in self._files.names(self._directory):
            path = f"{self._directory}/{name}"
            if not self._files.is_directory(path):
                continue
            if name.endswith(DELETED_DIRECTORY_SUFFIX):
                severity = Severity.NOTE if self._is_live else Severity.REPAIRABLE
                yield Finding(severity, path, "was deleted and not yet removed; opening the directory does")
                continue
            try:
                partition = TopicPartition.from_directory_name(name)
            except InvalidNameError:
                yield Finding(Severity.NOTE, path, "is not the directory of a partition")
                continue
            if self._is_wanted(partition):
                yield from self._check_partition(partition, path)

    def _check_partition(self, partition: TopicPartition, path: str) -> Iterator[Finding]:
        verification = PartitionVerification(
            self._files, path, self.circumstances_of(partition), on_progress=self._on_progress
        )
        try:
            yield from verification.run()
        except FileNotFoundError:
            if not self._is_live:
                raise
            yield Finding(Severity.NOTE, path, "was deleted while it was read")
        self.partitions[partition] = verification.totals
        self.totals.add(verification.totals)

    def _check_meta(self) -> Iterator[Finding]:
        path = f"{self._directory}/{META_PROPERTIES_FILE}"
        try:
            data = self._files.read_small(path)
            if data is not None:
                decode_meta_properties(data, META_PROPERTIES_FILE)
        except (CorruptLogError, StorageError) as error:
            yield Finding(Severity.DAMAGE, path, str(error))

    def _read_checkpoints(self) -> Iterator[Finding]:
        for name in OFFSET_CHECKPOINTS:
            path = f"{self._directory}/{name}"
            try:
                data = self._files.read_small(path)
                self._checkpoints[name] = {} if data is None else decode_offsets(data, name)
            except (CorruptLogError, StorageError) as error:
                yield Finding(Severity.REPAIRABLE, path, f"{error}; it is taken as empty and written anew")
        yield from self._read_start_copy()

    def _read_start_copy(self) -> Iterator[Finding]:
        """Reads our copy, which Kafka does not have; where it differs from the checkpoint, the lower start
        counts."""
        path = f"{self._directory}/{LOG_START_COPY_FILE}"
        starts = self._checkpoints.get(LOG_START_FILE)
        try:
            data = self._files.read_small(path)
            if data is None or starts is None:
                return
            copied = decode_offsets(data, LOG_START_COPY_FILE)
        except (CorruptLogError, StorageError) as error:
            yield Finding(Severity.REPAIRABLE, path, f"{error}; it is written anew")
            return
        for partition in sorted(starts.keys() | copied.keys()):
            start, other = starts.get(partition, 0), copied.get(partition, 0)
            if start != other:
                message = f"lets {partition} start at {other}, {LOG_START_FILE} at {start}: the lower counts"
                yield Finding(Severity.REPAIRABLE, path, message, None, min(start, other))
                starts[partition] = min(start, other)

    def circumstances_of(self, partition: TopicPartition) -> Circumstances:
        """Returns what the checkpoints say of one log; valid once `run` has read them."""
        if not self._checkpoints:
            list(self._read_checkpoints())
        read = self._checkpoints.get
        has_all = len(self._checkpoints) == len(OFFSET_CHECKPOINTS)
        return Circumstances(
            recovery_point=read(RECOVERY_POINT_FILE, {}).get(partition, 0),
            start_offset=read(LOG_START_FILE, {}).get(partition, 0) if has_all else None,
            high_watermark=read(HIGH_WATERMARK_FILE, {}).get(partition),
            was_clean=has_all and self._files.exists(f"{self._directory}/{CLEAN_SHUTDOWN_FILE}"),
            is_live=self._is_live,
            was_compacted=partition in read(CLEANER_FILE, {}) if has_all else None,
        )
