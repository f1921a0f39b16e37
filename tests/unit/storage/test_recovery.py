"""Opening a log after a clean stop, after a kill, after a power cut, and with damage."""

import pytest

from distributedlog.model.errors import CorruptLogError
from distributedlog.records.record import decode_batch
from distributedlog.storage.log import PartitionLog
from tests.simulation.disk import SimDisk
from tests.unit.storage.support import (
    DIRECTORY,
    NOW_MS,
    append,
    append_data,
    append_numbers,
    bare,
    batch_of,
    commit_all,
    marker_of,
    open_on,
    read_batches,
    read_records,
    value_of,
    values_in,
    with_small_segments,
)

FIRST_LOG = f"{DIRECTORY}/00000000000000000000.log"
BATCH = 88
"""The size of each of the numbered batches."""


def a_closed_log(count: int) -> SimDisk:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(count))
    log.close()
    return disk


def numbers(*ranges: range) -> list[tuple[int, bytes | None]]:
    return [(number, value_of(number)) for each in ranges for number in each]


# --- stops -------------------------------------------------------------------------------------


def test_after_a_clean_stop_nothing_is_read_again() -> None:
    disk = a_closed_log(30)
    log, report = open_on(disk, is_clean=True, recovery_point=30)
    assert report.was_clean
    assert report.is_sound
    assert report.scanned_bytes == 0
    assert bare(read_records(log)) == numbers(range(30))


def test_after_a_kill_only_what_lies_behind_the_recovery_point_is_read_again() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(100))
    disk.crash("keep")
    again, report = open_on(disk, recovery_point=60)
    assert again.end_offset == 100
    assert report.is_sound
    assert 40 * BATCH <= report.scanned_bytes < 60 * BATCH
    assert bare(read_records(again)) == numbers(range(100))


def test_what_recovery_found_after_a_kill_is_safe_from_a_power_cut() -> None:
    """The killed process synced nothing: neither bytes nor the names of new segments."""
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(3))
    log.sync()
    append_numbers(log, range(3, 40))
    disk.crash("keep")
    again, _ = open_on(disk)
    assert again.flushed_end_offset == 40
    disk.crash("drop")
    once_more, report = open_on(disk, recovery_point=40)
    assert report.is_sound
    assert bare(read_records(once_more)) == numbers(range(40))


def test_a_log_in_directories_that_were_not_there_survives_a_power_cut() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(3))
    log.sync()
    disk.crash("drop")
    assert values_in(open_on(disk)[0]) == [value_of(number) for number in range(3)]


def test_a_log_goes_on_where_it_ended_whatever_it_ended_with() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_data(log, batch_of([b"x"], producer_id=4, producer_epoch=1, base_sequence=0))
    append(log, b"a", b"b", leader_epoch=5)
    commit_all(log)
    for is_clean in (False, True, False):
        if is_clean:
            log.close()
        else:
            disk.crash("drop")
        log, _ = open_on(disk, is_clean=is_clean)
        assert append(log, b"c", leader_epoch=5).base_offset == log.end_offset - 1
        again = batch_of([b"x"], producer_id=4, producer_epoch=1, base_sequence=0)
        assert append_data(log, again).is_duplicate
        log.sync()
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (5, 1)]


def test_transactions_that_ended_before_a_crash_hold_nothing_back_after_it() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    for producer_id, commit in ((4, True), (5, False)):
        data = batch_of(
            [b"x"], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        append_data(log, data)
        marker = marker_of(producer_id, commit=commit, base_offset=log.end_offset)
        log.append_as_follower(bytes(marker), now_ms=NOW_MS)
    commit_all(log)
    assert log.last_stable_offset == 4
    disk.crash("drop")
    again, _ = open_on(disk)
    assert again.high_watermark == 4
    assert again.last_stable_offset == 4
    assert [entry[:3] for entry in again.find_aborted_transactions(0, 4)] == [(5, 2, 3)]


# --- torn tails --------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 8, 60, 61, BATCH - 1])
def test_a_torn_tail_is_cut_and_counted(cut: int) -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(5))
    log.sync()
    tail = disk.open(FIRST_LOG, write=True)
    tail.write_at(5 * BATCH, disk.files()[FIRST_LOG][:cut])
    disk.crash("keep")
    again, report = open_on(disk)
    assert report.truncated_bytes == cut
    assert report.is_sound
    assert bare(read_records(again)) == numbers(range(5))
    assert disk.size(FIRST_LOG) == 5 * BATCH


