"""A data directory: its logs, its checkpoints, its lock, and who may use it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distributedlog.model.errors import (
    CorruptLogError,
    DirectoryLockedError,
    InvalidNameError,
    LogClosedError,
    StorageError,
)
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.ports.disk import SystemDisk
from distributedlog.storage.checkpoints import LEADER_EPOCH_FILE, encode_epochs
from distributedlog.storage.files import SMALL_FILE_BYTES_MAX
from distributedlog.storage.store import LogStore
from tests.simulation.clock import ManualClock, SeededRandomness
from tests.simulation.disk import SimDisk, SimFile
from tests.unit.storage.support import (
    NOW_MS,
    PARTITION,
    append,
    append_numbers,
    bare,
    commit_all,
    open_store,
    read_records,
    value_of,
    with_small_segments,
)

MARKER = "/data/.kafka_cleanshutdown"


def numbers(*ranges: range) -> list[tuple[int, bytes | None]]:
    return [(number, value_of(number)) for each in ranges for number in each]


def a_store(count: int = 20) -> tuple[SimDisk, LogStore]:
    disk = SimDisk(1)
    store = open_store(disk)
    log = store.create_log("t")
    append_numbers(log, range(count))
    commit_all(log)
    return disk, store


# --- logs --------------------------------------------------------------------------------------


def test_logs_are_created_once_and_found_again() -> None:
    disk, store = a_store()
    assert store.create_log("t") is store.log("t")
    other = store.create_log("other.topic_x", 3)
    append(other, b"x")
    topic_ids = dict(store.topic_ids)
    store.close()
    again = open_store(disk)
    assert set(again.logs) == {PARTITION, TopicPartition("other.topic_x", 3)}
    assert again.topic_ids == topic_ids
    assert again.log("nobody") is None
    for name in ("", "a/b", "..", "x" * 250):
        with pytest.raises(InvalidNameError):
            again.create_log(name)


def test_directories_of_others_are_left_alone() -> None:
    disk, store = a_store()
    store.close()
    disk.make_directory("/data/lost+found")
    for name in ("notes", "keep-or-delete", "t-1-delete", ".t-delete", "t-01"):
        disk.make_directory(f"/data/{name}")
    disk.make_directory("/data/t-1.dGhpcyBpcyBhbiBpZA-delete")
    again = open_store(disk)
    assert set(again.logs) == {PARTITION}
    for name in ("notes", "keep-or-delete", "t-1-delete", ".t-delete", "t-01"):
        assert disk.is_directory(f"/data/{name}")
    assert not disk.exists("/data/t-1.dGhpcyBpcyBhbiBpZA-delete")


def test_a_deleted_log_is_gone_for_its_users_and_after_a_crash() -> None:
    disk, store = a_store()
    log = store.log("t")
    assert log is not None
    store.delete_log("t")
    with pytest.raises(LogClosedError):
        log.read(0, 100)
    with pytest.raises(LogClosedError):
        append_numbers(log, [20])
    with pytest.raises(StorageError, match="no log"):
        store.delete_log("t")
    disk.crash("drop")
    assert not open_store(disk).logs


def test_a_sync_that_runs_while_its_log_is_deleted_touches_nothing() -> None:
    """It runs on another thread: the directory that it knows by name is gone when it comes to it."""
    store = open_store(SimDisk(1))
    log = store.create_log("t")
    append_numbers(log, range(3))
    job = log.begin_sync()
    assert job is not None
    write = log.begin_epoch_write()
    assert write is not None
    store.delete_log("t")
    job.run()
    write.run()
    log.end_sync(job, succeeded=True)
    log.end_epoch_write(write, succeeded=True)
    assert store.files.failure is None, "the directory is still in use"
    assert store.files.open_count == 0


def test_a_late_writing_of_a_deleted_log_writes_nothing_into_the_next_of_its_name() -> None:
    store = open_store(SimDisk(1))
    log = store.create_log("t")
    append(log, b"old", leader_epoch=7)
    job = log.begin_epoch_write()
    assert job is not None
    store.delete_log("t")
    fresh = store.create_log("t")
    append(fresh, b"new", leader_epoch=8)
    fresh.write_epochs()
    job.run()
    written = store.files.read_small(f"{fresh.directory}/{LEADER_EPOCH_FILE}")
    assert written == encode_epochs(fresh.epochs.entries)


def test_a_log_of_the_longest_name_can_be_deleted(tmp_path: Path) -> None:
    topic, partition = "x" * 249, 2147
    store = open_real(str(tmp_path))
    store.create_log(topic, partition)
    store.delete_log(topic, partition)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    store.close()


def test_deleting_a_log_follows_no_link_out_of_it(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("keep")
    store = open_real(str(tmp_path / "data"))
    log = store.create_log("t")
    os.symlink(elsewhere, f"{log.directory}/link")
    store.delete_log("t")
    assert not os.path.exists(log.directory)
    assert (elsewhere / "precious").read_text() == "keep"
    store.close()


@pytest.mark.parametrize("name", [".lock", "t-0/00000000000000000000.log"])
def test_a_link_that_leads_nowhere_is_a_storage_error(tmp_path: Path, name: str) -> None:
    store = open_real(str(tmp_path))
    store.create_log("t")
    store.close()
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(tmp_path / "not" / "there")
    with pytest.raises(StorageError, match=name.replace(".", r"\.")):
        open_real(str(tmp_path))


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "t-0/partition.metadata"])
def test_a_small_file_that_is_huge_is_as_good_as_a_damaged_one(tmp_path: Path, name: str) -> None:
    store = open_real(str(tmp_path))
    store.create_log("t")
    store.close()
    os.truncate(tmp_path / name, SMALL_FILE_BYTES_MAX + 1)
    again = open_real(str(tmp_path))
    assert any(name in note for note in again.reports[PARTITION].notes)
    again.close()


def test_a_log_of_an_old_name_has_nothing_of_the_old_log() -> None:
    """The checkpoints spoke of a longer log; a crash must not bring their word over the new one."""
    disk, store = a_store(40)
    log = store.log("t")
    assert log is not None
    log.advance_start_offset(25, NOW_MS)
    store.checkpoint()
    store.delete_log("t")
    fresh = store.create_log("t")
    append_numbers(fresh, range(3))
    commit_all(fresh)
    disk.crash("drop")
    again = open_store(disk)
    found = again.log("t")
    assert found is not None
    assert bare(read_records(found)) == numbers(range(3))
    assert again.reports[PARTITION].is_sound


def test_a_truncated_log_is_not_taken_for_one_that_lost_synced_data() -> None:
    disk, store = a_store(40)
    log = store.log("t")
    assert log is not None
    store.checkpoint()
    log.truncate_to(10, NOW_MS)
    append_numbers(log, range(10, 15))
    log.sync()
    disk.crash("drop")
    again = open_store(disk)
    assert again.reports[PARTITION].is_sound
    found = again.log("t")
    assert found is not None
    assert bare(read_records(found)) == numbers(range(15))


def test_what_replaces_lost_data_is_not_taken_for_synced() -> None:
    disk, store = a_store(40)
    store.checkpoint()
    disk.crash("keep")
    disk.flip_bit("/data/t-0/00000000000000000033.log", 80, 1)
    store = open_store(disk)
    assert store.reports[PARTITION].lost_synced_offsets == 7
    append_numbers(store.logs[PARTITION], range(33, 70))
    for seed in range(20):
        twin = disk.fork(seed)
        twin.crash("random")
        again = open_store(twin)
        assert again.reports[PARTITION].lost_synced_offsets == 0
        found = bare(read_records(again.logs[PARTITION]))
        assert found == numbers(range(again.logs[PARTITION].end_offset))


def test_a_follower_that_starts_over_below_its_old_start_keeps_what_it_fetched() -> None:
    disk, store = a_store(40)
    log = store.log("t")
    assert log is not None
    log.advance_start_offset(30, NOW_MS)
    store.checkpoint()
    log.restart_at(5, NOW_MS)
    append_numbers(log, range(5, 9))
    log.sync()
    disk.crash("drop")
    again = open_store(disk)
    found = again.log("t")
    assert found is not None
    assert (found.start_offset, found.end_offset) == (5, 9)
    assert bare(read_records(found)) == numbers(range(5, 9))
    assert again.reports[PARTITION].is_sound


# --- stops -------------------------------------------------------------------------------------


def test_the_marker_of_a_clean_stop_is_gone_while_the_store_is_open() -> None:
    disk, store = a_store()
    assert not disk.exists(MARKER)
    store.close()
    assert disk.exists(MARKER)
    again = open_store(disk)
    assert again.was_clean
    assert not disk.exists(MARKER)
    disk.crash("drop")
    assert not disk.exists(MARKER)


def test_the_marker_goes_also_if_a_checkpoint_makes_it_unbelievable() -> None:
    disk, store = a_store()
    store.close()
    disk.flip_bit("/data/recovery-point-offset-checkpoint", 0, 6)
    again = open_store(disk)
    assert not again.was_clean
    assert any("recovery-point" in note for note in again.reports[PARTITION].notes)
    disk.crash("drop")
    assert not open_store(disk).was_clean


def test_a_stop_in_the_middle_of_closing_is_not_clean() -> None:
    disk, store = a_store()
    append_numbers(store.logs[PARTITION], range(20, 25))
    disk.fail_after(6)
    with pytest.raises(BaseException) as stopped:
        store.close()
    assert type(stopped.value).__name__ == "PowerCut"
    disk.crash("drop")
    again = open_store(disk)
    assert not again.was_clean
    assert bare(read_records(again.logs[PARTITION]))[:20] == numbers(range(20))


def test_a_closed_store_refuses() -> None:
    _, store = a_store()
    store.close()
    store.close()
    for refused in (store.checkpoint, store.maintain, lambda: store.create_log("x")):
        with pytest.raises(LogClosedError):
            refused()


def test_a_trim_is_durable_at_a_segments_edge_and_inside_of_one() -> None:
    for offset in (11, 15):
        disk, store = a_store(40)
        log = store.logs[PARTITION]
        assert [segment.base_offset for segment in log.segments][:2] == [0, 11]
        log.advance_start_offset(offset, NOW_MS)
        store.checkpoint_starts()
        disk.crash("drop")
        again = open_store(disk).logs[PARTITION]
        assert again.start_offset == offset
        assert bare(read_records(again)) == numbers(range(offset, 40))


def test_of_two_starts_that_differ_the_lower_counts_and_it_is_said() -> None:
    disk, store = a_store(40)
    store.logs[PARTITION].advance_start_offset(15, NOW_MS)
    store.close()
    path = "/data/log-start-offset-checkpoint"
    data = disk.files()[path].replace(b"15", b"35")
    disk.open(path, write=True).write_at(0, data)
    again = open_store(disk)
    assert again.logs[PARTITION].start_offset == 15
    assert any("the lower counts" in note for note in again.reports[PARTITION].notes)


def test_a_damaged_identity_says_which_file_it_is() -> None:
    disk, store = a_store()
    store.close()
    disk.open("/data/meta.properties", write=True).write_at(0, b"\xff\xff")
    with pytest.raises(CorruptLogError, match=r"/data/meta\.properties"):
        open_store(disk)
    disk.remove("/data/meta.properties")
    disk.open("/data/t-0/partition.metadata", write=True).write_at(0, b"?")
    again = open_store(disk)
    assert PARTITION not in again.topic_ids
    assert any("/data/t-0/partition.metadata" in note for note in again.reports[PARTITION].notes)
    assert bare(read_records(again.logs[PARTITION])) == numbers(range(20))


def test_what_an_interrupted_opening_quarantined_is_told_by_the_next() -> None:
    disk, store = a_store()
    path = store.logs[TopicPartition("t", 0)].segments.first.log.path
    store.abandon()
    disk.flip_bit(path, 70, 3)
    first = open_store(disk)
    (damage,) = first.reports[TopicPartition("t", 0)].damage
    first.abandon()
    report = open_store(disk).reports[TopicPartition("t", 0)]
    assert not report.damage
    assert any(name.rpartition("/")[2] in note for name in damage.quarantined for note in report.notes)


def test_maintenance_deletes_old_segments_and_their_files() -> None:
    disk = SimDisk(1)
    disk.now_ms = NOW_MS
    clock = ManualClock(NOW_MS)
    config = with_small_segments(retention_ms=1000, file_delete_delay_ms=500)
    store = LogStore.open(disk, "/data", clock=clock, randomness=SeededRandomness(1), config=config)
    log = store.create_log("t")
    append_numbers(log, range(30))
    commit_all(log)
    clock.advance(10_000)
    assert store.maintain() > 1
    assert log.start_offset == log.end_offset == 30
    assert any(path.endswith(".deleted") for path in disk.files())
    clock.advance(500)
    store.maintain()
    assert not any(path.endswith(".deleted") for path in disk.files())


def test_a_damaged_segment_is_deleted_when_it_is_old_and_does_not_hold_up_the_others() -> None:
    disk = SimDisk(1)
    disk.now_ms = NOW_MS
    clock = ManualClock(NOW_MS)
    config = with_small_segments(retention_ms=1000)

    def opened() -> LogStore:
        store = LogStore.open(disk, "/data", clock=clock, randomness=SeededRandomness(1), config=config)
        for log in store.logs.values():
            log.advance_high_watermark(log.end_offset)
        return store

    store = opened()
    for name in ("a", "b"):
        append_numbers(store.create_log(name), range(30))
    store.close()
    disk.flip_bit("/data/a-0/00000000000000000000.log", 88 * 3 + 9, 0)  # the length of a batch
    store = opened()
    damaged = store.logs[TopicPartition("a", 0)]
    with pytest.raises(CorruptLogError):
        damaged.find_timestamp(NOW_MS - 3_600_000 + 30)
    clock.advance(10_000)
    store.maintain()
    assert [log.start_offset for log in store.logs.values()] == [30, 30]


# --- the lock ----------------------------------------------------------------------------------


def test_a_directory_has_one_owner() -> None:
    disk, store = a_store()
    with pytest.raises(DirectoryLockedError, match="/data is in use"):
        open_store(disk)
    store.close()
    open_store(disk).close()


def test_a_failed_opening_leaves_the_lock_free() -> None:
    disk, store = a_store()
    store.close()
    disk.open("/data/meta.properties", write=True).write_at(0, b"\xff\xff")
    with pytest.raises(CorruptLogError):
        open_store(disk)
    disk.remove("/data/meta.properties")
    open_store(disk).close()


OTHER_OWNER = """
import sys
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.randomness import SystemRandomness
from distributedlog.storage.files import SMALL_FILE_BYTES_MAX
from distributedlog.storage.store import LogStore
store = LogStore.open(SystemDisk(), sys.argv[1], clock=SystemClock(), randomness=SystemRandomness())
print("open", flush=True)
sys.stdin.read()
"""


def test_another_process_is_refused_until_the_owner_dies(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    owner = subprocess.Popen(
        [sys.executable, "-c", OTHER_OWNER, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert owner.stdout is not None
    try:
        assert owner.stdout.readline() == "open\n"
        with pytest.raises(DirectoryLockedError):
            open_real(directory)
    finally:
        owner.kill()
        owner.communicate()
    store = open_real(directory)
    assert not store.was_clean
    store.close()


def open_real(directory: str) -> LogStore:
    return LogStore.open(SystemDisk(), directory, clock=ManualClock(NOW_MS), randomness=SeededRandomness(1))


def test_a_log_whose_files_are_made_is_opened_without_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    key, identity = TopicPartition("orders", 3), Uuid(bytes(range(16)))
    store = open_store(disk)
    store.make_log_files(key, identity)
    store.make_log_files(key, identity)
    with monkeypatch.context() as patch:
        patch.setattr(SimDisk, "sync_directory", lambda *_: pytest.fail("a directory is synced"))
        patch.setattr(SimFile, "sync", lambda *_: pytest.fail("a file is synced"))
        log = store.create_log(*key, topic_id=identity, is_made=True)
    assert (log.start_offset, log.end_offset, store.topic_ids[key]) == (0, 0, identity)
    assert store.reports[key].is_sound
    disk.crash("drop")
    assert open_store(disk).topic_ids[key] == identity


def test_files_that_were_made_for_a_log_that_is_not_wanted_go() -> None:
    store = open_store(SimDisk())
    store.make_log_files(TopicPartition("orders", 3), Uuid(bytes(range(16))))
    store.remove_log_files(TopicPartition("orders", 3))
    assert not store.files.exists(f"{store.directory}/orders-3")
