"""The files of partitions, read while their owner may be at work on them.

Nothing is locked and nothing is written: a broker that owns the directory does not notice.  What it may do
meanwhile, and what that means here:

| the owner                     | a reader                                                                   |
|-------------------------------|----------------------------------------------------------------------------|
| appends                       | reads below a bound that was committed before it began: never half a batch |
| seals a segment, begins one   | lists the directory again after each segment                               |
| deletes segments (retention)  | what it has open it reads to the end; what it has not is lost: told        |
| replaces segments (compaction)| what it has open stays as it was; else it reads the new one: what a        |
|                               | consumer would get now                                                     |
| deletes the topic             | as with retention, of everything                                           |

Positions in a file are hints.  A file may have been replaced since they were found, so whoever follows one
checks that a batch stands there that does not begin behind the offset wanted; else the file is walked from
its start.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from distributedlog.model.errors import (
    ConfigError,
    CorruptLogError,
    InvalidNameError,
    OffsetOutOfRangeError,
    StorageError,
)
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.ports.disk import SystemDisk
from distributedlog.records.batch import scan
from distributedlog.storage.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    decode_offsets,
    decode_partition_metadata,
)
from distributedlog.storage.files import Files, ManagedFile
from distributedlog.storage.scan import LIMITS, BadBatchError, LocatedBatch, walk, walk_headers
from distributedlog.storage.segment import LOG_SUFFIX, file_name
from distributedlog.storage.store import LOG_START_COPY_FILE
from distributedlog.storage.verification.directory import segment_bases

WINDOW_BYTES: Final = 1024 * 1024
HINTED_BYTES: Final = 16 * 1024
"""Read first where a batch is said to stand; the rest of it only if it has more."""
LISTINGS_MAX: Final = 100
"""How often in a row a segment may vanish between being listed and being opened."""


# --- where they are ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    partition: TopicPartition
    directory: str


class DataDirectory:
    """Partitions beside each other, and what the checkpoints beside them say."""

    def __init__(self, root: str, files: Files) -> None:
        self._root = root
        self._files = files
        self.high_watermarks = self._offsets(HIGH_WATERMARK_FILE)
        self._starts = self._offsets(LOG_START_FILE)
        self._start_copies = self._offsets(LOG_START_COPY_FILE)

    def _offsets(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self._root}/{name}"
        data = self._files.read_small(path)
        return {} if data is None else decode_offsets(data, path)

    def start_of(self, partition: TopicPartition) -> int:
        """The lower of the two that are kept, as whoever owns the directory would take it."""
        start = self._starts.get(partition, 0)
        return min(start, self._start_copies[partition]) if partition in self._start_copies else start

    def topic_id(self, place: PartitionPlace) -> Uuid:
        path = f"{place.directory}/{PARTITION_METADATA_FILE}"
        data = self._files.read_small(path)
        return ZERO_UUID if data is None else decode_partition_metadata(data, path)


def find_places(path: str, files: Files) -> tuple[str, list[PartitionPlace]]:
    """The data directory that a path is, or is in, and the partitions it means, in order."""
    path = os.path.abspath(path)
    root, name = os.path.split(path)
    if files.is_directory(path):
        own = _partition_of(name)
        if own is not None and segment_bases(files.names(path)):
            return root, [PartitionPlace(own, path)]
        root, name = path, ""
    elif not files.is_directory(root):
        raise ConfigError(f"segments is {path}: there is no such directory")
    found = []
    for each in files.names(root):
        partition = _partition_of(each)
        if partition is not None and name in ("", partition.topic) and files.is_directory(f"{root}/{each}"):
            found.append(PartitionPlace(partition, f"{root}/{each}"))
    if not found:
        raise ConfigError(
            f"segments is {path}, where there are no partitions: name a data directory (the broker's"
            " log.dirs), or a partition's directory in one"
        )
    return root, sorted(found, key=lambda place: place.partition)


def _partition_of(name: str) -> TopicPartition | None:
    try:
        return TopicPartition.from_directory_name(name)
    except InvalidNameError:
        return None


def open_files() -> Files:
    return Files(SystemDisk())


# --- reading them ------------------------------------------------------------------------------


class Hint(NamedTuple):
    """Where a batch stood, when the task was planned, at or before the one that is wanted first."""

    base_offset: int
    position: int


NO_HINT: Final = Hint(-1, 0)


class PartitionFiles:
    """One partition's segments, in the order of offsets."""

    def __init__(self, files: Files, place: PartitionPlace) -> None:
        self._files = files
        self._directory = place.directory
        self.partition = place.partition

    def bases(self) -> list[int]:
        try:
            return segment_bases(self._files.names(self._directory))
        except FileNotFoundError:
            return []

    def path(self, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
        return f"{self._directory}/{file_name(base_offset, suffix)}"

    def log_bytes(self, base_offset: int) -> int:
        """Returns how long a segment's file is; 0 if it has gone."""
        try:
            return self._files.size(self.path(base_offset))
        except FileNotFoundError:
            return 0

    def small_file(self, base_offset: int, suffix: str) -> bytes:
        """An index, or nothing if there is none."""
        return self._files.read_small(self.path(base_offset, suffix)) or b""

    def batches(
        self,
        start: int,
        end: int,
        *,
        hint: Hint = NO_HINT,
        on_loss: Callable[[OffsetOutOfRangeError], None] | None = None,
        headers_only: bool = False,
    ) -> Iterator[LocatedBatch]:
        """The batches that hold offsets from `start` up to, not including, `end`.  Checksums are not looked
        at.  What is lost is told to `on_loss`, which may raise; without it, it is raised.  With
        `headers_only` just control batches come whole."""
        at, done = start, -1
        while at < end:
            opened = self._open(at, done, end, on_loss)
            if opened is None:
                return
            base_offset, at, log = opened
            try:
                for batch in self._batches_of(log, base_offset, at, hint, headers_only):
                    if batch.header.base_offset >= end:
                        return
                    if batch.header.last_offset >= at:
                        yield batch
                        at = batch.header.next_offset
                    if at >= end:  # what stands behind may still be being written
                        return
            finally:
                log.close()
            done = base_offset

    def _open(
        self, at: int, done: int, end: int, on_loss: Callable[[OffsetOutOfRangeError], None] | None
    ) -> tuple[int, int, ManagedFile] | None:
        """The segment to read next, from which offset on, and its file; None if all that is left is lost."""
        for _ in range(LISTINGS_MAX):
            bases = self.bases()
            base = max((base for base in bases if base <= at), default=-1)
            if base < 0:  # all up to here was deleted
                first = bases[0] if bases else end
                self._lose(at, min(first, end), on_loss)
                if first >= end:
                    return None
                base = at = first
            elif base == done:  # it was read to its end, and compaction left a gap behind it
                base = at = min((base for base in bases if base > done), default=end)
                if base >= end:
                    self._check_ended(done, end, has_more=bases[-1] > done)
                    return None
            log = self._files.manage(self.path(base), writable=False)
            try:
                log.handle()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageError(f"cannot open {log.path}: {error.strerror}") from error
            return base, at, log
        raise StorageError(f"the segments of {self.partition} vanish faster than they can be opened")

    def _check_ended(self, done: int, end: int, *, has_more: bool) -> None:
        """Raises if the last segment ends too early: its last batch says how far it goes, without a gap."""
        if not has_more:
            raise CorruptLogError(f"{self.path(done)} ends too early: offset {end - 1} should be there")

    def _lose(self, start: int, end: int, on_loss: Callable[[OffsetOutOfRangeError], None] | None) -> None:
        lost = OffsetOutOfRangeError(
            f"{self.partition} has no offsets {start} to {end - 1} any more in {self._directory}"
        )
        if on_loss is None:
            raise lost
        on_loss(lost)

    def _batches_of(
        self, log: ManagedFile, base_offset: int, at: int, hint: Hint, headers_only: bool
    ) -> Iterator[LocatedBatch]:
        size = log.size()
        position = 0
        if hint.base_offset == base_offset and _is_at_or_before(log, hint.position, size, at):
            position = hint.position
        try:
            if headers_only:
                yield from walk_headers(log, position, size)
            else:
                yield from walk(log, position, size, check_crc=False, window_bytes=WINDOW_BYTES)
        except BadBatchError as error:
            raise CorruptLogError(f"{log.path} {error}") from error


def _is_at_or_before(log: ManagedFile, position: int, size: int, offset: int) -> bool:
    """Returns whether a sound batch stands there that begins at the offset or before."""
    if not 0 <= position < size:
        return False
    room = min(size - position, LIMITS.batch_bytes_max)
    found = scan(log.read_at(position, min(HINTED_BYTES, room)))
    if not found.headers and found.needs_bytes <= room:
        found = scan(log.read_at(position, found.needs_bytes))
    return bool(found.headers) and found.headers[0].base_offset <= offset
