"""Replicas that heal by themselves: what is corrupt of a log is set aside, and fetched again from the leader.

| state     | meaning                                         | leaves by                                  |
|-----------|-------------------------------------------------|--------------------------------------------|
| suspected | a read failed, or a follower could not take     | its segment is read: sound, or corrupt     |
|           | what it fetched from here                       |                                            |
| corrupt   | a segment was read, and is not what was written | the controller has released this replica:  |
|           | (`scrub` looks for it, too); nothing is fetched | what is corrupt is set aside               |
| set aside | the log ends before it; the rest is fetched     | this replica is in the ISR again: healed   |

Setting aside removes committed records.  It is done only when the image shows that another leads, and this
replica in neither ISR nor ELR, in a later leader epoch than any in which it has fetched; why nothing
acknowledged can be lost by it stands in decision 28.  A leader that finds its own log corrupt hands over by
the same way.  While no other replica is in sync there is nobody to fetch from: this one leads on, serves what
is sound, and asks again whenever another has come into the ISR.

A crash forgets what was found: the next process has the log as it was, and finds it again, or has it cut and
tells of the quarantine (decision 4).  All on the data loop; segments are read in the child process.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from distributedlog.broker.observability.metrics import Family, FamilyKind, one
from distributedlog.controller.image import Partition as PartitionState
from distributedlog.controller.replica_faults import Fault
from distributedlog.model.config import MINUTE_MS, SECOND_MS
from distributedlog.model.errors import StorageError
from distributedlog.ports.clock import Clock
from distributedlog.ports.disk import Disk
from distributedlog.ports.executor import Executor, Outcome
from distributedlog.ports.scheduler import Scheduler
from distributedlog.replication.contract import NO_LEADER
from distributedlog.replication.partition import Partition
from distributedlog.storage.lookups import segment_end_offset
from distributedlog.storage.segment import Segment

if TYPE_CHECKING:
    from distributedlog.broker.replicas.partitions import PartitionSet
    from distributedlog.storage.verification.scrubbing import ScrubPiece, ScrubResult

ASK_AGAIN_MS: Final = 5 * SECOND_MS
"""When the controller is asked again to release a replica; that it can is mostly known from the image."""
SUSPECT_AGAIN_MS: Final = 1 * MINUTE_MS
"""How long a partition that was found sound is not suspected again: a client may ask for it all the time."""

CORRUPT_TAG: Final = 10_000
"""A tagged field of a partition in a Fetch, which only our brokers send and heed, without content: a follower
says that what it was sent from this offset had a wrong checksum."""

_logger = logging.getLogger("distributedlog.broker")


class SegmentReader:
    """Reads segments in the child process.  A finding counts only if the segment is still what it was."""

    def __init__(self, executor: Executor, disk: Disk) -> None:
        self._executor = executor
        self._disk = disk

    def read(
        self,
        partition: Partition,
        segment: Segment,
        piece: "ScrubPiece",
        done: Callable[["ScrubResult | None"], None],
    ) -> None:
        """Calls `done` with what was found, or with None if nobody can tell any more."""
        from distributedlog.storage.verification.scrubbing import scrub_piece  # not to start with

        truncations = partition.log.truncations

        def ended(outcome: "Outcome[ScrubResult]") -> None:
            log = partition.log
            is_as_it_was = segment in log.segments.all() and log.truncations == truncations
            if log.is_closed or not is_as_it_was:
                done(None)
            elif outcome.error is not None:
                _logger.warning("%s cannot be looked at: %s", segment.log.path, outcome.error)
                done(None)
            else:
                done(outcome.value())

        self._executor.run_cpu(scrub_piece, (piece, self._disk), ended)


class Healing:
    """The replicas of this broker that are suspected, corrupt or being fetched again."""

    def __init__(
        self,
        partitions: "PartitionSet",
        *,
        node_id: int,
        clock: Clock,
        scheduler: Scheduler,
        reader: SegmentReader,
    ) -> None:
        self._partitions = partitions
        self._node_id = node_id
        self._clock = clock
        self._scheduler = scheduler
        self._reader = reader
        self._corrupt: dict[Partition, None] = {}
        self._set_aside: dict[Partition, None] = {}
        self._suspected_ms: dict[Partition, int] = {}
        self._asked_ms: dict[Partition, int] = {}
        self._is_closed = False
        self._is_armed = False
        self.found = 0
        self.healed = 0
        partitions.signals.state_changed.append(self._state_changed)
        partitions.suspect = self.suspect

    def close(self) -> None:
        self._is_closed = True

    # --- suspicion -----------------------------------------------------------------------------

    def suspect(self, partition: Partition, offset: int) -> None:
        """Has the segment that holds `offset` read: something in it could not be read, or not be taken."""
        from distributedlog.storage.verification.scrubbing import ScrubPiece

        now_ms = self._clock.monotonic_ms()
        log = partition.log
        suspected_ms = self._suspected_ms.get(partition)
        is_known = partition.corruption is not None or (
            suspected_ms is not None and now_ms - suspected_ms < SUSPECT_AGAIN_MS
        )
        if is_known or self._is_closed or log.is_closed or partition.failure is not None:
            return
        self._suspected_ms[partition] = now_ms
        segment = log.segments.from_offset(offset)[0]
        _logger.warning("%s may be corrupt at offset %d: it is looked at", partition.key, offset)
        piece = ScrubPiece(
            segment.log.path,
            0,
            segment.size,
            segment.base_offset,
            segment_end_offset(log, segment),
            segment.size,
        )
        self._reader.read(partition, segment, piece, partial(self._looked_at, partition, segment))

    def _looked_at(self, partition: Partition, segment: Segment, result: "ScrubResult | None") -> None:
        if result is not None and result.finding is not None:
            self.note_corrupt(partition, segment, result.finding)

    # --- what is corrupt -----------------------------------------------------------------------

    def note_corrupt(self, partition: Partition, segment: Segment, finding: str) -> None:
        """Notes that a segment is corrupt: it is to be fetched again as soon as that is safe."""
        if self._is_closed or partition.is_stopped or partition.failure is not None:
            return
        self.found += 1
        self._corrupt[partition] = None
        self._set_aside.pop(partition, None)
        reason = f"{segment.log.path} {finding}"
        partition.note_corruption(segment.base_offset, reason)
        self._partitions.faults.note(partition.topic_id, partition.key, Fault.CORRUPT, reason)
        self._asked_ms[partition] = self._clock.monotonic_ms()
        if not self._can_be_released(partition):
            _logger.error(
                "%s is corrupt, and no other replica is in sync: what is sound of it is served", partition.key
            )
        self._arm()

    def _state_changed(self, partition: Partition) -> None:
        if partition in self._corrupt or partition in self._set_aside:
            # Not within the change of a role: others are still to be told of it.
            self._scheduler.post(partial(self._go_on, partition))
        if partition.is_stopped:
            self._suspected_ms.pop(partition, None)
            self._asked_ms.pop(partition, None)
        self._forget_faults(partition)

    def _forget_faults(self, partition: Partition) -> None:
        """What recovery found damaged is healed when it is in sync with a leader again."""
        where = (partition.topic_id, partition.partition_id)
        faults = self._partitions.faults
        is_in_sync = self._node_id in partition.isr and partition.leader_id not in (NO_LEADER, self._node_id)
        if faults.present.get(where) is Fault.DAMAGED and is_in_sync and where not in faults.untaken:
            faults.forget(*where)
            self.healed += 1
            _logger.info("%s is healed: it is in sync again", partition.key)

    def _go_on(self, partition: Partition) -> None:
        if self._is_closed:
            return
        if partition.is_stopped or partition.failure is not None:
            for known in (self._corrupt, self._set_aside):
                known.pop(partition, None)
            return
        state = self._partitions.image.partition(partition.topic_id, partition.partition_id)
        if state is None:
            return
        if partition in self._set_aside and self._node_id in state.isr:
            del self._set_aside[partition]
            self._partitions.faults.forget(partition.topic_id, partition.partition_id)
            self.healed += 1
            _logger.info("%s is healed: all of it was fetched again, and it is in sync", partition.key)
        elif partition in self._corrupt and self._is_released(partition, state):
            self._set_corruption_aside(partition)
        elif partition in self._corrupt and self._can_be_released(partition):
            self._ask(partition)

    def _is_released(self, partition: Partition, state: PartitionState) -> bool:
        """Returns whether this replica counts for nothing, in a leader epoch in which it has not fetched."""
        me, corruption = self._node_id, partition.corruption
        return (
            corruption is not None
            and state.leader not in (NO_LEADER, me)
            and me not in state.isr
            and me not in state.elr
            and state.leader_epoch == partition.leader_epoch > corruption.leader_epoch
        )

    def _can_be_released(self, partition: Partition) -> bool:
        """Returns whether somebody else holds all that is committed, as far as this broker knows."""
        image = self._partitions.image
        state = image.partition(partition.topic_id, partition.partition_id)
        if state is None:
            return False
        return any(each != self._node_id and image.is_active(each) for each in (*state.isr, *state.elr))

    def _ask(self, partition: Partition) -> None:
        """Asks the controller again, unless it was asked a moment ago."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._asked_ms.get(partition, 0) >= ASK_AGAIN_MS:
            self._asked_ms[partition] = now_ms
            self._partitions.faults.tell_again(partition.topic_id, partition.partition_id)

    def _set_corruption_aside(self, partition: Partition) -> None:
        corruption = partition.corruption
        assert corruption is not None
        try:
            kept = partition.set_aside_corruption(self._clock.wall_ms())
        except StorageError as error:  # no room, or the disk failed; it is tried again
            _logger.warning("what is corrupt of %s cannot be set aside yet: %s", partition.key, error)
            return
        with contextlib.suppress(StorageError):  # else the next start tells it once more
            self._partitions.store.note_told(partition.key)
        del self._corrupt[partition]
        self._set_aside[partition] = None
        _logger.warning(
            "%s ends at %d now, before what is corrupt, and fetches on from broker %d; it is kept in %s",
            partition.key,
            partition.log_end_offset,
            partition.leader_id,
            kept,
        )

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._scheduler.call_at(self._clock.monotonic_ms() + ASK_AGAIN_MS, self._tick)

    def _tick(self) -> None:
        self._is_armed = False
        if self._is_closed:
            return
        for partition in list(self._corrupt):
            self._go_on(partition)
        if self._corrupt:
            self._arm()

    # --- a scrape ------------------------------------------------------------------------------

    def families(self) -> Iterator[Family]:
        counter, gauge = FamilyKind.COUNTER, FamilyKind.GAUGE
        yield one(counter, "dlog_corrupt_segments", "Segments found corrupt since the start.", self.found)
        yield one(
            gauge,
            "dlog_corrupt_replicas_unhealed",
            "Replicas that hold corrupt records, or fetch them again.",
            len(self._corrupt) + len(self._set_aside),
        )
        yield one(counter, "dlog_replicas_healed", "Replicas in sync again after damage.", self.healed)
