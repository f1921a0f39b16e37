"""All partitions of this broker: the logs of its data directory, kept to what the metadata image says.

    image ──► diff ──► at once:    roles, ISRs, settings; a removed partition is gone for clients
                   └─► in slices:  logs are made and deleted, one at a time; between two slices, of some
                                   milliseconds, the loop serves others

Making or deleting a log syncs names, so one takes as long as a few syncs; the loop is never held up longer
than for a slice and one log.  Work is done by what the image says when its turn comes and not by what it said
when it was queued: an image that is overtaken costs nothing, and what could not be done for lack of room is
tried again.

The directory is opened, and its logs recovered, before anything is served.  The first image must be one that
is caught up with the cluster: logs that it does not know, or knows under another topic id (deleted, or
deleted and created again, while this broker was down), are deleted.  That is refused if the image is of
another cluster than the directory.

What fails: no room, and a log cannot be made: later.  A log that cannot be opened: its partition says
KAFKA_STORAGE_ERROR, the others are served; unless it is damaged it is tried again.  A failed write or sync:
the directory is out of use, every partition fails, and `on_failure` is told.

A crash leaves logs to recover, and at most an older checkpoint.  `close` leaves nothing to recover.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from distributedlog.broker.log_configs import LogConfigs
from distributedlog.broker.raft_driver import Scheduler
from distributedlog.broker.settings import NodeSettings
from distributedlog.broker.upkeep import Upkeep
from distributedlog.controller.deltas import ImageDelta, diff
from distributedlog.controller.image import MetadataImage, ResourceType
from distributedlog.controller.image import Partition as PartitionState
from distributedlog.model.errors import (
    CorruptLogError,
    DiskFullError,
    DlogError,
    LogDirectoryFailedError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.ports.clock import Clock
from distributedlog.ports.disk import Disk
from distributedlog.ports.executor import Done, Executor, Outcome
from distributedlog.ports.randomness import Randomness
from distributedlog.replication.contract import PartitionSignals
from distributedlog.replication.partition import Partition
from distributedlog.storage.checkpoints import (
    HIGH_WATERMARK_FILE,
    PARTITION_METADATA_FILE,
    decode_offsets,
    encode_partition_metadata,
)
from distributedlog.storage.files import OPEN_FILES_MAX
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.store import LogStore

T = TypeVar("T")

SLICE_MS: Final = 5
MAKE_ROOM_INTERVAL_MS: Final = 1_000
SYNC_REST_MS: Final = 25
"""Between two syncs of a log that is written to all the time and that nobody waits for."""

_logger = logging.getLogger("distributedlog.broker")


class PostingExecutor:
    """An executor whose outcomes come back on the loop that the scheduler stands for."""

    def __init__(self, executor: Executor, scheduler: Scheduler) -> None:
        self._executor = executor
        self._scheduler = scheduler

    def run_blocking(self, work: Callable[[], T], done: Done[T]) -> None:
        self._executor.run_blocking(work, self._posting(done))

    def run_cpu(self, function: Callable[..., T], arguments: tuple[Any, ...], done: Done[T]) -> None:
        self._executor.run_cpu(function, arguments, self._posting(done))

    def _posting(self, done: Done[T]) -> Done[T]:
        def post(outcome: Outcome[T]) -> None:
            self._scheduler.post(lambda: done(outcome))

        return post

    def close(self) -> None:
        self._executor.close()


class PartitionSet:
    """Owns the data directory.  Use `PartitionSet.open`.  All on the data loop."""

    def __init__(
        self,
        store: LogStore,
        settings: NodeSettings,
        *,
        clock: Clock,
        scheduler: Scheduler,
        executor: Executor,
        disk: Disk,
    ) -> None:
        self.store = store
        self.signals = PartitionSignals()
        self.image = MetadataImage()
        """What the partitions were last told to be; what that takes may still be under way."""
        self._has_image = False
        self.unavailable: dict[TopicPartition, StorageError] = {}
        """Partitions whose log cannot be opened, and why."""
        self._settings = settings
        self._clock = clock
        self._scheduler = scheduler
        self._executor = executor
        self._configs = LogConfigs(settings, self.image)
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[Uuid, int], Partition] = {}
        self._work: deque[Callable[[], None]] = deque()
        self._is_posted = False
        self._postponed: dict[tuple[Uuid, int], None] = {}
        self._made_room_ms: int | None = None
        self._is_closed = False
        self.upkeep = Upkeep(self, settings, clock=clock, scheduler=scheduler, executor=executor, disk=disk)

    # --- opening and closing -------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        disk: Disk,
        settings: NodeSettings,
        *,
        clock: Clock,
        randomness: Randomness,
        scheduler: Scheduler,
        executor: Executor,
        on_failure: Callable[[StorageError], None],
        image: MetadataImage | None = None,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> "PartitionSet":
        """Recovers every log of the data directory; blocks so long.

        `executor` calls back on the data loop (`PostingExecutor`).  `on_failure`: the directory is out of
        use, and with it this broker.  `image`, of any age, is only asked for the topics' settings: recovery
        knows then in which logs gaps are right.
        """
        opened: list[PartitionSet] = []
        known = image or MetadataImage()
        configs = LogConfigs(settings, known)

        def failed(failure: LogDirectoryFailedError) -> None:  # on whichever thread a write or sync failed
            if opened:
                scheduler.post(partial(opened[0]._directory_failed, failure, on_failure))

        store = LogStore.open(
            disk,
            settings.data_dir,
            clock=clock,
            randomness=randomness,
            config=settings.log,
            config_of=lambda key: configs.log_config(known, key.topic),
            open_files_max=open_files_max,
            on_failure=failed,
        )
        _forget_guessed_high_watermarks(store)
        partitions = cls(store, settings, clock=clock, scheduler=scheduler, executor=executor, disk=disk)
        opened.append(partitions)
        partitions._tell_damage()
        return partitions

    def _tell_damage(self) -> None:
        for key, report in self.store.reports.items():
            for damage in report.damage:
                _logger.error("%s: %s", key, damage)
            if report.lost_synced_offsets:
                _logger.error("%s: the last %d synced offsets are gone", key, report.lost_synced_offsets)

    def start(self) -> None:
        """Begins the upkeep: retention, compaction, checkpoints, syncs that are due."""
        self.upkeep.start()

    def close(self, *, broker_epoch: int = -1) -> None:
        """Leaves nothing to recover: everything is synced, and a clean stop marked.  Blocks so long.

        Whoever is parked is answered NOT_LEADER_OR_FOLLOWER.  Call it when no more requests are served.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._work.clear()
        self.upkeep.stop()
        for partition in list(self._by_id.values()):
            partition.stop()
        self.upkeep.checkpoint_before_close()
        self.store.close(broker_epoch=broker_epoch)

    def _directory_failed(
        self, failure: LogDirectoryFailedError, on_failure: Callable[[StorageError], None]
    ) -> None:
        if self._is_closed:
            return
        _logger.error("%s", failure)
        for partition in list(self._by_id.values()):
            partition.fail(failure)
        on_failure(failure)

    # --- looking up ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_id.values())

    def get(self, topic: str, partition_id: int) -> Partition | None:
        return self._by_name.get((topic, partition_id))

    def get_by_id(self, topic_id: Uuid, partition_id: int) -> Partition | None:
        return self._by_id.get((topic_id, partition_id))

    def require(self, topic: str, partition_id: int) -> Partition:
        """The partition, or the error that a broker answers for one that it does not have."""
        found = self._by_name.get((topic, partition_id))
        if found is not None:
            return found
        known = self.image.topic_named(topic)
        if known is None or partition_id not in known.partitions:
            raise UnknownTopicError(f"there is no partition {topic}-{partition_id}")
        raise self._refusal(TopicPartition(topic, partition_id))

    def require_by_id(self, topic_id: Uuid, partition_id: int) -> Partition:
        found = self._by_id.get((topic_id, partition_id))
        if found is not None:
            return found
        topic = self.image.topics.get(topic_id)
        if topic is None:
            raise UnknownTopicIdError(f"there is no topic with the id {topic_id}")
        if partition_id not in topic.partitions:
            raise UnknownTopicError(f"there is no partition {topic.name}-{partition_id}")
        raise self._refusal(TopicPartition(topic.name, partition_id))

    def _refusal(self, key: TopicPartition) -> DlogError:
        if self.store.files.failure is not None:
            return LogDirectoryFailedError(str(self.store.files.failure))
        if key in self.unavailable:
            return StorageError(str(self.unavailable[key]))
        return NotLeaderOrFollowerError(f"broker {self._settings.node_id} has no replica of {key}")

    # --- following the image -------------------------------------------------------------------

    def apply_image(self, image: MetadataImage, done: Callable[[], None] | None = None) -> None:
        """Makes the partitions what `image` says; `done` is called when all is as this image wants it.

        The first image must be caught up with the cluster: it decides what in the directory is no one's.
        """
        if self._is_closed:
            return
        before, self.image = self.image, image
        is_first, self._has_image = not self._has_image, True
        delta = diff(before, image)
        self._apply_configs(delta)
        self._apply_removals(delta)
        for each in delta.partitions:
            self._apply_partition(each.topic.topic_id, each.partition_id)
        for topic in delta.topics_created:
            for partition_id in topic.partitions:
                self._apply_partition(topic.topic_id, partition_id)
        if is_first:
            self._remove_strays()
        if done is not None:
            self._work.append(done)
        self._run_slice()

    def _apply_configs(self, delta: ImageDelta) -> None:
        topics: set[str] = set()
        for change in delta.configs:
            if change.key.kind == ResourceType.TOPIC:
                topics.add(change.key.name)
            elif change.key.kind == ResourceType.BROKER:
                self._configs = LogConfigs(self._settings, self.image)
                topics.update(partition.topic for partition in self)
        for name in topics:
            topic = self.image.topic_named(name)
            for partition_id in topic.partitions if topic is not None else ():
                partition = self._by_name.get((name, partition_id))
                if partition is not None:
                    self._reconfigure(partition)

    def _reconfigure(self, partition: Partition) -> None:
        partition.reconfigure(
            self._configs.log_config(self.image, partition.topic),
            self._configs.min_insync_replicas(self.image, partition.topic),
        )

    def _apply_removals(self, delta: ImageDelta) -> None:
        for topic in delta.topics_removed:
            for partition_id in topic.partitions:
                key = TopicPartition(topic.name, partition_id)
                self.unavailable.pop(key, None)
                self._postponed.pop((topic.topic_id, partition_id), None)
                partition = self._by_id.get((topic.topic_id, partition_id))
                if partition is not None:
                    self._withdraw(partition)
                if key in self.store.logs:
                    self._work.append(partial(self._delete_log, key, topic.topic_id))

    def _apply_partition(self, topic_id: Uuid, partition_id: int) -> None:
        """At once what touches no disk; the rest is queued."""
        partition = self._by_id.get((topic_id, partition_id))
        wanted = self._wanted(topic_id, partition_id)
        if partition is not None and wanted is not None:
            self._take_role(partition, wanted)
        elif partition is not None:
            self._withdraw(partition)
            self._work.append(partial(self._delete_log, partition.key, topic_id))
        elif wanted is not None:
            self._work.append(partial(self._bring_up, topic_id, partition_id))

    def _wanted(self, topic_id: Uuid, partition_id: int) -> PartitionState | None:
        """What the partition shall be, if this broker shall hold it."""
        state = self.image.partition(topic_id, partition_id)
        return state if state is not None and self._settings.node_id in state.replicas else None

    def _take_role(self, partition: Partition, state: PartitionState) -> None:
        if state.leader == self._settings.node_id:
            partition.become_leader(
                state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                isr=state.isr,
                now_ms=self._clock.monotonic_ms(),
            )
        else:
            partition.become_follower(
                state.leader_epoch,
                partition_epoch=state.partition_epoch,
                leader_id=state.leader,
                replicas=state.replicas,
                isr=state.isr,
            )

    def _withdraw(self, partition: Partition) -> None:
        """Nobody finds it any more, and whoever waits for it is answered."""
        self._by_id.pop((partition.topic_id, partition.partition_id), None)
        if self._by_name.get((partition.topic, partition.partition_id)) is partition:
            del self._by_name[partition.topic, partition.partition_id]
        partition.stop()

    # --- work in slices ------------------------------------------------------------------------

    def _run_slice(self) -> None:
        """As much of the queue as fits a slice, at least one piece."""
        if self._is_posted:
            return
        ends_ms = self._clock.monotonic_ms() + SLICE_MS
        while self._work and not self._is_closed:
            self._work.popleft()()
            if self._work and self._clock.monotonic_ms() >= ends_ms:
                self._is_posted = True
                self._scheduler.post(self._next_slice)
                return

    def _next_slice(self) -> None:
        self._is_posted = False
        self._run_slice()

    def retry_postponed(self) -> None:
        """Once more for the logs that could not be made."""
        postponed, self._postponed = self._postponed, {}
        self._work.extend(partial(self._bring_up, *each) for each in postponed)
        self._run_slice()

    def _bring_up(self, topic_id: Uuid, partition_id: int) -> None:
        wanted, topic = self._wanted(topic_id, partition_id), self.image.topics.get(topic_id)
        if wanted is None or topic is None or (topic_id, partition_id) in self._by_id:
            return
        key = TopicPartition(topic.name, partition_id)
        try:
            log = self._log_for(key, topic_id)
        except LogDirectoryFailedError:  # everybody is told by the store
            return
        except DiskFullError as error:
            _logger.warning("the log of %s cannot be made yet: %s", key, error)
            self._postponed[topic_id, partition_id] = None
            return
        except StorageError as error:
            self._cannot_open(key, error)
            if not isinstance(error, CorruptLogError):  # too many files may be open, and later fewer
                self._postponed[topic_id, partition_id] = None
            return
        self._put_up(key, topic_id, log, wanted)

    def _cannot_open(self, key: TopicPartition, error: StorageError) -> None:
        known = self.unavailable.get(key)
        if known is None or str(known) != str(error):
            _logger.error("the log of %s cannot be opened: %s", key, error)
        self.unavailable[key] = error

    def _put_up(self, key: TopicPartition, topic_id: Uuid, log: PartitionLog, wanted: PartitionState) -> None:
        self.unavailable.pop(key, None)
        partition = Partition(
            key.topic,
            topic_id,
            key.partition,
            log,
            broker_id=self._settings.node_id,
            executor=self._executor,
            signals=self.signals,
            min_insync_replicas=self._configs.min_insync_replicas(self.image, key.topic),
            make_room=self._make_room,
            rest=self._rest,
        )
        self.upkeep.watch_truncations(key, log)
        self._by_id[topic_id, key.partition] = partition
        self._by_name[key.topic, key.partition] = partition
        self._reconfigure(partition)
        self._take_role(partition, wanted)

    def _log_for(self, key: TopicPartition, topic_id: Uuid) -> PartitionLog:
        """The partition's log, made if it is not there.  One of the name's earlier owner goes first."""
        log, owner = self.store.logs.get(key), self.store.topic_ids.get(key)
        if log is not None and owner is not None and owner != topic_id:
            self._delete_log(key, owner)
            log = None
        if log is None:
            config = self._configs.log_config(self.image, key.topic)
            with self.upkeep.name_taken(key):
                return self.store.create_log(*key, config=config, topic_id=topic_id)
        if owner is None:  # made in an attempt that found no room, or its identity was damaged
            path = f"{log.directory}/{PARTITION_METADATA_FILE}"
            self.store.files.write_atomically(path, encode_partition_metadata(topic_id))
            self.store.topic_ids[key] = topic_id
        return log

    def _delete_log(self, key: TopicPartition, topic_id: Uuid) -> None:
        """The log of a topic that is gone, unless another topic has taken its place already."""
        log = self.store.logs.get(key)
        if log is None or self.store.topic_ids.get(key, topic_id) != topic_id:
            return
        partition = self._by_name.get(key)
        if partition is not None and partition.log is log:
            self._withdraw(partition)
        with contextlib.suppress(LogDirectoryFailedError):  # everybody is told by the store
            self.store.delete_log(*key)

    def _remove_strays(self) -> None:
        """Logs that are of no topic, or none of this broker's, in the first image."""
        strays = [
            (key, topic_id)
            for key in self.store.logs
            if (topic_id := self.store.topic_ids.get(key)) is not None
            and self._wanted(topic_id, key.partition) is None
        ]
        if strays and self.store.meta.cluster_id != self.image.cluster_id:
            _logger.error(
                "%d logs, such as %s, are of no topic that this cluster knows; they are left alone, because "
                "the data directory is of the cluster %s and this is %s",
                len(strays),
                strays[0][0],
                self.store.meta.cluster_id,
                self.image.cluster_id,
            )
            return
        for key, topic_id in strays:
            _logger.warning("the log of %s (%s) is no longer wanted here: it is deleted", key, topic_id)
            self._work.append(partial(self._delete_log, key, topic_id))

    # --- rests and room ------------------------------------------------------------------------

    def _rest(self, callback: Callable[[], None]) -> None:
        self._scheduler.call_at(self._clock.monotonic_ms() + SYNC_REST_MS, callback)

    def _make_room(self) -> bool:
        """For an append that found none.  Not for each: it goes through all logs."""
        now_ms = self._clock.monotonic_ms()
        if self._made_room_ms is not None and now_ms - self._made_room_ms < MAKE_ROOM_INTERVAL_MS:
            return False
        self._made_room_ms = now_ms
        try:
            freed_bytes = self.store.free_space()
        except StorageError as error:
            _logger.warning("no room can be made: %s", error)
            return False
        _logger.warning("the disk is full; %d bytes were freed", freed_bytes)
        return freed_bytes > 0


def _forget_guessed_high_watermarks(store: LogStore) -> None:
    """A log without a checkpointed high watermark begins at its start.  Its end would be a guess: other
    replicas may not have all of it.  Whoever leads it alone commits it at once."""
    path = f"{store.directory}/{HIGH_WATERMARK_FILE}"
    try:
        data = store.files.read_small(path)
        known = {} if data is None else decode_offsets(data, path)
    except CorruptLogError:  # the store has noted it
        known = {}
    for key, log in store.logs.items():
        if key not in known:
            log.high_watermark = log.start_offset
