"""What happens to the logs from time to time: checkpoints, retention, compaction, late syncs."""

import errno

import pytest

from distributedlog.broker.observability.metrics import Histogram
from distributedlog.broker.replicas import maintenance
from distributedlog.controller.image import ResourceType
from distributedlog.model.config import LogConfig
from distributedlog.model.ids import TopicPartition
from distributedlog.storage.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
)
from distributedlog.storage.epochs import EpochEnd
from tests.unit.broker.partition_stage import ME, OTHER, ROOT, Stage, topic_id
from tests.unit.replication.support import follower_batch, produce, produce_data
from tests.unit.storage.support import NOW_MS, batch_of, value_of, values_in

ORDERS = TopicPartition("orders", 0)
COMPACTED = LogConfig(
    segment_bytes=1024,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.01,
)


def offsets_in(stage: Stage, name: str) -> dict[TopicPartition, int]:
    data = stage.sim.files().get(f"{ROOT}/{name}")
    return {} if data is None else decode_offsets(data)


def with_orders(*numbers: int, log: LogConfig | None = None) -> Stage:
    stage = Stage(log=log)
    stage.metadata.create("orders", 1)
    stage.apply()
    for number in numbers:
        produce(stage["orders"], number)
    stage.settle()
    return stage


def test_high_watermarks_are_noted_every_few_seconds_and_synced_ends_each_minute() -> None:
    stage = with_orders(1, 2, 3)
    stage.pass_time(4_000)
    assert offsets_in(stage, HIGH_WATERMARK_FILE) == {}
    stage.pass_time(1_000)
    assert offsets_in(stage, HIGH_WATERMARK_FILE) == {ORDERS: 3}
    assert offsets_in(stage, RECOVERY_POINT_FILE) == {}
    stage.pass_time(55_000)
    assert offsets_in(stage, RECOVERY_POINT_FILE) == {ORDERS: 3}


def test_an_idle_broker_writes_nothing() -> None:
    stage = with_orders(1)
    stage.pass_time(61_000)
    operations = stage.sim.operations
    stage.pass_time(120_000)
    assert stage.sim.operations == operations


def test_a_deleted_start_is_noted_and_told_when_durable() -> None:
    stage = with_orders(*range(5))
    stage["orders"].delete_records(3, NOW_MS)
    told: list[BaseException | None] = []
    stage.partitions.maintenance.checkpoint_starts(told.append)
    assert told == []
    stage.settle()
    assert told == [None]
    assert offsets_in(stage, LOG_START_FILE) == {ORDERS: 3}
    stage.restart()
    stage.apply()
    assert stage["orders"].log_start_offset == 3


def test_a_leader_is_told_of_a_followers_start_when_a_crash_cannot_take_it_back() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1, replicas=(ME, OTHER), epoch=1)
    stage.apply()
    for number in range(4):
        produce(stage["orders"], number)
    stage.settle()
    stage.apply(stage.metadata.change(1, leader=OTHER))
    orders = stage["orders"]
    orders.follow_watermarks(4, 0, NOW_MS)
    told: list[int] = []
    stage.partitions.signals.end_stored.append(lambda partition: told.append(partition.log_start_offset))
    orders.follow_watermarks(4, 3, NOW_MS)
    position = orders.fetch_position
    assert position is not None
    assert (orders.log_start_offset, position.log_start_offset) == (3, 0)
    assert told == []
    stage.settle()
    position = orders.fetch_position
    assert position is not None
    assert position.log_start_offset == 3
    assert told == [3]
    assert offsets_in(stage, LOG_START_FILE) == {ORDERS: 3}


def test_a_leader_is_not_told_of_a_start_that_was_stored_of_the_log_before_a_restart() -> None:
    """The write was under way when the log began anew, which took the start back: a crash would, too."""
    stage = Stage()
    stage.metadata.create("orders", 1, replicas=(ME, OTHER), leader=OTHER, epoch=1)
    stage.apply()
    orders = stage["orders"]

    def replicate() -> None:
        batches = b"".join(bytes(follower_batch(at, at, leader_epoch=1)) for at in range(4))
        orders.append_as_follower(batches, leader_epoch=1, leader_high_watermark=4, now_ms=NOW_MS)

    replicate()
    stage.settle()
    orders.follow_watermarks(4, 3, NOW_MS)
    orders.restart_at(0, leader_epoch=1, now_ms=NOW_MS)
    replicate()
    orders.follow_watermarks(4, 3, NOW_MS)
    stage.executor.run_one()
    told = [orders.stored_start_offset]
    assert offsets_in(stage, LOG_START_FILE) == {ORDERS: 0}
    stage.settle()
    told.append(orders.stored_start_offset)
    assert told == [0, 3]


