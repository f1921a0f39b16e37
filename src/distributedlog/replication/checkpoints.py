"""Offset checkpoints that are written while the data loop goes on.

The content is encoded on the loop and written by the executor, whole and atomically.  Writes are numbered:
an older one that comes late is left out (`SmallFile`).  What was noted is taken back, durably, before it
becomes wrong: before a log is cut shorter, and before a name is used for another log.

A crash leaves an older checkpoint.  That costs a longer scan, or a high watermark that has to rise again.
"""

from collections.abc import Callable, Mapping

from distributedlog.model.errors import CorruptLogError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.executor import Executor, Outcome
from distributedlog.storage.checkpoints import HIGH_WATERMARK_FILE, decode_offsets, encode_offsets
from distributedlog.storage.files import Files
from distributedlog.storage.store import LogStore
from distributedlog.storage.syncs.rounds import SmallFile

Written = Callable[[BaseException | None], None]


class OffsetCheckpoint:
    """One file, or several with the same content, beside the store's own writing of them.

    The store writes them when it is closed, and when it takes something back: then what it read when it was
    opened, but for that, which is old.  So after each such write ours is written again.
    """

    def __init__(self, files: Files, paths: tuple[str, ...], executor: Executor) -> None:
        self._copies = [SmallFile(files, path) for path in paths]
        self._executor = executor
        self._of_store: dict[TopicPartition, int] = {}
        for path in paths:
            for partition, offset in _read(files, path).items():
                self._of_store[partition] = max(offset, self._of_store.get(partition, 0))
        self._noted: dict[TopicPartition, int] | None = None
        self._is_written = False

    def write(self, offsets: Mapping[TopicPartition, int], written: Written | None = None) -> None:
        """Writes soon; `written` is called when it is durable, or with the error.  Nothing is done for what
        is written already."""
        if self._is_written and offsets == self._noted:
            if written is not None:
                written(None)
            return
        work = self._next(offsets)
        noted = self._noted

        def done(outcome: Outcome[None]) -> None:
            if noted is self._noted:
                self._is_written = outcome.error is None
            if written is not None:
                written(outcome.error)

        self._executor.run_blocking(work, done)

    def write_now(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes durably before it returns; no earlier write comes after it."""
        self._next(offsets)()
        self._is_written = True

    def lower(self, ends: Mapping[TopicPartition, int]) -> None:
        """Lowers offsets, durably and in one write, where a higher one was written or is to be."""
        noted = self._noted or {}
        lowered = {key: end for key, end in ends.items() if noted.get(key, 0) > end}
        if lowered:
            self.write_now({**noted, **lowered})

    def forget(self, partitions: set[TopicPartition]) -> None:
        """Takes partitions out, durably, and writes again what the store may have overwritten."""
        is_stale = any(self._of_store.pop(each, 0) > 0 for each in partitions)
        if self._noted is not None and (is_stale or any(self._noted.get(each, 0) > 0 for each in partitions)):
            self.write_now({key: at for key, at in self._noted.items() if key not in partitions})

    def write_again_after_store(self, ends: Mapping[TopicPartition, int]) -> None:
        """Writes again what the store may have overwritten when it lowered its own, older offsets."""
        lowered = {key: end for key, end in ends.items() if self._of_store.get(key, 0) > end}
        if lowered:
            self._of_store.update(lowered)
            if self._noted is not None:
                self.write_now(self._noted)

    def _next(self, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        self._noted, self._is_written = dict(offsets), False
        data = encode_offsets(offsets)
        versions = [(copy, copy.next_version()) for copy in self._copies]

        def work() -> None:
            for copy, version in versions:
                copy.write(version, data)

        return work


def forget_guessed_high_watermarks(store: LogStore) -> None:
    """A log without a checkpointed high watermark begins at its start.  Its end would be a guess: other
    replicas may not have all of it.  Whoever leads it alone commits it at once."""
    known = _read(store.files, f"{store.directory}/{HIGH_WATERMARK_FILE}")
    for key, log in store.logs.items():
        if key not in known:
            log.high_watermark = log.start_offset


def _read(files: Files, path: str) -> dict[TopicPartition, int]:
    try:
        data = files.read_small(path)
        return {} if data is None else decode_offsets(data, path)
    except CorruptLogError:  # the store has read it, too, and noted the damage
        return {}
