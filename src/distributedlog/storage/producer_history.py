"""The producers of a log over time: the state now, its snapshots on disk, and how to make it from the log.

    {offset:020d}.snapshot    the state after every record below `offset`

A snapshot is taken whenever a segment is sealed and when the log is closed.  It has a checksum.  Without it
the state is made by walking the log from the newest snapshot that is sound, or from the start; so one that a
crash or a truncation took only makes the walk longer.  It is needed once the records before it are deleted.

A snapshot from before the log's first segment is none of this log's: the records between them are missing,
and by a state that is older than that a producer's next batch would be out of order.  Without any state its
batch is taken.
"""

import contextlib
from collections.abc import Callable, Iterator

from distributedlog.model.errors import LogDirectoryFailedError, StorageError
from distributedlog.records.control import EndMarker, read_end_marker
from distributedlog.records.layout import BatchHeader
from distributedlog.storage.files import Files, ManagedFile, is_out_of_room
from distributedlog.storage.producers import ProducerStates
from distributedlog.storage.scan import LocatedBatch
from distributedlog.storage.segment import SNAPSHOT_SUFFIX, file_name
from distributedlog.storage.txn_index import AbortedTransaction

WalkLog = Callable[[int, int], Iterator[LocatedBatch]]
"""The batches from one offset up to, not including, another."""


def apply_batch(states: ProducerStates, batch: LocatedBatch) -> AbortedTransaction | None:
    """Takes a batch that stands in the log into the state; the aborted transaction, if it ends one."""
    header = batch.header
    if header.producer_id < 0 or (header.is_control and header.record_count == 0):
        return None  # no producer's, or a marker that compaction emptied
    if not header.is_control:
        states.append(header)
        return None
    return apply_marker(states, header, read_end_marker(batch.window, batch.at, header))


def apply_marker(states: ProducerStates, header: BatchHeader, marker: EndMarker) -> AbortedTransaction | None:
    """Takes a marker that stands in the log into the state; the aborted transaction, if it ends one."""
    completed = states.append_marker(header, marker)
    if completed is None or not completed.is_aborted:
        return None
    return AbortedTransaction(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        states.last_stable_offset(completed),
    )


class SnapshotFiles:
    """The .snapshot files of one partition's directory."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._offsets: set[int] = set()

    def find(self) -> None:
        """Learns which there are."""
        self._offsets = {
            int(name.removesuffix(SNAPSHOT_SUFFIX))
            for name in self._files.names(self._directory)
            if name.endswith(SNAPSHOT_SUFFIX) and name.removesuffix(SNAPSHOT_SUFFIX).isdecimal()
        }

    @property
    def offsets(self) -> list[int]:
        return sorted(self._offsets)

    def path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def write(self, offset: int, states: ProducerStates) -> ManagedFile:
        """The file, which is for the caller to sync."""
        managed = self._files.create(self.path(offset))
        try:
            managed.append_at(0, states.encode_snapshot())
        finally:
            managed.close()
        self._offsets.add(offset)
        return managed

    def sync(self, offset: int) -> None:
        """Makes the snapshot durable: when the records before it go it is needed after all."""
        managed = self._files.manage(self.path(offset))
        try:
            managed.sync()
        finally:
            managed.close()

    def at(self, offset: int) -> ProducerStates | None:
        """The snapshot of this very offset; None if there is none that is sound."""
        if offset not in self._offsets:
            return None
        try:
            data = self._files.read_small(self.path(offset))
            return None if data is None else ProducerStates.decode_snapshot(data)
        except StorageError as error:
            if is_out_of_room(error):
                raise
            return None

    def newest(self, at_most: int, *, at_least: int = 0) -> tuple[int, ProducerStates] | None:
        """The newest sound snapshot between two offsets; unsound ones are removed."""
        for offset in sorted(self._offsets, reverse=True):
            if not at_least <= offset <= at_most:
                continue
            states = self.at(offset)
            if states is not None:
                return offset, states
            with contextlib.suppress(LogDirectoryFailedError):  # what is out of use can still be read
                self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        self._files.remove(self.path(offset))
        self._offsets.discard(offset)

    def remove_above(self, offset: int) -> None:
        """Removes the snapshots of what a truncation has removed."""
        for newer in [known for known in self._offsets if known > offset]:
            self.remove(newer)

    def remove_below(self, offset: int) -> None:
        """Removes the snapshots below when the segments there are deleted."""
        for older in [known for known in self._offsets if known < offset]:
            self.remove(older)

    def restore_states_at(self, offset: int, start_offset: int, walk_log: WalkLog) -> ProducerStates:
        """The state after every record below `offset`."""
        found = self.newest(offset, at_least=start_offset)
        base, states = found if found is not None else (start_offset, ProducerStates())
        for batch in walk_log(base, offset):
            apply_batch(states, batch)
        return states
