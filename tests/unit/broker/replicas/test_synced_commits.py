"""Which broker epoch a directory vouches for: one in which nothing was committed that was not synced."""

from distributedlog.broker.replicas.synced_commits import NO_EPOCH, SYNCED_COMMITS_FILE
from distributedlog.controller.image import ResourceType
from tests.unit.broker.partition_stage import ME, OTHER, ROOT, Stage
from tests.unit.replication.support import produce

EPOCH = 7
PATH = f"{ROOT}/{SYNCED_COMMITS_FILE}"


def registered() -> Stage:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    stage.partitions.maintenance.take_broker_epoch(EPOCH)
    return stage


def configure(stage: Stage, value: str) -> None:
    stage.apply(stage.metadata.configure(ResourceType.TOPIC, "orders", "flush.on.commit", value))


def found_after_power_cut(stage: Stage) -> int:
    return stage.restart().maintenance.synced_commits.previous_epoch


def test_the_next_process_finds_the_epoch_of_the_one_before() -> None:
    stage = registered()
    assert stage.partitions.maintenance.synced_commits.previous_epoch == NO_EPOCH
    produce(stage["orders"], 1)
    assert found_after_power_cut(stage) == EPOCH


def test_it_vouches_for_no_epoch_but_the_one_that_it_was_written_in() -> None:
    stage = registered()
    found_after_power_cut(stage)
    assert found_after_power_cut(stage) == EPOCH, "the second process was never registered"
    stage.partitions.maintenance.take_broker_epoch(EPOCH + 1)
    assert found_after_power_cut(stage) == EPOCH + 1


def test_it_is_gone_before_a_log_counts_with_what_is_not_synced() -> None:
    stage = registered()
    configure(stage, "false")
    produce(stage["orders"], 1)
    assert stage["orders"].high_watermark == 1
    assert found_after_power_cut(stage) == NO_EPOCH


def test_a_topic_that_is_exempt_from_the_start_leaves_none() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.metadata.configure(ResourceType.TOPIC, "orders", "flush.on.commit", "false")
    stage.apply()
    stage.partitions.maintenance.take_broker_epoch(EPOCH)
    stage.pass_time(2_000)
    assert found_after_power_cut(stage) == NO_EPOCH


def test_it_comes_back_when_all_that_was_committed_is_synced() -> None:
    stage = registered()
    configure(stage, "false")
    produce(stage["orders"], 1)
    configure(stage, "true")
    stage.partitions.maintenance.take_broker_epoch(EPOCH)
    assert not stage.sim.exists(PATH), "what was committed is not synced"
    stage.settle()
    stage.pass_time(2_000)
    assert found_after_power_cut(stage) == EPOCH


def test_what_a_leader_may_have_counted_of_a_follower_is_synced_first() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1, replicas=(ME, OTHER))
    stage.apply()
    configure(stage, "false")
    produce(stage["orders"], 1)
    stage.apply(stage.metadata.change(1, leader=OTHER))
    configure(stage, "true")
    assert stage["orders"].high_watermark == 0, "its leader may know more"
    stage.partitions.maintenance.take_broker_epoch(EPOCH)
    assert not stage.sim.exists(PATH)
    stage.settle()
    stage.pass_time(2_000)
    assert found_after_power_cut(stage) == EPOCH


def test_a_damaged_file_vouches_for_nothing() -> None:
    stage = registered()
    stage.partitions.store.files.write_atomically(PATH, b"\xff{")
    assert found_after_power_cut(stage) == NO_EPOCH
