"""The log lives on while it is compacted: what the commit accepts, and what it throws away."""

import errno
from pathlib import Path

import pytest

from distributedlog.model.config import LogConfig
from distributedlog.model.errors import CorruptLogError, DiskFullError, LogDirectoryFailedError, StorageError
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.executor import Outcome, SystemExecutor
from distributedlog.records.record import Record, encode_batch
from distributedlog.storage.compaction.log import (
    CompactionResult,
    commit_compaction,
    plan_compaction,
    run_compaction,
)
from distributedlog.storage.files import Files
from distributedlog.storage.recovery import open_log
from distributedlog.storage.retention import enforce_retention
from distributedlog.storage.segment import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from tests.unit.storage.compaction.keyed_log import DIRECTORY, START_MS, KeyedLog, read_committed, settings

A, B, C = b"a", b"b", b"c"


def three_segments(config: LogConfig) -> KeyedLog:
    """Too large to be merged: a new segment each."""
    keyed = KeyedLog(config)
    for number in range(3):
        keyed.put((A, b"%d" % number * 500), (b"%d" % number, b"y" * 400))
        keyed.roll()
    return keyed


SMALL = settings(segment_bytes=1024)


def leftovers(keyed: KeyedLog) -> list[str]:
    return keyed.names(CLEANED_SUFFIX) + keyed.names(SWAP_SUFFIX)


# --- readers -----------------------------------------------------------------------------------


def test_a_reader_in_the_middle_of_a_segment_reads_on_in_it() -> None:
    keyed = three_segments(SMALL)
    found = keyed.log.read(0, 10_000)
    assert found.region is not None
    before = found.region.read()
    keyed.compact()
    assert found.region.read() == before
    keyed.log.remove_deleted_files(keyed.now_ms)
    assert keyed.names(DELETED_SUFFIX) == []
    assert found.region.read() == before
    found.region.close()
    assert keyed.offsets() == [1, 3, 4, 5]


def test_what_a_slow_reader_held_is_let_go_after_it() -> None:
    keyed = three_segments(SMALL)
    found = keyed.log.read(0, 10_000)
    assert found.region is not None
    keyed.compact()
    keyed.log.remove_deleted_files(keyed.now_ms)
    used_bytes = keyed.disk.used_bytes
    found.region.close()
    assert keyed.disk.used_bytes < used_bytes


def test_a_walk_that_began_before_the_swap_ends_on_the_old_segments() -> None:
    keyed = three_segments(settings(segment_bytes=1024, file_delete_delay_ms=60_000))
    walk = keyed.log.walk(0, keyed.log.end_offset)
    first = next(walk)
    keyed.compact()
    assert [batch.header.record_count for batch in (first, *walk)] == [2, 2, 2]


# --- what happens meanwhile ---------------------------------------------------------------------


def test_appends_meanwhile_are_kept() -> None:
    keyed = three_segments(SMALL)

    def append() -> None:
        keyed.put((A, b"new"))

    keyed.compact(between=append)
    assert keyed.offsets() == [1, 3, 4, 5, 6]
    assert keyed.table()[A] == b"new"


def test_after_a_truncation_meanwhile_the_log_stays_as_it_is() -> None:
    """What was dropped may have been replaced by what was truncated."""
    keyed = three_segments(SMALL)
    keyed.compact(between=lambda: keyed.log.truncate_to(4, keyed.now_ms))
    assert keyed.offsets() == [0, 1, 2, 3]
    assert keyed.table()[A] == b"1" * 500
    assert keyed.first_dirty_offset == 0
    assert leftovers(keyed) == []


def test_a_truncation_is_noticed_although_the_same_bytes_came_again() -> None:
    keyed = three_segments(SMALL)
    tail = b"".join(bytes(batch.data) for batch in keyed.log.walk(4, 6))

    def truncate_and_fetch_again() -> None:
        keyed.log.truncate_to(4, keyed.now_ms)
        keyed.log.append_as_follower(tail, now_ms=keyed.now_ms)
        keyed.roll()

    keyed.compact(between=truncate_and_fetch_again)
    assert keyed.offsets() == [0, 1, 2, 3, 4, 5]
    assert leftovers(keyed) == []


def test_segments_that_retention_deleted_meanwhile_do_not_come_back() -> None:
    keyed = three_segments(
        settings(segment_bytes=1024, cleanup_policy=("compact", "delete"), retention_ms=10)
    )

    def delete_the_first() -> None:
        keyed.log.advance_start_offset(2, keyed.now_ms)

    keyed.compact(between=delete_the_first)
    assert (keyed.log.start_offset, keyed.offsets()) == (2, [3, 4, 5])
    assert keyed.first_dirty_offset == 6
    assert leftovers(keyed) == []


def test_a_group_of_which_retention_deleted_a_part_voids_the_result() -> None:
    keyed = KeyedLog()
    for _ in range(3):
        keyed.put((A, b"1"))
        keyed.roll()

    def delete_the_first() -> None:
        keyed.log.advance_start_offset(1, keyed.now_ms)

    keyed.compact(between=delete_the_first)
    assert keyed.offsets() == [1, 2]
    assert keyed.first_dirty_offset == 0
    assert leftovers(keyed) == []
    keyed.compact()
    assert keyed.offsets() == [2]


def test_a_log_that_is_no_longer_to_be_compacted_is_not() -> None:
    keyed = three_segments(SMALL)
    keyed.compact(between=lambda: keyed.log.reconfigure(settings(cleanup_policy=("delete",))))
    assert keyed.offsets() == [0, 1, 2, 3, 4, 5]
    assert leftovers(keyed) == []


