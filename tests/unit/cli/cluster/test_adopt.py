"""`dlog cluster adopt` on a directory that Kafka wrote."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from distributedlog.cli.main import root
from distributedlog.ports.disk import SystemDisk
from tests.unit.cli.conftest import Dlog, contents, first_log, last_log

Copy = Callable[[str], Path]


def test_without_being_told_where_it_only_says_what_it_would_do(dlog: Dlog, golden_copy: Copy) -> None:
    kafka = golden_copy("clean")
    before = contents(kafka)
    outcome = dlog("cluster", "adopt", kafka)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0].split() == ["topic", "partitions", "size", "settings"]
    assert any(line.startswith("left      __transaction_state: ") for line in lines)
    assert lines[-2].startswith("24 topics, 26 partitions, ")
    assert lines[-1] == "all of it can be taken: say --to NEWDIR, or --in-place"
    assert contents(kafka) == before


@pytest.mark.parametrize("how", ["copied", "linked"])
def test_a_new_directory_is_sound_and_kafkas_stays_as_it_was(
    dlog: Dlog, golden_copy: Copy, tmp_path: Path, how: str
) -> None:
    kafka, ours = golden_copy("clean"), tmp_path / "ours"
    before = contents(kafka)
    options = ["--link"] if how == "linked" else []
    outcome = dlog("cluster", "adopt", kafka, "--to", ours, "-o", "json", *options)
    assert outcome.code == 0
    told = outcome.rows[-1]
    assert (told["type"], told["topics"], told["refused"]) == ("adoption", 24, 0)
    assert told["directory"] == str(ours)
    assert contents(kafka) == before
    sealed, newest = first_log(ours / "segments-0"), last_log(ours / "segments-0")
    assert (sealed.stat().st_nlink, newest.stat().st_nlink) == (2 if how == "linked" else 1, 1)
    assert dlog("log", "verify", ours).out.startswith("note")
    assert "0 damage, 0 repairable" in dlog("log", "verify", ours).out


def test_in_place_what_is_not_taken_is_set_aside(dlog: Dlog, golden_copy: Copy) -> None:
    kafka = golden_copy("clean")
    outcome = dlog("cluster", "adopt", kafka, "--in-place", "-t", "segments", "-t", "codec-zstd")
    assert outcome.code == 0
    assert outcome.out.splitlines()[-1].startswith("done; start it with: dlog server start --set node.id=1")
    kept = sorted(
        name for name in os.listdir(kafka) if (kafka / name).is_dir() and not name.endswith(".kafka")
    )
    assert kept == ["__cluster_metadata", "codec-zstd-0", "segments-0", "segments-1"]
    assert (kafka / "__cluster_metadata-0.kafka").is_dir()
    assert (kafka / "empty-0.kafka").is_dir()
    again = dlog("cluster", "adopt", kafka)
    assert (again.code, "is a node's of dlog already" in again.err) == (1, True)


def test_if_something_is_missing_nothing_is_done_unless_it_may_stay_behind(
    dlog: Dlog, golden_copy: Copy, tmp_path: Path
) -> None:
    kafka, ours = golden_copy("clean"), tmp_path / "ours"
    shutil.rmtree(kafka / "segments-1")
    refused = dlog("cluster", "adopt", kafka, "--to", ours)
    assert refused.code == 1
    assert "refused   segments-1: it should be here, and is not" in refused.out
    assert "nothing was done" in refused.out
    assert not ours.exists()
    taken = dlog("cluster", "adopt", kafka, "--to", ours, "--leave-behind")
    assert taken.code == 0
    assert not (ours / "segments-0").exists()


def test_settings_of_kafkas_file_come_along(dlog: Dlog, golden_copy: Copy, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.ms=-1\nnum.partitions=3\nfetch.max.bytes=2048\n# a comment\n")
    outcome = dlog("cluster", "adopt", golden_copy("clean"), "--properties", properties, "-o", "json")
    assert outcome.rows[-1]["settings"][""] == {
        "log.retention.ms": "-1",
        "min.insync.replicas": "1",
        "num.partitions": "3",
    }
    notes = [row["message"] for row in outcome.of_type("note") if row["subject"] == "settings"]
    assert notes == ["give these to the node when you start it: fetch.max.bytes"]


def test_a_directory_that_is_in_use_is_refused(dlog: Dlog, golden_copy: Copy, tmp_path: Path) -> None:
    kafka = golden_copy("clean")
    lock = SystemDisk().lock(str(kafka / ".lock"))
    try:
        outcome = dlog("cluster", "adopt", kafka)
    finally:
        lock.release()
    assert outcome.code == 3
    assert outcome.err == f"dlog: {kafka} is in use: stop Kafka first\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "Missing argument"),
        (["x", "--to", "y", "--in-place"], 2, "exclude each other"),
        (["x", "--link"], 2, "--link is for --to"),
        (["no/such/place"], 1, "there is no directory"),
        (["."], 1, "is no log directory of Kafka"),
    ],
    ids=str,
)
def test_a_wrong_input_is_one_line(
    dlog: Dlog, arguments: list[str], code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = dlog("cluster", "adopt", *arguments)
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.count("\n") == 1
    assert says in outcome.err


@pytest.mark.parametrize(
    "command",
    [
        "info", "health", "adopt", "config get", "config set", "config unset",
        "quotas list", "quotas set", "quotas unset",
    ],
)  # fmt: skip
def test_every_command_has_help_with_examples(command: str) -> None:
    shown = CliRunner().invoke(root, ["cluster", *command.split(), "-h"])
    assert shown.exit_code == 0
    assert f"  dlog cluster {command}" in shown.output
