"""The layer above the disk: open files come and go, errors have a meaning, small files are old or new."""

import errno

import pytest

from distributedlog.model.errors import (
    CorruptLogError,
    DiskFullError,
    LogDirectoryFailedError,
    StorageError,
)
from distributedlog.storage.files import SMALL_FILE_BYTES_MAX, FileRegion, Files, IndexBlocks
from tests.simulation.disk import PowerCut, SimDisk


def some_files(*, open_files_max: int = 3) -> tuple[SimDisk, Files]:
    disk = SimDisk(1)
    disk.make_directory("/d")
    return disk, Files(disk, open_files_max=open_files_max)


# --- open files --------------------------------------------------------------------------------


def test_files_are_opened_again_after_they_were_closed_for_others() -> None:
    _, files = some_files()
    managed = [files.create(f"/d/{number}") for number in range(10)]
    for number, each in enumerate(managed):
        each.append_at(0, b"%d" % number)
    assert files.open_count == 3
    assert [each.read_at(0, 10) for each in managed] == [b"%d" % number for number in range(10)]
    assert files.open_count == 3
    files.close()
    assert files.open_count == 0


def test_the_least_recently_used_file_is_closed_first() -> None:
    disk, files = some_files(open_files_max=2)
    a, b = files.create("/d/a"), files.create("/d/b")
    a.read_at(0, 1)
    files.create("/d/c")
    disk.remove("/d/a")
    disk.remove("/d/b")
    assert a.read_at(0, 1) == b""  # still open, by its descriptor
    with pytest.raises(StorageError, match="/d/b"):
        b.read_at(0, 1)


def test_a_pinned_file_is_closed_only_when_it_is_let_go() -> None:
    _, files = some_files(open_files_max=1)
    pinned = files.create("/d/a")
    pinned.append_at(0, b"abc")
    handle = pinned.pin()
    pinned.pin()
    files.create("/d/b").read_at(0, 1)
    pinned.close()
    assert handle.read_at(0, 3) == b"abc"
    pinned.unpin()
    assert handle.read_at(0, 3) == b"abc"
    pinned.unpin()
    with pytest.raises(OSError, match="descriptor"):
        handle.read_at(0, 3)
    assert pinned.read_at(0, 3) == b"abc"  # opened again


def test_a_file_that_is_not_there_is_an_error_that_names_it() -> None:
    _, files = some_files()
    missing = files.manage("/d/missing")
    for use in (
        lambda: missing.read_at(0, 1),
        lambda: missing.size(),
        lambda: missing.pin(),
        lambda: missing.append_at(0, b"x"),
        lambda: FileRegion(missing, 0, 1),
    ):
        with pytest.raises(StorageError, match="/d/missing"):
            use()
    with pytest.raises(CorruptLogError, match="/d/missing is missing"):
        missing.size()
    assert files.failure is None


def test_a_new_file_is_empty_also_where_an_old_one_stood() -> None:
    disk, files = some_files()
    files.create("/d/a").append_at(0, b"old")
    files.create("/d/a").append_at(0, b"n")
    assert disk.files() == {"/d/a": b"n"}


def test_a_file_that_is_renamed_keeps_its_descriptor() -> None:
    disk, files = some_files()
    managed = files.create("/d/a")
    managed.append_at(0, b"abc")
    files.rename_managed(managed, "/d/b")
    disk.remove("/d/b")
    assert managed.read_at(0, 3) == b"abc"
    assert managed.path == "/d/b"


def test_blocks_of_indexes_are_bounded_and_the_least_recently_used_goes() -> None:
    class User:
        released = False

        def release(self) -> None:
            self.released = True

    blocks = IndexBlocks(2)
    users = [User() for _ in range(3)]
    blocks.use(users[0])
    blocks.use(users[1])
    blocks.use(users[0])
    blocks.use(users[2])
    assert [user.released for user in users] == [False, True, False]
    blocks.forget(users[0])
    assert len(blocks) == 1


def test_the_bytes_that_indexes_hold_are_bounded() -> None:
    class User:
        held = 0

        def release(self) -> None:
            self.held = 0

    blocks, users = IndexBlocks(100, bytes_max=1000), [User() for _ in range(30)]
    assert [blocks.may_hold(size) for size in (250, 251)] == [True, False]
    for turn in range(3):
        for at, user in enumerate(users):
            user.held = 10 * (at + turn)
            blocks.use(user)
            blocks.hold(user, user.held)
            assert blocks.bytes_held == sum(each.held for each in users) <= 1000
    blocks.forget(users[-1])
    users[-1].held = 0
    assert blocks.bytes_held == sum(each.held for each in users)


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_process_without_descriptors_refuses_and_goes_on_when_it_has_some(number: int) -> None:
    disk, files = some_files()
    disk.inject("create", "*", number, count=2)
    with pytest.raises(DiskFullError):
        files.create("/d/a")
    with pytest.raises(DiskFullError):
        files.write_atomically("/d/b", b"b")
    files.create("/d/a").append_at(0, b"a")
    files.write_atomically("/d/b", b"b")
    assert files.read_small("/d/b") == b"b"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_undoes_the_append_and_the_directory_lives_on(number: int) -> None:
    disk, files = some_files()
    managed = files.create("/d/a")
    managed.append_at(0, b"kept")
    disk.inject("write", "/d/a", number)
    with pytest.raises(DiskFullError, match="/d/a"):
        managed.append_at(4, b"x" * 1000)
    assert disk.files() == {"/d/a": b"kept"}
    managed.append_at(4, b"more")
    assert disk.files() == {"/d/a": b"keptmore"}


