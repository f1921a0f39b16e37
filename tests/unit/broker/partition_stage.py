"""A broker's partitions on a simulated disk, with metadata images made by hand and time moved by hand."""

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distributedlog.broker.replicas.partitions import PartitionSet
from distributedlog.controller.image import MetadataImage, ResourceType
from distributedlog.controller.records import (
    NO_LEADER_CHANGE,
    ClusterCreated,
    ConfigChanged,
    PartitionChanged,
    PartitionCreated,
    TopicCreated,
    TopicRemoved,
)
from distributedlog.model.config import LogConfig
from distributedlog.model.errors import StorageError
from distributedlog.model.ids import Uuid
from distributedlog.ports.disk import Disk
from distributedlog.ports.executor import Executor
from distributedlog.protocol.schema import Message
from distributedlog.replication.partition import Partition
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.storage.checkpoints import META_PROPERTIES_FILE, MetaProperties, encode_meta_properties
from distributedlog.storage.files import Files
from tests.simulation.clock import ManualClock, SeededRandomness
from tests.simulation.disk import SimDisk
from tests.simulation.executor import StepExecutor
from tests.unit.storage.support import NOW_MS

ROOT = "/data"
CLUSTER = "cluster-1"
ME, OTHER = 1, 2


class StepScheduler:
    """A loop of which each step is made by hand."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._posted: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def post(self, callback: Callable[[], None]) -> None:
        self._posted.append(callback)

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._timers, (monotonic_ms, self._count, callback))

    @property
    def timer_count(self) -> int:
        return len(self._timers)

    def run_posted(self) -> int:
        count = 0
        while self._posted:
            self._posted.popleft()()
            count += 1
        return count

    def run_turn(self) -> None:
        """Runs what is posted by now, and nothing that it posts."""
        for _ in range(len(self._posted)):
            self._posted.popleft()()

    def advance(self, duration_ms: int) -> None:
        """Time goes on, from one timer to the next."""
        end_ms = self._clock.monotonic_ms() + duration_ms
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, callback = heapq.heappop(self._timers)
            self._clock.advance(max(0, due_ms - self._clock.monotonic_ms()))
            callback()
            self.run_posted()
        self._clock.advance(end_ms - self._clock.monotonic_ms())


def topic_id(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


class Metadata:
    """Images, one after the other."""

    def __init__(self) -> None:
        self.image = MetadataImage().apply([ClusterCreated(cluster_id=CLUSTER)], 0)

    def apply(self, *records: Message) -> MetadataImage:
        self.image = self.image.apply(records, self.image.offset + 1)
        return self.image

    def create(
        self,
        name: str,
        number: int,
        partitions: int = 1,
        *,
        replicas: Sequence[int] = (ME,),
        leader: int = ME,
        epoch: int = 0,
    ) -> MetadataImage:
        created = [
            PartitionCreated(
                partition_id=each,
                topic_id=topic_id(number),
                replicas=list(replicas),
                isr=list(replicas),
                leader=leader,
                leader_epoch=epoch,
            )
            for each in range(partitions)
        ]
        return self.apply(TopicCreated(name=name, topic_id=topic_id(number)), *created)

    def remove(self, number: int) -> MetadataImage:
        return self.apply(TopicRemoved(topic_id=topic_id(number)))

    def change(
        self,
        number: int,
        *,
        replicas: list[int] | None = None,
        isr: list[int] | None = None,
        leader: int = NO_LEADER_CHANGE,
    ) -> MetadataImage:
        """Changes partition 0.  Another leader, also the same one again, makes another epoch."""
        return self.apply(
            PartitionChanged(
                partition_id=0, topic_id=topic_id(number), replicas=replicas, isr=isr, leader=leader
            )
        )

    def configure(self, kind: ResourceType, name: str, setting: str, value: str | None) -> MetadataImage:
        return self.apply(ConfigChanged(resource_type=kind, resource_name=name, name=setting, value=value))


class Stage:
    """One broker's partitions; `restart` is the next process on the same disk."""

    def __init__(
        self,
        *,
        disk: Disk | None = None,
        log: LogConfig | None = None,
        root: str = ROOT,
        executor: Executor | None = None,
        maker: Executor | None = None,
        start: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.maker = maker
        self.sim = SimDisk()
        self.changes = settings or {}
        self.disk: Disk = disk if disk is not None else self.sim
        if isinstance(disk, SimDisk):
            self.sim = disk
        self.sim.now_ms = NOW_MS
        self.root = root
        self.log = log or LogConfig(segment_bytes=1024, index_interval_bytes=100, file_delete_delay_ms=0)
        self.clock = ManualClock(NOW_MS)
        self.metadata = Metadata()
        self.fixed_executor = executor
        self._format()
        self.open(start=start)

    def _format(self) -> None:
        files = Files(self.disk)
        if not files.is_directory(self.root):
            files.make_directory(self.root)
        meta = encode_meta_properties(MetaProperties(CLUSTER, ME, topic_id(99)))
        files.write_atomically(f"{self.root}/{META_PROPERTIES_FILE}", meta)

    def open(self, *, start: bool = True) -> PartitionSet:
        self.failures: list[StorageError] = []
        self.scheduler = StepScheduler(self.clock)
        self.executor = StepExecutor()
        self.settings = NodeSettings(node_id=ME, data_dir=self.root, log=self.log, **self.changes)
        self.partitions = PartitionSet.open(
            self.disk,
            self.settings,
            clock=self.clock,
            randomness=SeededRandomness(1),
            scheduler=self.scheduler,
            executor=self.fixed_executor or self.executor,
            on_failure=self.failures.append,
            image=self.metadata.image,
            maker=self.maker,
        )
        if start:
            self.partitions.start()
        return self.partitions

    def restart(self, *, clean: bool = False) -> PartitionSet:
        if clean:
            self.partitions.close(broker_epoch=7)
        else:
            self.sim.crash("drop")
        return self.open()

    def apply(self, image: MetadataImage | None = None) -> PartitionSet:
        self.partitions.apply_image(image or self.metadata.image)
        self.scheduler.run_posted()
        return self.partitions

    def settle(self) -> None:
        """Syncs and whatever they bring about."""
        while self.executor.run_all() or self.scheduler.run_posted():
            pass

    def pass_time(self, duration_ms: int) -> None:
        for _ in range(-(-duration_ms // 1_000)):
            self.scheduler.advance(1_000)
            self.settle()

    def __getitem__(self, name: str) -> Partition:
        return self.partitions.require(name, 0)

    def directories(self) -> list[str]:
        return [
            name
            for name in self.disk.list_directory(self.root)
            if self.disk.is_directory(f"{self.root}/{name}")
        ]
