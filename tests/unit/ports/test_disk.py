"""One contract, kept by the operating system's disk and by the simulated one."""

import errno
import os
from pathlib import Path

import pytest

from distributedlog.ports.disk import Disk, SystemDisk
from tests.simulation.disk import SimDisk


class Place:
    """A disk, and a directory on it that is the test's own."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.root = root

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, content: bytes) -> str:
        file = self.disk.open(self.path(name), create=True)
        file.write_at(0, content)
        file.close()
        return self.path(name)

    def read(self, name: str) -> bytes:
        file = self.disk.open(self.path(name))
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()


@pytest.fixture(params=["system", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "system":
        return Place(SystemDisk(), str(tmp_path))
    disk = SimDisk(1)
    disk.make_directory("/data")
    return Place(disk, "/data")


def test_what_is_written_at_a_position_is_read_there(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.write_at(0, b"hello world")
    file.write_at(6, bytearray(b"there"))
    file.write_at(11, memoryview(b"!!")[:1])
    assert file.read_at(0, 100) == b"hello there!"
    assert file.read_at(6, 5) == b"there"
    assert file.size() == place.disk.size(place.path("a")) == 12
    file.close()


def test_writeback_can_be_started_at_any_time_and_promises_nothing(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.start_writeback()
    file.write_at(0, b"hello")
    file.start_writeback()
    file.sync()
    assert file.read_at(0, 5) == b"hello"
    file.close()
    file.start_writeback()
    if isinstance(place.disk, SimDisk):
        for directory in ("/", place.root):
            place.disk.sync_directory(directory)
        again = place.disk.open(place.path("a"), write=True)
        again.write_at(5, b", world")
        again.start_writeback()
        place.disk.crash("drop")
        assert place.read("a") == b"hello"


def test_reading_at_or_past_the_end_gives_nothing(place: Place) -> None:
    place.write("a", b"abc")
    file = place.disk.open(place.path("a"))
    assert file.read_at(3, 10) == b""
    assert file.read_at(1000, 10) == b""
    assert file.read_at(1, 0) == b""
    file.close()


def test_writing_past_the_end_leaves_zeros_between(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.write_at(5, b"x")
    assert file.read_at(0, 10) == bytes(5) + b"x"
    file.close()


def test_writing_nothing_past_the_end_does_not_grow_the_file(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.write_at(5, b"")
    assert file.size() == 0
    file.close()


def test_truncating_cuts_and_extends_with_zeros(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.write_at(0, b"abcdef")
    file.truncate(2)
    assert file.read_at(0, 10) == b"ab"
    file.truncate(4)
    assert file.read_at(0, 10) == b"ab\0\0"
    file.close()


def test_two_handles_see_the_same_file(place: Place) -> None:
    place.write("a", b"old")
    reader = place.disk.open(place.path("a"))
    writer = place.disk.open(place.path("a"), write=True)
    writer.write_at(0, b"new!")
    assert reader.read_at(0, 10) == b"new!"
    reader.close()
    writer.close()


def test_opening_to_create_keeps_what_is_there(place: Place) -> None:
    place.write("a", b"kept")
    place.disk.open(place.path("a"), create=True).close()
    assert place.read("a") == b"kept"


def test_syncing_a_file_and_its_directory_succeeds(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.write_at(0, b"x")
    file.sync()
    place.disk.sync_directory(place.root)
    assert file.read_at(0, 1) == b"x"
    file.close()


def test_a_removed_file_lives_on_in_its_handle(place: Place) -> None:
    path = place.write("a", b"alive")
    file = place.disk.open(path, write=True)
    place.disk.remove(path)
    assert not place.disk.exists(path)
    file.write_at(5, b"!")
    assert file.read_at(0, 10) == b"alive!"
    file.close()


def test_a_new_file_under_a_removed_ones_name_is_another(place: Place) -> None:
    path = place.write("a", b"first")
    old = place.disk.open(path)
    place.disk.remove(path)
    place.write("a", b"second")
    assert old.read_at(0, 10) == b"first"
    assert place.read("a") == b"second"
    old.close()


def test_renaming_replaces_the_target_and_takes_the_source_away(place: Place) -> None:
    place.write("a", b"new")
    place.write("b", b"old")
    place.disk.rename(place.path("a"), place.path("b"))
    assert place.disk.list_directory(place.root) == ["b"]
    assert place.read("b") == b"new"


def test_renaming_a_file_to_itself_changes_nothing(place: Place) -> None:
    place.write("a", b"same")
    place.disk.rename(place.path("a"), place.path("a"))
    assert place.read("a") == b"same"


def test_an_open_file_follows_its_rename(place: Place) -> None:
    path = place.write("a", b"x")
    file = place.disk.open(path, write=True)
    place.disk.rename(path, place.path("b"))
    file.write_at(0, b"y")
    assert place.read("b") == b"y"
    file.close()


def test_a_directory_is_renamed_with_what_it_holds(place: Place) -> None:
    place.disk.make_directory(place.path("topic-0"))
    place.write("topic-0/log", b"records")
    place.disk.rename(place.path("topic-0"), place.path("gone"))
    assert place.read("gone/log") == b"records"
    assert not place.disk.is_directory(place.path("topic-0"))


def test_a_file_moves_between_directories(place: Place) -> None:
    place.disk.make_directory(place.path("one"))
    place.disk.make_directory(place.path("two"))
    place.write("one/a", b"x")
    place.disk.rename(place.path("one/a"), place.path("two/b"))
    assert place.disk.list_directory(place.path("one")) == []
    assert place.read("two/b") == b"x"


def test_directories_are_made_with_their_parents_and_twice_without_complaint(place: Place) -> None:
    place.disk.make_directory(place.path("x/y/z"))
    place.disk.make_directory(place.path("x/y/z"))
    assert place.disk.is_directory(place.path("x/y/z"))
    assert place.disk.exists(place.path("x/y"))
    assert place.disk.list_directory(place.path("x")) == ["y"]


def test_names_are_listed_in_order(place: Place) -> None:
    for name in ("b", "c", "a"):
        place.write(name, b"")
    assert place.disk.list_directory(place.root) == ["a", "b", "c"]


def test_an_empty_directory_can_be_removed_and_a_full_one_not(place: Place) -> None:
    place.disk.make_directory(place.path("d"))
    path = place.write("d/a", b"")
    with pytest.raises(OSError) as caught:
        place.disk.remove_directory(place.path("d"))
    assert caught.value.errno == errno.ENOTEMPTY
    place.disk.remove(path)
    place.disk.remove_directory(place.path("d"))
    assert not place.disk.exists(place.path("d"))


def test_what_is_not_there_is_not_found(place: Place) -> None:
    disk, missing = place.disk, place.path("missing")
    with pytest.raises(FileNotFoundError):
        disk.open(missing)
    with pytest.raises(FileNotFoundError):
        disk.open(missing, write=True)
    with pytest.raises(FileNotFoundError):
        disk.open(f"{missing}/a", create=True)
    with pytest.raises(FileNotFoundError):
        disk.size(missing)
    with pytest.raises(FileNotFoundError):
        disk.modified_ms(missing)
    with pytest.raises(FileNotFoundError):
        disk.list_directory(missing)
    with pytest.raises(FileNotFoundError):
        disk.remove(missing)
    with pytest.raises(FileNotFoundError):
        disk.remove_directory(missing)
    with pytest.raises(FileNotFoundError):
        disk.rename(missing, place.path("target"))
    with pytest.raises(FileNotFoundError):
        disk.sync_directory(missing)
    with pytest.raises(FileNotFoundError):
        disk.free_bytes(missing)
    assert not disk.exists(missing)
    assert not disk.is_directory(missing)


def test_a_file_is_not_a_directory(place: Place) -> None:
    disk, path = place.disk, place.write("a", b"")
    with pytest.raises(NotADirectoryError):
        disk.open(f"{path}/b", create=True)
    with pytest.raises(NotADirectoryError):
        disk.list_directory(path)
    with pytest.raises(NotADirectoryError):
        disk.remove_directory(path)
    with pytest.raises(NotADirectoryError):
        disk.sync_directory(path)
    with pytest.raises(NotADirectoryError):
        disk.make_directory(f"{path}/b")
    with pytest.raises(NotADirectoryError):
        disk.size(f"{path}/b")
    with pytest.raises(FileExistsError):
        disk.make_directory(path)
    assert not disk.exists(f"{path}/b")
    assert not disk.is_directory(path)


def test_a_directory_is_not_a_file(place: Place) -> None:
    disk, path = place.disk, place.path("d")
    disk.make_directory(path)
    with pytest.raises(IsADirectoryError):
        disk.open(path, write=True)
    with pytest.raises(IsADirectoryError):
        disk.remove(path)
    with pytest.raises(IsADirectoryError):
        disk.rename(place.write("a", b""), path)
    with pytest.raises(NotADirectoryError):
        disk.rename(path, place.path("a"))


def test_a_directory_replaces_only_an_empty_one_and_moves_not_into_itself(place: Place) -> None:
    disk = place.disk
    for name in ("from", "empty", "full/inner"):
        disk.make_directory(place.path(name))
    place.write("from/a", b"x")
    with pytest.raises(OSError) as not_empty:
        disk.rename(place.path("from"), place.path("full"))
    assert not_empty.value.errno == errno.ENOTEMPTY
    with pytest.raises(OSError) as itself:
        disk.rename(place.path("from"), place.path("from/inner"))
    assert itself.value.errno == errno.EINVAL
    disk.rename(place.path("from"), place.path("empty"))
    assert place.read("empty/a") == b"x"


def test_a_file_opened_to_read_cannot_be_changed(place: Place) -> None:
    file = place.disk.open(place.write("a", b"abc"))
    with pytest.raises(OSError) as written:
        file.write_at(0, b"x")
    assert written.value.errno == errno.EBADF
    with pytest.raises(OSError) as truncated:
        file.truncate(0)
    assert truncated.value.errno == errno.EINVAL
    file.close()
    assert place.read("a") == b"abc"


def test_a_closed_file_is_of_no_use_and_closes_again_without_complaint(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.close()
    file.close()
    for use in (file.size, lambda: file.read_at(0, 1), lambda: file.write_at(0, b"x")):
        with pytest.raises(OSError) as caught:
            use()
        assert caught.value.errno == errno.EBADF


def test_impossible_positions_are_refused(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    for use in (lambda: file.read_at(-1, 1), lambda: file.write_at(-1, b"x"), lambda: file.truncate(-1)):
        with pytest.raises(OSError) as caught:
            use()
        assert caught.value.errno == errno.EINVAL
    file.close()


def test_a_lock_is_held_by_one_and_freed_by_release(place: Place) -> None:
    path = place.path(".lock")
    first = place.disk.lock(path)
    with pytest.raises(BlockingIOError):
        place.disk.lock(path)
    first.release()
    second = place.disk.lock(path)
    first.release()  # again: it is no longer the holder
    with pytest.raises(BlockingIOError):
        place.disk.lock(path)
    second.release()
    assert place.disk.exists(path)


def test_there_is_room(place: Place) -> None:
    assert place.disk.free_bytes(place.root) > 0


def test_a_large_read_and_write_are_whole(place: Place) -> None:
    content = bytes(range(256)) * 16384
    file = place.disk.open(place.path("a"), create=True)
    file.write_at(3, content)
    assert file.read_at(3, len(content)) == content
    assert file.read_at(3, len(content) + 10) == content
    file.close()


def test_a_file_tells_when_it_was_written(tmp_path: Path) -> None:
    place = Place(SystemDisk(), str(tmp_path))
    os.utime(place.write("a", b"x"), ns=(0, 5_000_000))
    assert place.disk.modified_ms(place.path("a")) == 5
    simulated = SimDisk(1)
    simulated.now_ms = 5
    file = simulated.open("/a", create=True)
    assert simulated.modified_ms("/a") == 5
    simulated.now_ms = 6
    file.write_at(0, b"x")
    assert simulated.modified_ms("/a") == 6
    simulated.now_ms = 7
    file.truncate(0)
    assert simulated.fork().modified_ms("/a") == 7


def test_only_the_systems_files_have_a_descriptor(tmp_path: Path) -> None:
    real = SystemDisk().open(str(tmp_path / "a"), create=True)
    assert real.fileno() >= 0
    real.close()
    with pytest.raises(OSError) as caught:
        SimDisk(1).open("/a", create=True).fileno()
    assert caught.value.errno == errno.ENOTSUP


def test_without_open_file_description_locks_the_older_kind_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("fcntl.F_OFD_SETLK")
    lock = SystemDisk().lock(str(tmp_path / ".lock"))
    with pytest.raises(BlockingIOError):
        SystemDisk().lock(str(tmp_path / ".lock"))
    lock.release()
