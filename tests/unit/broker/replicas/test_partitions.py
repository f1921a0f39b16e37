"""The partitions of a broker follow the metadata image: made, led, configured, deleted, over restarts too."""

import asyncio
import contextlib
import errno
from pathlib import Path

import pytest

from distributedlog.broker.loops import LoopScheduler, PostingExecutor
from distributedlog.broker.replicas.delayed import Purgatory
from distributedlog.broker.replicas.partitions import PartitionSet
from distributedlog.controller.image import ResourceType
from distributedlog.controller.records import ClusterCreated, PartitionCreated
from distributedlog.model.config import DAY_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DiskFullError,
    LogDirectoryFailedError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.executor import SystemExecutor
from distributedlog.ports.randomness import SystemRandomness
from distributedlog.replication.contract import OffsetSpec
from distributedlog.replication.partition import Partition
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    PARTITION_METADATA_FILE,
    decode_clean_shutdown,
)
from distributedlog.storage.files import Files
from tests.simulation.disk import PowerCut
from tests.simulation.executor import StepExecutor
from tests.unit.broker.partition_stage import ME, OTHER, ROOT, Metadata, Stage, topic_id
from tests.unit.replication.support import produce, values_of
from tests.unit.storage.support import value_of


def produced(stage: Stage, name: str, *numbers: int) -> Partition:
    partition = stage[name]
    for number in numbers:
        produce(partition, number)
    stage.settle()
    return partition


# --- following the image -----------------------------------------------------------------------


def test_a_topic_that_is_created_can_be_written_and_read() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1, 3)
    partitions = stage.apply()
    assert len(partitions) == 3
    partition = produced(stage, "orders", 1, 2)
    assert partition.high_watermark == 2
    assert partitions.get("orders", 0) is partition
    assert partitions.get_by_id(topic_id(1), 0) is partition
    assert partitions.get("orders", 3) is None


def test_what_this_broker_has_no_replica_of_is_not_made_here() -> None:
    stage = Stage()
    stage.metadata.create("theirs", 1, replicas=(OTHER,), leader=OTHER)
    stage.apply()
    assert stage.directories() == []
    with pytest.raises(NotLeaderOrFollowerError):
        stage.partitions.require("theirs", 0)
    with pytest.raises(NotLeaderOrFollowerError):
        stage.partitions.require_by_id(topic_id(1), 0)


def test_what_is_not_there_is_told_apart() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    with pytest.raises(UnknownTopicError):
        stage.partitions.require("nothing", 0)
    with pytest.raises(UnknownTopicError):
        stage.partitions.require("orders", 1)
    with pytest.raises(UnknownTopicError):
        stage.partitions.require_by_id(topic_id(1), 1)
    with pytest.raises(UnknownTopicIdError):
        stage.partitions.require_by_id(topic_id(2), 0)


def test_leaderships_come_and_go_with_the_image() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1, replicas=(ME, OTHER))
    stage.apply()
    partition = produced(stage, "orders", 1)
    seen = [partition.high_watermark]
    stage.apply(stage.metadata.change(1, isr=[ME]))
    seen.append(partition.high_watermark)
    assert seen == [0, 1]
    stage.apply(stage.metadata.change(1, leader=OTHER))
    roles = [(partition.is_leader, partition.leader_id, partition.leader_epoch)]
    stage.apply(stage.metadata.change(1, leader=ME))
    roles.append((partition.is_leader, partition.leader_id, partition.leader_epoch))
    assert roles == [(False, OTHER, 1), (True, ME, 2)]


def test_partitions_that_are_added_to_a_topic_are_made() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    stage.apply(
        stage.metadata.apply(
            PartitionCreated(partition_id=1, topic_id=topic_id(1), replicas=[ME], isr=[ME], leader=ME)
        )
    )
    assert produce(stage.partitions.require("orders", 1), 1).base_offset == 0


def test_a_removed_topic_is_gone_at_once_and_its_files_soon() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1, 2)
    stage.apply()
    partition = produced(stage, "orders", 1)
    stage.apply(stage.metadata.remove(1))
    assert partition.is_stopped
    assert len(stage.partitions) == 0
    assert stage.directories() == []
    with pytest.raises(UnknownTopicError):
        stage.partitions.require("orders", 0)


def test_a_replica_that_moves_away_is_deleted_here() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1, replicas=(ME, OTHER))
    stage.apply()
    stage.apply(stage.metadata.change(1, replicas=[OTHER], isr=[OTHER], leader=OTHER))
    assert stage.directories() == []
    assert stage.partitions.get("orders", 0) is None


