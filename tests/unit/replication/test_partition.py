"""A partition that leads: who may write, what is committed when, what may be read."""

import errno

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DiskFullError,
    FencedLeaderEpochError,
    LogDirectoryFailedError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    UnknownLeaderEpochError,
)
from distributedlog.replication.contract import HIGH_WATERMARK, NOT_FOUND, Isolation, ListedOffset, OffsetSpec
from distributedlog.storage.append import Origin
from distributedlog.storage.epochs import EpochEnd
from tests.unit.replication.support import (
    ME,
    OTHER,
    THIRD,
    Stage,
    produce,
    produce_data,
    values_of,
)
from tests.unit.storage.support import NOW_MS, batch_of, marker_of, value_of, with_small_segments

# --- who may write -----------------------------------------------------------------------------


def test_who_does_not_lead_takes_no_records() -> None:
    stage = Stage()
    with pytest.raises(NotLeaderOrFollowerError):
        produce(stage.partition, 1)
    with pytest.raises(NotLeaderOrFollowerError):
        produce(stage.follow(), 1)
    stage.lead(1)
    assert produce(stage.partition, 1).base_offset == 0
    stage.partition.stop()
    with pytest.raises(NotLeaderOrFollowerError):
        produce(stage.partition, 2)


def test_acks_all_is_refused_before_the_append_when_too_few_are_in_sync() -> None:
    stage = Stage(min_insync_replicas=2)
    partition = stage.lead(replicas=(ME, OTHER), isr=(ME,))
    with pytest.raises(NotEnoughReplicasError):
        produce(partition, 1)
    assert partition.log_end_offset == 0
    assert produce(partition, 1, acks=1).base_offset == 0


def test_records_bear_the_epoch_of_the_leader_that_took_them() -> None:
    stage = Stage()
    produce(stage.lead(3), 1)
    produce(stage.lead(7), 2)
    assert stage.partition.log.epochs.entries == [(3, 0), (7, 1)]


def test_a_retry_is_answered_with_its_first_offset_and_changes_nothing() -> None:
    partition = Stage().lead()
    batch = batch_of([value_of(1)], producer_id=5, producer_epoch=0, base_sequence=0)
    first = produce_data(partition, bytearray(batch))
    again = produce_data(partition, bytearray(batch))
    assert again.is_duplicate
    assert again.base_offset == first.base_offset == 0
    assert partition.log_end_offset == 1
    with pytest.raises(OutOfOrderSequenceError):
        produce_data(partition, batch_of([b"x"], producer_id=5, producer_epoch=0, base_sequence=7))


# --- what is committed -------------------------------------------------------------------------


def test_nothing_is_committed_before_it_is_synced() -> None:
    stage = Stage()
    partition = stage.lead()
    produce(partition, 1, 2)
    assert (partition.log_end_offset, partition.high_watermark) == (2, 0)
    assert partition.check_acknowledged(2) is None
    assert stage.told == ["state", "end"]
    stage.executor.run_one()
    assert partition.high_watermark == 2
    assert partition.check_acknowledged(2) == ErrorCode.NONE
    assert stage.told == ["state", "end", "commit"]


def test_appends_during_a_sync_share_the_next_one() -> None:
    stage = Stage()
    partition = stage.lead()
    produce(partition, 1)
    for number in range(2, 10):
        produce(partition, number)
    assert stage.executor.waiting == 1
    stage.executor.run_one()
    assert partition.high_watermark == 1, "the first sync stands for what was there when it began"
    stage.executor.run_one()
    assert partition.high_watermark == 9
    stage.executor.run_all()
    assert partition.high_watermark == 9


def test_a_topic_that_does_not_wait_for_the_disk_commits_at_once_and_syncs_when_due() -> None:
    stage = Stage(config=with_small_segments(flush_on_commit=False, flush_messages=3))
    partition = stage.lead()
    produce(partition, 1, 2)
    assert partition.high_watermark == 2
    assert stage.executor.waiting == 0
    produce(partition, 3)
    assert stage.executor.waiting == 1
    stage.executor.run_all()
    assert partition.log.flushed_end_offset == 3