def test_a_truncation_takes_back_what_was_noted_before_it_cuts() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1, replicas=(ME, OTHER), epoch=1)
    stage.apply()
    for number in range(4):
        produce(stage["orders"], number)
    stage.settle()
    stage.pass_time(61_000)
    assert offsets_in(stage, RECOVERY_POINT_FILE) == {ORDERS: 4}
    stage.apply(stage.metadata.change(1, leader=OTHER))
    stage["orders"].truncate_by_epoch(EpochEnd(1, 2), leader_epoch=2, now_ms=NOW_MS)
    assert offsets_in(stage, RECOVERY_POINT_FILE) == {ORDERS: 2}
    stage.restart()
    assert stage.partitions.store.reports[ORDERS].is_sound


def test_a_name_that_is_used_again_inherits_no_offsets() -> None:
    stage = with_orders(*range(4))
    stage.metadata.create("kept", 2)
    stage.apply()
    produce(stage["kept"], 1)
    stage.settle()
    stage.pass_time(61_000)
    stage.restart()  # the store has read what was noted
    stage.apply()
    produce(stage["kept"], 2)
    stage.settle()
    stage.pass_time(61_000)
    stage.metadata.remove(1)
    stage.apply(stage.metadata.create("orders", 3))
    noted = offsets_in(stage, RECOVERY_POINT_FILE)
    assert noted.get(ORDERS, 0) == 0
    assert noted[TopicPartition("kept", 0)] == 2, "of the others nothing is forgotten"
    assert offsets_in(stage, HIGH_WATERMARK_FILE).get(ORDERS, 0) == 0


def test_retention_deletes_in_the_background_and_the_files_follow() -> None:
    stage = with_orders(*range(50))
    segments = len(stage["orders"].log.segments)
    assert segments > 3
    stage.apply(stage.metadata.configure(ResourceType.TOPIC, "orders", "retention.bytes", "1100"))
    stage.pass_time(300_000)
    assert len(stage["orders"].log.segments) < segments
    assert stage["orders"].log_start_offset > 0
    stage.pass_time(10_000)
    assert not [path for path in stage.sim.files() if path.endswith(".deleted")]


def test_compaction_runs_in_the_executor_and_keeps_the_last_of_each_key() -> None:
    stage = Stage(log=COMPACTED)
    stage.metadata.create("orders", 1)
    stage.apply()
    for number in range(60):
        produce_data(stage["orders"], batch_of([value_of(number)], keys=[b"k%d" % (number % 3)]))
    stage.settle()
    before = len(values_in(stage["orders"].log))
    stage.pass_time(30_000)
    left = values_in(stage["orders"].log)
    assert len(left) < before
    assert left[-3:] == [value_of(57), value_of(58), value_of(59)]
    assert stage.partitions.store.first_dirty_offsets[ORDERS] > 0


@pytest.mark.parametrize(
    ("settings", "runs"),
    [({"compaction_enabled": False}, 0), ({"compaction_interval_ms": 3_600_000}, 0), ({}, 1)],
)
def test_whether_and_how_often_logs_are_compacted_is_for_the_operator_to_say(
    settings: dict[str, int], runs: int
) -> None:
    stage = Stage(log=COMPACTED, settings=settings)
    stage.metadata.create("orders", 1)
    stage.apply()
    for number in range(60):
        produce_data(stage["orders"], batch_of([value_of(number)], keys=[b"k"]))
    stage.settle()
    stage.pass_time(60_000)
    assert families(stage)["dlog_compaction_runs"] == runs