def test_a_topic_made_again_under_its_name_is_another_topic() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    old = produced(stage, "orders", 1, 2, 3)
    stage.metadata.remove(1)
    stage.apply(stage.metadata.create("orders", 2))
    fresh = stage["orders"]
    assert fresh is not old
    assert (fresh.topic_id, fresh.log_end_offset) == (topic_id(2), 0)
    assert stage.partitions.get_by_id(topic_id(1), 0) is None


def test_work_that_was_overtaken_is_not_done() -> None:
    """Slices of no time: each piece of work waits for the loop; the topic is gone before its turn comes."""
    stage = Stage()
    stage.sim.on_operation = lambda operation, path: stage.clock.advance(10)
    stage.partitions.apply_image(stage.metadata.create("orders", 1, 5))
    assert len(stage.partitions) == 1, "one log a slice"
    stage.partitions.apply_image(stage.metadata.remove(1))
    assert stage.scheduler.run_posted() > 0
    assert len(stage.partitions) == 0
    assert stage.directories() == []


def test_many_logs_are_made_in_slices_and_the_end_of_it_is_told() -> None:
    stage = Stage()
    stage.sim.on_operation = lambda operation, path: stage.clock.advance(1)
    told: list[int] = []
    stage.partitions.apply_image(
        stage.metadata.create("orders", 1, 20), lambda: told.append(len(stage.partitions))
    )
    assert 0 < len(stage.partitions) < 20
    assert told == []
    assert stage.scheduler.run_posted() > 3
    assert told == [20]


def test_logs_of_internal_topics_are_made_before_those_that_wait() -> None:
    stage = Stage()
    stage.sim.on_operation = lambda operation, path: stage.clock.advance(10)
    told: list[int] = []
    made: dict[TopicPartition, None] = {}
    stage.partitions.signals.state_changed.append(lambda partition: made.setdefault(partition.key))
    stage.partitions.apply_image(stage.metadata.create("orders", 1, 50))
    stage.partitions.apply_image(
        stage.metadata.create(OFFSETS_TOPIC, 2, 3), lambda: told.append(len(stage.partitions))
    )
    assert stage.scheduler.run_posted() > 50
    assert told == [53]
    assert [each.topic for each in made].index(OFFSETS_TOPIC) <= 2
    assert [each.topic for each in made][:5].count(OFFSETS_TOPIC) == 3


# --- settings ----------------------------------------------------------------------------------


def test_settings_change_while_running_the_topics_before_the_clusters_before_the_nodes() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    partition = stage["orders"]
    assert partition.log.config.segment_bytes == 1024
    broker, topic = ResourceType.BROKER, ResourceType.TOPIC
    stage.apply(stage.metadata.configure(broker, "", "log.segment.bytes", "2048"))
    assert partition.log.config.segment_bytes == 2048
    stage.apply(stage.metadata.configure(broker, "1", "log.segment.bytes", "3072"))
    assert partition.log.config.segment_bytes == 3072
    stage.apply(stage.metadata.configure(topic, "orders", "segment.bytes", "4096"))
    assert partition.log.config.segment_bytes == 4096
    stage.apply(stage.metadata.configure(topic, "orders", "segment.bytes", None))
    assert partition.log.config.segment_bytes == 3072
    stage.apply(stage.metadata.configure(broker, "1", "log.segment.bytes", "rubbish"))
    assert partition.log.config.segment_bytes == 2048, "what cannot be read is passed over"


def test_a_topic_is_made_with_its_own_settings_and_takes_a_new_minimum() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1, replicas=(ME, OTHER))
    stage.metadata.configure(ResourceType.TOPIC, "orders", "flush.on.commit", "false")
    stage.metadata.configure(ResourceType.TOPIC, "orders", "min.insync.replicas", "2")
    stage.apply(stage.metadata.change(1, isr=[ME]))
    partition = stage["orders"]
    assert not partition.log.config.flush_on_commit
    assert partition.view is not None
    assert partition.view.is_under_min_isr
    stage.apply(stage.metadata.configure(ResourceType.TOPIC, "orders", "min.insync.replicas", "1"))
    assert not partition.view.is_under_min_isr


# --- over restarts -----------------------------------------------------------------------------


