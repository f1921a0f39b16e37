"""The broker epoch in which nothing was committed here that was not synced: a kill cannot have taken it.

    synced-commits      {"version":0,"brokerEpoch":N}, as a clean stop is noted

While the file names the present broker epoch, every replica of this broker counts for a high watermark with
what it has synced alone (`flush.on.commit`), and has synced all that was committed before.  So after a kill
or a power cut all of it is on the disk, and recovery keeps it, or tells what it does not find.  The next
process tells the controller the epoch that it finds: if it is the one in which the broker is registered, the
replicas stay eligible as after a clean stop (decision 33).

    written     in each broker epoch anew, once no log is exempt and each is synced up to the end that it had
                when that began: a follower does not know what a leader has committed by its last fetch
    removed     before the first log is exempt: a topic, or the cluster, has turned `flush.on.commit` off

What a crash does: the file is old or new.  An old one names an epoch that is over, and claims nothing; the
same holds if a process of another version ran in between.  One that cannot be removed takes the disk out of
use, and the broker with it.
"""

from collections.abc import Collection
from typing import Final

from distributedlog.storage.checkpoints import decode_clean_shutdown, encode_clean_shutdown
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog

SYNCED_COMMITS_FILE: Final = "synced-commits"
NO_EPOCH: Final = -1


class SyncedCommits:
    """The file, and what the last process left in it."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{SYNCED_COMMITS_FILE}"
        data = files.read_small(self._path)
        found = None if data is None else decode_clean_shutdown(data)
        self.previous_epoch = NO_EPOCH if found is None else found
        """The epoch that the process before this one was sure of."""
        self._is_there = data is not None
        self._written_epoch = NO_EPOCH
        self.broker_epoch = NO_EPOCH
        self._ends: dict[PartitionLog, int] = {}
        """Where each log ended when none was exempt any more, while not all of that is known to be synced."""

    def clear(self) -> None:
        """Notes, durably, that a log is about to count with what is not synced."""
        if self._is_there:
            self._files.remove(self._path)
            self._files.sync_directory(self._directory)
            self._is_there = False
        self._written_epoch = NO_EPOCH
        self._ends.clear()

    def write_if_due(self, logs: Collection[PartitionLog]) -> None:
        """Writes the present broker epoch, if it is not there and all that may be committed is synced."""
        if self._written_epoch == self.broker_epoch or not all(log.config.flush_on_commit for log in logs):
            return
        if not self._ends:
            self._ends = {log: log.end_offset for log in logs}
        if all(log.flushed_end_offset >= min(self._ends.get(log, 0), log.end_offset) for log in logs):
            self._ends.clear()
            self._files.write_atomically(self._path, encode_clean_shutdown(self.broker_epoch))
            self._is_there, self._written_epoch = True, self.broker_epoch