def test_gaps_that_compaction_left_surprise_no_recovery() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    for setting, value in (("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01")):
        stage.metadata.configure(ResourceType.TOPIC, "orders", setting, value)
    stage.apply()
    for number in range(60):
        produce_data(stage["orders"], batch_of([value_of(number)], keys=[b"k%d" % (number % 3)]))
    stage.settle()
    stage.pass_time(30_000)
    left = values_in(stage["orders"].log)
    assert len(left) < 60
    stage.restart()
    report = stage.partitions.store.reports[ORDERS]
    assert (report.damage, report.notes) == ([], [])
    stage.apply()
    assert values_in(stage["orders"].log) == left


def test_a_compaction_of_a_log_that_is_gone_meanwhile_is_forgotten() -> None:
    stage = Stage(log=COMPACTED)
    stage.metadata.create("orders", 1)
    stage.apply()
    for number in range(60):
        produce_data(stage["orders"], batch_of([value_of(number)], keys=[b"k"]))
    stage.settle()
    stage.scheduler.advance(10_000)
    assert stage.executor.waiting > 0
    stage.apply(stage.metadata.remove(1))
    stage.settle()
    assert stage.directories() == []


def test_the_logs_behind_one_that_is_gone_meanwhile_are_compacted_all_the_same() -> None:
    stage = Stage(log=COMPACTED)
    stage.metadata.create("orders", 1)
    stage.metadata.create("payments", 2)
    stage.apply()
    for topic in ("orders", "payments"):
        for number in range(60):
            produce_data(stage[topic], batch_of([value_of(number)], keys=[b"k"]))
    stage.settle()
    stage.scheduler.advance(10_000)
    assert stage.executor.waiting > 0
    stage.apply(stage.metadata.remove(2))  # the one that is being compacted
    stage.settle()
    stage.pass_time(30_000)
    assert families(stage)["dlog_compaction_runs"] == 1
    assert len(values_in(stage["orders"].log)) < 60


def test_what_cannot_be_written_now_is_tried_again() -> None:
    stage = with_orders(1)
    stage.sim.inject("write", f"{ROOT}/{HIGH_WATERMARK_FILE}*", errno.ENOSPC)
    stage.pass_time(5_000)
    assert offsets_in(stage, HIGH_WATERMARK_FILE) == {}
    stage.pass_time(5_000)
    assert offsets_in(stage, HIGH_WATERMARK_FILE) == {ORDERS: 1}


def test_a_sync_that_found_no_room_is_made_up_for() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    produce(stage["orders"], 1)
    stage["orders"].log.roll(NOW_MS)
    stage.sim.inject("dirsync", f"{ROOT}/orders-0", errno.ENOSPC)
    stage.settle()
    assert stage["orders"].high_watermark == 0
    stage.pass_time(1_000)
    assert stage["orders"].high_watermark == 1


def test_recovery_points_wait_for_the_epochs_that_could_not_be_written() -> None:
    stage = Stage()
    stage.metadata.create("orders", 1)
    stage.apply()
    produce(stage["orders"], 1)
    stage.settle()
    assert stage["orders"].high_watermark == 1, "a sync needs no epoch file"
    full = stage.sim.inject("write", "*leader-epoch*", errno.ENOSPC)
    stage.pass_time(60_000)
    assert full.hits == 1
    assert offsets_in(stage, RECOVERY_POINT_FILE) == {ORDERS: 0}
    stage.pass_time(60_000)
    assert offsets_in(stage, RECOVERY_POINT_FILE) == {ORDERS: 1}


def test_only_a_leader_forgets_producers_by_time_and_a_new_one_gives_them_all_of_it() -> None:
    """A follower whose clock jumped would not know a retry when it leads."""
    expiring = LogConfig(producer_id_expiration_ms=600_000)
    stage = Stage(log=expiring)
    stage.metadata.create("orders", 1, replicas=(ME, OTHER), epoch=1)
    stage.apply()
    produce_data(stage["orders"], batch_of([b"v"], producer_id=7, producer_epoch=0, base_sequence=0))
    stage.settle()
    stage.apply(stage.metadata.change(1, leader=OTHER))
    stage.pass_time(3_600_000)
    producers = stage["orders"].log.producers
    assert [state.producer_id for state in producers] == [7]
    stage.apply(stage.metadata.change(1, leader=ME))
    stage.pass_time(600_000)
    assert [state.producer_id for state in producers] == [7]
    stage.pass_time(600_000)
    assert len(producers) == 0


