"""A simulated broker: the real coordinators, on its copy of the partition, with a clock of its own.

While it is paused nothing of it runs, and what came for it waits; a crash drops that.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from distributedlog.broker.coordination.coordinators import GroupCoordinators
from distributedlog.broker.coordination.lease import CoordinatorLease
from distributedlog.controller.image import CLUSTER_DEFAULT, MetadataImage, ResourceType
from distributedlog.controller.image import Partition as PartitionState
from distributedlog.controller.records import ClusterCreated, ConfigChanged, PartitionCreated, TopicCreated
from distributedlog.groups.config import GroupConfig
from distributedlog.groups.machine import GroupMachine
from distributedlog.groups.requests import Reply, Request
from distributedlog.model.errors import NotCoordinatorError
from distributedlog.model.ids import Uuid
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.ports.executor import Done, Outcome
from distributedlog.replication.contract import PartitionSignals
from distributedlog.replication.partition import Partition
from tests.simulation.clock import SeededRandomness
from tests.simulation.groups_log import Copy
from tests.simulation.loop import DriftingClock

if TYPE_CHECKING:
    from tests.simulation.groups_cluster import GroupsCluster

T = TypeVar("T")
REQUEST_MS_MAX = 10_000
TOPICS = {OFFSETS_TOPIC: 1, "t": 5, "u": 2}
"""The topics, and how many partitions they begin with."""
OFFSETS_ID = Uuid((1).to_bytes(16, "big"))


class GroupsHost:
    """Is the coordinators' scheduler and executor, too."""

    def __init__(self, cluster: "GroupsCluster", broker_id: int, seed: int, config: GroupConfig) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.chance = random.Random(seed)
        self.clock = DriftingClock(
            cluster.loop, self.chance.randrange(10**6), 1_000_000 + self.chance.randrange(-5_000, 5_000)
        )
        self.copy = Copy(broker_id, cluster.appended)
        self.groups: GroupCoordinators | None = None
        self.paused = False
        self.is_cut = False
        """Neither the controller nor the other copies reach it; members do."""
        self.life = 0
        self.is_lagging = False
        """Its heartbeats are answered, and its image stands still."""
        self.applied_offset = -1
        """What its heartbeats tell of."""
        self.read_delay_us_max = 20_000
        self.image = cluster.image
        self._config = config
        self.lease = self._new_lease()
        self._signals = PartitionSignals()
        self._held: list[Callable[[], None]] = []

    @property
    def is_up(self) -> bool:
        return self.groups is not None

    def start(self) -> None:
        self.life += 1
        self._signals = PartitionSignals()
        self.lease = self._new_lease()
        self.groups = GroupCoordinators(
            self._config,
            self._signals,
            lambda: self.image,
            broker_id=self.broker_id,
            clock=self.clock,
            scheduler=self,
            executor=self,
            randomness=SeededRandomness(self.chance.getrandbits(64)),
            lease=self.lease,
        )
        if not self.is_cut:
            # A broker is unfenced when its image has caught up.
            self.image = self.cluster.image
            self.copy.leader_epoch = offsets_partition(self.image).leader_epoch
            self.lease.note_applied(self.image.offset)

    def _new_lease(self) -> CoordinatorLease:
        def tell_applied(offset: int, is_urgent: bool) -> None:
            self.applied_offset = offset

        return CoordinatorLease(
            lambda: self.image,
            clock=self.clock,
            scheduler=self,
            tell_applied=tell_applied,
            await_settled=lambda offset: None,  # heartbeats come soon enough
        )

    def see(self, image: MetadataImage) -> None:
        """Applies an image, if its own does not stand still."""
        if image.offset <= self.image.offset or self.is_lagging or self.is_cut or not self.is_up:
            return
        self.image = image
        partition = offsets_partition(image)
        if partition.leader_epoch > self.copy.leader_epoch:
            self.copy.is_leader = partition.leader == self.broker_id
            self.copy.leader_epoch = partition.leader_epoch
            self.state_changed()
        self.lease.note_applied(image.offset)

    @property
    def machine(self) -> GroupMachine | None:
        """The machine of the coordinator that is active here."""
        active = [] if self.groups is None else list(self.groups.all_active())
        return active[0].machine if active else None

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self._config, lambda prefix: prefix, lambda: 0)

    def crash(self) -> None:
        """The process is gone; of what was not synced a part may be on the disk."""
        self.life += 1
        self.groups = None
        self.paused = False
        self._held.clear()
        copy = self.copy
        copy.is_leader = False
        kept = [copy.synced_offset, *(each.next_offset for each in copy.batches)]
        copy.cut(self.chance.choice([each for each in kept if each >= copy.synced_offset]))

    def pause(self) -> None:
        self.paused = self.is_up

    def resume(self) -> None:
        self.paused = False
        held, self._held = self._held, []
        for callback in held:
            callback()

    # --- what the partition says ---------------------------------------------------------------

    def state_changed(self) -> None:
        for listener in self._signals.state_changed:
            listener(cast(Partition, self.copy))

    def commit_advanced(self) -> None:
        for listener in self._signals.commit_advanced:
            listener(cast(Partition, self.copy))

    # --- what members ask ----------------------------------------------------------------------

    def submit(self, group_id: str, request: Request, done: Done[Reply]) -> None:
        """Nobody is told by a process that is gone."""
        life = self.life

        def told(outcome: Outcome[Reply]) -> None:
            if self.life == life:
                done(outcome)

        def begin() -> None:
            if self.groups is None:
                return
            deadline_ms = self.clock.monotonic_ms() + REQUEST_MS_MAX
            self.groups.submit(group_id, request, deadline_ms, told)

        if self.groups is None:
            done(Outcome(error=NotCoordinatorError("nobody is there")))
            return
        self.run(begin)

    # --- the loop ------------------------------------------------------------------------------

    def run(self, callback: Callable[[], None], life: int | None = None) -> None:
        if life is not None and life != self.life:
            return
        if self.paused:
            self._held.append(callback)
        else:
            callback()

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> None:
        self.cluster.loop.call_at(self.clock.time_us_at(monotonic_ms), self.run, callback, self.life)

    def post(self, callback: Callable[[], None]) -> None:
        self.cluster.loop.call_after(0, self.run, callback, self.life)

    def run_blocking(self, work: Callable[[], T], done: Done[T]) -> None:
        delay_us = self.chance.randrange(100, self.read_delay_us_max)
        self.cluster.loop.call_after(delay_us, self.run, lambda: done(Outcome.of(work)), self.life)

    def run_cpu(self, function: Callable[..., T], arguments: tuple[Any, ...], done: Done[T]) -> None:
        self.run_blocking(lambda: function(*arguments), done)

    def close(self) -> None:
        return None


def offsets_partition(image: MetadataImage) -> PartitionState:
    return image.topics[OFFSETS_ID].partitions[0]


def simulated_image(session_timeout_ms: int) -> MetadataImage:
    session = ConfigChanged(
        resource_type=ResourceType.BROKER,
        resource_name=CLUSTER_DEFAULT,
        name="broker.session.timeout.ms",
        value=str(session_timeout_ms),
    )
    image = MetadataImage().apply([ClusterCreated(cluster_id="simulated"), session], 0)
    for number, (name, partitions) in enumerate(TOPICS.items(), 1):
        topic_id = Uuid(number.to_bytes(16, "big"))
        records = [
            TopicCreated(name=name, topic_id=topic_id),
            *(made(topic_id, at) for at in range(partitions)),
        ]
        image = image.apply(records, number)
    return image


def made(topic_id: Uuid, partition_id: int) -> PartitionCreated:
    return PartitionCreated(
        partition_id=partition_id, topic_id=topic_id, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1,
        leader_epoch=0,
    )  # fmt: skip
