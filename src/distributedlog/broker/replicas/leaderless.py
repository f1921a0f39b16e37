"""The replicas of this broker that nobody leads, and where their logs end.

The controller needs it where an unclean election is allowed, or asked for (`controller.sessions.unclean`): it
elects the replica whose log goes furthest.  What is told is that of now, all of it whenever one partition
changes: those that lose their leaders together are told together, at the end of the turn.  A log that nobody
leads does not change but by this broker's end, and the next life of this broker tells anew.  On the data
loop.
"""

from collections.abc import Callable

from distributedlog.controller.records import NO_LEADER
from distributedlog.controller.sessions.log_ends import ReplicaLogEnd
from distributedlog.ports.scheduler import Scheduler
from distributedlog.replication.contract import PartitionSignals
from distributedlog.replication.partition import Partition

Tell = Callable[[tuple[ReplicaLogEnd, ...]], None]


class LeaderlessReplicas:
    def __init__(self, signals: PartitionSignals, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._ends: dict[Partition, ReplicaLogEnd] = {}
        self._tell: Tell | None = None
        self._is_posted = False
        signals.state_changed.append(self._state_changed)

    def on_change(self, tell: Tell) -> None:
        """Gives `tell` all log ends of now, if any, and again whenever they are others."""
        self._tell = tell
        if self._ends:
            self._post()

    def _state_changed(self, partition: Partition) -> None:
        before = self._ends.pop(partition, None)
        after = None
        is_usable = partition.failure is None and not partition.is_stopped
        if is_usable and partition.leader_id == NO_LEADER and partition.replicas:
            after = self._ends[partition] = ReplicaLogEnd(
                partition.topic_id,
                partition.partition_id,
                partition.leader_epoch,
                partition.log.epochs.latest_epoch,
                partition.log_end_offset,
            )
        if after != before:
            self._post()

    def _post(self) -> None:
        if not self._is_posted and self._tell is not None:
            self._is_posted = True
            self._scheduler.post(self._tell_now)

    def _tell_now(self) -> None:
        self._is_posted = False
        if self._tell is not None:
            self._tell(tuple(self._ends.values()))
