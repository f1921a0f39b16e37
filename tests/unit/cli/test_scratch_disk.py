"""The disk on which nothing happens: it looks changed and is not."""

from pathlib import Path

import pytest

from distributedlog import Record, Store
from distributedlog.cli.scratch_disk import ScratchDisk
from tests.simulation.clock import ManualClock
from tests.unit.cli.conftest import contents


@pytest.fixture
def real(tmp_path: Path) -> Path:
    directory = tmp_path / "real"
    (directory / "inner").mkdir(parents=True)
    (directory / "a").write_bytes(b"alpha")
    (directory / "inner" / "b").write_bytes(b"beta")
    return directory


@pytest.fixture
def disk(tmp_path: Path) -> ScratchDisk:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return ScratchDisk(str(scratch))


def read(disk: ScratchDisk, path: Path) -> bytes:
    file = disk.open(str(path))
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def test_a_write_is_seen_here_and_nowhere_else(disk: ScratchDisk, real: Path) -> None:
    before = contents(real)
    reader = disk.open(str(real / "a"))
    assert reader.read_at(0, 5) == b"alpha"
    writer = disk.open(str(real / "a"), write=True)
    writer.write_at(0, b"A")
    writer.truncate(3)
    assert reader.read_at(0, 9) == b"Alp", "another handle sees it too"
    assert disk.size(str(real / "a")) == 3
    reader.close()
    writer.close()
    assert contents(real) == before


def test_a_file_that_is_only_opened_for_writing_is_not_copied(
    disk: ScratchDisk, real: Path, tmp_path: Path
) -> None:
    writer = disk.open(str(real / "a"), write=True)
    writer.truncate(5)
    writer.sync()
    writer.close()
    assert list((tmp_path / "scratch").iterdir()) == []
    assert disk.modified_ms(str(real / "a")) == (real / "a").stat().st_mtime_ns // 1_000_000


def test_a_handle_for_reading_does_not_write(disk: ScratchDisk, real: Path) -> None:
    file = disk.open(str(real / "a"))
    with pytest.raises(OSError, match="Bad file"):
        file.write_at(0, b"x")
    file.close()


def test_names_change_here_only(disk: ScratchDisk, real: Path) -> None:
    before = contents(real)
    disk.rename(str(real / "a"), str(real / "c"))
    disk.open(str(real / "d"), create=True).close()
    disk.remove(str(real / "inner" / "b"))
    disk.remove_directory(str(real / "inner"))
    disk.make_directory(str(real / "new" / "deep"))
    assert disk.list_directory(str(real)) == ["c", "d", "new"]
    assert disk.is_directory(str(real / "new" / "deep"))
    assert not disk.exists(str(real / "inner"))
    assert read(disk, real / "c") == b"alpha"
    assert contents(real) == before


def test_what_is_not_there_is_not_found(disk: ScratchDisk, real: Path) -> None:
    disk.remove(str(real / "a"))
    for act in (disk.open, disk.size, disk.remove, disk.list_directory):
        with pytest.raises(FileNotFoundError):
            act(str(real / "a"))
    with pytest.raises(OSError, match="not empty"):
        disk.remove_directory(str(real))


def test_a_whole_store_works_on_it_and_leaves_no_trace(disk: ScratchDisk, data: Path) -> None:
    before = contents(data)
    with Store.open(str(data), disk=disk, clock=ManualClock(), background=False) as store:
        store.log("users").append_many([Record(b"shadow", b"key")])
        store.log("fresh").append(b"x")
        assert [record.value for record in store.log("users")][-1] == b"shadow"
    with Store.open(str(data), disk=disk, clock=ManualClock(), background=False) as store:
        assert [record.value for record in store.log("users")][-1] == b"shadow"
        assert len(store.logs()) == 4
    assert contents(data) == before
