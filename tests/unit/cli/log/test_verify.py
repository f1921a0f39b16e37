"""`dlog log verify`: what it prints and what it returns; the judgement itself is tested in storage."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from distributedlog import LogConfig, Record, Store
from tests.unit.cli.conftest import GOLDEN, TIME_MS, Dlog, contents, first_log, flip, last_log


def test_a_sound_directory_is_called_sound_with_what_was_read(dlog: Dlog, data: Path) -> None:
    outcome = dlog("log", "verify", data)
    assert outcome.code == 0
    assert outcome.err == ""
    verdict, read, span = outcome.out.splitlines()
    assert verdict == "sound: 0 damage, 0 repairable, 0 note"
    assert "3 partitions" in read
    assert "242 records" in read
    assert "MB/s" in read
    assert span == "records from 2023-11-14T22:13:20.000Z to 2023-11-14T22:13:31.019Z"


def test_the_same_as_json(dlog: Dlog, data: Path) -> None:
    outcome = dlog("log", "verify", data, "-o", "json")
    assert [row["partition"] for row in outcome.of_type("partition")] == ["events-0", "events-1", "users-0"]
    users = outcome.of_type("partition")[-1]
    assert (users["first_offset"], users["end_offset"], users["records"]) == (0, 240, 240)
    (summary,) = outcome.of_type("summary")
    assert summary["state"] == "sound"
    assert summary["batches"] == 14
    assert summary["oldest_timestamp_ms"] == TIME_MS
    assert summary["seconds"] > 0
    assert outcome.rows[-1]["type"] == "summary"


def test_damage_is_exit_code_one_and_names_file_position_and_offset(dlog: Dlog, data: Path) -> None:
    flip(first_log(data / "users-0"), 100)
    outcome = dlog("log", "verify", data)
    assert outcome.code == 1
    assert "damage      users-0/00000000000000000000.log at 0 (offset 0): " in outcome.out
    assert "\ndamaged: 1 damage" in outcome.out
    finding = dlog("log", "verify", data, "-o", "json").of_type("finding")[0]
    assert finding["severity"] == "damage"
    assert finding["path"] == "users-0/00000000000000000000.log"
    assert (finding["position"], finding["offset"]) == (0, 0)


def test_what_a_crash_leaves_is_repairable_and_no_failure(dlog: Dlog, data: Path) -> None:
    with Store.open(str(data), config=LogConfig(), background=False) as store:
        store.log("users").append_many([Record(b"late", b"key")])
        shutil.copytree(data, data.parent / "killed")  # as a kill leaves it: not closed, not checkpointed
    torn = last_log(data.parent / "killed" / "users-0")
    torn.write_bytes(torn.read_bytes()[:-3])
    outcome = dlog("log", "verify", data.parent / "killed")
    assert outcome.code == 0
    assert "repairable  users-0/" in outcome.out
    assert "a torn write" in outcome.out
    assert "\nrepairable: 0 damage" in outcome.out


def test_a_clean_directory_of_kafkas_is_sound(dlog: Dlog) -> None:
    outcome = dlog("log", "verify", GOLDEN / "clean/data", "-o", "json")
    assert outcome.code == 0
    (summary,) = outcome.of_type("summary")
    assert summary["state"] == "sound"
    assert summary["partitions"] == 28
    assert {row["severity"] for row in outcome.of_type("finding")} == {"note"}
    assert all("compacted" in row["path"] for row in outcome.of_type("finding"))


def test_what_kafka_leaves_when_it_is_killed_is_repairable(dlog: Dlog) -> None:
    outcome = dlog("log", "verify", GOLDEN / "crashed/data", "-o", "json")
    assert outcome.code == 0
    assert outcome.of_type("summary")[0]["state"] == "repairable"
    for row in outcome.of_type("finding"):
        assert row["severity"] == "repairable"
        assert "as Kafka leaves it when it is killed" in row["message"]


@pytest.mark.parametrize("partition", sorted(path.name for path in (GOLDEN / "clean/data").glob("*-[0-9]")))
def test_each_of_kafkas_partitions_is_sound_also_when_it_stands_alone(
    dlog: Dlog, tmp_path: Path, partition: str
) -> None:
    shutil.copytree(GOLDEN / "clean/data" / partition, tmp_path / "alone")
    assert dlog("log", "verify", tmp_path / "alone", "-o", "json").of_type("summary")[0]["state"] == "sound"
    inside = dlog("log", "verify", GOLDEN / "clean/data" / partition, "-o", "json")
    assert inside.of_type("summary")[0]["state"] == "sound"


def test_a_damaged_directory_of_kafkas_is_damaged(dlog: Dlog, golden_copy: Callable[[str], Path]) -> None:
    copy = golden_copy("clean")
    flip(first_log(copy / "transactions-0"), 30)
    outcome = dlog("log", "verify", copy, "--topic", "transactions")
    assert outcome.code == 1
    assert "transactions-0/00000000000000000000.log at 0" in outcome.out


def test_one_topic_or_partition_may_be_asked_about(dlog: Dlog, data: Path) -> None:
    flip(first_log(data / "users-0"), 100)
    assert dlog("log", "verify", data, "--topic", "events").code == 0
    assert dlog("log", "verify", data / "events-1").code == 0
    assert dlog("log", "verify", data, "--topic", "users").code == 1
    assert dlog("log", "verify", data / "users-0").code == 1


def test_a_partition_is_judged_by_the_checkpoints_around_it(dlog: Dlog, data: Path, tmp_path: Path) -> None:
    torn = last_log(data / "users-0")
    torn.write_bytes(torn.read_bytes()[:-3])
    assert dlog("log", "verify", data / "users-0").code == 1, "it was closed: everything was synced"
    shutil.copytree(data / "users-0", tmp_path / "copy")
    assert dlog("log", "verify", tmp_path / "copy").code == 0, "nobody knows what was synced"


def test_a_directory_in_use_is_verified_and_said_to_be(dlog: Dlog, data: Path) -> None:
    with Store.open(str(data), background=False) as store:
        store.log("users").append_many([Record(b"v" * 50, b"k")] * 100)
        before = contents(data)
        outcome = dlog("log", "verify", data)
        assert contents(data) == before
    assert outcome.code == 0
    assert "is in use" in outcome.err
    assert "\nsound: " in "\n" + outcome.out


def test_a_terminal_is_shown_a_progress_bar_and_stdout_stays_clean(data: Path) -> None:
    flip(first_log(data / "users-0"), 100)
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "distributedlog.cli.main", "log", "verify", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        assert process.stdout is not None
        said = process.stdout.read()
        shown = b""
        with contextlib.suppress(OSError):  # the terminal is gone when the process is
            while part := os.read(ours, 4096):
                shown += part
    os.close(ours)
    assert process.returncode == 1
    assert b"verifying" in shown
    assert said.startswith(b"damage      users-0/")
    assert b"damage" not in shown
    assert b"verifying" not in said


def test_a_verification_changes_nothing(dlog: Dlog, golden_copy: Callable[[str], Path]) -> None:
    copy = golden_copy("crashed")
    before = contents(copy)
    dlog("log", "verify", copy)
    assert contents(copy) == before
