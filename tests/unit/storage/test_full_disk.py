"""No room, and a disk that fails: what is refused, what goes on, and what is never tried again."""

import errno

import pytest

from distributedlog.model.errors import DiskFullError, LogDirectoryFailedError
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.store import LogStore
from tests.simulation.disk import Operation, SimDisk
from tests.unit.storage.support import (
    DIRECTORY,
    NOW_MS,
    append,
    append_data,
    append_numbers,
    bare,
    batch_of,
    commit_all,
    open_on,
    open_store,
    read_records,
    value_of,
)


def numbers_in(log: PartitionLog) -> list[int]:
    return [int((record.value or b"").removeprefix(b"value-")) for record in read_records(log)]


# --- no room -----------------------------------------------------------------------------------


@pytest.mark.parametrize("room", range(0, 700, 13))
def test_a_full_disk_refuses_appends_and_loses_nothing_at_whatever_byte_it_is_full(room: int) -> None:
    """The room ends somewhere in a batch, an index, a snapshot or a new segment."""
    disk = SimDisk(room)
    log, _ = open_on(disk)
    append_numbers(log, range(8))
    commit_all(log)
    disk.capacity_bytes = disk.used_bytes + room
    with pytest.raises(DiskFullError):
        append_numbers(log, range(8, 100))
    accepted = log.end_offset
    assert accepted < 30
    assert numbers_in(log) == list(range(accepted))
    with pytest.raises(DiskFullError):
        append(log, bytes(900))
    assert numbers_in(log) == list(range(accepted))
    disk.capacity_bytes = None
    append_numbers(log, range(accepted, accepted + 20))
    log.sync()
    disk.crash("drop")
    again, report = open_on(disk)
    assert numbers_in(again) == list(range(accepted + 20))
    assert report.is_sound


def test_an_append_that_found_no_room_leaves_neither_an_epoch_nor_a_producer() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(3))
    disk.capacity_bytes = disk.used_bytes
    data = batch_of([b"x"], producer_id=5, producer_epoch=0, base_sequence=0)
    with pytest.raises(DiskFullError):
        append_data(log, data, leader_epoch=7)
    with pytest.raises(DiskFullError):
        log.append_as_follower(bytes(batch_of([b"x"], base_offset=3, leader_epoch=8)), now_ms=NOW_MS)
    assert log.epochs.latest_epoch == 0
    assert log.producers.get(5) is None
    assert not log.segments.active.txn_index.entries()


def test_a_checkpoint_without_room_for_the_epochs_is_made_up_for_and_a_sync_needs_none() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(3))
    log.write_epochs()
    append(log, value_of(3), leader_epoch=1)
    disk.inject("write", "*leader-epoch*", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        log.write_epochs()
    log.sync()
    assert (log.flushed_end_offset, log.recovery_point) == (4, 3)
    log.write_epochs()
    assert log.recovery_point == 4
    disk.crash("drop")
    again, _ = open_on(disk)
    assert numbers_in(again) == [0, 1, 2, 3]
    assert [tuple(entry) for entry in again.epochs.entries] == [(0, 0), (1, 3)]


def test_a_roll_without_room_changes_nothing_and_is_done_later() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(6))
    for operation in ("write", "create"):
        fault = disk.inject(operation, "*.snapshot" if operation == "write" else "*6.log", errno.ENOSPC)
        with pytest.raises(DiskFullError):
            log.roll(NOW_MS)
        assert fault.hits == 1
        assert len(log.segments) == 1
    log.roll(NOW_MS)
    append_numbers(log, range(6, 9))
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    assert numbers_in(log) == list(range(9))


def test_a_checkpoint_without_room_is_refused_and_the_old_one_stays() -> None:
    disk = SimDisk(1)
    store = open_store(disk)
    log = store.create_log("t")
    append_numbers(log, range(3))
    commit_all(log)
    store.checkpoint()
    before = disk.files()["/data/recovery-point-offset-checkpoint"]
    append_numbers(log, range(3, 5))
    commit_all(log)
    disk.inject("write", "*recovery-point*", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        store.checkpoint()
    assert disk.files()["/data/recovery-point-offset-checkpoint"] == before
    store.checkpoint()
    assert disk.files()["/data/recovery-point-offset-checkpoint"] != before


def test_a_full_disk_can_be_truncated() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(30))
    commit_all(log)
    disk.capacity_bytes = disk.used_bytes
    log.truncate_to(17, NOW_MS)
    assert numbers_in(log) == list(range(17))
    append_numbers(log, [17])  # there is room now
    assert numbers_in(log) == list(range(18))