def test_a_closed_log_is_not_changed() -> None:
    keyed = three_segments(SMALL)
    keyed.compact(between=keyed.log.close)
    assert leftovers(keyed) == []
    keyed.reopen("keep")
    assert keyed.offsets() == [0, 1, 2, 3, 4, 5]


def test_cleaned_files_that_are_not_as_they_were_made_are_not_used() -> None:
    keyed = three_segments(SMALL)

    def damage() -> None:
        handle = keyed.disk.open(f"{DIRECTORY}/{keyed.names(CLEANED_SUFFIX)[-1]}", write=True)
        handle.truncate(10)
        keyed.disk.remove(f"{DIRECTORY}/{next(n for n in keyed.names(CLEANED_SUFFIX) if '.log.' in n)}")

    keyed.compact(between=damage)
    assert keyed.offsets() == [0, 1, 2, 3, 4, 5]
    assert leftovers(keyed) == []


def test_segments_that_went_during_the_work_end_it_without_a_trace() -> None:
    keyed = three_segments(SMALL)
    plan = plan_compaction(keyed.log, 0, keyed.now_ms)
    assert plan is not None
    keyed.log.advance_start_offset(2, keyed.now_ms)
    with pytest.raises(StorageError, match="has changed"):
        run_compaction(plan, keyed.disk)
    assert leftovers(keyed) == []


def test_compaction_and_deletion_share_a_log() -> None:
    config = settings(segment_bytes=1024, cleanup_policy=("compact", "delete"), retention_ms=1000)
    keyed = three_segments(config)
    keyed.compact()
    keyed.advance(500)
    keyed.put((C, b"young"))
    keyed.roll()
    keyed.advance(501)
    assert [segment.base_offset for segment in enforce_retention(keyed.log, keyed.now_ms)] == [0, 2, 4]
    assert keyed.table() == {C: b"young"}


# --- faults ------------------------------------------------------------------------------------


def test_a_full_disk_ends_the_work_and_leaves_the_log_as_it_was() -> None:
    keyed = three_segments(SMALL)
    plan = plan_compaction(keyed.log, 0, keyed.now_ms)
    assert plan is not None
    keyed.disk.capacity_bytes = keyed.disk.used_bytes + 600
    with pytest.raises(DiskFullError):
        run_compaction(plan, keyed.disk)
    assert leftovers(keyed) == []
    keyed.disk.capacity_bytes = None
    assert keyed.offsets() == [0, 1, 2, 3, 4, 5]
    keyed.compact()
    assert keyed.offsets() == [1, 3, 4, 5]


def test_damage_is_reported_and_never_given_a_new_checksum() -> None:
    keyed = three_segments(SMALL)
    segment = keyed.log.segments.first
    keyed.disk.flip_bit(segment.log.path, segment.size - 5, 3)
    plan = plan_compaction(keyed.log, 0, keyed.now_ms)
    assert plan is not None
    with pytest.raises(CorruptLogError, match="CRC"):
        run_compaction(plan, keyed.disk)
    assert leftovers(keyed) == []


def test_no_room_for_a_name_before_the_commit_undoes_it() -> None:
    keyed = three_segments(SMALL)
    fault = keyed.disk.inject("rename", f"*{CLEANED_SUFFIX}", errno.ENOSPC, after=1)
    with pytest.raises(DiskFullError):
        keyed.compact()
    assert fault.hits == 1
    assert leftovers(keyed) == []
    keyed.reopen("keep")
    assert keyed.offsets() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_swap_that_cannot_be_finished_fails_the_directory_and_is_finished_when_opened(error: int) -> None:
    keyed = three_segments(SMALL)
    keyed.disk.inject("rename", f"*{SWAP_SUFFIX}", error, after=3)  # the renames to .swap match as well
    with pytest.raises(LogDirectoryFailedError):
        keyed.compact()
    with pytest.raises(LogDirectoryFailedError):
        keyed.put((A, b"lost"))
    keyed.disk.heal()
    keyed.reopen("drop")
    assert keyed.offsets() == [1, 3, 4, 5]
    assert leftovers(keyed) == []


# --- the real thing ----------------------------------------------------------------------------


def test_compaction_in_a_child_process_on_a_real_disk(tmp_path: Path) -> None:
    config = settings(segment_bytes=64 * 1024)
    log, _ = open_log(Files(SystemDisk()), f"{tmp_path}/keyed-0", config, now_ms=START_MS)
    for number in range(2000):
        record = Record(b"%d" % number * 10, b"key-%d" % (number % 300), timestamp_ms=START_MS)
        log.append_as_leader(encode_batch([record]), leader_epoch=0, now_ms=START_MS)
    log.roll(START_MS)
    log.sync()
    log.advance_high_watermark(log.end_offset)
    plan = plan_compaction(log, 0, START_MS)
    outcomes: list[Outcome[CompactionResult]] = []
    executor = SystemExecutor()
    executor.run_cpu(run_compaction, (plan, SystemDisk()), outcomes.append)
    executor.close()
    result = outcomes[0].value()
    assert commit_compaction(log, result, START_MS)
    assert [record.offset for record in read_committed(log, 100_000)] == list(range(1700, 2000))
    log.remove_deleted_files(START_MS)
    log.close()
    log, report = open_log(
        Files(SystemDisk()),
        f"{tmp_path}/keyed-0",
        config,
        now_ms=START_MS,
        is_clean=True,
        recovery_point=2000,
    )
    assert report.is_sound
    assert [record.offset for record in read_committed(log, 100_000)] == list(range(1700, 2000))
    log.close()
