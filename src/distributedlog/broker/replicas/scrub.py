"""The scrub: all sealed segments are read from time to time, slowly, and their checksums computed again.

    a round ──► each log, in the order of names ──► each sealed segment ──► pieces, in the child process
                                                        └─► corrupt: `healing` has it fetched again

Damage to what nobody reads is found before the other replicas are damaged, too.  Between two pieces there is
a pause, so that no more than `log.scrub.io.max.bytes.per.second` is read; a round begins
`log.scrub.interval.ms` after the last one began, at the earliest when that is done.  The active segment is
not read: it is sealed sooner or later, and what a crash may do to it recovery looks at.

How far a round has come is noted in `scrub-offset-checkpoint`, in the form of the other checkpoints: the next
process goes on there.  What was noted may be too old or, after a truncation, too high; either only means that
something is read again, or not before the next round.  Without the file a round begins.

On the data loop.  What is read was perhaps replaced meanwhile, by compaction or retention: `SegmentReader`
looks.
"""

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from distributedlog.broker.observability.metrics import Family, FamilyKind, one
from distributedlog.broker.replicas.healing import Healing, SegmentReader
from distributedlog.model.config import MINUTE_MS, SECOND_MS
from distributedlog.model.errors import CorruptLogError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Executor
from distributedlog.ports.scheduler import Scheduler
from distributedlog.replication.checkpoints import OffsetCheckpoint
from distributedlog.replication.partition import Partition
from distributedlog.storage.checkpoints import decode_offsets
from distributedlog.storage.segment import Segment

if TYPE_CHECKING:
    from distributedlog.broker.replicas.partitions import PartitionSet
    from distributedlog.storage.verification.scrubbing import ScrubResult

SCRUB_FILE: Final = "scrub-offset-checkpoint"
PIECE_BYTES_MAX: Final = 4 * 1024 * 1024
LOOK_MS: Final = 1 * SECOND_MS
"""How often it is looked whether a round is due."""
NOTE_MS: Final = 1 * MINUTE_MS

_logger = logging.getLogger("distributedlog.broker")


