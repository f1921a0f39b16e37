"""The group coordinators of this broker: one for each partition of `__consumer_offsets` that it leads.

Each is a `groups/machine` on the host that all machines share (`host`), with the partition as its log
(`coordinator_log`).  When the partition is led elsewhere, or failed, the coordinator is thrown away, and
whoever waits gets NOT_COORDINATOR (`by_partition`).

| why a request fails                                       | the client gets              |
|-----------------------------------------------------------|------------------------------|
| the group's partition is led elsewhere, or was lost; or   | NOT_COORDINATOR              |
| may be: the lease has ended, or is suspended              |                              |
| the topic is not there; too few replicas are in sync; the | COORDINATOR_NOT_AVAILABLE    |
| log could not be written; it did not commit in time       |                              |
| the log is being made or read back; or the coordinator    | COORDINATOR_LOAD_IN_PROGRESS |
| before may answer yet                                     |                              |

On each of these clients look for the coordinator again and repeat.  A request that would write is refused
before it is handled when too few replicas are in sync, and deadlines rest: so the machine need not be thrown
away for an append that was bound to fail.

Commits that come close together are one request to the machine, and one entry (`commit_gathering`).

Calls come and go on the data loop.  Nothing here survives a crash: the log does.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from distributedlog.broker.coordination.by_partition import CoordinatorsByPartition
from distributedlog.broker.coordination.commit_gathering import CommitGathering, complete_each, merge_commits
from distributedlog.broker.coordination.coordinator_log import LOAD_AGAIN_MS, CoordinatorLog, RecordCodec
from distributedlog.broker.coordination.group_metrics import GroupMetrics
from distributedlog.broker.coordination.host import Confirmed, Host, HostCallbacks
from distributedlog.broker.coordination.lease import CoordinatorLease
from distributedlog.broker.coordination.topics_view import TopicsView
from distributedlog.controller.image import MetadataImage
from distributedlog.groups.config import GroupConfig, MigrationPolicy
from distributedlog.groups.machine import GroupMachine
from distributedlog.groups.member_bytes import MemberBytes
from distributedlog.groups.records import GroupRecord, decode_record, encode_records, record_key
from distributedlog.groups.requests import (
    CommitRequest,
    Deferred,
    DeferredReply,
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
    TransactionalCommitRequest,
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
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Executor, Outcome
from distributedlog.ports.randomness import Randomness
from distributedlog.ports.scheduler import Scheduler
from distributedlog.replication.contract import PartitionSignals
from distributedlog.replication.partition import Partition
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.statemachine import TransactionEnd

_logger = logging.getLogger("distributedlog.broker")

ENTRY_SPARE_BYTES: Final = 1024
"""A batch's header, and what else an entry needs beyond its records."""
FORGET_TIMEOUT_MS: Final = 30 * SECOND_MS
_READS: Final = (  # they write nothing, whatever they find
    HeartbeatRequest,
    FetchOffsetsRequest,
    DescribeRequest,
    DescribeConsumerGroupRequest,
    ListRequest,
)
_CODEC: Final[RecordCodec[GroupRecord]] = RecordCodec(encode_records, decode_record, record_key)