def test_flush_ms_is_kept_by_maintenance() -> None:
    stage = Stage(config=with_small_segments(flush_on_commit=False, flush_ms=500))
    partition = stage.lead()
    produce(partition, 1)
    partition.sync_if_due(NOW_MS + 499)
    assert stage.executor.waiting == 0
    partition.sync_if_due(NOW_MS + 500)
    stage.executor.run_all()
    assert partition.log.flushed_end_offset == 1


def test_a_follower_that_fetches_commits_what_it_has() -> None:
    stage = Stage()
    partition = stage.lead(replicas=(ME, OTHER))
    produce(partition, 1)
    produce(partition, 2)
    stage.executor.run_all()
    assert partition.high_watermark == 0
    assert values_of(partition.read_for_replica(OTHER, 0, 1 << 20, 0)) == [value_of(1), value_of(2)]
    read = partition.read_for_replica(OTHER, 1, 1 << 20, 0)
    assert values_of(read) == [value_of(2)]
    assert read.high_watermark == partition.high_watermark == 1
    assert partition.read_for_replica(OTHER, 2, 1 << 20, 0).high_watermark == 2


def test_a_follower_ahead_of_the_leaders_own_disk_commits_only_what_that_has() -> None:
    stage = Stage()
    partition = stage.lead(replicas=(ME, OTHER))
    produce(partition, 1)
    partition.read_for_replica(OTHER, 1, 1 << 20, 0)
    assert partition.high_watermark == 0
    stage.executor.run_all()
    assert partition.high_watermark == 1


def test_a_broker_without_a_replica_gets_nothing_as_a_follower() -> None:
    partition = Stage().lead(replicas=(ME, OTHER))
    produce(partition, 1)
    with pytest.raises(UnknownLeaderEpochError):
        partition.read_for_replica(THIRD, 0, 1 << 20, 0)


def test_an_isr_that_shrinks_lets_the_rest_commit_and_below_the_minimum_answers_the_waiters() -> None:
    stage = Stage(min_insync_replicas=2)
    partition = stage.lead(replicas=(ME, OTHER, THIRD))
    produce(partition, 1)
    stage.executor.run_all()
    partition.read_for_replica(OTHER, 1, 100, 0)
    assert partition.check_acknowledged(1) is None
    stage.lead(replicas=(ME, OTHER, THIRD), isr=(ME, OTHER))
    assert partition.check_acknowledged(1) == ErrorCode.NONE
    produce(partition, 2)
    stage.lead(replicas=(ME, OTHER, THIRD), isr=(ME,))
    assert partition.check_acknowledged(2) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert partition.check_acknowledged(1) == ErrorCode.NONE, "what was committed stays so"
    stage.executor.run_all()
    assert partition.high_watermark == 1


def test_a_lowered_minimum_commits_at_once_and_is_told() -> None:
    stage = Stage(min_insync_replicas=2)
    partition = stage.lead(replicas=(ME, OTHER), isr=(ME,))
    produce(partition, 1, acks=1)
    stage.executor.run_all()
    assert partition.high_watermark == 0
    stage.told.clear()
    partition.reconfigure(partition.log.config, 1)
    assert partition.high_watermark == 1
    assert stage.told == ["commit", "state"]


def test_turning_the_waiting_for_the_disk_off_and_on_takes_nothing_back() -> None:
    stage = Stage()
    partition = stage.lead()
    produce(partition, 1)
    partition.reconfigure(with_small_segments(flush_on_commit=False), 1)
    assert partition.high_watermark == 1
    partition.reconfigure(with_small_segments(flush_on_commit=True), 1)
    assert partition.high_watermark == 1
    produce(partition, 2)
    assert partition.high_watermark == 1
    stage.executor.run_all()
    assert partition.high_watermark == 2


