"""The group coordinators of this broker: one for each partition of `__consumer_offsets` that it leads.

    a partition says               its coordinator
    it leads, in a new epoch       is made anew, and reads the log back first
    the high watermark rose        gives out the answers that waited for it
    it leads no more, or failed    is thrown away; whoever waits is told NOT_COORDINATOR

| an answer that cannot be given                            | the client is told           |
|-----------------------------------------------------------|------------------------------|
| the group's partition is led elsewhere, or was lost; or   | NOT_COORDINATOR              |
| may be: no controller has heard this broker for a session |                              |
| the topic is not there; too few replicas are in sync; the | COORDINATOR_NOT_AVAILABLE    |
| log could not be written; it did not commit in time       |                              |
| the log is being read back                                | COORDINATOR_LOAD_IN_PROGRESS |

On each of these clients look for the coordinator again and repeat.  A request that would write is refused
before it is handled when too few replicas are in sync, and deadlines rest: so the machine need not be thrown
away for an append that was bound to fail.

Commits that come close together are one request to the machine, and one entry (`commit_gathering`).

Calls come and go on the data loop.  A partition's signals may come from within an append of our own; what
they say is then looked at when that is over.  Nothing here survives a crash: the log does.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from distributedlog.broker.commit_gathering import CommitGathering, tell_each, together
from distributedlog.broker.coordinator_log import LOAD_AGAIN_MS, CoordinatorLog, LogLoader
from distributedlog.broker.group_metrics import GroupMetrics
from distributedlog.broker.raft_driver import Scheduler
from distributedlog.broker.settings import NodeSettings
from distributedlog.broker.topics_seen import TopicsSeen
from distributedlog.broker.topics_view import TopicsView
from distributedlog.controller.image import MetadataImage
from distributedlog.groups.config import GroupConfig, MigrationPolicy
from distributedlog.groups.machine import GroupMachine
from distributedlog.groups.placement import OFFSETS_TOPIC, partition_of
from distributedlog.groups.records import GroupRecord
from distributedlog.groups.requests import (
    CommitRequest,
    Completed,
    ConsumerHeartbeatRequest,
    DescribeConsumerGroupRequest,
    DescribeRequest,
    FetchOffsetsRequest,
    ForgetTopicsRequest,
    HeartbeatRequest,
    JoinRequest,
    ListRequest,
    PartDone,
    Reply,
    Request,
    SyncRequest,
    Waits,
)
from distributedlog.model.config import MINUTE_MS, SECOND_MS
from distributedlog.model.errors import (
    CoordinatorNotAvailableError,
    DlogError,
    LeadershipLostError,
    NotCoordinatorError,
    NotLeaderError,
    OverloadedError,
    RequestTimedOutError,
)
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Executor, Outcome
from distributedlog.ports.randomness import Randomness
from distributedlog.replication.contract import PartitionSignals
from distributedlog.replication.partition import Partition
from distributedlog.statemachine.runtime import Phase, Runtime

_logger = logging.getLogger("distributedlog.broker")

ENTRY_SPARE_BYTES: Final = 1024
"""A batch's header, and what else an entry needs beyond its records."""
SHORT_AGAIN_MS: Final = 200
"""Until deadlines are looked at again that rest for want of replicas."""
TICKS_MAX: Final = 100
"""Deadlines that are dealt with before other work has its turn."""
FORGET_TIMEOUT_MS: Final = 30 * SECOND_MS
_READS: Final = (
    HeartbeatRequest,
    FetchOffsetsRequest,
    DescribeRequest,
    DescribeConsumerGroupRequest,
    ListRequest,
)
_MAY_WRITE_NOTHING: Final = (*_READS, ConsumerHeartbeatRequest, SyncRequest)
"""Also those whose answer is often made from what there is."""


def group_config(settings: NodeSettings) -> GroupConfig:
    return GroupConfig(
        session_timeout_ms_min=settings.group_session_timeout_ms_min,
        session_timeout_ms_max=settings.group_session_timeout_ms_max,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        members_max=settings.group_members_max,
        offsets_retention_ms=settings.offsets_retention_minutes * MINUTE_MS,
        offsets_retention_check_ms=settings.offsets_retention_check_ms,
        offset_metadata_bytes_max=settings.offset_metadata_bytes_max,
        consumer_session_timeout_ms=settings.consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
        consumer_session_timeout_ms_min=settings.consumer_session_timeout_ms_min,
        consumer_session_timeout_ms_max=settings.consumer_session_timeout_ms_max,
        consumer_heartbeat_interval_ms_min=settings.consumer_heartbeat_interval_ms_min,
        consumer_heartbeat_interval_ms_max=settings.consumer_heartbeat_interval_ms_max,
        consumer_members_max=settings.consumer_members_max,
        consumer_assignors=tuple(dict.fromkeys(settings.consumer_assignors)),
        migration_policy=MigrationPolicy(settings.consumer_migration_policy),
    )


