"""All partitions of this broker: the logs of its data directory, kept to what the metadata image says.

    image ──► diff ──► at once:    roles, ISRs, settings; a removed partition is gone for clients
                   └─► in slices:  logs are made and deleted, one at a time; between two slices, of some
                                   milliseconds, the loop serves others (`sliced_work`)

Making or deleting a log syncs names, so one takes as long as a few syncs.  The files of a new log are made on
another thread; the loop is never held up longer than for a slice and the deletion of one log.  Logs of
internal topics are made first: who creates a topic of thousands of partitions keeps nobody from having a
group.  Work is done by what the image says when its turn comes and not by what it said when it was queued: an
image that is overtaken costs nothing, and what could not be done for lack of room is tried again.

The directory is opened, and its logs recovered, before anything is served.  The first image must be one that
is caught up with the cluster: logs that it does not know, or knows under another topic id (deleted, or
deleted and created again, while this broker was down), are strays: renamed, and kept for a while
(`storage.strays`).  Not if the image is of another cluster than the directory.

What fails: no room, and a log cannot be made: later.  A log that cannot be opened, is gone or was found
damaged: the controller is told (`faults`), so that another replica leads; what can change by itself is tried
again.  A failed write or sync: the directory is out of use, every partition fails, and `on_failure` is
called.

A crash leaves logs to recover, and at most an older checkpoint.  `close` leaves nothing to recover.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeVar

from distributedlog.broker.replicas.faults import ReplicaFaults
from distributedlog.broker.replicas.log_configs import LogConfigs
from distributedlog.broker.replicas.maintenance import LogMaintenance
from distributedlog.broker.replicas.sliced_work import SlicedWork
from distributedlog.controller.cluster_settings import min_insync_replicas
from distributedlog.controller.deltas import ImageDelta, diff
from distributedlog.controller.image import MetadataImage, ResourceType
from distributedlog.controller.image import Partition as PartitionState
from distributedlog.controller.records import NO_LEADER
from distributedlog.controller.replica_faults import Fault, ReplicaFault
from distributedlog.model.config import HOUR_MS
from distributedlog.model.errors import (
    CorruptLogError,
    DiskFullError,
    DlogError,
    LogDirectoryFailedError,
    MissingLogError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.model.internal_topics import INTERNAL_TOPICS
from distributedlog.ports.clock import Clock
from distributedlog.ports.disk import Disk
from distributedlog.ports.executor import Executor, Outcome
from distributedlog.ports.randomness import Randomness
from distributedlog.ports.round_executor import RoundExecutor, SingleRounds
from distributedlog.ports.scheduler import Scheduler
from distributedlog.replication.checkpoints import forget_guessed_high_watermarks
from distributedlog.replication.contract import PartitionSignals
from distributedlog.replication.partition import Partition
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.storage.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata
from distributedlog.storage.files import OPEN_FILES_MAX
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import RecoveryReport
from distributedlog.storage.store import LogStore
from distributedlog.storage.syncs.opening import RunAll, run_in_turn
from distributedlog.storage.syncs.rounds import SyncRounds

T = TypeVar("T")

FREE_SPACE_INTERVAL_MS: Final = 1_000
SYNC_PAUSE_MS: Final = 25
"""The pause between two syncs of a log that is written to all the time and that nobody waits for."""

_logger = logging.getLogger("distributedlog.broker")


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
        maker: Executor | None = None,
        syncer: RoundExecutor | None = None,
    ) -> None:
        self.store = store
        self.signals = PartitionSignals()
        self.image = MetadataImage()
        """The image that was applied last; the work for it may still be in slices."""
        self._has_image = False
        self.is_registered: Callable[[MetadataImage], bool] = lambda image: True
        """Whether the image's registration of this broker is this process's: else it leads nothing."""
        self.faults = ReplicaFaults()
        self.unavailable: dict[TopicPartition, StorageError] = {}
        """Partitions whose log cannot be opened, and why."""
        self.suspect: Callable[[Partition, int], None] = lambda partition, offset: None
        """Told of a partition that could not be read at an offset (`healing`)."""
        self._settings = settings
        self._clock = clock
        self._scheduler = scheduler
        self.sync_rounds = SyncRounds(
            syncer or SingleRounds(executor), post=scheduler.post, pause=self._pause
        )
        self._configs = LogConfigs(settings, self.image)
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[Uuid, int], Partition] = {}
        self._work = SlicedWork(clock, scheduler, maker)
        self._postponed: dict[tuple[Uuid, int], None] = {}
        self._freed_space_ms: int | None = None
        self._is_closed = False
        self.maintenance = LogMaintenance(
            self, settings, clock=clock, scheduler=scheduler, executor=executor, disk=disk
        )

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
        maker: Executor | None = None,
        syncer: RoundExecutor | None = None,
        run_all: RunAll = run_in_turn,
    ) -> "PartitionSet":
        """Recovers every log of the data directory; blocks so long.  `run_all` runs the syncs of that.

        `executor` calls back on the data loop (`PostingExecutor`), and so does `maker`, which makes the files
        of new logs; without one they are made at once.  `syncer` runs the rounds of syncs; without one they
        are work of `executor`.  `on_failure`: the directory is out of use, and with it this broker.  `image`,
        of any age, is only asked for the topics' settings: recovery knows then in which logs gaps are right.
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
            without_unopened=True,
            run_all=run_all,
        )
        forget_guessed_high_watermarks(store)
        partitions = cls(
            store,
            settings,
            clock=clock,
            scheduler=scheduler,
            executor=executor,
            disk=disk,
            maker=maker,
            syncer=syncer,
        )
        opened.append(partitions)
        for line in store.losses():
            _logger.error("%s", line)
        return partitions

    def start(self) -> None:
        """Begins the maintenance: retention, compaction, checkpoints, syncs that are due."""
        self.maintenance.start()

    def close(self, *, broker_epoch: int = -1) -> None:
        """Leaves nothing to recover: everything is synced, and a clean stop marked.  Blocks so long.

        Delayed operations complete with NOT_LEADER_OR_FOLLOWER.  Call it when no more requests are served.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._work.close()
        self.maintenance.stop()
        for partition in list(self._by_id.values()):
            partition.stop()
        self.maintenance.checkpoint_before_close()
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
        """Returns the partition, or raises the error for one that this broker does not have."""
        found = self._by_name.get((topic, partition_id))
        if found is not None:
            return found
        known = self.image.topic_named(topic)
        if known is None or partition_id not in known.partitions:
            raise UnknownTopicError(f"there is no partition {topic}-{partition_id}")
        raise self._missing_replica_error(TopicPartition(topic, partition_id))

    def require_by_id(self, topic_id: Uuid, partition_id: int) -> Partition:
        found = self._by_id.get((topic_id, partition_id))
        if found is not None:
            return found
        topic = self.image.topics.get(topic_id)
        if topic is None:
            raise UnknownTopicIdError(f"there is no topic with the id {topic_id}")
        if partition_id not in topic.partitions:
            raise UnknownTopicError(f"there is no partition {topic.name}-{partition_id}")
        raise self._missing_replica_error(TopicPartition(topic.name, partition_id))

    def _missing_replica_error(self, key: TopicPartition) -> DlogError:
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
            self._set_aside_strays()
        if done is not None:
            self._work.add(done)
        self._work.run()

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
        config = self._configs.log_config(self.image, partition.topic)
        if not config.flush_on_commit:
            self.maintenance.synced_commits.clear()
        partition.reconfigure(config, min_insync_replicas(self.image, partition.topic))

    def _apply_removals(self, delta: ImageDelta) -> None:
        if delta.topics_removed and self.store.files.failure is None:
            gone = [
                TopicPartition(each.name, partition_id)
                for each in delta.topics_removed
                for partition_id in each.partitions
            ]
            with contextlib.suppress(DiskFullError, LogDirectoryFailedError):
                self.maintenance.forget(gone)
        for topic in delta.topics_removed:
            for partition_id in topic.partitions:
                key = TopicPartition(topic.name, partition_id)
                self.unavailable.pop(key, None)
                self._postponed.pop((topic.topic_id, partition_id), None)
                self.faults.forget(topic.topic_id, partition_id)
                partition = self._by_id.get((topic.topic_id, partition_id))
                if partition is not None:
                    self._remove_partition(partition)
                if key in self.store.logs:
                    self._work.add(partial(self._delete_log, key, topic.topic_id))

    def _apply_partition(self, topic_id: Uuid, partition_id: int) -> None:
        """Applies at once what touches no disk, and queues the rest."""
        partition = self._by_id.get((topic_id, partition_id))
        wanted = self._assigned_state(topic_id, partition_id)
        topic = self.image.topics.get(topic_id)
        is_internal = topic is not None and topic.name in INTERNAL_TOPICS
        if partition is not None and wanted is not None:
            self._take_role(partition, wanted)
        elif partition is not None:
            self._remove_partition(partition)
            self.faults.forget(topic_id, partition_id)
            with contextlib.suppress(DiskFullError, LogDirectoryFailedError):
                self.maintenance.forget([partition.key])
            self._work.add(partial(self._delete_log, partition.key, topic_id), first=is_internal)
        elif wanted is not None:
            self._work.add(partial(self._create_partition, topic_id, partition_id), first=is_internal)

    def _assigned_state(self, topic_id: Uuid, partition_id: int) -> PartitionState | None:
        """Returns the partition's state if this broker is one of its replicas."""
        state = self.image.partition(topic_id, partition_id)
        return state if state is not None and self._settings.node_id in state.replicas else None

    def _take_role(self, partition: Partition, state: PartitionState) -> None:
        if self._is_to_lead(state):
            partition.become_leader(
                state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                isr=state.isr,
                now_ms=self._clock.monotonic_ms(),
                adding=state.adding,
                elr=state.elr,
            )
        else:
            partition.become_follower(
                state.leader_epoch,
                partition_epoch=state.partition_epoch,
                leader_id=NO_LEADER if state.leader == self._settings.node_id else state.leader,
                replicas=state.replicas,
                isr=state.isr,
            )

    def _is_to_lead(self, state: PartitionState) -> bool:
        return state.leader == self._settings.node_id and self.is_registered(self.image)

    def take_roles_again(self) -> None:
        """Takes or gives up what this broker leads, as another registration is this process's."""
        for partition in list(self._by_id.values()):
            wanted = self._assigned_state(partition.topic_id, partition.partition_id)
            if wanted is not None and self._is_to_lead(wanted) != partition.is_leader:
                self._take_role(partition, wanted)

    def _remove_partition(self, partition: Partition) -> None:
        """Takes the partition out of the set; delayed operations on it complete."""
        self._by_id.pop((partition.topic_id, partition.partition_id), None)
        if self._by_name.get((partition.topic, partition.partition_id)) is partition:
            del self._by_name[partition.topic, partition.partition_id]
        partition.stop()

    # --- work in slices ------------------------------------------------------------------------

    def when_done(self, callback: Callable[[], None]) -> None:
        """Calls back once all is as the present image wants it, perhaps at once."""
        self._work.add(callback)
        self._work.run()

    def retry_postponed(self) -> None:
        """Tries again to make the logs that could not be made."""
        postponed, self._postponed = self._postponed, {}
        for each in postponed:
            self._work.add(partial(self._create_partition, *each))
        self._work.run()

    def _create_partition(self, topic_id: Uuid, partition_id: int) -> None:
        key = self._find_wanted(topic_id, partition_id)
        if key is None:
            return
        with self._noting_failure(topic_id, key):
            owner = self.store.topic_ids.get(key, topic_id)
            if key in self.store.logs and owner != topic_id:  # the name's earlier owner goes first
                self._set_aside(key, owner)
                if key in self.store.logs:
                    raise DiskFullError(f"the log of the topic {owner}, which had this name, is in its place")
            if key in self.store.logs or key in self.store.unopened:
                self._add_partition(key, topic_id, self._log_for(key, topic_id))
                return
            self._check_may_begin(key, topic_id)
            make = partial(self.store.make_log_files, key, topic_id)
            self._work.wait_for(make, partial(self._on_files_made, key, topic_id))

    def _on_files_made(self, key: TopicPartition, topic_id: Uuid, outcome: Outcome[None]) -> None:
        with self._noting_failure(topic_id, key):
            outcome.value()
            if self._find_wanted(topic_id, key.partition) is not None:
                self._add_partition(key, topic_id, self._log_for(key, topic_id))
            elif key not in self.store.logs:
                self.store.remove_log_files(key)

    def _find_wanted(self, topic_id: Uuid, partition_id: int) -> TopicPartition | None:
        """Returns the key of a partition that the image wants here and that is not here yet."""
        topic = self.image.topics.get(topic_id)
        if topic is None or (topic_id, partition_id) in self._by_id:
            return None
        if self._assigned_state(topic_id, partition_id) is None:
            return None
        return TopicPartition(topic.name, partition_id)

    @contextlib.contextmanager
    def _noting_failure(self, topic_id: Uuid, key: TopicPartition) -> Iterator[None]:
        """Notes why a partition has no log, and whether to try again."""
        try:
            yield
        except LogDirectoryFailedError:
            pass  # the store reports it to everybody
        except DiskFullError as error:
            _logger.warning("the log of %s cannot be made yet: %s", key, error)
            self._postponed[topic_id, key.partition] = None
        except StorageError as error:
            self.unavailable[key] = error
            is_missing = isinstance(error, MissingLogError)
            self.faults.note(topic_id, key, Fault.MISSING if is_missing else Fault.OFFLINE, error)
            if not isinstance(error, CorruptLogError):  # too many files may be open, and later fewer
                self._postponed[topic_id, key.partition] = None

    def take_faults(self, faults: Iterable[ReplicaFault]) -> None:
        """A controller has acted on these."""
        self.faults.take(faults)
        for topic_id, partition_id, fault in faults:
            partition = self._by_id.get((topic_id, partition_id))
            if fault == Fault.DAMAGED and partition is not None:
                with contextlib.suppress(StorageError):  # then it is told again after the next start
                    self.store.note_told(partition.key)
        self.retry_postponed()

    def _add_partition(self, key: TopicPartition, topic_id: Uuid, log: PartitionLog) -> None:
        wanted = self._assigned_state(topic_id, key.partition)
        assert wanted is not None
        self.unavailable.pop(key, None)
        partition = Partition(
            key.topic,
            topic_id,
            key.partition,
            log,
            broker_id=self._settings.node_id,
            rounds=self.sync_rounds,
            signals=self.signals,
            min_insync_replicas=min_insync_replicas(self.image, key.topic),
            free_space=self._free_space,
        )
        self.maintenance.lower_before_truncations(key, log)
        self._by_id[topic_id, key.partition] = partition
        self._by_name[key.topic, key.partition] = partition
        self._reconfigure(partition)
        self._take_role(partition, wanted)
        report = self.store.reports.get(key)
        if report is not None and not report.is_sound:
            self.faults.note(topic_id, key, Fault.DAMAGED, _describe(report))
        elif wanted.is_lost(self._settings.node_id) or (topic_id, key.partition) in self.faults.present:
            self.faults.note(topic_id, key, Fault.ONLINE, "it is open")

    def _log_for(self, key: TopicPartition, topic_id: Uuid) -> PartitionLog:
        """The partition's log; if it is not open yet, its files are there."""
        log = self.store.logs.get(key)
        if log is None:
            config = self._configs.log_config(self.image, key.topic)
            if key in self.store.unopened:
                return self.store.open_unopened(key, config)
            with self.maintenance.forgetting_name(key):
                return self.store.create_log(*key, config=config, topic_id=topic_id, is_made=True)
        if key not in self.store.topic_ids:  # made in an attempt that found no room, or it was damaged
            path = f"{log.directory}/{PARTITION_METADATA_FILE}"
            self.store.files.write_atomically(path, encode_partition_metadata(topic_id))
            self.store.topic_ids[key] = topic_id
        return log

    def _check_may_begin(self, key: TopicPartition, topic_id: Uuid) -> None:
        """Raises if the partition had a log here, which is gone, and nobody leads without it."""
        state = self._assigned_state(topic_id, key.partition)
        known_end = self.store.missing.get(key)
        if state is None or (known_end is None and not state.is_lost(self._settings.node_id)):
            return
        is_told = self.faults.is_taken(topic_id, key.partition, Fault.MISSING)
        if is_told and state.leader != NO_LEADER:
            _logger.warning("the log of %s begins anew: broker %d leads it", key, state.leader)
            return
        raise MissingLogError(
            f"{self.store.directory}/{key.directory_name} is gone, with offsets up to {known_end}: "
            "bring it back and start again, or ask for an unclean election to begin empty"
        )

    def _delete_log(self, key: TopicPartition, topic_id: Uuid) -> None:
        """The log of a topic that is gone, unless another topic has taken its place already."""
        log = self.store.logs.get(key)
        if log is None or self.store.topic_ids.get(key, topic_id) != topic_id:
            return
        partition = self._by_name.get(key)
        if partition is not None and partition.log is log:
            self._remove_partition(partition)
        with contextlib.suppress(LogDirectoryFailedError):  # the store reports it to everybody
            self.store.delete_log(*key)

    def _set_aside_strays(self) -> None:
        """Logs that are of no topic, or none of this broker's, in the first image."""
        strays = [
            (key, topic_id)
            for key in self.store.logs
            if (topic_id := self.store.topic_ids.get(key)) is not None
            and self._assigned_state(topic_id, key.partition) is None
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
            self._work.add(partial(self._set_aside, key, topic_id))

    def _set_aside(self, key: TopicPartition, topic_id: Uuid) -> None:
        """Makes a log that is no one's a stray: it is kept for a while."""
        if key not in self.store.logs or self.store.topic_ids.get(key) != topic_id:
            return
        try:
            self.maintenance.forget([key])
            name = self.store.set_aside(key)
        except LogDirectoryFailedError:  # the store reports it to everybody
            return
        except DiskFullError as error:
            _logger.error(
                "the log of %s (topic %s) is of no topic that this broker has: %s", key, topic_id, error
            )
            return
        _logger.error(
            "the log of %s (topic id %s) is a stray: the cluster does not know it on this broker. It is kept "
            "as %s for %d hours, and then deleted",
            key,
            topic_id,
            name,
            self._settings.stray_retention_ms // HOUR_MS,
        )

    # --- rests and room ------------------------------------------------------------------------

    def _pause(self, callback: Callable[[], None]) -> None:
        self._scheduler.call_at(self._clock.monotonic_ms() + SYNC_PAUSE_MS, callback)

    def _free_space(self) -> bool:
        """Frees space for an append on a full disk.  Not for each append: it goes through all logs."""
        now_ms = self._clock.monotonic_ms()
        if self._freed_space_ms is not None and now_ms - self._freed_space_ms < FREE_SPACE_INTERVAL_MS:
            return False
        self._freed_space_ms = now_ms
        try:
            freed_bytes = self.store.free_space()
        except StorageError as error:
            _logger.warning("no room can be made: %s", error)
            return False
        _logger.warning("the disk is full; %d bytes were freed", freed_bytes)
        return freed_bytes > 0


def _describe(report: RecoveryReport) -> str:
    found = [str(each) for each in report.damage]
    if report.lost_synced_offsets:
        found.append(f"the last {report.lost_synced_offsets} synced offsets are gone")
    return "; ".join(found) or "an earlier opening moved damaged bytes aside, and could not tell"
