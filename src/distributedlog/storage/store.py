"""A data directory: the logs of many partitions, their checkpoints, and the one process that owns them.

    DIR/meta.properties                       whose directory this is
    DIR/.lock                                 held by the owner
    DIR/.kafka_cleanshutdown                  the last owner closed every log; gone while one is at work
    DIR/recovery-point-offset-checkpoint      below it everything is synced
    DIR/replication-offset-checkpoint         high watermarks
    DIR/log-start-offset-checkpoint           starts that were moved up on purpose
    DIR/cleaner-offset-checkpoint             how far compaction has come
    DIR/TOPIC-N/                              a partition's log
    DIR/TOPIC-N.ID-delete/                    one that is being deleted

The directory may be a symbolic link, and nothing in it: a partition's directory that is one is refused, since
what leads out of here belongs to somebody else.

Checkpoints may be older than the logs (a crash): that costs a longer scan, never a record.  What they say is
taken back before it becomes wrong: before a log is cut shorter, and before a name is used for a new log.
The clean-stop marker is removed, durably, before anything is appended, and written last of all.

These files have Kafka's form and so no checksum.  A start that is wrongly high would hide records, so that
file is written twice, the second time under a name of our own; where the two differ the lower start counts.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from distributedlog.model.config import LogConfig
from distributedlog.model.errors import (
    CorruptLogError,
    DiskFullError,
    InvalidNameError,
    LogClosedError,
    LogDirectoryFailedError,
    StorageError,
)
from distributedlog.model.ids import TopicPartition, Uuid, check_partition, check_topic_name
from distributedlog.ports.clock import Clock
from distributedlog.ports.disk import Disk
from distributedlog.ports.randomness import Randomness
from distributedlog.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    MetaProperties,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
)
from distributedlog.storage.files import OPEN_FILES_MAX, Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import QUARANTINE, RecoveryReport, open_log
from distributedlog.storage.retention import enforce_retention
from distributedlog.storage.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_name
from distributedlog.storage.strays import StrayLogs, aside_name
from distributedlog.storage.syncs.opening import OpeningSyncs, RunAll, run_in_turn

DELETED_DIRECTORY_SUFFIX = "-delete"
DELETED_DIRECTORY = re.compile(r"[A-Za-z0-9._-]+-[0-9]{1,10}\.[A-Za-z0-9_-]+-delete")
"""No other directory is removed, whatever it is called."""
LOG_START_COPY_FILE = f"{LOG_START_FILE}.copy"
FOREVER_MS = 2**62
TOLD_FILE = "told"
"""The file of a quarantine that names those of which the controller has been told."""


class _Checkpoints(NamedTuple):
    """What the checkpoints said when the store was opened."""

    recovery_points: dict[TopicPartition, int]
    starts: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]

    def of(self, partition: TopicPartition) -> dict[str, Any]:
        """Returns what `LogStore._open_log` is told of one log."""
        return {
            "recovery_point": self.recovery_points.get(partition, 0),
            "start_offset": self.starts.get(partition, 0),
            "high_watermark": self.high_watermarks.get(partition),
        }

    def ends(self) -> dict[TopicPartition, int]:
        """Returns the highest offset that any of them has of each log."""
        ends: dict[TopicPartition, int] = {}
        for offsets in self:
            for partition, offset in offsets.items():
                ends[partition] = max(offset, ends.get(partition, 0))
        return ends


class LogStore:
    """Owns a data directory.  Use `LogStore.open`."""

    def __init__(
        self, files: Files, directory: str, clock: Clock, randomness: Randomness, config: LogConfig
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.topic_ids: dict[TopicPartition, Uuid] = {}
        self.reports: dict[TopicPartition, RecoveryReport] = {}
        self.first_dirty_offsets: dict[TopicPartition, int] = {}
        self.strays = StrayLogs(files, directory)
        self.unopened: dict[TopicPartition, StorageError] = {}
        """The logs that are there and cannot be opened, and why, if the store was opened without them."""
        self.missing: dict[TopicPartition, int] = {}
        """The logs that had records by the checkpoints and are not there, and how many offsets are known."""
        self.was_clean = False
        self.are_checkpoints_sound = True
        self.notes: list[str] = []
        """What was found wrong with the directory's own files."""
        self._checkpointed: dict[str, dict[TopicPartition, int]] = {}
        self._clock = clock
        self._randomness = randomness
        self._lock = files.lock(f"{directory}/{LOCK_FILE}")
        self.lock_identity = self._lock.identity()
        self._closed = False

    # --- opening -------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        clock: Clock,
        randomness: Randomness,
        config: LogConfig | None = None,
        config_of: Callable[[TopicPartition], LogConfig] | None = None,
        open_files_max: int = OPEN_FILES_MAX,
        on_failure: Callable[[LogDirectoryFailedError], None] | None = None,
        without_unopened: bool = False,
        run_all: RunAll = run_in_turn,
    ) -> "LogStore":
        """Locks the directory, makes it if it is not there, and opens every log in it.

        `without_unopened`: a log that cannot be opened is left to `unopened`, and the others are opened.
        `run_all` runs the syncs of many logs, on any threads.
        """
        files = Files(disk, open_files_max=open_files_max, on_failure=on_failure)
        if not files.is_directory(directory):
            files.make_directory(directory)
        store = cls(files, directory, clock, randomness, config or LogConfig())
        try:
            with OpeningSyncs(files, run_all) as syncs:
                store._load(config_of or (lambda _: store.config), without_unopened, syncs)
        except BaseException:
            store.abandon()
            raise
        return store

    def _load(
        self, config_of: Callable[[TopicPartition], LogConfig], without_unopened: bool, syncs: OpeningSyncs
    ) -> None:
        self.meta = self._load_meta()
        marker = f"{self.directory}/{CLEAN_SHUTDOWN_FILE}"
        was_marked = self.was_clean = self.files.exists(marker)
        known = self._known = _Checkpoints(
            self._read_offsets(RECOVERY_POINT_FILE),
            self._read_starts(),
            self._read_offsets(HIGH_WATERMARK_FILE),
        )
        self.first_dirty_offsets = self._read_offsets(CLEANER_FILE)
        for partition in self._partitions():
            try:
                self._open_log(
                    partition,
                    config_of(partition),
                    is_clean=self.was_clean,
                    syncs=syncs,
                    **known.of(partition),
                )
            except (LogDirectoryFailedError, DiskFullError):
                raise
            except StorageError as error:
                if not without_unopened:
                    raise
                self.unopened[partition] = error
        self.missing = {
            partition: end
            for partition, end in known.ends().items()
            if end > 0 and partition not in self.logs and partition not in self.unopened
        }
        if was_marked:
            self.files.remove(marker)
            self.files.sync_directory(self.directory)

    def losses(self) -> Iterator[str]:
        """What opening found lost or damaged, a line each."""
        for partition, report in self.reports.items():
            for damage in report.damage:
                yield f"{partition}: {damage}"
            if report.lost_synced_offsets:
                yield f"{partition}: the last {report.lost_synced_offsets} synced offsets are gone"

    def _load_meta(self) -> MetaProperties:
        path = f"{self.directory}/{META_PROPERTIES_FILE}"
        data = self.files.read_small(path)
        if data is not None:
            return decode_meta_properties(data, path)
        meta = MetaProperties(str(self._randomness.new_uuid()), 0, self._randomness.new_uuid())
        self.files.write_atomically(path, encode_meta_properties(meta))
        return meta

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint that is missing or damaged is as good as an old one."""
        path = f"{self.directory}/{name}"
        try:
            data = self.files.read_small(path)
            offsets = {} if data is None else decode_offsets(data, path)
        except CorruptLogError as error:
            self.was_clean = self.are_checkpoints_sound = False
            self.notes.append(str(error))
            offsets = {}
        self._checkpointed[name] = offsets
        return dict(offsets)

    def _read_starts(self) -> dict[TopicPartition, int]:
        """Reads both files of log start offsets; where they differ, by damage or by a crash between them, no
        record may be hidden."""
        starts = self._read_offsets(LOG_START_FILE)
        if not self.files.exists(f"{self.directory}/{LOG_START_COPY_FILE}"):
            return starts
        copy = self._read_offsets(LOG_START_COPY_FILE)
        for partition in sorted(set(starts) | set(copy)):
            start, copied = starts.get(partition, 0), copy.get(partition, 0)
            if start != copied:
                self.notes.append(
                    f"{self.directory}/{LOG_START_FILE} says that {partition} starts at {start}, its copy "
                    f"says {copied}: the lower counts"
                )
                starts[partition] = min(start, copied)
        return starts

    def _partitions(self) -> Iterator[TopicPartition]:
        for name in self.files.names(self.directory):
            path = f"{self.directory}/{name}"
            if not self.files.is_directory(path):
                continue
            if DELETED_DIRECTORY.fullmatch(name):
                self.files.remove_tree(path)
                continue
            if self.strays.find(name, self._clock.wall_ms()):
                continue
            with contextlib.suppress(InvalidNameError):
                partition = TopicPartition.from_directory_name(name)
                self.files.refuse_link(path)
                yield partition

    def _open_log(
        self,
        partition: TopicPartition,
        config: LogConfig,
        *,
        is_clean: bool = False,
        recovery_point: int = 0,
        start_offset: int = 0,
        high_watermark: int | None = None,
        syncs: OpeningSyncs | None = None,
    ) -> PartitionLog:
        directory = f"{self.directory}/{partition.directory_name}"
        self.files.refuse_link(directory)
        log, report = open_log(
            self.files,
            directory,
            config,
            now_ms=self._clock.wall_ms(),
            is_clean=is_clean,
            recovery_point=recovery_point,
            start_offset=start_offset,
            first_dirty_offset=self.first_dirty_offsets.get(partition, 0),
            high_watermark=high_watermark,
            randomness=self._randomness,
            syncs=syncs,
        )
        if log.end_offset < recovery_point:  # it is reported; what is appended from here on is not synced yet
            with contextlib.suppress(DiskFullError):
                self._take_back(partition, log.end_offset)
        log.before_truncation = lambda offset: self._take_back(partition, offset)
        self.logs[partition] = log
        self.reports[partition] = report
        report.notes += self.notes
        self._note_quarantine(directory, report)
        self._load_topic_id(partition, f"{directory}/{PARTITION_METADATA_FILE}")
        return log

    def _note_quarantine(self, directory: str, report: RecoveryReport) -> None:
        """An opening that found damage may have died before it could say so; its files tell."""
        home = f"{directory}/{QUARANTINE}"
        kept = set(self.files.names(home)) - {TOLD_FILE} if self.files.is_directory(home) else set()
        if kept and not report.damage:
            held = ", ".join(sorted(kept))
            report.notes.append(f"{home} holds {held}: bytes that were found damaged before")
        told = self.files.read_small(f"{home}/{TOLD_FILE}") if kept else None
        report.is_told = kept <= set((told or b"").decode("utf-8", "replace").split("\n"))

    def note_told(self, partition: TopicPartition) -> None:
        """Notes that whoever must know of a log's damage knows: the next opening need not tell it again."""
        home = f"{self.directory}/{partition.directory_name}/{QUARANTINE}"
        if partition in self.logs and self.files.is_directory(home):
            kept = sorted(set(self.files.names(home)) - {TOLD_FILE})
            self.files.write_atomically(f"{home}/{TOLD_FILE}", "\n".join(kept).encode())

    def _load_topic_id(self, partition: TopicPartition, path: str) -> None:
        try:
            metadata = self.files.read_small(path)
            if metadata is not None:
                self.topic_ids[partition] = decode_partition_metadata(metadata, path)
        except CorruptLogError as error:  # the log is whole; only whose it is must be asked elsewhere
            self.reports[partition].notes.append(str(error))

    # --- logs ----------------------------------------------------------------------------------

    def open_unopened(self, partition: TopicPartition, config: LogConfig) -> PartitionLog:
        """Opens a log that could not be opened before; raises as it did if it still cannot be."""
        if not self.files.is_directory(f"{self.directory}/{partition.directory_name}"):
            raise StorageError(f"the directory of {partition} is gone")
        log = self._open_log(partition, config, **self._known.of(partition))
        del self.unopened[partition]
        return log

    def forget_checkpoints(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes out, durably, what the checkpoints say of logs that are about to be deleted: else they would
        be missed at the next opening."""
        gone = set(partitions)
        for each in gone:
            self.missing.pop(each, None)
            self.unopened.pop(each, None)
        for name, offsets in self._checkpointed.items():
            if any(offsets.get(each, 0) > 0 for each in gone):
                self._write_offsets(name, {key: at for key, at in offsets.items() if key not in gone})

    def add_absent(self, name: str, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the offsets of a checkpoint with what it said of logs that are not open: that stays."""
        if not self.unopened and not self.missing:
            return offsets
        absent = {*self.unopened, *self.missing}
        kept = {key: at for key, at in self._checkpointed.get(name, {}).items() if key in absent}
        return {**kept, **offsets}

    def log(self, topic: str, partition: int = 0) -> PartitionLog | None:
        return self.logs.get(TopicPartition(topic, partition))

    def make_log_files(self, partition: TopicPartition, topic_id: Uuid) -> None:
        """Makes the directory of a new log, with an empty segment and whose it is, durably; `create_log` then
        syncs nothing.  May be called from any thread.  What was interrupted can be done again."""
        directory = f"{self.directory}/{partition.directory_name}"
        self.files.refuse_link(directory)
        if not self.files.is_directory(directory):
            self.files.make_directory(directory)
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self.files.make_empty(f"{directory}/{file_name(0, suffix)}")
        self.files.write_atomically(
            f"{directory}/{PARTITION_METADATA_FILE}", encode_partition_metadata(topic_id)
        )

    def remove_log_files(self, partition: TopicPartition) -> None:
        """Removes what `make_log_files` made, for a log that is not wanted any more."""
        assert partition not in self.logs
        self.files.remove_tree(f"{self.directory}/{partition.directory_name}")

    def create_log(
        self,
        topic: str,
        partition: int = 0,
        *,
        config: LogConfig | None = None,
        topic_id: Uuid | None = None,
        is_made: bool = False,
    ) -> PartitionLog:
        """The log of a new partition; durable on return.  An existing one is returned as it is.

        `is_made`: its files are (`make_log_files`).
        """
        self._check_open()
        key = TopicPartition(check_topic_name(topic), check_partition(partition))
        existing = self.logs.get(key)
        if existing is not None:
            return existing
        self.missing.pop(key, None)
        self._take_back(key, 0)
        log = self._open_log(key, config or self.config, is_clean=is_made)
        if is_made and self.topic_ids.get(key) == topic_id:
            return log
        identity = topic_id or self._randomness.new_uuid()
        self.files.write_atomically(
            f"{log.directory}/{PARTITION_METADATA_FILE}", encode_partition_metadata(identity)
        )
        self.topic_ids[key] = identity
        return log

    def delete_log(self, topic: str, partition: int = 0) -> None:
        """Deletes a log for everybody at once, by one rename; the files follow."""
        log = self._take_out(key := TopicPartition(topic, partition))
        name = aside_name(key, self._randomness.new_uuid(), DELETED_DIRECTORY_SUFFIX)
        doomed = f"{self.directory}/{name}"
        self.files.rename(log.directory, doomed)
        self.files.sync_directory(self.directory)
        self.files.remove_tree(doomed)

    def set_aside(self, partition: TopicPartition) -> str:
        """Makes a log a stray, which is kept for a while; returns its directory's new name."""
        self._take_out(partition)
        return self.strays.set_aside(partition, self._randomness.new_uuid(), self._clock.wall_ms())

    def _take_out(self, partition: TopicPartition) -> PartitionLog:
        self._check_open()
        log = self.logs.pop(partition, None)
        if log is None:
            raise StorageError(f"there is no log {partition} in {self.directory}")
        log.abandon()
        log.names.discard()
        self.topic_ids.pop(partition, None)
        self.first_dirty_offsets.pop(partition, None)
        return log

    # --- maintenance ---------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Writes down how far each log is synced, committed, trimmed and compacted."""
        self._check_open()
        logs = self.logs.items()
        for log in self.logs.values():
            log.write_epochs()
        self._write_offsets(RECOVERY_POINT_FILE, {key: log.checkpoint() for key, log in logs})
        self._write_offsets(HIGH_WATERMARK_FILE, {key: log.high_watermark for key, log in logs})
        self._write_offsets(CLEANER_FILE, self.first_dirty_offsets)
        self.checkpoint_starts()

    def checkpoint_starts(self) -> None:
        """Writes the log start offsets that the first segment's name does not say, after one was moved up."""
        moved = {
            key: log.start_offset
            for key, log in self.logs.items()
            if log.start_offset > log.segments.first.base_offset
        }
        self._write_offsets(LOG_START_FILE, moved)
        self._write_offsets(LOG_START_COPY_FILE, moved)

    def _write_offsets(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        offsets = self.add_absent(name, offsets)
        self.files.write_atomically(f"{self.directory}/{name}", encode_offsets(offsets))
        self._checkpointed[name] = dict(offsets)

    def _take_back(self, partition: TopicPartition, offset: int) -> None:
        self.lower_checkpoints({partition: offset})

    def lower_checkpoints(self, ends: Mapping[TopicPartition, int]) -> None:
        """Lowers what the checkpoints say of logs, durably, each file at most once: they are about to end
        there."""
        for name, offsets in self._checkpointed.items():
            lowered = {key: end for key, end in ends.items() if offsets.get(key, 0) > end}
            if lowered:
                self._write_offsets(name, {**offsets, **lowered})
        for key, end in ends.items():
            if self.first_dirty_offsets.get(key, 0) > end:
                self.first_dirty_offsets[key] = end

    def maintain(self) -> int:
        """Does retention, expiry of producers and removal of deleted files; returns how many segments
        went."""
        self._check_open()
        now_ms = self._clock.wall_ms()
        deleted = 0
        failures: list[StorageError] = []
        for log in self.logs.values():
            try:
                deleted += len(enforce_retention(log, now_ms))
                log.remove_deleted_files(now_ms)
            except StorageError as error:  # the other logs are kept up all the same
                failures.append(error)
            log.producers.expire(now_ms, log.config.producer_id_expiration_ms)
        if failures:
            raise failures[0]
        return deleted

    def free_space(self) -> int:
        """Applies retention and removes deleted files without delay; returns the freed bytes."""
        now_ms = self._clock.wall_ms()
        freed = 0
        for log in self.logs.values():
            with contextlib.suppress(DiskFullError):  # the roll before a deletion may itself want room
                enforce_retention(log, now_ms)
            freed += log.remove_deleted_files(FOREVER_MS)
        return freed

    # --- leaving -------------------------------------------------------------------------------

    def close(self, *, broker_epoch: int = -1) -> None:
        """Syncs and closes every log, then marks the stop as clean.  A failed directory gets no marker."""
        if self._closed:
            return
        try:
            if self.files.failure is None:
                self._close_cleanly(broker_epoch)
        finally:
            self.abandon()

    def _close_cleanly(self, broker_epoch: int) -> None:
        for log in self.logs.values():
            log.sync()
        self.checkpoint()
        for log in self.logs.values():
            log.close()
        self.files.write_atomically(
            f"{self.directory}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown(broker_epoch)
        )

    def abandon(self) -> None:
        """Lets everything go as it is, as a crash would."""
        self._closed = True
        for log in self.logs.values():
            if not log.is_closed:
                log.abandon()
        self.files.close()
        self._lock.release()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"the data directory {self.directory} is closed")