def test_zeros_behind_the_end_are_a_torn_tail() -> None:
    disk = a_closed_log(5)
    disk.open(FIRST_LOG, write=True).truncate(4096)
    again, report = open_on(disk)
    assert report.is_sound
    assert again.end_offset == 5
    assert again.segments.active.size == 5 * BATCH


def test_a_new_segment_whose_predecessor_lost_its_tail_is_removed() -> None:
    """The name reached the disk, the bytes before it did not."""
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(3))
    log.sync()
    append_numbers(log, range(3, 5))
    log.roll(NOW_MS)
    disk.sync_directory(DIRECTORY)
    disk.crash("drop")
    again, report = open_on(disk, recovery_point=3)
    assert again.end_offset == 3
    assert [segment.base_offset for segment in again.segments] == [0]
    assert report.is_sound
    append_numbers(again, range(3, 8))
    assert bare(read_records(again)) == numbers(range(8))


# --- damage ------------------------------------------------------------------------------------


def damaged(count: int, number: int, *, recovery_point: int) -> tuple[SimDisk, PartitionLog, list[str]]:
    """A killed log with a bit of the value of one record turned."""
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(count))
    log.sync()
    segment = log.segments.from_offset(number)[0]
    disk.crash("keep")
    disk.flip_bit(segment.log.path, (number - segment.base_offset) * BATCH + 80, 3)
    again, report = open_on(disk, recovery_point=recovery_point)
    assert len(report.damage) == 1
    assert report.damage[0].path == segment.log.path
    assert report.damage[0].offset == number
    assert str(number) in str(report.damage[0])
    assert not report.is_sound
    return disk, again, list(report.damage[0].quarantined)


def test_damage_in_the_middle_is_kept_aside_byte_for_byte_and_reported() -> None:
    disk, log, kept = damaged(40, 15, recovery_point=0)
    assert bare(read_records(log)) == numbers(range(15))
    files = disk.files()
    quarantined = b"".join(files[path] for path in kept)
    assert len(quarantined) == 25 * BATCH
    assert value_of(16) in quarantined
    assert value_of(39) in quarantined
    assert sorted(path for path in files if "quarantine" in path) == sorted(kept)
    append_numbers(log, range(15, 20))
    assert bare(read_records(log)) == numbers(range(20))


def test_damage_at_the_end_but_below_the_recovery_point_is_no_torn_tail() -> None:
    disk, log, kept = damaged(5, 4, recovery_point=5)
    assert bare(read_records(log)) == numbers(range(4))
    assert len(disk.files()[kept[0]]) == BATCH


def test_what_is_missing_below_the_recovery_point_is_counted() -> None:
    disk = a_closed_log(5)
    disk.open(FIRST_LOG, write=True).truncate(3 * BATCH)
    _, report = open_on(disk, recovery_point=5)
    assert report.lost_synced_offsets == 2
    assert not report.is_sound


def test_a_clean_stop_that_is_contradicted_by_the_log_is_not_believed() -> None:
    disk = a_closed_log(5)
    disk.open(FIRST_LOG, write=True).truncate(3 * BATCH + 10)
    log, report = open_on(disk, is_clean=True, recovery_point=5)
    assert not report.was_clean
    assert report.lost_synced_offsets == 2
    assert any("clean stop" in note for note in report.notes)
    assert bare(read_records(log)) == numbers(range(3))


def test_a_start_behind_the_end_keeps_what_is_there_aside() -> None:
    disk = a_closed_log(30)
    log, report = open_on(disk, start_offset=50)
    assert (log.start_offset, log.end_offset) == (50, 50)
    assert not report.is_sound
    quarantined = [content for path, content in disk.files().items() if "quarantine" in path]
    assert sum(map(len, quarantined)) == 30 * BATCH
    append_numbers(log, range(50, 53))
    assert bare(read_records(log)) == numbers(range(50, 53))