def test_a_partial_write_that_cannot_be_undone_fails_the_directory() -> None:
    disk, files = some_files()
    managed = files.create("/d/a")
    disk.inject("write", "/d/a", errno.ENOSPC)
    disk.inject("truncate", "/d/a", errno.EIO)
    with pytest.raises(LogDirectoryFailedError, match="undo"):
        managed.append_at(0, b"x" * 1000)


def test_any_other_failed_write_takes_the_directory_out_of_use_for_good() -> None:
    disk, files = some_files()
    managed = files.create("/d/a")
    managed.append_at(0, b"abc")
    disk.inject("write", "/d/a", errno.EIO)
    with pytest.raises(LogDirectoryFailedError) as first:
        managed.append_at(3, b"x")
    operations = disk.operations
    for use in (
        lambda: managed.append_at(3, b"x"),
        lambda: managed.truncate(0),
        lambda: files.create("/d/b"),
        lambda: files.rename("/d/a", "/d/b"),
        lambda: files.remove("/d/a"),
        lambda: files.remove_tree("/d"),
        lambda: files.make_directory("/e"),
        lambda: files.sync_directory("/d"),
        lambda: files.write_atomically("/d/small", b"x"),
        lambda: files.sync_all([]),
    ):
        with pytest.raises(LogDirectoryFailedError, match="cannot write /d/a"):
            use()
    assert disk.operations == operations
    assert files.failure is first.value
    assert managed.read_at(0, 3) == b"abc"


def test_errors_of_looking_are_told_without_failing_the_directory() -> None:
    disk, files = some_files()
    files.create("/d/a")
    for operation, look in (
        ("list", lambda: files.names("/d")),
        ("size", lambda: files.size("/d/a")),
        ("size", lambda: files.modified_ms("/d/a")),
        ("open", lambda: files.read_small("/d/a")),
        ("read", lambda: files.read_small("/d/a")),
    ):
        disk.inject(operation, "*", errno.EIO)  # type: ignore[arg-type]
        with pytest.raises(StorageError, match="cannot"):
            look()
    assert files.failure is None


# --- small files and names ---------------------------------------------------------------------


def test_a_small_file_is_old_or_new_whenever_the_power_goes() -> None:
    for operations in range(20):
        disk, files = some_files()
        files.write_atomically("/d/small", b"old")
        disk.sync_directory("/")
        disk.fail_after(operations)
        written = False
        try:
            files.write_atomically("/d/small", b"the new content")
            written = True
        except PowerCut:
            pass
        for seed in range(5):
            twin = disk.fork(seed)
            twin.crash("random")
            found = Files(twin).read_small("/d/small")
            assert found == b"the new content" if written else found in (b"old", b"the new content")
        if written:
            return
    pytest.fail("it never came to an end")


def test_a_small_file_without_room_stays_as_it_was() -> None:
    disk, files = some_files()
    files.write_atomically("/d/small", b"old")
    disk.capacity_bytes = disk.used_bytes + 5
    with pytest.raises(DiskFullError):
        files.write_atomically("/d/small", b"longer than there is room")
    assert disk.files() == {"/d/small": b"old"}
    assert files.failure is None


def test_a_small_file_that_cannot_be_one_is_not_read() -> None:
    disk, files = some_files()
    assert files.read_small("/d/nothing") is None
    disk.open("/d/huge", create=True).truncate(SMALL_FILE_BYTES_MAX + 1)
    with pytest.raises(CorruptLogError, match="/d/huge"):
        files.read_small("/d/huge")


def test_a_new_directory_is_durable_with_all_its_new_parents() -> None:
    disk, files = some_files()
    disk.sync_directory("/")
    files.make_directory("/d/e/f/g")
    disk.crash("drop")
    assert disk.is_directory("/d/e/f/g")


def test_a_tree_is_removed() -> None:
    disk, files = some_files()
    disk.make_directory("/d/e/f")
    disk.open("/d/e/f/file", create=True)
    disk.open("/d/e/file", create=True)
    files.remove_tree("/d/e")
    assert not disk.exists("/d/e")
    files.remove("/d/nothing")
