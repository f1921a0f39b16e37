"""Logs that are damaged, gone or cannot be opened: found at the start, and told."""

import errno

from distributedlog.controller.image import LOST_DIRECTORY
from distributedlog.controller.records import PartitionChanged
from distributedlog.controller.replica_faults import Fault, ReplicaFault
from distributedlog.model.ids import TopicPartition
from distributedlog.storage.recovery import QUARANTINE
from distributedlog.storage.store import TOLD_FILE
from tests.unit.broker.partition_stage import ME, OTHER, ROOT, Stage, topic_id
from tests.unit.replication.support import produce

LOG = "00000000000000000000.log"
KEY = TopicPartition("orders", 0)
WHERE = (topic_id(1), 0)


def stage_with_records(replicas: tuple[int, ...] = (ME,)) -> Stage:
    stage = Stage()
    stage.metadata.create("orders", 1, replicas=replicas)
    stage.metadata.create("others", 2)
    stage.apply()
    for number in range(3):
        for name in ("orders", "others"):
            produce(stage[name], number)
    stage.settle()
    return stage


def told(stage: Stage) -> dict[tuple[object, int], int]:
    return {key: fault.fault for key, fault in stage.partitions.faults.untaken.items()}


def take_all(stage: Stage) -> None:
    stage.partitions.take_faults(tuple(stage.partitions.faults.untaken.values()))


def remove(stage: Stage, name: str) -> None:
    for each in stage.disk.list_directory(f"{ROOT}/{name}"):
        stage.disk.remove(f"{ROOT}/{name}/{each}")
    stage.disk.remove_directory(f"{ROOT}/{name}")


def close(stage: Stage) -> None:
    stage.partitions.close(broker_epoch=7)


def elect(stage: Stage, leader: int) -> None:
    stage.apply(stage.metadata.change(1, leader=leader, isr=[leader]))


def lose(stage: Stage) -> None:
    stage.metadata.apply(
        PartitionChanged(
            partition_id=0, topic_id=topic_id(1), leader=-1, isr=[], directories=[LOST_DIRECTORY]
        )
    )


def test_sound_logs_are_not_told_after_any_stop() -> None:
    stage = stage_with_records()
    for clean in (True, False):
        stage.restart(clean=clean)
        stage.apply()
        assert told(stage) == {}
        assert stage["orders"].log_end_offset == stage["others"].log_end_offset == 3


def test_damage_that_recovery_found_is_told_also_if_the_stop_was_unclean() -> None:
    stage = stage_with_records()
    stage.sim.crash("drop")
    stage.sim.flip_bit(f"{ROOT}/orders-0/{LOG}", 80, 3)
    stage.open()
    stage.apply()
    assert told(stage) == {WHERE: Fault.DAMAGED}
    assert stage.partitions.faults.present == {WHERE: Fault.DAMAGED}
    assert stage["orders"].log_end_offset == 0


def test_damage_is_told_by_the_next_process_if_this_one_could_not_and_once_it_was_taken_by_none() -> None:
    stage = stage_with_records()
    stage.sim.crash("drop")
    stage.sim.flip_bit(f"{ROOT}/orders-0/{LOG}", 80, 3)
    stage.open()
    stage.restart(clean=False)
    stage.apply()
    assert told(stage) == {WHERE: Fault.DAMAGED}
    take_all(stage)
    assert TOLD_FILE in stage.disk.list_directory(f"{ROOT}/orders-0/{QUARANTINE}")
    assert told(stage) == {}
    stage.restart(clean=False)
    stage.apply()
    assert told(stage) == {}


def test_a_log_that_is_gone_is_told_and_not_made_anew_while_nobody_leads() -> None:
    stage = stage_with_records()
    close(stage)
    remove(stage, "orders-0")
    stage.open()
    elect(stage, -1)
    assert told(stage) == {WHERE: Fault.MISSING}
    assert "is gone" in str(stage.partitions.unavailable[KEY])
    take_all(stage)
    stage.pass_time(70_000)
    assert "orders-0" not in stage.directories()
    stage.restart(clean=True)
    stage.apply()
    assert told(stage) == {WHERE: Fault.MISSING}, "its checkpoints stay, and tell the next process"
    assert stage["others"].log_end_offset == 3


def test_a_log_that_is_gone_begins_anew_once_that_is_known_and_somebody_leads() -> None:
    for leader in (OTHER, ME):
        stage = stage_with_records((ME, OTHER))
        close(stage)
        remove(stage, "orders-0")
        stage.open()
        elect(stage, leader)
        assert "orders-0" not in stage.directories(), "nobody knows yet that it is gone"
        take_all(stage)
        assert "orders-0" in stage.directories()
        assert told(stage) == {WHERE: Fault.ONLINE}
        assert stage.partitions.faults.present == {}
        assert stage["orders"].log_end_offset == 0


def test_a_lost_log_that_is_back_is_told_to_be_online() -> None:
    stage = stage_with_records()
    lose(stage)
    stage.restart(clean=True)
    stage.apply()
    assert told(stage) == {WHERE: Fault.ONLINE}
    assert stage["orders"].log_end_offset == 3


def test_a_log_that_is_gone_before_any_checkpoint_is_missed_if_the_image_says_so() -> None:
    stage = stage_with_records()
    lose(stage)
    stage.sim.crash("drop")
    remove(stage, "orders-0")
    stage.open()
    stage.apply()
    assert told(stage) == {WHERE: Fault.MISSING}


def test_a_deleted_topic_is_not_missed_and_its_name_can_be_used_again() -> None:
    stage = stage_with_records()
    stage.pass_time(70_000)
    stage.apply(stage.metadata.remove(1))
    stage.sim.crash("drop")
    stage.metadata.create("orders", 3)
    stage.open()
    stage.apply()
    assert told(stage) == {}
    assert stage["orders"].log_end_offset == 0


def test_a_log_that_cannot_be_opened_keeps_no_other_from_serving_and_is_tried_again() -> None:
    stage = stage_with_records()
    close(stage)
    stage.sim.inject("open", f"*orders-0/{LOG}", errno.EIO, count=3)
    stage.open()
    assert list(stage.partitions.store.unopened) == [KEY]
    stage.apply()
    assert told(stage) == {WHERE: Fault.OFFLINE}
    assert stage["others"].log_end_offset == 3
    take_all(stage)
    stage.pass_time(5_000)
    assert told(stage) == {WHERE: Fault.ONLINE}
    assert stage["orders"].log_end_offset == 3
    assert stage.partitions.unavailable == {}


def test_faults_are_counted_and_those_who_listen_later_hear_them_too() -> None:
    stage = stage_with_records()
    close(stage)
    remove(stage, "orders-0")
    stage.open()
    stage.apply()
    heard: list[ReplicaFault] = []
    stage.partitions.faults.on_fault(heard.append)
    assert [each.fault for each in heard] == [Fault.MISSING]
    (family,) = stage.partitions.faults.families()
    assert {str(each.labels["fault"]): each.value for each in family.samples}["missing"] == 1
