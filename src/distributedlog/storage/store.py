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

Checkpoints may be older than the logs (a crash): that costs a longer scan, never a record.  What they say is
taken back before it becomes wrong: before a log is cut shorter, and before a name is used for a new log.
The clean-stop marker is removed, durably, before anything is appended, and written last of all.

These files have Kafka's form and so no checksum.  A start that is wrongly high would hide records, so that
file is written twice, the second time under a name of our own; where the two differ the lower start counts.
"""

import contextlib
import re
from collections.abc import Callable, Iterator

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

DELETED_DIRECTORY_SUFFIX = "-delete"
DELETED_DIRECTORY = re.compile(r"[A-Za-z0-9._-]+-[0-9]{1,10}\.[A-Za-z0-9_-]+-delete")
"""No other directory is removed, whatever it is called."""
NAME_BYTES_MAX = 255
LOG_START_COPY_FILE = f"{LOG_START_FILE}.copy"
FOREVER_MS = 2**62


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
        self.was_clean = False
        self.notes: list[str] = []
        """What was found wrong with the directory's own files."""
        self._checkpointed: dict[str, dict[TopicPartition, int]] = {}
        self._clock = clock
        self._randomness = randomness
        self._lock = files.lock(f"{directory}/{LOCK_FILE}")
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
    ) -> "LogStore":
        """Locks the directory, makes it if it is not there, and opens every log in it."""
        files = Files(disk, open_files_max=open_files_max, on_failure=on_failure)
        if not files.is_directory(directory):
            files.make_directory(directory)
        store = cls(files, directory, clock, randomness, config or LogConfig())
        try:
            store._load(config_of or (lambda _: store.config))
        except BaseException:
            store.abandon()
            raise
        return store

    def _load(self, config_of: Callable[[TopicPartition], LogConfig]) -> None:
        self.meta = self._load_meta()
        marker = f"{self.directory}/{CLEAN_SHUTDOWN_FILE}"
        was_marked = self.was_clean = self.files.exists(marker)
        recovery_points = self._read_offsets(RECOVERY_POINT_FILE)
        starts = self._read_starts()
        marks = self._read_offsets(HIGH_WATERMARK_FILE)
        self.first_dirty_offsets = self._read_offsets(CLEANER_FILE)
        for partition in self._partitions():
            self._open_log(
                partition,
                config_of(partition),
                is_clean=self.was_clean,
                recovery_point=recovery_points.get(partition, 0),
                start_offset=starts.get(partition, 0),
                high_watermark=marks.get(partition),
            )
        if was_marked:
            self.files.remove(marker)
            self.files.sync_directory(self.directory)

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
            self.was_clean = False
            self.notes.append(str(error))
            offsets = {}
        self._checkpointed[name] = offsets
        return dict(offsets)

    def _read_starts(self) -> dict[TopicPartition, int]:
        """Where the two files differ, by damage or by a crash between them, no record may be hidden."""
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
            with contextlib.suppress(InvalidNameError):
                yield TopicPartition.from_directory_name(name)

    def _open_log(
        self,
        partition: TopicPartition,
        config: LogConfig,
        *,
        is_clean: bool = False,
        recovery_point: int = 0,
        start_offset: int = 0,
        high_watermark: int | None = None,
    ) -> PartitionLog:
        directory = f"{self.directory}/{partition.directory_name}"
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
        )
        if log.end_offset < recovery_point:  # it is reported; what is appended from here on is not synced yet
            with contextlib.suppress(DiskFullError):
                self._take_back(partition, log.end_offset)
        log.before_end_moves_back = lambda offset: self._take_back(partition, offset)
        self.logs[partition] = log
        self.reports[partition] = report
        report.notes += self.notes
        self._note_quarantine(directory, report)
        self._load_topic_id(partition, f"{directory}/{PARTITION_METADATA_FILE}")
        return log

    def _note_quarantine(self, directory: str, report: RecoveryReport) -> None:
        """An opening that found damage may have died before it could say so; its files tell."""
        home = f"{directory}/{QUARANTINE}"
        if not report.damage and self.files.is_directory(home) and (kept := self.files.names(home)):
            report.notes.append(f"{home} holds {', '.join(kept)}: bytes that were found damaged before")

    def _load_topic_id(self, partition: TopicPartition, path: str) -> None:
        try:
            metadata = self.files.read_small(path)
            if metadata is not None:
                self.topic_ids[partition] = decode_partition_metadata(metadata, path)
        except CorruptLogError as error:  # the log is whole; only whose it is must be asked elsewhere
            self.reports[partition].notes.append(str(error))

    # --- logs ----------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> PartitionLog | None:
        return self.logs.get(TopicPartition(topic, partition))

    def create_log(
        self, topic: str, partition: int = 0, *, config: LogConfig | None = None, topic_id: Uuid | None = None
    ) -> PartitionLog:
        """The log of a new partition; durable on return.  An existing one is returned as it is."""
        self._check_open()
        key = TopicPartition(check_topic_name(topic), check_partition(partition))
        existing = self.logs.get(key)
        if existing is not None:
            return existing
        self._take_back(key, 0)
        log = self._open_log(key, config or self.config)
        identity = topic_id or self._randomness.new_uuid()
        self.files.write_atomically(
            f"{log.directory}/{PARTITION_METADATA_FILE}", encode_partition_metadata(identity)
        )
        self.topic_ids[key] = identity
        return log

    def delete_log(self, topic: str, partition: int = 0) -> None:
        """Gone for everybody at once, by one rename; the files follow."""
        self._check_open()
        key = TopicPartition(topic, partition)
        log = self.logs.pop(key, None)
        if log is None:
            raise StorageError(f"there is no log {key} in {self.directory}")
        log.abandon()
        self.topic_ids.pop(key, None)
        self.first_dirty_offsets.pop(key, None)
        doomed = f"{self.directory}/{_deleted_name(key, self._randomness.new_uuid())}"
        self.files.rename(log.directory, doomed)
        self.files.sync_directory(self.directory)
        self.files.remove_tree(doomed)

    # --- upkeep --------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Writes down how far each log is synced, committed, trimmed and compacted."""
        self._check_open()
        logs = self.logs.items()
        self._write_offsets(RECOVERY_POINT_FILE, {key: log.checkpoint() for key, log in logs})
        self._write_offsets(HIGH_WATERMARK_FILE, {key: log.high_watermark for key, log in logs})
        self._write_offsets(CLEANER_FILE, self.first_dirty_offsets)
        self.checkpoint_starts()

    def checkpoint_starts(self) -> None:
        """After a start was moved up on purpose: only what the first segment's name does not say."""
        moved = {
            key: log.start_offset
            for key, log in self.logs.items()
            if log.start_offset > log.segments.first.base_offset
        }
        self._write_offsets(LOG_START_FILE, moved)
        self._write_offsets(LOG_START_COPY_FILE, moved)

    def _write_offsets(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        self.files.write_atomically(f"{self.directory}/{name}", encode_offsets(offsets))
        self._checkpointed[name] = dict(offsets)

    def _take_back(self, partition: TopicPartition, offset: int) -> None:
        """Lowers what the checkpoints say of a log to `offset`, durably: it is about to end there."""
        for name, offsets in self._checkpointed.items():
            if offsets.get(partition, 0) > offset:
                self._write_offsets(name, {**offsets, partition: offset})
        if self.first_dirty_offsets.get(partition, 0) > offset:
            self.first_dirty_offsets[partition] = offset

    def maintain(self) -> int:
        """Retention, expiry of producers and removal of deleted files; how many segments went."""
        self._check_open()
        now_ms = self._clock.wall_ms()
        deleted = 0
        failures: list[StorageError] = []
        for log in self.logs.values():
            try:
                deleted += len(enforce_retention(log, now_ms))
                log.remove_doomed(now_ms)
            except StorageError as error:  # the other logs are kept up all the same
                failures.append(error)
            log.producers.expire(now_ms, log.config.producer_id_expiration_ms)
        if failures:
            raise failures[0]
        return deleted

    def free_space(self) -> int:
        """For a full disk: retention now, and deleted files without the delay; the bytes that freed."""
        now_ms = self._clock.wall_ms()
        freed = 0
        for log in self.logs.values():
            with contextlib.suppress(DiskFullError):  # the roll before a deletion may itself want room
                enforce_retention(log, now_ms)
            freed += log.remove_doomed(FOREVER_MS)
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


def _deleted_name(partition: TopicPartition, identity: Uuid) -> str:
    """As much of the topic's name as fits: it may itself be nearly as long as a name can be."""
    tail = f"-{partition.partition}.{identity}{DELETED_DIRECTORY_SUFFIX}"
    return partition.topic[: NAME_BYTES_MAX - len(tail)] + tail
