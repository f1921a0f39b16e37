"""A power cut takes away what was not synced, and nothing else."""

import errno
import json
import pickle
from pathlib import Path
from random import Random

import pytest

from tests.chaos.disk import FaultyDisk
from tests.chaos.switches import SWITCHES, Switches
from tests.chaos.undo import UNDO, cut_power, unsynced


class All(Random):
    """Keeps nothing that was not synced."""

    def random(self) -> float:
        return 1.0


class Stage:
    def __init__(self, directory: Path) -> None:
        self.faults = directory / "faults"
        self.faults.mkdir()
        self.data = directory / "data"
        self.data.mkdir()
        self.disk = FaultyDisk(str(self.faults))

    def path(self, name: str) -> str:
        return str(self.data / name)

    def write(self, name: str, data: bytes, *, at: int = 0, sync: bool = True) -> None:
        file = self.disk.open(self.path(name), create=True)
        file.write_at(at, data)
        if sync:
            file.sync()
        file.close()

    def write_durably(self, name: str, data: bytes) -> None:
        self.write(name, data)
        self.disk.sync_directory(str(self.data))

    def cut(self, chance: Random | None = None) -> dict[str, bytes]:
        """What is there after a power cut."""
        cut_power(self.faults / UNDO, chance or All())
        self.disk = FaultyDisk(str(self.faults))
        return {each.name: each.read_bytes() for each in self.data.iterdir() if each.is_file()}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_what_was_synced_stays(stage: Stage) -> None:
    stage.write_durably("a", b"one")
    stage.write("a", b"two", at=3)
    assert stage.cut() == {"a": b"onetwo"}
    assert stage.cut() == {"a": b"onetwo"}, "nor is it taken away by the next one"


def test_bytes_that_were_not_synced_are_gone_and_what_they_replaced_is_back(stage: Stage) -> None:
    stage.write_durably("a", b"abcdef")
    stage.write("a", b"XY", at=1, sync=False)
    stage.write("a", b"longer", at=5, sync=False)
    assert stage.cut() == {"a": b"abcdef"}


def test_a_truncation_that_was_not_synced_is_undone(stage: Stage) -> None:
    stage.write_durably("a", b"abcdef")
    file = stage.disk.open(stage.path("a"), write=True)
    file.truncate(2)
    file.write_at(2, b"XYZ!++")
    file.close()
    assert stage.cut() == {"a": b"abcdef"}


def test_a_name_that_was_not_synced_is_gone_though_its_bytes_were(stage: Stage) -> None:
    stage.write("a", b"one")
    assert stage.cut() == {}


def test_a_file_that_replaced_another_without_a_sync_gives_way_to_it(stage: Stage) -> None:
    stage.write_durably("a", b"old")
    stage.write("a.tmp", b"new")
    stage.disk.rename(stage.path("a.tmp"), stage.path("a"))
    assert stage.cut() == {"a": b"old"}
    stage.write("a.tmp", b"new")
    stage.disk.rename(stage.path("a.tmp"), stage.path("a"))
    stage.disk.sync_directory(str(stage.data))
    assert stage.cut() == {"a": b"new"}


def test_what_was_removed_without_a_sync_is_back(stage: Stage) -> None:
    stage.write_durably("a", b"one")
    stage.disk.remove(stage.path("a"))
    assert stage.cut() == {"a": b"one"}
    stage.disk.remove(stage.path("a"))
    stage.disk.sync_directory(str(stage.data))
    assert stage.cut() == {}


def test_a_directory_that_was_not_synced_is_gone_with_all_in_it(stage: Stage) -> None:
    stage.disk.make_directory(stage.path("t-0"))
    stage.write("t-0/a", b"one")
    stage.cut()
    assert not list(stage.data.iterdir())


def test_a_renamed_directory_has_its_name_back(stage: Stage) -> None:
    stage.disk.make_directory(stage.path("t-0"))
    stage.disk.sync_directory(str(stage.data))
    stage.disk.rename(stage.path("t-0"), stage.path("t-0.deleted"))
    stage.cut()
    assert [each.name for each in stage.data.iterdir()] == ["t-0"]


def test_a_disk_may_have_kept_the_first_of_what_was_not_synced(stage: Stage) -> None:
    found = set()
    stage.write_durably("a", b"0")
    for seed in range(30):
        for at in range(1, 4):
            stage.write("a", b"%d" % at, at=at, sync=False)
        found.add(stage.cut(Random(seed))["a"])
        file = stage.disk.open(stage.path("a"), write=True)
        file.truncate(1)
        file.sync()
        file.close()
    assert found == {b"0", b"01", b"012", b"0123"}


def test_a_sync_makes_durable_what_was_written_before_it_began_and_no_more() -> None:
    write = {"did": "write", "file": 1, "at": 0, "old": "", "size": 0}
    told = [
        {**write, "size": 1},
        {"did": "begin", "of": 1, "sync": "s"},
        {**write, "size": 2},
        {"did": "end", "of": 1, "sync": "s"},
        {**write, "size": 3},
        {"did": "begin", "of": 1, "sync": "t"},
    ]
    names, writes = unsynced(json.loads(json.dumps(told)))
    assert not names
    assert [each["size"] for each in writes[1]] == [2, 3]


def test_a_full_disk_takes_nothing_new_and_gives_back_what_it_has(stage: Stage) -> None:
    stage.write_durably("a", b"abc")
    switches = Switches(stage.faults / SWITCHES)
    switches.is_full = True
    with pytest.raises(OSError, match="No space") as raised:
        stage.write("a", b"more", at=3)
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        stage.write("b", b"new")
    assert stage.disk.free_bytes(str(stage.data)) == 0
    stage.write("a", b"ABC")
    assert stage.disk.open(stage.path("a")).read_at(0, 10) == b"ABC"
    switches.is_full = False
    stage.write("b", b"new")
    switches.close()


def test_a_failed_sync_makes_nothing_durable_and_a_copy_in_a_child_fails_too(stage: Stage) -> None:
    stage.write_durably("a", b"abc")
    switches = Switches(stage.faults / SWITCHES)
    switches.sync_fails = True
    with pytest.raises(OSError, match="Input/output"):
        stage.write("a", b"more", at=3)
    copy = pickle.loads(pickle.dumps(stage.disk))
    with pytest.raises(OSError, match="Input/output"):
        copy.sync_directory(str(stage.data))
    switches.close()
    assert stage.cut() == {"a": b"abc"}