def test_made_up_producers_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PRODUCERS_PER_LOG_MAX", 100)
    monkeypatch.setattr(maintenance, "PRODUCERS_MAX", 150)
    stage = with_orders()
    stage.metadata.create("other", 2)
    stage.apply()
    for number in range(120):
        produce_data(stage["orders"], batch_of([b"v"], producer_id=number, producer_epoch=0, base_sequence=0))
    for number in range(60):
        produce_data(stage["other"], batch_of([b"v"], producer_id=number, producer_epoch=0, base_sequence=0))
    stage.settle()
    stage.pass_time(1_000)
    kept = {state.producer_id for state in stage["orders"].log.producers}
    assert kept == set(range(40, 120)), "those that wrote last, and a tenth of the room is free"
    assert len(stage["other"].log.producers) == 60, "nothing is forgotten of a log with few"


def families(stage: Stage) -> dict[str, float]:
    return {
        family.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in stage.partitions.maintenance.families()
        for sample in family.samples
        if not isinstance(sample.value, Histogram)
    }


def test_what_compaction_and_retention_did_is_counted() -> None:
    stage = Stage(log=COMPACTED)
    stage.metadata.create("orders", 1)
    stage.apply()
    for number in range(60):
        produce_data(stage["orders"], batch_of([value_of(number)], keys=[b"k%d" % (number % 3)]))
    stage.settle()
    before = families(stage)
    assert before["dlog_compaction_age_seconds"] == -1
    assert before["dlog_log_dirty_ratio_max"] == 1.0
    stage.pass_time(30_000)
    after = families(stage)
    assert after["dlog_compaction_runs"] == 1
    assert after["dlog_compaction_failures"] == 0
    assert after["dlog_compaction_running"] == 0
    assert after["dlog_compaction_records read"] > after["dlog_compaction_records written"] > 0
    assert after["dlog_compaction_bytes read"] > after["dlog_compaction_bytes written"] > 0
    assert 0 <= after["dlog_compaction_age_seconds"] <= 30
    assert after["dlog_log_dirty_ratio_max"] < 1.0
    assert after["dlog_retention_runs"] == 0
    stage.apply(stage.metadata.configure(ResourceType.TOPIC, "orders", "cleanup.policy", "delete"))
    stage.apply(stage.metadata.configure(ResourceType.TOPIC, "orders", "retention.bytes", "0"))
    stage.pass_time(300_000)
    emptied = families(stage)
    assert emptied["dlog_retention_runs"] == 1
    assert emptied["dlog_retention_segments"] >= 1
    assert emptied["dlog_retention_bytes"] > 0
    assert emptied["dlog_retention_failures"] == 0
    assert 0 <= emptied["dlog_retention_age_seconds"] <= 300


def test_a_compaction_that_fails_is_counted_as_such_and_tried_again() -> None:
    stage = Stage(log=COMPACTED)
    stage.metadata.create("orders", 1)
    stage.apply()
    for number in range(60):
        produce_data(stage["orders"], batch_of([value_of(number)], keys=[b"k"]))
    stage.settle()
    stage.sim.inject("write", "*.cleaned", errno.ENOSPC)
    stage.pass_time(12_000)
    assert families(stage)["dlog_compaction_failures"] == 1
    stage.pass_time(30_000)
    assert families(stage)["dlog_compaction_runs"] == 1


def test_what_a_compaction_finds_corrupt_is_looked_into() -> None:
    stage = Stage(log=COMPACTED)
    stage.metadata.create("orders", 1)
    stage.apply()
    for number in range(60):
        produce_data(stage["orders"], batch_of([value_of(number)], keys=[b"k"]))
    stage.settle()
    suspected: list[tuple[str, int]] = []
    stage.partitions.suspect = lambda partition, offset: suspected.append((partition.topic, offset))
    damaged = list(stage["orders"].log.segments)[1]
    stage.sim.flip_bit(damaged.log.path, 80, 3)
    stage.pass_time(12_000)
    assert families(stage)["dlog_compaction_failures"] == 1
    assert suspected == [("orders", damaged.base_offset)]


def test_maintenance_ends_with_the_set() -> None:
    stage = with_orders(1)
    stage.partitions.close()
    operations = stage.sim.operations
    stage.scheduler.advance(600_000)
    stage.settle()
    assert stage.sim.operations == operations
    assert topic_id(1) in stage.metadata.image.topics