def test_after_a_crash_what_was_acknowledged_is_there_and_readable_at_once() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    produced(stage, "orders", 1, 2)
    produce(stage["orders"], 3)
    stage.restart()
    stage.apply(stage.metadata.change(1, leader=ME))
    partition = stage["orders"]
    assert partition.list_offset(OffsetSpec.LATEST).offset == partition.log_end_offset == 2
    assert values_of(partition.read(0, 1 << 20)) == [value_of(1), value_of(2)]


def test_without_a_checkpoint_a_leader_of_several_replicas_does_not_guess() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1, replicas=(ME, OTHER))
    stage.apply()
    produced(stage, "orders", 1, 2)
    stage.restart()
    stage.apply()
    assert stage["orders"].high_watermark == 0
    stage["orders"].read_for_replica(OTHER, 2, 100, 0)
    assert stage["orders"].high_watermark == 2
    stage.pass_time(6_000)
    stage.restart()
    stage.apply()
    assert stage["orders"].high_watermark == 2, "this time it was checkpointed"


def test_a_clean_stop_leaves_its_mark_and_nothing_to_recover() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    produced(stage, "orders", 1)
    produce(stage["orders"], 2)  # its sync has not come back yet
    stage.partitions.close(broker_epoch=42)
    assert decode_clean_shutdown(stage.sim.files()[f"{ROOT}/{CLEAN_SHUTDOWN_FILE}"]) == 42
    stage.executor.run_all()
    stage.open()
    assert stage.partitions.store.was_clean
    assert stage.partitions.store.reports[TopicPartition("orders", 0)].scanned_bytes == 0
    stage.apply()
    assert stage["orders"].high_watermark == 2


def test_a_topic_that_was_deleted_while_we_were_down_is_a_stray_when_we_are_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.metadata.create("kept", 2)
    stage.apply()
    produced(stage, "orders", 1)
    stage.metadata.remove(1)
    stage.restart()
    stage.apply()
    (stray,) = (name for name in stage.directories() if name.endswith("-stray"))
    assert sorted(stage.directories()) == ["kept-0", stray]
    assert stray.startswith("orders-0.")
    assert "00000000000000000000.log" in stage.disk.list_directory(f"{ROOT}/{stray}")
    assert [each.levelname for each in caplog.records if "is a stray" in each.message] == ["ERROR"]
    stage.restart()
    stage.apply()
    stage.pass_time(60_000)
    assert stray in stage.directories()
    stage.clock.advance(DAY_MS)
    stage.pass_time(15_000)
    assert stage.directories() == ["kept-0"]


def test_a_stray_can_be_brought_back_under_a_topic_that_is_made_again() -> None:
    """Follows docs/administration.md: its directory replaces the new one's, without partition.metadata."""
    stage = Stage()
    stage.metadata.create("orders", 1, epoch=3)
    stage.apply()
    produced(stage, "orders", 1, 2, 3)
    stage.metadata.remove(1)
    stage.restart()
    stage.apply()
    (stray,) = stage.directories()
    stage.apply(stage.metadata.create("orders", 2))
    stage.partitions.close(broker_epoch=1)
    files = Files(stage.disk)
    files.remove_tree(f"{ROOT}/orders-0")
    files.rename(f"{ROOT}/{stray}", f"{ROOT}/orders-0")
    files.remove(f"{ROOT}/orders-0/{PARTITION_METADATA_FILE}")
    stage.open()
    stage.apply()
    assert stage["orders"].topic_id == topic_id(2)
    assert produced(stage, "orders", 4).log_end_offset == 4
    read = stage["orders"].read(0, 1 << 20)
    assert values_of(read) == [value_of(number) for number in (1, 2, 3, 4)]


def test_a_topic_that_was_deleted_and_made_again_while_we_were_down_begins_anew() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    produced(stage, "orders", 1, 2)
    stage.pass_time(61_000)
    stage.metadata.remove(1)
    stage.metadata.create("orders", 2)
    stage.restart()
    stage.apply()
    assert stage["orders"].topic_id == topic_id(2)
    assert stage["orders"].log_end_offset == 0
    assert stage["orders"].high_watermark == 0


def test_logs_are_not_deleted_for_an_image_of_another_cluster() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    stage.metadata = Metadata()
    stage.metadata.apply(ClusterCreated(cluster_id="another"))
    stage.restart()
    stage.apply()
    assert stage.directories() == ["orders-0"]
    assert len(stage.partitions) == 0


