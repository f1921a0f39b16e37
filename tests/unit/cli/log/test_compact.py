"""`dlog log compact`: offline, honest about what it gains, and careful about what it may drop."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from distributedlog import Log, LogConfig, Record, Store
from tests.unit.cli.conftest import TIME_MS, Dlog, contents, first_log, flip


def values(data: Path, topic: str = "users") -> dict[bytes | None, bytes | None]:
    with Store.open(str(data), background=False) as store:
        return {record.key: record.value for record in store.log(topic)}


LATEST = {b"user-%d" % user: b"value-11" for user in range(20)}


def test_the_last_value_of_each_key_stays(dlog: Dlog, data: Path) -> None:
    outcome = dlog("log", "compact", data, "--topic", "users", "--roll")
    assert outcome.code == 0
    assert outcome.out.startswith("users-0  ")
    assert "220 records dropped" in outcome.out
    assert len(dlog("log", "dump", data / "users-0", "--records", "-o", "json").rows) == 20
    assert values(data) == LATEST
    assert dlog("log", "verify", data).out.startswith("sound")


def test_without_roll_the_active_segment_is_left_alone(dlog: Dlog, data: Path) -> None:
    (result,) = dlog("log", "compact", data / "users-0", "-o", "json").rows
    assert result["is_compacted"]
    assert result["bytes_after"] < result["bytes_before"]
    assert 0 < result["records_dropped"] < 220
    assert values(data) == LATEST


def test_a_dry_run_says_the_same_and_changes_nothing(dlog: Dlog, data: Path) -> None:
    before = contents(data)
    (said,) = dlog("log", "compact", data / "users-0", "--roll", "--dry-run", "-o", "json").rows
    assert contents(data) == before
    assert said["dry_run"] is True
    assert "would become" in dlog("log", "compact", data / "users-0", "--dry-run").out
    assert contents(data) == before
    (done,) = dlog("log", "compact", data / "users-0", "--roll", "-o", "json").rows
    assert {**done, "dry_run": True} == said


def test_what_was_compacted_is_remembered_and_compacting_again_drops_nothing(dlog: Dlog, data: Path) -> None:
    dlog("log", "compact", data / "users-0", "--roll")
    before = (data / "cleaner-offset-checkpoint").read_bytes()
    assert b"users 0 240" in before
    (again,) = dlog("log", "compact", data / "users-0", "-o", "json").rows
    assert again["records_dropped"] == 0
    assert again["bytes_after"] == again["bytes_before"]
    assert (data / "cleaner-offset-checkpoint").read_bytes() == before


def test_a_log_with_nothing_sealed_has_nothing_to_compact(dlog: Dlog, tmp_path: Path) -> None:
    with Log.open(str(tmp_path / "log"), background=False) as log:
        log.append(b"value", key=b"key")
    outcome = dlog("log", "compact", tmp_path / "log")
    assert outcome.code == 0
    assert "nothing to compact" in outcome.out
    assert "--roll" in outcome.out


def test_settings_are_honoured_tombstones_go_when_their_time_is_over(dlog: Dlog, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store.open(str(data), background=False) as store:
        store.log("t").append_many([Record(None, b"a", (), TIME_MS), Record(b"v", b"b", (), TIME_MS)])
    kept = tmp_path / "kept"
    shutil.copytree(data, kept)
    for path, options in ((data, ["--set", "delete.retention.ms=0"]), (kept, [])):
        dlog("log", "compact", path, "--roll", *options)  # sees the tombstone and sets its horizon
        dlog("log", "compact", path, *options)
    assert values(data, "t") == {b"b": b"v"}
    assert values(kept, "t") == {b"a": None, b"b": b"v"}, "without it a tombstone stays for a day"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "delete.retention.ms"], "write KEY=VALUE"),
        (["--set", "delete.retention=5"], "unknown setting 'delete.retention'"),
        (["--set", "delete.retention.ms=soon"], "whole number"),
        (["--set", "cleanup.policy=delete"], "nothing is compacted"),
    ],
)
def test_a_wrong_setting_is_wrong_usage(dlog: Dlog, data: Path, arguments: list[str], says: str) -> None:
    before = contents(data)
    outcome = dlog("log", "compact", data / "users-0", *arguments)
    assert outcome.code == 2
    assert says in outcome.err
    assert contents(data) == before


def test_of_many_topics_one_must_be_named(dlog: Dlog, data: Path) -> None:
    before = contents(data)
    outcome = dlog("log", "compact", data)
    assert outcome.code == 2
    assert "--topic: events, users" in outcome.err
    assert contents(data) == before


def test_a_data_directory_of_one_topic_needs_no_more_words(dlog: Dlog, tmp_path: Path) -> None:
    with Log.open(str(tmp_path / "log"), background=False) as log:
        log.append_many([Record(b"old", b"key"), Record(b"new", b"key")])
    (result,) = dlog("log", "compact", tmp_path / "log", "--roll", "-o", "json").rows
    assert result["records_dropped"] == 1


def test_records_without_a_key_are_not_dropped_unless_that_is_meant(dlog: Dlog, data: Path) -> None:
    before = contents(data)
    outcome = dlog("log", "compact", data / "events-0", "--roll")
    assert outcome.code == 1
    assert "--drop-keyless" in outcome.err
    assert contents(data) == before
    assert dlog("log", "compact", data / "events-0", "--roll", "--drop-keyless").code == 0
    assert values(data, "events") == {}


def test_a_directory_in_use_is_refused_politely(dlog: Dlog, data: Path) -> None:
    with Store.open(str(data), background=False):
        for options in ([], ["--dry-run"]):
            outcome = dlog("log", "compact", data / "users-0", *options)
            assert outcome.code == 3
            assert "in use by another process; stop it first" in outcome.err
            assert outcome.err.count("\n") == 1


def test_a_damaged_log_is_refused(dlog: Dlog, data: Path) -> None:
    flip(first_log(data / "users-0"), 100)
    before = contents(data)
    outcome = dlog("log", "compact", data / "users-0")
    assert outcome.code == 1
    assert "is damaged and not compacted" in outcome.err
    assert contents(data) == before


def test_a_copy_of_a_partition_is_compacted_where_it_stands(dlog: Dlog, data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "users-0", tmp_path / "copy")
    (result,) = dlog("log", "compact", tmp_path / "copy", "--roll", "-o", "json").rows
    assert result["partition"] == "copy"
    assert result["records_dropped"] == 220
    assert not (tmp_path / "meta.properties").exists()
    assert dlog("log", "verify", tmp_path / "copy").code == 0


def test_a_topic_of_kafkas_is_compacted_and_still_sound(
    dlog: Dlog, golden_copy: Callable[[str], Path]
) -> None:
    copy = golden_copy("clean")
    outcome = dlog("log", "compact", copy, "--topic", "compacted", "--roll", "-o", "json")
    assert outcome.code == 0
    assert outcome.rows[0]["is_compacted"]
    assert dlog("log", "verify", copy / "compacted-0").code == 0


def test_a_config_of_small_segments_is_kept_to(dlog: Dlog, data: Path) -> None:
    dlog("log", "compact", data / "users-0", "--roll", "--set", "segment.bytes=1024")
    config = LogConfig(segment_bytes=1024)
    assert all(path.stat().st_size <= config.segment_bytes for path in (data / "users-0").glob("*.log"))