def group_config(settings: NodeSettings) -> GroupConfig:
    return GroupConfig(
        session_timeout_ms_min=settings.group_session_timeout_ms_min,
        session_timeout_ms_max=settings.group_session_timeout_ms_max,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        members_max=settings.group_members_max,
        group_bytes_max=settings.group_bytes_max,
        client_bytes_max=settings.group_client_bytes_max,
        coordinator_bytes_max=settings.group_coordinator_bytes_max,
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


class Coordinator:
    """The coordinator of the groups of one partition, for as long as this broker leads it."""

    def __init__(
        self,
        partition: Partition,
        new_machine: Callable[[], GroupMachine],
        *,
        clock: Clock,
        scheduler: Scheduler,
        executor: Executor,
        activated: Callable[["Coordinator"], None],
        lease: CoordinatorLease,
    ) -> None:
        self.partition = partition
        self._clock = clock
        self._scheduler = scheduler
        self._activated = activated
        self._lease = lease
        self._log = CoordinatorLog(
            partition, _CODEC, clock=clock, executor=executor, begin_takeover=lease.begin_takeover
        )
        self.host: Host[Request, GroupRecord, Reply, DeferredReply] = Host(
            new_machine,
            self._log,
            self._confirm_read,
            HostCallbacks(
                perform=self._complete,
                activity=self._activity,
                unloaded=self._unloaded,
                map_error=map_error,
                before_tick=self._begin_gathered,
            ),
            clock=clock,
            scheduler=scheduler,
            load_again_ms=LOAD_AGAIN_MS,
            transactions=self._log,
        )
        self._waiters: dict[int, Done[Reply]] = {}
        """Who sent a JoinGroup or SyncGroup that may have to wait for others."""
        self._next_waiter = 0
        self._gathering = CommitGathering()

    @property
    def is_active(self) -> bool:
        return self.host.is_active

    @property
    def machine(self) -> GroupMachine:
        return cast(GroupMachine, self.host.runtime.machine)

    @property
    def unreadable_count(self) -> int:
        return self._log.unreadable_count

    def on_progress(self) -> None:
        """Looks at the partition: it may have committed something, or lead in another epoch."""
        self.host.progressed()

    def close(self) -> None:
        """Ends the coordinator, for another leads or nobody: everyone who waits gets an error."""
        self.host.close()
        self._begin_gathered()

    # --- requests ------------------------------------------------------------------------------

    def submit(self, request: Request, deadline_ms: int, done: Done[Reply]) -> None:
        if type(request) is CommitRequest:
            if self._gather(request, deadline_ms, done):
                return
        elif self._gathering:
            self._begin_gathered()
        self._begin(request, deadline_ms, done)

    def _gather(self, request: CommitRequest, deadline_ms: int, done: Done[Reply]) -> bool:
        """Gathers a commit, if others are likely to come: it waits for the end of this turn of the loop
        then."""
        gathering, machine = self._gathering, self.machine
        if not gathering.note_arrival(self._clock.monotonic_ms()):
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
            self._begin(merge_commits(gathered), deadline_ms, complete_each(gathered, map_error))

    def _begin(self, request: Request, deadline_ms: int, done: Done[Reply]) -> None:
        if not self._log.is_writable() and not isinstance(request, _READS):
            done(Outcome(error=CoordinatorNotAvailableError(_few_in_sync(self.partition))))
        elif isinstance(request, JoinRequest | SyncRequest):
            self._begin_waiting(request, deadline_ms, done)
        else:
            self.host.submit(request, deadline_ms, done)

    def end_transaction(self, end: TransactionEnd, deadline_ms: int, done: Done[Reply]) -> None:
        """Writes the marker of a transaction; `done` gets None once it is committed."""
        if not self._log.is_writable():
            done(Outcome(error=CoordinatorNotAvailableError(_few_in_sync(self.partition))))
            return
        if self._gathering:
            self._begin_gathered()
        self.host.end_transaction(end, deadline_ms, done)

    def _confirm_read(self, confirmed: Confirmed) -> None:
        if self._lease.is_valid():
            confirmed(None)
        else:
            # No append has failed, for nothing was written: another may lead, and have newer offsets.
            confirmed(NotCoordinatorError("another broker may coordinate this group: there is no lease"))

    # --- those who wait for others -------------------------------------------------------------

    def _begin_waiting(self, request: JoinRequest | SyncRequest, deadline_ms: int, done: Done[Reply]) -> None:
        self._next_waiter += 1
        waiter = self._next_waiter
        self._waiters[waiter] = done

        def replied(outcome: Outcome[Reply]) -> None:
            is_deferred = outcome.error is None and isinstance(outcome.value(), Deferred)
            if not is_deferred and self._waiters.pop(waiter, None) is not None:
                done(outcome)

        self.host.submit(request._replace(waiter=waiter), deadline_ms, replied)

    def _complete(self, deferred: DeferredReply, epoch: int) -> None:
        # Whoever is not there got another response: its deadline had passed.
        waiter = self._waiters.pop(deferred.waiter, None)
        if waiter is not None:
            waiter(Outcome(deferred.reply))

    def _unloaded(self, has_lost: bool) -> None:
        error: DlogError = CoordinatorNotAvailableError("the log could not be written")
        if has_lost:
            self._lease.note_lost()
            error = NotCoordinatorError(f"{self.partition.key} is led elsewhere")
        waiters, self._waiters = self._waiters, {}
        for done in waiters.values():
            done(Outcome(error=error))

    def _activity(self, is_active: bool) -> None:
        if is_active:
            self._activated(self)


def _few_in_sync(partition: Partition) -> str:
    return f"{partition.key} has too few replicas in sync"


def map_error(error: DlogError) -> DlogError:
    """Returns the error that the client gets for this one."""
    if isinstance(error, NotLeaderError | LeadershipLostError):
        return NotCoordinatorError(str(error))
    if isinstance(error, RequestTimedOutError | OverloadedError):
        return CoordinatorNotAvailableError(str(error))
    return error


class GroupCoordinators(CoordinatorsByPartition[Coordinator]):
    """All group coordinators of this broker."""

    def __init__(
        self,
        config: GroupConfig,
        signals: PartitionSignals,
        image: Callable[[], MetadataImage],
        *,
        broker_id: int,
        clock: Clock,
        scheduler: Scheduler,
        executor: Executor,
        randomness: Randomness,
        lease: CoordinatorLease,
    ) -> None:
        """`executor` calls back on the loop."""
        super().__init__(OFFSETS_TOPIC, self._lead, signals, image, broker_id=broker_id)
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._executor = executor
        self._randomness = randomness
        self._lease = lease
        self.metrics = GroupMetrics(
            lambda: (each.machine for each in self.all_active()),
            lambda: self.loading_count,
            lambda: sum(self.unreadable_counts().values()),
        )

    def _lead(self, partition: Partition) -> Coordinator:
        def new_machine() -> GroupMachine:
            entry_bytes_max = partition.log.config.max_message_bytes - ENTRY_SPARE_BYTES
            config = self._config.with_entry_bytes_max(entry_bytes_max)
            return GroupMachine(config, self._new_id, self._clock.wall_ms, self._topics, self._member_bytes)

        return Coordinator(
            partition,
            new_machine,
            clock=self._clock,
            scheduler=self._scheduler,
            executor=self._executor,
            activated=self._activated,
            lease=self._lease,
        )

    def _topics(self) -> TopicsView:
        return TopicsView(self._image())

    def _member_bytes(self) -> Iterator[MemberBytes]:
        return (each.machine.member_bytes for each in self.all())

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-{self._randomness.new_uuid()}"

    # --- asking --------------------------------------------------------------------------------

    def submit(self, group_id: str, request: Request, deadline_ms: int, done: Done[Reply]) -> None:
        """Submits a request to a coordinator; `done` gets the reply once what it says is committed, or the
        error for the client."""
        try:
            coordinator = self.of_key(group_id)
        except DlogError as error:
            done(Outcome(error=error))
            return
        if isinstance(request, CommitRequest | TransactionalCommitRequest):
            done = self.metrics.count_commits(group_id, done)
        coordinator.submit(request, deadline_ms, done)

    def end_transaction(
        self, partition: Partition, end: TransactionEnd, deadline_ms: int, done: Done[Reply]
    ) -> None:
        """Ends a transaction in a partition of the offsets topic; `done` gets None once its marker is
        committed, or the error."""
        try:
            coordinator = self.of_partition(partition)
        except DlogError as error:
            done(Outcome(error=error))
        else:
            coordinator.end_transaction(end, deadline_ms, done)

    # --- topics --------------------------------------------------------------------------------

    def topics_removed(self, topics: Iterable[str]) -> None:
        """Deletes the committed offsets of these topics: a later topic of the same name starts anew."""
        gone = frozenset(topics)
        for coordinator in self.all_active():
            self._forget(coordinator, gone)

    def _activated(self, coordinator: Coordinator) -> None:
        """Deletes the offsets of topics that were removed while no coordinator was active."""
        offsets, image = coordinator.machine.offsets, self._image()
        named = {partition.topic for group_id in offsets.groups() for partition in offsets.of(group_id)}
        self._forget(coordinator, frozenset(name for name in named if name not in image.topic_ids))

    def _forget(self, coordinator: Coordinator, topics: frozenset[str]) -> None:
        if not topics:
            return

        def done(outcome: Outcome[Reply]) -> None:
            if outcome.error is not None:
                _logger.debug("committed offsets of removed topics were not deleted: %s", outcome.error)
            elif isinstance(outcome.value(), PartDone):
                self._forget(coordinator, topics)

        deadline_ms = self._clock.monotonic_ms() + FORGET_TIMEOUT_MS
        coordinator.submit(ForgetTopicsRequest(topics), deadline_ms, done)