def test_a_later_image_deletes_nothing_but_what_it_removes() -> None:
    """A lagging image must not be taken for the truth about what is no one's: only the first one is."""
    stage = Stage()
    stage.apply()
    stage.partitions.store.create_log("unknown", 0, topic_id=topic_id(9))
    stage.apply(stage.metadata.create("orders", 1))
    assert stage.directories() == ["orders-0", "unknown-0"]


# --- disks that are full or broken -------------------------------------------------------------


def test_a_log_that_finds_no_room_is_made_when_there_is_some() -> None:
    stage = Stage()
    fault = stage.sim.inject("create", f"{ROOT}/orders-0/*", errno.ENOSPC, count=100)
    stage.metadata.create("orders", 1)
    stage.apply()
    assert fault.hits == 1
    with pytest.raises(NotLeaderOrFollowerError):
        stage.partitions.require("orders", 0)
    stage.sim.heal()
    stage.pass_time(1_000)
    assert produced(stage, "orders", 1).high_watermark == 1


def test_a_log_that_cannot_be_opened_for_now_is_opened_when_it_can_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.sim.inject("list", f"{ROOT}/orders-0", errno.EMFILE, count=3)
    stage.metadata.create("orders", 1)
    stage.apply()
    with pytest.raises(StorageError):
        stage.partitions.require("orders", 0)
    stage.pass_time(3_000)
    assert produced(stage, "orders", 1).high_watermark == 1
    assert stage.partitions.unavailable == {}
    assert [each.message for each in caplog.records if "cannot be opened" in each.message][1:] == []


def test_a_log_whose_identity_found_no_room_is_given_it_later_and_keeps_it() -> None:
    stage = Stage()
    stage.sim.inject("write", "*partition.metadata*", errno.ENOSPC)
    stage.metadata.create("orders", 1)
    stage.apply()
    stage.pass_time(1_000)
    assert produced(stage, "orders", 1).high_watermark == 1
    stage.restart()
    assert stage.partitions.store.topic_ids == {TopicPartition("orders", 0): topic_id(1)}