@pytest.mark.parametrize("crash", [True, False])
def test_a_log_opens_on_a_full_disk_and_can_be_read(crash: bool) -> None:
    disk = SimDisk(1)
    store = open_store(disk)
    log = store.create_log("t")
    append_numbers(log, range(30))
    commit_all(log)
    if crash:
        disk.crash("drop")
    else:
        store.close()
    disk.capacity_bytes = disk.used_bytes
    again = open_store(disk)
    found = again.log("t")
    assert found is not None
    assert numbers_in(found) == list(range(30))
    assert found.find_timestamp(NOW_MS - 3_600_000 + 95) == (NOW_MS - 3_600_000 + 100, 10)
    with pytest.raises(DiskFullError):
        append_numbers(found, [30])
    disk.capacity_bytes = None
    append_numbers(found, [30])
    assert numbers_in(found) == list(range(31))


# --- a disk that fails -------------------------------------------------------------------------


def failing_store(operation: Operation, glob: str) -> tuple[SimDisk, LogStore, PartitionLog]:
    disk = SimDisk(1)
    store = open_store(disk)
    log = store.create_log("t")
    append_numbers(log, range(20))
    commit_all(log)
    disk.inject(operation, glob, errno.EIO)
    return disk, store, log


def test_a_failed_write_takes_the_directory_out_of_use_and_reads_go_on() -> None:
    disk, store, log = failing_store("write", "*.log")
    with pytest.raises(LogDirectoryFailedError, match="cannot write"):
        append_numbers(log, [20])
    with pytest.raises(LogDirectoryFailedError):
        append_numbers(log, [20])
    assert numbers_in(log) == list(range(20))
    assert log.find_timestamp(NOW_MS - 3_600_000 + 95) == (NOW_MS - 3_600_000 + 100, 10)
    with pytest.raises(LogDirectoryFailedError):
        store.checkpoint()
    store.close()
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_a_failed_sync_is_never_tried_again() -> None:
    disk, store, log = failing_store("sync", "*.log")
    append_numbers(log, range(20, 23))
    with pytest.raises(LogDirectoryFailedError, match="cannot sync"):
        log.sync()
    after = disk.operations
    for _ in range(3):
        with pytest.raises(LogDirectoryFailedError):
            log.sync()
        with pytest.raises(LogDirectoryFailedError):
            log.begin_sync()
    assert disk.operations == after
    assert log.flushed_end_offset == 20
    log.advance_high_watermark(log.flushed_end_offset)
    assert numbers_in(log)[:20] == list(range(20))
    store.close()
    assert disk.operations == after
    assert not disk.exists("/data/.kafka_cleanshutdown")
    disk.crash("drop")
    again = open_store(disk)
    found = again.log("t")
    assert found is not None
    assert numbers_in(found)[:20] == list(range(20))
    assert not again.was_clean


@pytest.mark.parametrize("glob", ["/data/t-0", "/data"])
def test_a_directory_that_cannot_be_synced_fails_too(glob: str) -> None:
    disk, store, log = failing_store("dirsync", glob)
    log.roll(NOW_MS)
    append_numbers(log, [20])
    with pytest.raises(
        LogDirectoryFailedError, match=f"cannot sync the directory {glob}|cannot write {glob}"
    ):
        _sync_and_checkpoint(store, log)
    store.close()
    assert not disk.exists("/data/.kafka_cleanshutdown")


def _sync_and_checkpoint(store: LogStore, log: PartitionLog) -> None:
    log.sync()
    store.checkpoint()


def test_a_truncation_that_fails_takes_the_directory_out_of_use() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(20))
    commit_all(log)
    disk.inject("truncate", "*.log", errno.EIO)
    with pytest.raises(LogDirectoryFailedError, match="cannot truncate"):
        log.truncate_to(5, NOW_MS)
    with pytest.raises(LogDirectoryFailedError):
        append_numbers(log, [20])


def test_the_first_failure_is_told_to_the_owner_once() -> None:
    disk = SimDisk(1)
    told: list[LogDirectoryFailedError] = []
    files = Files(disk, on_failure=told.append)
    log, _ = open_on(disk, files=files)
    disk.inject("write", "*.log", errno.EIO, count=5)
    for _ in range(3):
        with pytest.raises(LogDirectoryFailedError):
            append_numbers(log, [0])
    assert len(told) == 1
    assert DIRECTORY in str(told[0])


def test_reading_from_a_failed_directory_mends_indexes_in_memory_only() -> None:
    disk = SimDisk(1)
    store = open_store(disk)
    log = store.create_log("t")
    append_numbers(log, range(40))
    commit_all(log)
    store.close()
    for path, content in disk.files().items():
        if path.endswith((".index", ".timeindex")) and content:
            disk.flip_bit(path, 0, 7)
    store = open_store(disk)
    found = store.log("t")
    assert found is not None
    disk.inject("write", "*.log", errno.EIO)
    with pytest.raises(LogDirectoryFailedError):
        append_numbers(found, [40])
    assert bare(read_records(found)) == [(number, value_of(number)) for number in range(40)]
    assert found.find_timestamp(NOW_MS - 3_600_000 + 95) == (NOW_MS - 3_600_000 + 100, 10)
