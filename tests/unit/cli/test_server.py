"""`dlog server`: what it refuses before anything is started, and the making of directories."""

import os
import re
import stat
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Dlog, contents

VOTERS = "controller.quorum.voters=1@127.0.0.1:19093,2@127.0.0.1:19094,3@127.0.0.1:19095"


@pytest.mark.parametrize("command", ["start", "format"])
def test_every_command_has_help_with_an_example(dlog: Dlog, command: str) -> None:
    outcome = dlog("server", command, "--help")
    assert outcome.code == 0
    assert f"dlog server {command} --config node1.toml" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["start", "--config", "no/such.toml"], 1, "there is no file no/such.toml"),
        (["start", "--set", "nodeid=1"], 2, "did you mean 'node.id'"),
        (["start", "--set", "listeners=PLAINTEXT://10.0.0.1:9092"], 2, "--insecure"),
        (["start", "--ready-fd", "2"], 2, "--ready-fd"),
        (["start", "--ready-fd", "999"], 2, "no such descriptor was inherited"),
        (["format", "--set", "log.dirs="], 2, "name one directory"),
        (["format", "--set", VOTERS], 2, "must agree on its id"),
    ],
)
def test_a_wrong_input_is_one_line(
    dlog: Dlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = dlog("server", *arguments)
    assert outcome.code == code
    assert outcome.err.startswith("dlog: ")
    assert outcome.err.count("\n") == 1
    assert says in outcome.err


def test_a_voter_among_others_does_not_make_its_directory_by_itself(dlog: Dlog, tmp_path: Path) -> None:
    outcome = dlog("server", "start", "--set", f"log.dirs={tmp_path / 'data'}", "--set", VOTERS)
    assert outcome.code == 2
    assert "dlog server format" in outcome.err


def test_a_ready_file_of_an_earlier_run_is_gone_before_the_node_starts(dlog: Dlog, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text("{}")
    data = f"log.dirs={tmp_path / 'data'}"
    outcome = dlog("server", "start", "--ready-file", str(ready), "--set", data, "--set", VOTERS)
    assert outcome.code == 2
    assert not ready.exists()


def test_a_directory_is_made_once(dlog: Dlog, tmp_path: Path) -> None:
    data = tmp_path / "data"
    arguments = ["--set", f"log.dirs={data}", "--set", VOTERS, "--cluster-id", "nUCSzRR8R4mFbbQEpWyHPw"]
    made = dlog("server", "format", *arguments)
    assert made.code == 0
    assert "now node 1's of cluster nUCSzRR8R4mFbbQEpWyHPw" in made.err
    before = contents(data)
    again = dlog("server", "format", *arguments)
    assert again.code == 3
    assert "belongs to a node already" in again.err
    assert dlog("server", "format", "--ignore-formatted", *arguments).code == 0
    assert contents(data) == before


def test_another_cluster_s_directory_is_not_ignored(dlog: Dlog, tmp_path: Path) -> None:
    arguments = ["--ignore-formatted", "--set", f"log.dirs={tmp_path}", "--set", VOTERS, "--cluster-id"]
    assert dlog("server", "format", *arguments, "nUCSzRR8R4mFbbQEpWyHPw").code == 0
    other = dlog("server", "format", *arguments, "AAAAAAAAAAAAAAAAAAAAAQ")
    assert other.code == 2
    assert "is of the cluster nUCSzRR8R4mFbbQEpWyHPw" in other.err


def test_settings_of_a_file_are_used(dlog: Dlog, tmp_path: Path) -> None:
    config = tmp_path / "node1.toml"
    config.write_text(f'"node.id" = 9\n"log.dirs" = "{tmp_path / "nine"}"\n')
    outcome = dlog("server", "format", "--config", config)
    assert outcome.code == 0
    assert "now node 9's" in outcome.err
    assert os.path.exists(tmp_path / "nine" / "meta.properties")


def test_the_refusals_in_the_documentation_are_those_of_the_command(dlog: Dlog) -> None:
    text = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    examples = re.findall(r"^    \$ dlog (server start .*)\n    (dlog: .*)$", text, re.MULTILINE)
    assert len(examples) == 2
    for command, says in examples:
        assert dlog(*command.split(" ")).err == f"{says}\n"


def test_further_nodes_are_given_the_first_ones_secret_and_old_directories_too(
    dlog: Dlog, tmp_path: Path
) -> None:
    def settings(node_id: int) -> list[str]:
        given = {"node.id": node_id, "log.dirs": tmp_path / str(node_id), "cluster.id": "c"}
        pairs = [VOTERS, *(f"{name}={value}" for name, value in given.items())]
        return [part for pair in pairs for part in ("--set", pair)]

    def secret(node_id: int) -> Path:
        return tmp_path / str(node_id) / "__cluster_metadata" / "cluster.secret"

    first = dlog("server", "format", *settings(1))
    assert first.code == 0
    assert f"the cluster's secret is in {secret(1)}: the other nodes need the same" in first.err
    assert secret(1).read_text().strip() not in first.err + first.out
    assert dlog("server", "format", *settings(2), "--secret-file", str(secret(1))).code == 0
    assert secret(2).read_text() == secret(1).read_text()
    assert stat.S_IMODE(secret(2).stat().st_mode) == 0o600

    secret(2).unlink()
    old = dlog("server", "start", *settings(2))
    assert old.code == 2
    assert "has no cluster secret: make one on the first node with `dlog server format" in old.err
    assert len(old.err.strip().splitlines()) == 1
    again = ("server", "format", "--ignore-formatted", *settings(2))
    assert dlog(*again, "--secret-file", str(secret(1))).code == 0
    assert secret(2).read_text() == secret(1).read_text()

    secret(1).chmod(0o644)
    refused = dlog("server", "format", *settings(3), "--secret-file", str(secret(1)))
    assert refused.code == 2
    assert "chmod 600" in refused.err
    assert not (tmp_path / "3").exists()
