from pathlib import Path

import pytest

from distributedlog.data_directory.incarnations import (
    INCARNATIONS_FILE,
    INCARNATIONS_MAX,
    encode_incarnations,
    find_predecessors,
    note_incarnation,
)
from distributedlog.model.ids import Uuid
from distributedlog.ports.disk import SystemDisk
from distributedlog.storage.files import Files
from tests.simulation.disk import SimDisk

LOCK = "0d3f 2049 77"


def incarnation(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def test_each_process_finds_those_before_it_and_not_itself() -> None:
    files = Files(SimDisk())
    files.make_directory("/data")
    found = [note_incarnation(files, "/data", LOCK, incarnation(number)) for number in range(3)]
    assert found == [(), (incarnation(0),), (incarnation(0), incarnation(1))]


def test_under_another_lock_nobody_is_known_to_be_dead() -> None:
    data = encode_incarnations(LOCK, [incarnation(1)])
    assert find_predecessors(data, LOCK) == (incarnation(1),)
    assert find_predecessors(data, LOCK + "8") == ()
    assert find_predecessors(data, None) == ()


def test_where_a_lock_has_no_identity_nothing_is_written() -> None:
    files = Files(SimDisk())
    files.make_directory("/data")
    assert note_incarnation(files, "/data", None, incarnation(1)) == ()
    assert not files.exists(f"/data/{INCARNATIONS_FILE}")


def test_only_the_newest_are_kept() -> None:
    all_of_them = [incarnation(number) for number in range(INCARNATIONS_MAX + 5)]
    assert find_predecessors(encode_incarnations(LOCK, all_of_them), LOCK) == tuple(all_of_them[5:])


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"0",
        b"\xff\xfe",
        b"1\n" + LOCK.encode() + b"\nAAAAAAAAAAAAAAAAAAAAAQ\n",
        b"0\n" + LOCK.encode() + b"\nnot an id\n",
        encode_incarnations(LOCK, [incarnation(1)]) + bytes(5_000),
    ],
)
def test_a_file_that_cannot_be_read_is_as_none(data: bytes | None) -> None:
    assert find_predecessors(data, LOCK) == ()


def test_a_disk_without_room_keeps_what_was_known() -> None:
    disk = SimDisk()
    files = Files(disk)
    files.make_directory("/data")
    note_incarnation(files, "/data", LOCK, incarnation(1))
    disk.capacity_bytes = 0
    assert note_incarnation(files, "/data", LOCK, incarnation(2)) == (incarnation(1),)
    assert note_incarnation(files, "/data", LOCK, incarnation(3)) == (incarnation(1),)


def test_a_lock_is_the_same_again_and_a_copy_of_the_directory_has_another(tmp_path: Path) -> None:
    disk = SystemDisk()
    first = disk.lock(str(tmp_path / "first"))
    identity = first.identity()
    first.release()
    again = disk.lock(str(tmp_path / "first"))
    (tmp_path / "copy").write_bytes((tmp_path / "first").read_bytes())
    copy = disk.lock(str(tmp_path / "copy"))
    try:
        assert identity is not None
        assert again.identity() == identity
        assert copy.identity() != identity
        assert first.identity() is None
    finally:
        again.release()
        copy.release()