GroupRuntime = Runtime[Request, GroupRecord, Reply, Completed]


class Coordinator:
    """Of the groups of one partition, for as long as this broker leads it in one epoch."""

    def __init__(
        self,
        partition: Partition,
        new_machine: Callable[[], GroupMachine],
        *,
        clock: Clock,
        scheduler: Scheduler,
        executor: Executor,
        activated: Callable[["Coordinator"], None],
        lease_end_ms: Callable[[], int],
    ) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self._clock = clock
        self._scheduler = scheduler
        self._executor = executor
        self._activated = activated
        self._lease_end_ms = lease_end_ms
        self._runtime: GroupRuntime = Runtime(new_machine, CoordinatorLog(partition, clock))
        self._loader: LogLoader | None = None
        self._asked: dict[int, tuple[Done[Reply], int | None]] = {}
        """By ticket: whom to tell, and the waiter of a request that may have to wait for others."""
        self._waiters: dict[int, Done[Reply]] = {}
        self._next_waiter = 0
        self._gathering = CommitGathering()
        self._busy = False
        self._wake_ms: int | None = None
        self._is_closed = False

    def start(self) -> None:
        self._runtime.elected(self.epoch)
        self._load()

    @property
    def is_active(self) -> bool:
        return self._runtime.phase is Phase.ACTIVE

    @property
    def machine(self) -> GroupMachine:
        return cast(GroupMachine, self._runtime.machine)

    # --- loading -------------------------------------------------------------------------------

    def _load(self) -> None:
        if self._is_closed:
            return
        self._loader = LogLoader(self.partition, self._executor, self._runtime.replay, self._loaded)
        self._loader.start()

    def _loaded(self, error: DlogError | None) -> None:
        self._loader = None
        if error is not None:
            _logger.warning("%s cannot be read back yet: %s", self.partition.key, error)
            self._load_again()
            return
        self._busy = True
        try:
            self._runtime.loaded(self._clock.monotonic_ms())
        finally:
            self._busy = False
        self.progressed()
        if self.is_active and not self._is_closed:
            self._activated(self)

    def _load_again(self) -> None:
        self._scheduler.call_at(self._clock.monotonic_ms() + LOAD_AGAIN_MS, self._load)

    # --- requests ------------------------------------------------------------------------------

    def submit(self, request: Request, deadline_ms: int, done: Done[Reply]) -> None:
        if type(request) is CommitRequest:
            if self._gathers(request, deadline_ms, done):
                return
        elif self._gathering:
            self._begin_gathered()
        self._begin(request, deadline_ms, done)

    def _gathers(self, request: CommitRequest, deadline_ms: int, done: Done[Reply]) -> bool:
        """Whether it waits for the end of this turn of the loop, with those before and behind it."""
        gathering, machine = self._gathering, self.machine
        if not gathering.is_crowd(self._clock.monotonic_ms()):
            return False
        if not self.is_active or not machine.has(request.group_id):
            self._begin_gathered()
            return False
        if not gathering.add(request, deadline_ms, done, machine.config):
            self._begin_gathered()
            if not gathering.add(request, deadline_ms, done, machine.config):
                return False
        if len(gathering) == 1:
            self._scheduler.post(self._begin_gathered)
        return True

    def _begin_gathered(self) -> None:
        gathered = self._gathering.take(self._clock.monotonic_ms())
        if len(gathered) == 1:
            self._begin(*gathered[0])
        elif gathered:
            deadline_ms = min(each.deadline_ms for each in gathered)
            self._begin(together(gathered), deadline_ms, tell_each(gathered, _told))

    def _begin(self, request: Request, deadline_ms: int, done: Done[Reply]) -> None:
        waiter = None
        if isinstance(request, JoinRequest | SyncRequest):
            self._next_waiter += 1
            waiter = self._next_waiter
            request = request._replace(waiter=waiter)
        try:
            ticket = self._submit(request, deadline_ms)
        except DlogError as error:
            done(Outcome(error=_told(error)))
            return
        self._asked[ticket] = (done, waiter)
        if waiter is not None:
            self._waiters[waiter] = done
        self.progressed()

    def _submit(self, request: Request, deadline_ms: int) -> int:
        if self._is_closed:
            raise NotCoordinatorError(f"{self.partition.key} is led elsewhere")
        if self._is_short and not isinstance(request, _READS):
            raise CoordinatorNotAvailableError(f"{self.partition.key} has too few replicas in sync")
        now_ms = self._clock.monotonic_ms()
        if isinstance(request, _MAY_WRITE_NOTHING) and now_ms >= self._lease_end_ms():
            # Nothing is written for it, so no log would tell that another leads, and has newer positions.
            raise NotCoordinatorError("no controller has heard this broker for a session")
        self._busy = True
        try:
            return self._runtime.submit(request, now_ms, deadline_ms)
        finally:
            self._busy = False

    @property
    def _is_short(self) -> bool:
        view = self.partition.view
        return view is not None and view.is_short

    # --- going on ------------------------------------------------------------------------------

    def progressed(self) -> None:
        """The partition may have committed something, or may not be ours any more."""
        if self._busy or self._is_closed:
            return
        if not self.partition.is_leader or self.partition.leader_epoch != self.epoch:
            self.close()
            return
        self._runtime.committed(self.partition.high_watermark - 1)
        self._hand_out()
        self._arm()

    def close(self) -> None:
        """Another leads, or nobody: everyone who waits is told."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._loader is not None:
            self._loader.cancel()
        self._runtime.leadership_lost()
        self._hand_out()
        self._fail_waiters(NotCoordinatorError(f"{self.partition.key} is led elsewhere"))
        self._begin_gathered()

    def _hand_out(self) -> None:
        outbox = self._runtime.take()
        for waiter, reply in outbox.effects:
            # Whoever is not there was answered otherwise: its time was over.
            found = self._waiters.pop(waiter, None)
            if found is not None:
                found(Outcome(reply))
        for ticket, response, error, _ in outbox.answers:
            done, waiter_of = self._asked.pop(ticket)
            if waiter_of is not None and (waiter_of not in self._waiters or isinstance(response, Waits)):
                continue
            if waiter_of is not None:
                del self._waiters[waiter_of]
            done(Outcome(response) if error is None else Outcome(error=_told(error)))
        if outbox.reload and not self._is_closed:
            self._fail_waiters(CoordinatorNotAvailableError("the log could not be written"))
            self._load_again()

    def _fail_waiters(self, error: DlogError) -> None:
        waiters, self._waiters = self._waiters, {}
        for done in waiters.values():
            done(Outcome(error=error))

    # --- time ----------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._is_closed:
            return
        deadline_ms = self._runtime.next_deadline_ms()
        if deadline_ms is None:
            return
        if self._is_short:
            deadline_ms = max(deadline_ms, self._clock.monotonic_ms() + SHORT_AGAIN_MS)
        if self._wake_ms is None or deadline_ms < self._wake_ms:
            self._wake_ms = deadline_ms
            self._scheduler.call_at(deadline_ms, lambda: self._wake(deadline_ms))

    def _wake(self, planned_ms: int) -> None:
        if self._is_closed or self._wake_ms != planned_ms:
            return
        if self._gathering:
            self._begin_gathered()
        self._wake_ms = None
        now_ms = self._clock.monotonic_ms()
        if not self._is_short:
            self._tick(now_ms)
        self.progressed()

    def _tick(self, now_ms: int) -> None:
        self._busy = True
        try:
            for _ in range(TICKS_MAX):
                deadline_ms = self._runtime.next_deadline_ms()
                if deadline_ms is None or deadline_ms > now_ms:
                    return
                self._runtime.tick(now_ms)
        finally:
            self._busy = False


def _told(error: DlogError) -> DlogError:
    """As the client is to hear of it."""
    if isinstance(error, NotLeaderError | LeadershipLostError):
        return NotCoordinatorError(str(error))
    if isinstance(error, RequestTimedOutError | OverloadedError):
        return CoordinatorNotAvailableError(str(error))
    return error


class GroupCoordinators:
    """All of them.  `image` is the newest that the loop was given."""

    def __init__(
        self,
        config: GroupConfig,
        signals: PartitionSignals,
        image: Callable[[], MetadataImage],
        *,
        clock: Clock,
        scheduler: Scheduler,
        executor: Executor,
        randomness: Randomness,
        lease_end_ms: Callable[[], int],
    ) -> None:
        """`executor` calls back on the loop.  After `lease_end_ms` another may lead without our knowing."""
        self._config = config
        self._image = image
        self._clock = clock
        self._scheduler = scheduler
        self._executor = executor
        self._randomness = randomness
        self._lease_end_ms = lease_end_ms
        self._by_partition: dict[int, Coordinator] = {}
        self._topics_seen = TopicsSeen()
        self.metrics = GroupMetrics(
            lambda: (each.machine for each in self.all_active()),
            lambda: sum(not each.is_active for each in self._by_partition.values()),
        )
        signals.state_changed.append(self._state_changed)
        signals.commit_advanced.append(self._commit_advanced)

    # --- partitions ----------------------------------------------------------------------------

    def _state_changed(self, partition: Partition) -> None:
        if partition.topic != OFFSETS_TOPIC:
            return
        at = partition.partition_id
        coordinator = self._by_partition.get(at)
        if coordinator is not None:
            is_same = coordinator.partition is partition
            if is_same and partition.is_leader and partition.leader_epoch == coordinator.epoch:
                coordinator.progressed()
                return
            if not is_same and not partition.is_leader:
                return  # of an earlier topic of the name
            del self._by_partition[at]
            coordinator.close()
        if partition.is_leader:
            self._lead(partition)

    def _lead(self, partition: Partition) -> None:
        def new_machine() -> GroupMachine:
            entry_bytes_max = partition.log.config.max_message_bytes - ENTRY_SPARE_BYTES
            config = self._config.within(entry_bytes_max)
            return GroupMachine(config, self._new_id, self._clock.wall_ms, self._topics)

        coordinator = Coordinator(
            partition,
            new_machine,
            clock=self._clock,
            scheduler=self._scheduler,
            executor=self._executor,
            activated=self._activated,
            lease_end_ms=self._lease_end_ms,
        )
        self._by_partition[partition.partition_id] = coordinator
        coordinator.start()

    def _topics(self) -> TopicsView:
        return TopicsView(self._image())

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-{self._randomness.new_uuid()}"

    def _commit_advanced(self, partition: Partition) -> None:
        if partition.topic != OFFSETS_TOPIC:
            return
        coordinator = self._by_partition.get(partition.partition_id)
        if coordinator is not None and coordinator.partition is partition:
            coordinator.progressed()

    def close(self) -> None:
        coordinators, self._by_partition = self._by_partition, {}
        for coordinator in coordinators.values():
            coordinator.close()

    # --- asking --------------------------------------------------------------------------------

    @property
    def partition_count(self) -> int | None:
        """Of the offsets topic; None while there is none."""
        topic = self._topics_seen.named(self._image(), OFFSETS_TOPIC)
        return None if topic is None else len(topic.partitions)

    def submit(self, group_id: str, request: Request, deadline_ms: int, done: Done[Reply]) -> None:
        """`done` gets the reply once what it says is committed, or the error to tell the client."""
        try:
            coordinator = self._coordinator_of(group_id)
        except DlogError as error:
            done(Outcome(error=error))
            return
        if isinstance(request, CommitRequest):
            done = self.metrics.counting_commits(group_id, done)
        coordinator.submit(request, deadline_ms, done)

    def _coordinator_of(self, group_id: str) -> Coordinator:
        count = self.partition_count
        if count is None:
            raise CoordinatorNotAvailableError(f"there is no topic {OFFSETS_TOPIC} yet")
        coordinator = self._by_partition.get(partition_of(group_id, count))
        if coordinator is None:
            raise NotCoordinatorError(f"this broker does not coordinate group {group_id!r}")
        return coordinator

    def all_active(self) -> Iterator[Coordinator]:
        """Those that can be asked; the others are loading."""
        return (each for each in list(self._by_partition.values()) if each.is_active)

    @property
    def is_loading(self) -> bool:
        return any(not each.is_active for each in self._by_partition.values())

    # --- topics --------------------------------------------------------------------------------

    def topics_removed(self, topics: Iterable[str]) -> None:
        """Their positions are forgotten: a later topic of the same name starts anew."""
        gone = frozenset(topics)
        for coordinator in self.all_active():
            self._forget(coordinator, gone)

    def _activated(self, coordinator: Coordinator) -> None:
        """What was removed while nobody was in charge."""
        offsets, image = coordinator.machine.offsets, self._image()
        named = {partition.topic for group_id in offsets.groups() for partition in offsets.of(group_id)}
        self._forget(coordinator, frozenset(name for name in named if name not in image.topic_ids))

    def _forget(self, coordinator: Coordinator, topics: frozenset[str]) -> None:
        if not topics:
            return

        def done(outcome: Outcome[Reply]) -> None:
            if outcome.error is not None:
                _logger.debug("positions in removed topics were not forgotten: %s", outcome.error)
            elif isinstance(outcome.value(), PartDone):
                self._forget(coordinator, topics)

        deadline_ms = self._clock.monotonic_ms() + FORGET_TIMEOUT_MS
        coordinator.submit(ForgetTopicsRequest(topics), deadline_ms, done)
