"""Replica fetches: this broker, as a follower, takes from each leader what it does not have.

    partition changes its role ──► `ReplicaFetcherManager` ──► one `replica_fetcher` for each leader
    image names the leader     ──►                        one connection, authenticated (`peers`)
                                                          what to fetch: `replication/fetch_planner`, pure
    a response ──► truncate, append, sync ──► stored ──► fetched on from there

What it takes to fetch is imported when something is followed: a broker without followers never needs it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from distributedlog.broker.quotas.replication_quotas import ReplicationQuota
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import Clock
from distributedlog.ports.scheduler import Scheduler
from distributedlog.replication.contract import NO_LEADER, PartitionSignals
from distributedlog.replication.partition import Partition

if TYPE_CHECKING:
    from distributedlog.broker.replicas.replica_fetcher import ReplicaFetcher
    from distributedlog.client.connection import Connection

Connect = Callable[[int], Awaitable["Connection"]]
"""Connects to the broker with this id, and proves who we are."""
LowerCheckpoints = Callable[[Mapping[TopicPartition, int]], None]


class FetchLimits(NamedTuple):
    """How much a follower fetches at once, and how long it waits."""

    partition_bytes: int = 1024 * 1024
    response_bytes: int = 10 * 1024 * 1024
    min_bytes: int = 1
    wait_ms: int = 500
    timeout_ms: int = 30_000


class FetcherCounts:
    """What all fetchers of a broker have done."""

    __slots__ = (
        "appended_bytes",
        "corrupt_batches",
        "fetches",
        "restarts",
        "truncations",
        "truncations_below_hw",
    )

    def __init__(self) -> None:
        self.fetches = 0
        self.appended_bytes = 0
        self.truncations = 0
        self.truncations_below_hw = 0
        """Those that removed committed records, as only an unclean election explains them."""
        self.restarts = 0
        self.corrupt_batches = 0


class ReplicaFetcherManager:
    """All fetchers of this broker.  Lives on the data loop."""

    def __init__(
        self,
        signals: PartitionSignals,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        connect: Connect,
        clock: Clock,
        scheduler: Scheduler,
        limits: FetchLimits,
        lower_checkpoints: LowerCheckpoints = lambda ends: None,
        quota: ReplicationQuota | None = None,
    ) -> None:
        """`lower_checkpoints` is told where logs are about to end, those of one response at once.  `quota` is
        the follower's throttle."""
        self.quota = quota or ReplicationQuota()
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.connect = connect
        self.clock = clock
        self.scheduler = scheduler
        self.limits = limits
        self.lower_checkpoints = lower_checkpoints
        self.counts = FetcherCounts()
        self._by_leader: dict[int, ReplicaFetcher] = {}
        self._leader_of: dict[Partition, int] = {}
        self._is_closed = False
        signals.state_changed.append(self._state_changed)
        signals.end_stored.append(self._end_stored)

    @property
    def leaders(self) -> list[int]:
        """The brokers that something is fetched from."""
        return list(self._by_leader)

    def _state_changed(self, partition: Partition) -> None:
        if self._is_closed:
            return
        is_usable = not partition.is_stopped and partition.failure is None and partition.corruption is None
        is_followed = is_usable and not partition.is_leader
        wanted = partition.leader_id if is_followed and partition.leader_id != self.node_id else NO_LEADER
        present = self._leader_of.get(partition, NO_LEADER)
        if present not in (NO_LEADER, wanted):
            self._leave(partition, present)
        if wanted != NO_LEADER:
            self._leader_of[partition] = wanted
            fetcher = self._by_leader.get(wanted)
            if fetcher is None:
                fetcher = self._by_leader[wanted] = self._make_fetcher(wanted)
            fetcher.follow(partition)

    def _make_fetcher(self, leader_id: int) -> "ReplicaFetcher":
        from distributedlog.broker.replicas.replica_fetcher import ReplicaFetcher

        return ReplicaFetcher(self, leader_id)

    def _leave(self, partition: Partition, leader_id: int) -> None:
        del self._leader_of[partition]
        fetcher = self._by_leader[leader_id]
        fetcher.unfollow(partition)
        if fetcher.is_idle:
            del self._by_leader[leader_id]
            fetcher.close()

    def throttles_changed(self) -> None:
        """The throttle has another limit, or is of other partitions."""
        for fetcher in self._by_leader.values():
            fetcher.throttles_changed()

    def _end_stored(self, partition: Partition) -> None:
        leader_id = self._leader_of.get(partition)
        if leader_id is not None:
            self._by_leader[leader_id].note_stored(partition)

    def close(self) -> None:
        self._is_closed = True
        for fetcher in self._by_leader.values():
            fetcher.close()
        self._by_leader.clear()
        self._leader_of.clear()
