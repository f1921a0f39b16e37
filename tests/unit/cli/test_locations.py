"""What a path means, and whether it is in use."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from distributedlog import Store
from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.cli.locations import is_locked, locate
from distributedlog.model.ids import TopicPartition
from tests.unit.cli.conftest import contents


def test_a_data_directory_has_its_partitions_in_order(data: Path) -> None:
    location = locate(str(data))
    assert location.is_data_directory
    assert location.data_directory == str(data)
    assert [each.label for each in location.partitions] == ["events-0", "events-1", "users-0"]


def test_partitions_are_ordered_by_number_and_not_by_letters(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "many"), background=False) as store:
        for number in (10, 9, 2):
            store.log("t", number)
    assert [each.label for each in locate(str(tmp_path / "many")).partitions] == ["t-2", "t-9", "t-10"]


def test_a_partition_knows_the_data_directory_around_it(data: Path) -> None:
    location = locate(str(data / "users-0") + "/")
    assert not location.is_data_directory
    assert location.data_directory == str(data)
    assert location.partitions[0].partition == TopicPartition("users", 0)


def test_a_copy_of_a_partition_stands_alone_under_any_name(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "users-0", tmp_path / "a copy")
    location = locate(str(tmp_path / "a copy"))
    assert location.data_directory is None
    assert location.partitions[0].partition is None
    assert location.partitions[0].label == "a copy"
    assert not location.is_in_use


def test_a_relative_path_is_as_good(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data / "users-0")
    assert locate(".").data_directory == str(data)
    assert locate(".").partitions[0].label == "users-0"


def test_an_empty_data_directory_is_one_still(tmp_path: Path) -> None:
    Store.open(str(tmp_path / "empty"), background=False).close()
    assert locate(str(tmp_path / "empty")).partitions == ()


def test_what_is_no_log_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="holds no log"):
        locate(str(tmp_path))
    with pytest.raises(NotFoundError, match="there is nothing"):
        locate(str(tmp_path / "nowhere"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(click.UsageError, match="is a file"):
        locate(str(tmp_path / "file"))


def test_asking_whether_a_directory_is_in_use_touches_nothing(data: Path) -> None:
    os.unlink(data / ".lock")
    before = contents(data)
    assert not is_locked(str(data))
    assert contents(data) == before


def test_a_directory_is_in_use_while_a_process_has_it(data: Path) -> None:
    program = (
        "import sys; from distributedlog import Store; store = Store.open(sys.argv[1], background=False); "
        "print('open', flush=True); sys.stdin.read(); store.close()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        assert is_locked(str(data))
        owner.communicate(b"", timeout=30)
    assert not is_locked(str(data))