def test_who_loses_leadership_acknowledges_nothing_and_a_late_sync_commits_nothing() -> None:
    stage = Stage()
    partition = stage.lead(1)
    produce(partition, 1)
    stage.follow(2)
    assert partition.check_acknowledged(1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    stage.executor.run_all()
    assert partition.high_watermark == 0


# --- after a restart ---------------------------------------------------------------------------


def restarted(stage: Stage, high_watermark: int) -> Stage:
    stage.disk.crash("keep")
    return Stage(stage.config, disk=stage.disk, high_watermark=high_watermark)


def test_a_leader_alone_in_the_isr_commits_at_once_what_recovery_found() -> None:
    stage = Stage()
    produce(stage.lead(), 1, 2, 3)
    partition = restarted(stage, 0).lead(1)
    assert partition.high_watermark == 3
    assert partition.list_offset(OffsetSpec.LATEST).offset == 3


def test_a_leader_with_others_in_the_isr_commits_nothing_by_itself() -> None:
    stage = Stage()
    produce(stage.lead(), 1, 2, 3)
    partition = restarted(stage, 1).lead(1, replicas=(ME, OTHER))
    assert partition.high_watermark == 1
    with pytest.raises(OffsetNotAvailableError):
        partition.list_offset(OffsetSpec.LATEST)
    partition.read_for_replica(OTHER, 3, 100, 0)
    assert partition.list_offset(OffsetSpec.LATEST).offset == 3


# --- what may be read --------------------------------------------------------------------------


def test_consumers_read_up_to_the_high_watermark_and_no_further() -> None:
    stage = Stage()
    partition = stage.lead()
    produce(partition, 1)
    stage.executor.run_one()
    produce(partition, 2)
    assert values_of(partition.read(0, 1 << 20)) == [value_of(1)]
    read = partition.read(1, 1 << 20)
    assert read.region is None
    assert (read.high_watermark, read.log_start_offset) == (1, 0)
    assert partition.read(2, 1 << 20).region is None, "the log's end is an offset one may wait at"
    with pytest.raises(OffsetOutOfRangeError):
        partition.read(3, 1 << 20)


def test_a_first_batch_larger_than_the_limit_is_returned_whole_unless_others_came_before() -> None:
    stage = Stage()
    partition = stage.lead()
    produce(partition, 1, 2, 3)
    stage.executor.run_all()
    assert len(values_of(partition.read(0, 10))) == 3
    read = partition.read(0, 10, at_least_one=False)
    assert read.length <= 10
    if read.region is not None:
        read.region.close()


def test_reading_committed_stops_at_an_open_transaction_and_hears_of_aborted_ones() -> None:
    stage = Stage()
    partition = stage.lead()
    produce(partition, 1)
    produce_data(
        partition,
        batch_of([value_of(2)], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
    )
    produce(partition, 3)
    stage.executor.run_all()
    read = partition.read(0, 1 << 20, isolation=Isolation.READ_COMMITTED)
    assert (read.last_stable_offset, read.high_watermark) == (1, 3)
    assert values_of(read) == [value_of(1)]
    assert len(values_of(partition.read(0, 1 << 20))) == 3
    produce_data(partition, marker_of(7, commit=False), Origin.COORDINATOR)
    assert partition.last_stable_offset == 1, "the marker is not committed yet"
    stage.executor.run_all()
    read = partition.read(0, 1 << 20, isolation=Isolation.READ_COMMITTED)
    assert len(values_of(read)) == 3
    assert read.aborted is not None
    assert [(each.producer_id, each.first_offset) for each in read.aborted] == [(7, 1)]
    uncommitted = partition.read(0, 1 << 20)
    assert uncommitted.aborted is None
    values_of(uncommitted)


def test_epochs_that_are_over_or_not_known_yet_are_told_apart() -> None:
    partition = Stage().lead(5)
    for ask in (
        lambda epoch: partition.read(0, 100, current_leader_epoch=epoch),
        lambda epoch: partition.list_offset(OffsetSpec.LATEST, current_leader_epoch=epoch),
        lambda epoch: partition.offset_for_leader_epoch(5, current_leader_epoch=epoch),
    ):
        with pytest.raises(FencedLeaderEpochError):
            ask(4)
        with pytest.raises(UnknownLeaderEpochError):
            ask(6)
        ask(5)


def test_a_follower_serves_those_who_take_it_from_any_replica() -> None:
    stage = Stage()
    partition = stage.lead()
    produce(partition, 1)
    stage.executor.run_all()
    stage.follow(1)
    with pytest.raises(NotLeaderOrFollowerError):
        partition.read(0, 100)
    assert values_of(partition.read(0, 1 << 20, any_replica=True)) == [value_of(1)]
    partition.stop()
    with pytest.raises(NotLeaderOrFollowerError):
        partition.read(0, 100, any_replica=True)


def test_a_reader_whose_log_has_parted_from_ours_is_told_where() -> None:
    stage = Stage()
    partition = stage.lead(1)
    produce(partition, 1)
    produce(partition, 2)
    stage.lead(4)
    produce(partition, 3)
    stage.executor.run_all()
    diverging = partition.read(3, 100, last_fetched_epoch=2)
    assert diverging.diverging == EpochEnd(1, 2)
    assert diverging.region is None
    assert partition.read(3, 100, last_fetched_epoch=4).diverging is None
    with pytest.raises(OffsetOutOfRangeError):
        partition.read(3, 100, last_fetched_epoch=9)


def test_a_diverging_follower_does_not_count_for_what_is_committed() -> None:
    stage = Stage()
    partition = stage.lead(4, replicas=(ME, OTHER))
    produce(partition, 1)
    stage.executor.run_all()
    stage.lead(6, replicas=(ME, OTHER))
    read = partition.read_for_replica(OTHER, 1, 100, 0, last_fetched_epoch=5)
    assert read.diverging == EpochEnd(4, 1)
    assert partition.high_watermark == 0


# --- asking for offsets ------------------------------------------------------------------------


def timed(*times: int) -> Stage:
    stage = Stage()
    partition = stage.lead(2)
    for at, time_ms in enumerate(times):
        produce_data(partition, batch_of([value_of(at)], timestamp_ms=NOW_MS + time_ms))
    stage.executor.run_all()
    return stage


def test_offsets_by_name_and_by_time() -> None:
    stage = timed(10, 50, 20)
    partition = stage.partition
    assert partition.list_offset(OffsetSpec.EARLIEST) == ListedOffset(0, -1, 2)
    assert partition.list_offset(OffsetSpec.EARLIEST_LOCAL) == ListedOffset(0, -1, 2)
    assert partition.list_offset(OffsetSpec.LATEST) == ListedOffset(3, -1, 2)
    assert partition.list_offset(OffsetSpec.LATEST_TIERED) == NOT_FOUND
    assert partition.list_offset(OffsetSpec.EARLIEST_PENDING_UPLOAD) == NOT_FOUND
    assert partition.list_offset(OffsetSpec.MAX_TIMESTAMP) == ListedOffset(1, NOW_MS + 50, 2)
    assert partition.list_offset(NOW_MS + 11) == ListedOffset(1, NOW_MS + 50, 2)
    assert partition.list_offset(NOW_MS + 51) == NOT_FOUND
    assert partition.list_offset(0) == ListedOffset(0, NOW_MS + 10, 2)


def test_what_is_not_committed_has_no_offset_for_consumers() -> None:
    stage = timed(10)
    produce_data(stage.partition, batch_of([b"x"], timestamp_ms=NOW_MS + 99))
    assert stage.partition.list_offset(OffsetSpec.LATEST).offset == 1
    assert stage.partition.list_offset(OffsetSpec.LATEST, isolation=None).offset == 2
    assert stage.partition.list_offset(NOW_MS + 90) == NOT_FOUND
    assert stage.partition.list_offset(OffsetSpec.MAX_TIMESTAMP) == NOT_FOUND
    assert stage.partition.list_offset(NOW_MS + 90, isolation=None).offset == 1


def test_a_time_beyond_what_a_new_leader_knows_committed_is_not_denied() -> None:
    stage = Stage()
    partition = stage.lead(1, replicas=(ME, OTHER))
    produce_data(partition, batch_of([b"x"], timestamp_ms=NOW_MS + 9))
    stage.executor.run_all()
    stage.lead(2, replicas=(ME, OTHER))
    with pytest.raises(OffsetNotAvailableError):
        partition.list_offset(NOW_MS)
    with pytest.raises(OffsetNotAvailableError):
        partition.list_offset(OffsetSpec.LATEST)
    assert partition.list_offset(OffsetSpec.EARLIEST).offset == 0
    assert partition.list_offset(NOW_MS + 10) == NOT_FOUND
    assert partition.list_offset(OffsetSpec.LATEST, isolation=None).offset == 1


def test_the_latest_committed_offset_stops_at_an_open_transaction() -> None:
    stage = Stage()
    partition = stage.lead()
    produce_data(
        partition, batch_of([b"x"], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    stage.executor.run_all()
    assert partition.list_offset(OffsetSpec.LATEST, isolation=Isolation.READ_COMMITTED).offset == 0
    assert partition.list_offset(OffsetSpec.LATEST).offset == 1


def test_where_epochs_end() -> None:
    stage = Stage()
    produce(stage.lead(1), 1)
    produce(stage.lead(3), 2)
    partition = stage.partition
    assert partition.offset_for_leader_epoch(1) == EpochEnd(1, 1)
    assert partition.offset_for_leader_epoch(2) == EpochEnd(1, 1)
    assert partition.offset_for_leader_epoch(3) == EpochEnd(3, 2)
    assert partition.offset_for_leader_epoch(4) == EpochEnd(-1, -1)
    stage.lead(5)
    assert partition.offset_for_leader_epoch(5) == EpochEnd(5, 2), (
        "a leader without records has an epoch, too"
    )


# --- deleting records --------------------------------------------------------------------------


def test_records_are_deleted_up_to_what_is_committed() -> None:
    stage = Stage()
    partition = stage.lead()
    for number in range(5):
        produce(partition, number)
    stage.executor.run_all()
    produce(partition, 5)
    assert partition.delete_records(2, NOW_MS) == 2
    assert partition.delete_records(1, NOW_MS) == 2
    with pytest.raises(OffsetOutOfRangeError):
        partition.delete_records(6, NOW_MS)
    with pytest.raises(OffsetOutOfRangeError):
        partition.delete_records(-2, NOW_MS)
    with pytest.raises(OffsetOutOfRangeError):
        partition.read(1, 100)
    assert partition.delete_records(HIGH_WATERMARK, NOW_MS) == 5


def test_what_is_only_compacted_is_not_deleted_by_offset() -> None:
    partition = Stage(config=with_small_segments(cleanup_policy=("compact",))).lead()
    with pytest.raises(PolicyViolationError):
        partition.delete_records(0, NOW_MS)


# --- when the disk is full or broken -----------------------------------------------------------


def test_a_full_disk_refuses_produce_serves_reads_and_recovers_alone() -> None:
    stage = Stage()
    partition = stage.lead()
    produce(partition, 1)
    stage.executor.run_all()
    stage.disk.inject("write", "*.log", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        produce(partition, 2)
    assert values_of(partition.read(0, 1 << 20)) == [value_of(1)]
    assert partition.is_leader
    assert produce(partition, 2).base_offset == 1


def test_room_that_can_be_made_is_made_before_refusing() -> None:
    stage = Stage()
    partition = stage.lead()
    asked: list[bool] = []

    def free_space() -> bool:
        asked.append(True)
        return True

    partition._free_space = free_space
    stage.disk.inject("write", "*.log", errno.ENOSPC)
    assert produce(partition, 1).base_offset == 0
    assert asked == [True]


def test_a_sync_without_room_is_tried_again_by_maintenance() -> None:
    stage = Stage()
    partition = stage.lead(4)
    produce(partition, 1)
    stage.executor.run_all()
    partition.log.roll(NOW_MS)
    produce(partition, 2)
    stage.disk.inject("dirsync", "*t-0", errno.ENOSPC)
    stage.executor.run_all()
    assert partition.high_watermark == 1
    assert partition.failure is None
    partition.sync_if_due(NOW_MS)
    stage.executor.run_all()
    assert partition.high_watermark == 2


def test_a_failed_sync_fails_the_partition_and_acknowledges_nothing() -> None:
    stage = Stage()
    partition = stage.lead()
    produce(partition, 1)
    stage.disk.inject("sync", "*.log", errno.EIO)
    stage.executor.run_all()
    assert partition.high_watermark == 0
    assert partition.check_acknowledged(1) == ErrorCode.KAFKA_STORAGE_ERROR
    assert stage.told[-1] == "state"
    for ask in (lambda: produce(partition, 2), lambda: partition.read(0, 10)):
        with pytest.raises(LogDirectoryFailedError):
            ask()
    stage.lead(9)
    assert not partition.is_leader, "a broken disk leads nothing any more"


def test_a_failed_write_fails_the_partition() -> None:
    stage = Stage()
    partition = stage.lead()
    stage.disk.inject("write", "*.log", errno.EIO)
    with pytest.raises(LogDirectoryFailedError):
        produce(partition, 1)
    assert partition.failure is not None
    assert not partition.is_leader
