"""A partition of `__consumer_offsets` as the log of a coordinator: appended to, and read back whole.

One result of the machine is one batch, so all its records are there or none is.  The entry's offset is the
batch's first; high watermarks stand between batches, so an entry is committed when its first record is.

Reading back goes on in slices: the disk is read beside the loop, and what a slice holds is replayed on it.
Batches of a transaction count when its commit marker is reached, and never if it was aborted, or not ended.
Kinds of records that are not known are passed over.  What cannot be read is tried again after a while: until
then the coordinator is loading, for an answer from half of the log would be a wrong one.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from distributedlog.groups.records import GroupRecord, decode_record, encode_records
from distributedlog.model.config import SECOND_MS
from distributedlog.model.errors import DlogError
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Executor, Outcome
from distributedlog.records.batch import HEADER_BYTES, BatchHeader, read_header
from distributedlog.records.control import read_end_marker
from distributedlog.records.layout import NO_TIMESTAMP
from distributedlog.records.record import Record, decode_batch, encode_batch
from distributedlog.replication.contract import ACKS_ALL
from distributedlog.replication.partition import Partition
from distributedlog.storage.append import Origin
from distributedlog.storage.files import FileRegion

_logger = logging.getLogger("distributedlog.broker")

SLICE_BYTES: Final = 128 * 1024
LOAD_AGAIN_MS: Final = 1 * SECOND_MS

Replay = Callable[[Sequence[GroupRecord], int], None]


class CoordinatorLog:
    """The end of the log, for the runtime."""

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock

    def next_offset(self) -> int:
        return self._partition.log_end_offset

    def append(self, records: Sequence[GroupRecord]) -> int:
        now_ms = self._clock.wall_ms()
        # Past the constructor, which costs several times as much.
        new = tuple.__new__
        stored = [new(Record, (value, key, (), NO_TIMESTAMP, -1)) for key, value in encode_records(records)]
        batch = encode_batch(stored, default_timestamp_ms=now_ms)
        return self._partition.append(batch, ACKS_ALL, now_ms, Origin.COORDINATOR).base_offset


class LogLoader:
    """Reads a partition from its start to its end, once, and tells how that went."""

    def __init__(
        self,
        partition: Partition,
        executor: Executor,
        replay: Replay,
        done: Callable[[DlogError | None], None],
    ) -> None:
        self._partition = partition
        self._executor = executor
        self._replay = replay
        self._done = done
        self._offset = partition.log_start_offset
        self._pending: dict[int, list[GroupRecord]] = {}
        """Of transactions whose end was not reached yet, by producer."""
        self._is_cancelled = False

    def cancel(self) -> None:
        """Nobody is told anything any more."""
        self._is_cancelled = True

    def start(self) -> None:
        if self._is_cancelled:
            return
        try:
            region = self._partition.log.read(self._offset, SLICE_BYTES).region
        except DlogError as error:
            self._done(error)
            return
        if region is None:
            self._done(None)
            return
        self._executor.run_blocking(lambda: _read(region), self._arrived)

    def _arrived(self, outcome: Outcome[bytes]) -> None:
        if self._is_cancelled:
            return
        try:
            self._take(outcome.value())
        except DlogError as error:
            self._done(error)
            return
        self.start()

    def _take(self, data: bytes) -> None:
        for at, header in _batches(data):
            if header.is_control:
                marker = read_end_marker(data, at, header)
                ended = self._pending.pop(header.producer_id, [])
                if marker.is_commit and ended:
                    self._replay(ended, header.base_offset)
            else:
                found = (decode_record(each.key, each.value) for each in decode_batch(data, at))
                records = [record for record in found if record is not None]
                if header.is_transactional:
                    self._pending.setdefault(header.producer_id, []).extend(records)
                elif records:
                    self._replay(records, header.base_offset)
            self._offset = header.next_offset


def _read(region: FileRegion) -> bytes:
    with region:
        return region.read()


def _batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Those that are whole: the last may be cut."""
    at = 0
    while len(data) - at >= HEADER_BYTES:
        header = read_header(data, at)
        if header.size > len(data) - at:
            return
        yield at, header
        at += header.size