class Scrub:
    def __init__(
        self,
        partitions: "PartitionSet",
        healing: Healing,
        *,
        bytes_per_second: int,
        interval_ms: int,
        clock: Clock,
        scheduler: Scheduler,
        executor: Executor,
        reader: SegmentReader,
    ) -> None:
        self._partitions = partitions
        self._healing = healing
        self._bytes_per_second = bytes_per_second
        self._interval_ms = interval_ms
        self._clock = clock
        self._scheduler = scheduler
        self._reader = reader
        store = partitions.store
        path = f"{store.directory}/{SCRUB_FILE}"
        self._checkpoint = OffsetCheckpoint(store.files, (path,), executor)
        self._verified: dict[TopicPartition, int] = self._load(path)
        """The offsets up to which the logs have been read in this round."""
        self._left: list[TopicPartition] | None = None
        """The logs that this round has still to read, the next one last; None between rounds."""
        self._position = 0
        self._next_offset = 0
        self._began_ms = 0
        self._noted_ms = 0
        self._is_running = False
        self.rounds = 0
        self.read_bytes = 0
        self.findings = 0

    def _load(self, path: str) -> dict[TopicPartition, int]:
        files = self._partitions.store.files
        try:
            data = files.read_small(path)
            return {} if data is None else decode_offsets(data, path)
        except CorruptLogError as error:
            _logger.warning("the scrub begins anew: %s", error)
            return {}

    # --- rounds --------------------------------------------------------------------------------

    def start(self) -> None:
        if self._bytes_per_second > 0 and not self._is_running:
            self._is_running = True
            self._begin_round()

    def stop(self) -> None:
        self._is_running = False

    @property
    def _is_ended(self) -> bool:
        return not self._is_running or self._partitions.store.files.failure is not None

    def _begin_round(self) -> None:
        self._began_ms = self._clock.monotonic_ms()
        self._left = sorted(self._partitions.store.logs, reverse=True)
        self._position = 0
        self._go_on()

    def _go_on(self) -> None:
        """Reads the next piece, or ends the round."""
        if self._is_ended or self._left is None:
            return
        while self._left:
            key = self._left[-1]
            partition = self._partitions.get(*key)
            segment = None if partition is None else self._find_unread(partition)
            if partition is not None and segment is not None:
                self._read(partition, segment)
                return
            self._left.pop()
            self._position = 0
        self._end_round()

    def _find_unread(self, partition: Partition) -> Segment | None:
        """Returns the first sealed segment that this round has not read."""
        log = partition.log
        if log.is_closed or partition.corruption is not None:  # it is being healed; later
            return None
        verified = min(self._verified.get(partition.key, 0), log.end_offset)
        for segment in log.segments.sealed:
            next_base = log.segments.next_base(segment)
            if next_base is not None and next_base > verified:
                return segment
        return None

    def _read(self, partition: Partition, segment: Segment) -> None:
        from distributedlog.storage.verification.scrubbing import ScrubPiece  # not to start with

        if self._position == 0:
            self._next_offset = segment.base_offset
        end_offset = partition.log.segments.next_base(segment)
        assert end_offset is not None
        size = min(PIECE_BYTES_MAX, self._bytes_per_second)
        piece = ScrubPiece(
            segment.log.path, self._position, segment.size, self._next_offset, end_offset, size
        )
        self._reader.read(partition, segment, piece, partial(self._was_read, partition, segment, end_offset))

    def _was_read(
        self, partition: Partition, segment: Segment, end_offset: int, result: "ScrubResult | None"
    ) -> None:
        if self._is_ended:
            return
        if result is None:  # it is another one by now, and is looked for again
            self._position = 0
            self._scheduler.call_at(self._clock.monotonic_ms() + LOOK_MS, self._go_on)
            return
        count = result.position - self._position
        self.read_bytes += count
        self._position, self._next_offset = result.position, result.next_offset
        if result.finding is not None:
            self.findings += 1
            self._position = 0
            self._healing.note_corrupt(partition, segment, result.finding)
        elif self._position >= segment.size:
            self._verified[partition.key] = end_offset
            self._position = 0
            self._note(self._clock.monotonic_ms())
        pause_ms = count * SECOND_MS // self._bytes_per_second
        self._scheduler.call_at(self._clock.monotonic_ms() + pause_ms, self._go_on)

    def _note(self, now_ms: int) -> None:
        if now_ms - self._noted_ms >= NOTE_MS:
            self._noted_ms = now_ms
            self._checkpoint.write(self._verified)

    def _end_round(self) -> None:
        self._left = None
        if self._verified:
            self.rounds += 1
            self._verified = {}
            self._checkpoint.write({})
        next_ms = max(self._began_ms + self._interval_ms, self._clock.monotonic_ms() + LOOK_MS)
        self._scheduler.call_at(next_ms, self._begin_if_running)

    def _begin_if_running(self) -> None:
        if not self._is_ended and self._left is None:
            self._begin_round()

    # --- a scrape ------------------------------------------------------------------------------

    def families(self) -> Iterator[Family]:
        counter, gauge = FamilyKind.COUNTER, FamilyKind.GAUGE
        yield one(
            counter, "dlog_scrub_bytes", "Bytes of sealed segments that were read again.", self.read_bytes
        )
        yield one(counter, "dlog_scrub_findings", "Segments that the scrub found corrupt.", self.findings)
        yield one(counter, "dlog_scrub_rounds", "Rounds of the scrub over all logs.", self.rounds)
        yield one(gauge, "dlog_scrub_progress_ratio", "How far this round is, of 1.", self._progress())

    def _progress(self) -> float:
        total = done = 0
        for key, log in self._partitions.store.logs.items():
            verified = self._verified.get(key, 0)
            for segment in log.segments.sealed:
                total += segment.size
                if (log.segments.next_base(segment) or 0) <= verified:
                    done += segment.size
        return 1.0 if self._left is None or total == 0 else done / total
