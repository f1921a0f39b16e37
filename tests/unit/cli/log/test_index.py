"""`dlog log index`: indexes are made again from the log."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from distributedlog import Log, Store
from tests.unit.cli.conftest import Dlog, contents, first_log, flip

INTERVAL = ("--interval-bytes", 512)


def indexes(directory: Path) -> dict[str, bytes]:
    return {name: raw for name, raw in contents(directory).items() if name.endswith("index")}


def test_indexes_that_were_deleted_come_back_byte_for_byte(dlog: Dlog, data: Path) -> None:
    before = contents(data)
    for path in (data / "users-0").glob("*index"):
        path.unlink()
    outcome = dlog("log", "index", data, *INTERVAL)
    assert outcome.code == 0
    assert "users-0/00000000000000000000.index  rebuilt (none -> " in outcome.out
    assert "is missing" in outcome.out
    assert contents(data).keys() == before.keys()
    rebuilt = contents(data)
    assert {name for name, raw in before.items() if rebuilt[name] != raw} == set()
    assert dlog("log", "verify", data).out.startswith("sound")


def test_indexes_that_are_wrong_are_rebuilt_and_the_others_left_alone(dlog: Dlog, data: Path) -> None:
    wrong = max((data / "users-0").glob("*.timeindex"))
    good = indexes(data)
    flip(wrong, 3)
    (change,) = dlog("log", "index", data / "users-0", *INTERVAL, "-o", "json").rows
    assert change["type"] == "index_change"
    assert change["path"] == wrong.name
    assert change["done"] is True
    assert change["bytes_before"] == change["bytes_after"]
    assert indexes(data) == good


def test_what_is_right_stays_although_it_could_be_denser(dlog: Dlog, data: Path) -> None:
    before = contents(data)
    outcome = dlog("log", "index", data, "--interval-bytes", 0)
    assert outcome.out == "0 indexes rebuilt in 3 partitions\n"
    assert contents(data) == before
    dlog("log", "index", data, "--interval-bytes", 0, "--all")
    assert sum(map(len, indexes(data).values())) > sum(map(len, indexes_of(before).values()))
    assert dlog("log", "verify", data).out.startswith("sound")


def indexes_of(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: raw for name, raw in files.items() if name.endswith("index")}


def test_check_only_says_what_would_change(dlog: Dlog, data: Path) -> None:
    assert dlog("log", "index", data, "--check").code == 0
    first_log(data / "users-0").with_suffix(".index").unlink()
    before = contents(data)
    outcome = dlog("log", "index", data, "--check")
    assert outcome.code == 1
    assert "would be rebuilt" in outcome.out
    assert outcome.out.endswith("1 indexes to rebuild in 3 partitions\n")
    assert contents(data) == before


def test_the_transaction_indexes_of_kafka_come_back_byte_for_byte(
    dlog: Dlog, golden_copy: Callable[[str], Path]
) -> None:
    copy = golden_copy("clean") / "transactions-0"
    before = {path.name: path.read_bytes() for path in copy.glob("*.txnindex")}
    assert len(before) == 2
    for path in copy.glob("*.txnindex"):
        path.unlink()
    assert dlog("log", "index", copy).code == 0
    assert {path.name: path.read_bytes() for path in copy.glob("*.txnindex")} == before


def test_the_allocated_indexes_of_a_killed_kafka_are_cut(
    dlog: Dlog, golden_copy: Callable[[str], Path]
) -> None:
    copy = golden_copy("crashed")
    outcome = dlog("log", "index", copy, "--interval-bytes", 256)
    assert outcome.code == 0
    assert outcome.out.count("as Kafka leaves it") == 8
    assert dlog("log", "verify", copy, "-o", "json").of_type("summary")[0]["state"] == "sound"


def test_a_damaged_log_is_not_indexed(dlog: Dlog, data: Path) -> None:
    flip(first_log(data / "users-0"), 100)
    before = contents(data)
    outcome = dlog("log", "index", data, *INTERVAL)
    assert outcome.code == 1
    assert "is damaged at position 0" in outcome.err
    assert "left alone" in outcome.err
    assert contents(data) == before


def test_a_directory_in_use_is_refused(dlog: Dlog, data: Path) -> None:
    with Store.open(str(data), background=False):
        outcome = dlog("log", "index", data)
        assert dlog("log", "index", data, "--check").code in (0, 1)
    assert outcome.code == 3
    assert "in use by another process" in outcome.err
    assert outcome.err.count("\n") == 1
    assert dlog("log", "index", data).code == 0, "and is free afterwards"


def test_a_copy_of_a_partition_can_be_indexed_alone(dlog: Dlog, data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "users-0", tmp_path / "copy")
    for path in (tmp_path / "copy").glob("*index"):
        path.unlink()
    assert dlog("log", "index", tmp_path / "copy", *INTERVAL).code == 0
    assert indexes(tmp_path / "copy") == indexes(data / "users-0")
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_log_reads_the_same_after_its_indexes_were_rebuilt(dlog: Dlog, tmp_path: Path, suffix: str) -> None:
    with Log.open(str(tmp_path / "log"), background=False) as log:
        log.append_many([b"%d" % number for number in range(500)])
    for path in (tmp_path / "log" / "log-0").glob(f"*.{suffix}"):
        path.write_bytes(b"\1" * 24)
    assert dlog("log", "index", tmp_path / "log").code == 0
    with Log.open(str(tmp_path / "log"), background=False) as log:
        assert [record.value for record in log] == [b"%d" % number for number in range(500)]
        assert log.recovery.was_clean