def test_a_full_disk_refuses_frees_what_it_may_and_goes_on() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    produced(stage, "orders", *range(30))
    stage.sim.inject("write", "*.log", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        produce(stage["orders"], 30)
    stage.apply(stage.metadata.configure(ResourceType.TOPIC, "orders", "retention.bytes", "1"))
    stage.clock.advance(1_000)
    stage.sim.inject("write", "*.log", errno.ENOSPC)
    assert produce(stage["orders"], 30).base_offset == 30, "retention made room"
    assert stage["orders"].log_start_offset > 0


def test_a_failed_sync_takes_every_partition_out_of_use_and_the_broker_hears_of_it() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.metadata.create("others", 2)
    stage.apply()
    stage.sim.inject("sync", "*orders-0/*.log", errno.EIO)
    produced(stage, "orders", 1)
    assert [type(failure) for failure in stage.failures] == [LogDirectoryFailedError]
    for name in ("orders", "others"):
        with pytest.raises(LogDirectoryFailedError):
            produce(stage[name], 2)
    stage.partitions.close()
    assert f"{ROOT}/{CLEAN_SHUTDOWN_FILE}" not in stage.sim.files()


def test_a_log_that_cannot_be_opened_is_told_and_the_others_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    create_log = stage.partitions.store.create_log

    def failing(topic: str, partition: int = 0, **arguments: object) -> object:
        if topic == "broken":
            raise StorageError("this log cannot be opened")
        return create_log(topic, partition, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(stage.partitions.store, "create_log", failing)
    stage.metadata.create("broken", 1)
    stage.metadata.create("orders", 2)
    stage.apply()
    with pytest.raises(StorageError, match="cannot be opened"):
        stage.partitions.require("broken", 0)
    assert produced(stage, "orders", 1).high_watermark == 1


def test_whoever_waits_is_told_when_the_set_is_closed() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    told: list[Partition] = []
    stage.partitions.signals.state_changed.append(told.append)
    partition = stage["orders"]
    stage.partitions.close()
    assert told == [partition]
    stage.partitions.close()
    stage.partitions.apply_image(stage.metadata.create("late", 3))
    assert f"{ROOT}/late-0" not in stage.sim.files()
    assert f"{ROOT}/{HIGH_WATERMARK_FILE}" in stage.sim.files()


# --- on a real disk, with real threads ---------------------------------------------------------


def test_a_loop_with_threads_and_a_disk_serves_writes_and_starts_again(tmp_path: Path) -> None:
    settings = NodeSettings(node_id=ME, data_dir=str(tmp_path / "data"))
    metadata = Metadata()
    image = metadata.create("orders", 1, 3)

    async def serve(numbers: range) -> list[int]:
        clock = SystemClock()
        scheduler = LoopScheduler(asyncio.get_running_loop(), clock)
        executor = SystemExecutor()
        partitions = PartitionSet.open(
            SystemDisk(),
            settings,
            clock=clock,
            randomness=SystemRandomness(),
            scheduler=scheduler,
            executor=PostingExecutor(executor, scheduler),
            on_failure=lambda failure: pytest.fail(str(failure)),
        )
        partitions.start()
        applied = asyncio.Event()
        partitions.apply_image(image, applied.set)
        await applied.wait()
        purgatory = Purgatory(partitions.signals, clock=clock, scheduler=scheduler)
        waiting: list[asyncio.Future[list[ErrorCode]]] = []
        for number in numbers:
            partition = partitions.require("orders", number % 3)
            waiting.append(asyncio.get_running_loop().create_future())
            awaited = [(partition, produce(partition, number).last_offset + 1)]
            purgatory.add_produce(awaited, 30_000, waiting[-1].set_result)
        assert await asyncio.gather(*waiting) == [[ErrorCode.NONE]] * len(numbers)
        marks = [partitions.require("orders", number).high_watermark for number in range(3)]
        partitions.close(broker_epoch=1)
        executor.close()
        return marks

    assert asyncio.run(serve(range(60))) == [20, 20, 20]
    assert asyncio.run(serve(range(60, 90))) == [30, 30, 30]


# --- logs that are made on another thread --------------------------------------------------------


def with_maker() -> tuple[Stage, StepExecutor]:
    maker = StepExecutor()
    stage = Stage(maker=maker)
    stage.metadata.create("orders", 1, partitions=2)
    stage.apply()
    return stage, maker


def test_a_log_is_there_once_its_files_are_made() -> None:
    stage, maker = with_maker()
    told: list[bool] = []
    stage.partitions.when_done(lambda: told.append(True))
    with pytest.raises(NotLeaderOrFollowerError):
        stage.partitions.require("orders", 0)
    maker.run_one()
    assert produce(stage.partitions.require("orders", 0), 1).base_offset == 0
    with pytest.raises(NotLeaderOrFollowerError):
        stage.partitions.require("orders", 1)
    assert told == []
    maker.run_all()
    assert stage.partitions.require("orders", 1).is_leader
    assert told == [True]
    stage.restart()
    stage.apply()
    maker.run_all()
    assert [each.topic_id for each in stage.partitions] == [topic_id(1)] * 2


def test_a_topic_that_is_removed_while_its_log_is_made_leaves_nothing() -> None:
    stage, maker = with_maker()
    stage.apply(stage.metadata.remove(1))
    maker.run_all()
    assert stage.directories() == []
    assert len(stage.partitions) == 0


def test_another_topic_of_the_same_name_gets_a_log_of_its_own() -> None:
    stage, maker = with_maker()
    stage.metadata.remove(1)
    stage.apply(stage.metadata.create("orders", 2))
    maker.run_all()
    assert stage.partitions.require("orders", 0).topic_id == topic_id(2)
    assert stage.directories() == ["orders-0"]
    assert stage.partitions.store.topic_ids[stage["orders"].key] == topic_id(2)


def test_a_broker_that_stops_while_a_log_is_made_finds_it_when_it_starts_again() -> None:
    stage, maker = with_maker()
    stage.partitions.close()
    maker.run_all()
    stage.open()
    stage.apply()
    maker.run_all()
    assert [each.topic_id for each in stage.partitions] == [topic_id(1)] * 2


@pytest.mark.parametrize("operations", range(12))
def test_power_that_goes_while_a_log_is_made_leaves_what_can_be_made_anew(operations: int) -> None:
    maker = StepExecutor()
    stage = Stage(maker=maker)
    stage.metadata.create("orders", 1)
    stage.apply()
    stage.sim.fail_after(operations)
    with contextlib.suppress(PowerCut):
        maker.run_all()
    maker.drop_all()
    stage.restart()
    stage.apply()
    maker.run_all()
    assert produce(stage["orders"], 1).base_offset == 0
    assert stage["orders"].topic_id == topic_id(1)
