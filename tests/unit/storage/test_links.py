"""Symbolic links in a data directory: nothing that they lead to is cut, written, renamed or removed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from distributedlog.data_directory.raft_storage import LogRaftStorage
from distributedlog.model.errors import StorageError
from distributedlog.ports.disk import SystemDisk
from distributedlog.storage.files import Files
from distributedlog.storage.store import LogStore
from tests.simulation.clock import ManualClock, SeededRandomness
from tests.unit.storage.support import (
    NOW_MS,
    SMALL,
    append_data,
    append_numbers,
    batch_of,
    commit_all,
    read_records,
    value_of,
)

PRECIOUS = b"not the log's " * 1000


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory of somebody else's, which is afterwards as it was."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "precious").write_bytes(PRECIOUS)
    yield place
    assert {path.name: path.read_bytes() for path in place.iterdir()} == {"precious": PRECIOUS}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory whose log has sealed segments, an active one, and a torn end after a crash."""
    store = open_at(tmp_path / "data")
    log = store.create_log("t")
    append_numbers(log, range(40))
    commit_all(log)
    store.checkpoint()
    append_numbers(log, range(40, 50))
    store.abandon()
    return tmp_path / "data"


def open_at(directory: Path) -> LogStore:
    clock, randomness = ManualClock(NOW_MS), SeededRandomness(1)
    return LogStore.open(SystemDisk(), str(directory), clock=clock, randomness=randomness, config=SMALL)


def replace_by_link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def snapshot(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def logs_of(data: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in (data / "t-0").iterdir() if path.suffix in suffixes)


@pytest.mark.parametrize("at", [0, 1, -1])
def test_a_log_file_that_is_a_link_is_refused_and_nothing_is_changed(
    data: Path, outside: Path, at: int
) -> None:
    link = logs_of(data, ".log")[at]
    replace_by_link(link, outside / "precious")
    before = snapshot(data)
    with pytest.raises(StorageError, match=rf"{link.name} is a symbolic link"):
        open_at(data)
    assert snapshot(data) == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_link_for_what_can_be_made_anew_is_replaced(data: Path, outside: Path, suffix: str) -> None:
    for path in logs_of(data, ".log"):
        replace_by_link(path.with_suffix(suffix), outside / "precious")
    store = open_at(data)
    log = store.logs[next(iter(store.logs))]
    assert [record.value for record in read_records(log)] == [value_of(number) for number in range(50)]
    append_numbers(log, range(50, 90))
    commit_all(log)
    log.truncate_to(45, NOW_MS)
    store.close()
    store = open_at(data)
    assert [record.offset for record in read_records(store.logs[next(iter(store.logs))])] == list(range(45))
    store.close()


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
        ".kafka_cleanshutdown",
        "t-0/leader-epoch-checkpoint",
    ],
)
@pytest.mark.parametrize("suffix", ["", ".tmp"])
def test_a_checkpoint_is_not_written_through_a_link(
    data: Path, outside: Path, name: str, suffix: str
) -> None:
    replace_by_link(data / (name + suffix), outside / "precious")
    store = open_at(data)
    log = store.logs[next(iter(store.logs))]
    append_data(log, batch_of([b"new"]), leader_epoch=7)
    commit_all(log)
    store.checkpoint()
    replace_by_link(data / (name + ".tmp"), outside / "precious")
    store.close()
    assert not (data / name).is_symlink()


def test_a_lock_file_that_is_a_link_is_refused(data: Path, outside: Path) -> None:
    replace_by_link(data / ".lock", outside / "precious")
    with pytest.raises(StorageError, match="symbolic link"):
        open_at(data)


def test_a_partition_that_is_a_link_is_refused_and_left_alone(tmp_path: Path, data: Path) -> None:
    (data / "t-0").rename(tmp_path / "elsewhere")
    (data / "t-0").symlink_to(tmp_path / "elsewhere")
    before = snapshot(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"t-0 is a symbolic link"):
        open_at(data)
    assert snapshot(tmp_path / "elsewhere") == before
    assert (data / "t-0").is_symlink()


def test_a_partition_is_not_created_where_a_link_stands(data: Path, outside: Path) -> None:
    store = open_at(data)
    (data / "fresh-0").symlink_to(outside)
    with pytest.raises(StorageError, match=r"fresh-0 is a symbolic link"):
        store.create_log("fresh")
    assert store.files.failure is None
    store.close()


def test_a_link_that_is_named_like_a_deleted_partition_goes_and_not_what_it_leads_to(
    data: Path, outside: Path
) -> None:
    link = data / "t-1.abcdefghijklmnopqrstuv-delete"
    link.symlink_to(outside)
    open_at(data).close()
    assert not link.is_symlink()


def test_a_partition_that_became_a_link_is_deleted_as_a_link(tmp_path: Path, data: Path) -> None:
    store = open_at(data)
    (data / "t-0").rename(tmp_path / "elsewhere")
    (data / "t-0").symlink_to(tmp_path / "elsewhere")
    before = snapshot(tmp_path / "elsewhere")
    store.delete_log("t")
    assert snapshot(tmp_path / "elsewhere") == before
    store.close()


def test_damage_is_not_moved_through_a_link(data: Path, outside: Path) -> None:
    (data / "t-0" / "quarantine").symlink_to(outside)
    first = logs_of(data, ".log")[0]
    content = bytearray(first.read_bytes())
    content[70] ^= 1
    first.write_bytes(content)
    (data / "recovery-point-offset-checkpoint").unlink()
    before = snapshot(data)
    with pytest.raises(StorageError, match="quarantine is a symbolic link"):
        open_at(data)
    assert snapshot(data) == before


def test_a_segment_is_not_rolled_into_a_link(data: Path, outside: Path) -> None:
    store = open_at(data)
    log = store.logs[next(iter(store.logs))]
    (data / "t-0" / f"{log.end_offset:020d}.log").symlink_to(outside / "precious")
    log.roll(NOW_MS)
    append_numbers(log, range(50, 60))
    commit_all(log)
    assert [record.offset for record in read_records(log)] == list(range(60))
    store.close()


def test_a_data_directory_may_be_a_link(tmp_path: Path, data: Path) -> None:
    (tmp_path / "link").symlink_to(data)
    store = open_at(tmp_path / "link")
    assert len(read_records(store.logs[next(iter(store.logs))])) == 50
    store.close()


@pytest.mark.parametrize("name", ["log", "log/quarantine"])
def test_the_metadata_log_is_not_followed_through_a_link(tmp_path: Path, outside: Path, name: str) -> None:
    files = Files(SystemDisk())
    storage = LogRaftStorage(files, str(tmp_path / "metadata"), ManualClock(NOW_MS))
    storage.format()
    (tmp_path / "metadata" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "metadata" / name).symlink_to(outside)
    with pytest.raises(StorageError, match="symbolic link"):
        storage.load()