def test_records_beside_the_damage_can_be_read_in_a_log_that_was_closed() -> None:
    disk = a_closed_log(40)
    disk.flip_bit(FIRST_LOG, 4 * BATCH + 9, 0)  # the length of one batch
    log, report = open_on(disk, is_clean=True)
    assert report.was_clean
    readable = []
    unreadable = {}
    for number in range(40):
        try:
            readable += bare(decode_batch(read_batches(log, number, 1)[0][1]))
        except CorruptLogError as error:
            unreadable[number] = str(error)
    assert set(numbers(range(4), range(11, 40))) <= set(readable)
    assert set(readable) <= set(numbers(range(40)))
    assert 4 in unreadable
    assert all(FIRST_LOG in message for message in unreadable.values())


# --- the files beside the log ------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("ending", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
def test_a_file_that_is_gone_is_made_again(ending: str, is_clean: bool) -> None:
    disk = a_closed_log(40)
    for path in disk.files():
        if path.endswith(ending):
            disk.remove(path)
    log, report = open_on(disk, is_clean=is_clean, recovery_point=40)
    assert report.is_sound
    assert bare(read_records(log, max_bytes=1)) == numbers(range(40))
    for number in range(40):
        time = NOW_MS - 3_600_000 + number * 10
        assert log.find_timestamp(time - 5) == (time, number)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0)]


@pytest.mark.parametrize("size", [0, 1, 8, 12, 20])
@pytest.mark.parametrize("ending", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_file_of_any_other_length_is_made_again(ending: str, size: int) -> None:
    disk = a_closed_log(40)
    for path in disk.files():
        if path.endswith(ending):
            disk.open(path, write=True).truncate(size)
    log, report = open_on(disk, is_clean=True, recovery_point=40)
    assert report.is_sound
    assert bare(read_records(log, max_bytes=1)) == numbers(range(40))
    assert log.find_max_timestamp() == (NOW_MS - 3_600_000 + 390, 39)
    for number in range(40):
        time = NOW_MS - 3_600_000 + number * 10
        assert log.find_timestamp(time) == (time, number)


def test_files_of_segments_that_are_gone_are_removed() -> None:
    disk = a_closed_log(20)
    for name in ("00000000000000000777.index", "00000000000000000005.log.deleted", "x.cleaned"):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    log, _ = open_on(disk, is_clean=True)
    assert log.end_offset == 20
    assert not any("777" in path or "deleted" in path or "cleaned" in path for path in disk.files())


def test_files_that_only_look_like_segments_are_left_alone() -> None:
    disk = a_closed_log(5)
    for name in ("5.log", "notes.log", "0000000000000000000x.log", "notes.log.swap"):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    log, _ = open_on(disk, is_clean=True)
    assert bare(read_records(log)) == numbers(range(5))
    assert f"{DIRECTORY}/notes.log" in disk.files()


def test_producers_are_remembered_when_the_segments_that_told_of_them_are_gone() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_data(log, batch_of([b"x"], producer_id=4, producer_epoch=1, base_sequence=0))
    append_numbers(log, range(1, 40))
    commit_all(log)
    log.advance_start_offset(35, NOW_MS)
    log.remove_deleted_files(NOW_MS)
    for mode in ("drop", "random"):
        disk.crash(mode)
        log, _ = open_on(disk, start_offset=35)
        again = batch_of([b"x"], producer_id=4, producer_epoch=1, base_sequence=0)
        assert append_data(log, again).is_duplicate


def test_producers_are_remembered_also_if_recovery_had_to_make_the_snapshots_again() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_data(log, batch_of([b"x"], producer_id=4, producer_epoch=1, base_sequence=0))
    append_numbers(log, range(1, 40))
    log.sync()
    disk.crash("drop")
    log, _ = open_on(disk)
    log.advance_start_offset(35, NOW_MS)
    log.remove_deleted_files(NOW_MS)
    disk.crash("drop")
    log, _ = open_on(disk, start_offset=35)
    again = batch_of([b"x"], producer_id=4, producer_epoch=1, base_sequence=0)
    assert append_data(log, again).is_duplicate


def test_a_gap_in_a_log_that_is_not_compacted_is_mentioned() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(3))
    log.append_as_follower(bytes(batch_of([b"x"], base_offset=7)), now_ms=NOW_MS)
    log.sync()
    disk.crash("drop")
    _, report = open_on(disk)
    assert report.is_sound
    assert ["offset 7 follows 2" in note for note in report.notes] == [True]
    compacts = with_small_segments(cleanup_policy=("compact",))
    assert not open_on(disk, compacts)[1].notes
