"""Records on stdout: into a pipe byte for byte, on a terminal escaped.  Lost output is never exit code 0."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributedlog.cli.session import BOOTSTRAP_VARIABLE
from tests.unit.client.stage import mock_cluster

DLOG = f"{sys.executable} -m distributedlog.cli.main"
HOSTILE = b"a\x1b]0;owned\x07\xc2\x9b31m\xff\tb"
RECORDS = 5_000


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster with a topic of three records and one of more bytes than a pipe holds."""
    with mock_cluster() as bootstrap:
        path = tmp_path_factory.mktemp("lines") / "lines"
        for topic, lines in (("few", [HOSTILE] * 3), ("many", [b"x" * 100] * RECORDS)):
            path.write_bytes(b"\n".join(lines) + b"\n")
            done = shell(f"topic produce {topic} -p 0 -l {path}", "", bootstrap)
            assert done.returncode == 0, done.stderr
        yield bootstrap


def shell(command: str, to: str, bootstrap: str) -> "subprocess.CompletedProcess[bytes]":
    """The exit code of `dlog`, wherever its output goes."""
    script = f"{DLOG} {command} {to}; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, BOOTSTRAP_VARIABLE: bootstrap}
    return subprocess.run(["bash", "-c", script], capture_output=True, env=environment, timeout=60)


STREAMS = [
    "topic export {} -",
    "topic export {} - --format jsonl.gz",
    "topic export {} - --format parquet",
    "topic consume {} -e",
    "topic consume {} -e -o json",
    "topic consume {} -e -o table",
]


@pytest.mark.parametrize(
    ("command", "topic"),
    [*((each, "many") for each in STREAMS), (STREAMS[0], "few"), (STREAMS[3], "few")],
)
def test_a_full_disk_is_an_error_of_one_line(bootstrap: str, command: str, topic: str) -> None:
    done = shell(command.format(topic), "> /dev/full", bootstrap)
    assert done.returncode == 3
    assert done.stderr == b"dlog: stdout: No space left on device: what was printed is not all there is\n"


def test_a_file_that_may_not_grow_is_an_error_too(bootstrap: str, tmp_path: Path) -> None:
    script = f"ulimit -f 8; {DLOG} topic export many - > {tmp_path}/out"
    environment = {**os.environ, BOOTSTRAP_VARIABLE: bootstrap}
    done = subprocess.run(["bash", "-c", script], capture_output=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1), done.stderr
    assert b"stdout: File too large" in done.stderr


@pytest.mark.parametrize("command", [STREAMS[0], STREAMS[3]])
def test_a_closed_stdout_is_refused(bootstrap: str, command: str) -> None:
    done = shell(command.format("few"), ">&-", bootstrap)
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    assert b"stdout is closed" in done.stderr


@pytest.mark.parametrize(
    "command", ["topic export {} -", "topic consume {} -e", "topic consume {} -e -o json"]
)
def test_a_reader_that_left_is_exit_code_141_without_a_count(bootstrap: str, command: str) -> None:
    done = shell(command.format("many"), "| head -c 10", bootstrap)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_pipe_gets_the_bytes_of_records(bootstrap: str) -> None:
    assert shell("topic consume few -e", "| cat", bootstrap).stdout == (HOSTILE + b"\n") * 3


def on_terminal(command: str, bootstrap: str) -> tuple[int, bytes]:
    """Runs it with a terminal for its stdout."""
    leader, follower = pty.openpty()
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "distributedlog.cli.main", *command.split()],
            stdout=follower,
            stderr=subprocess.DEVNULL,
            env={**os.environ, BOOTSTRAP_VARIABLE: bootstrap},
        )
        os.close(follower)
        printed = b""
        while chunk := _read(leader):
            printed += chunk
        return child.wait(60), printed
    finally:
        os.close(leader)


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # the last who had the terminal open has ended
        return b""


@pytest.mark.parametrize(
    "how",
    ["-e", "-e -f %k|%v|%h", "-e -o table", "-e -o json", "export"],
    ids=lambda how: how.replace(" ", "_"),
)
def test_a_terminal_gets_no_control_character_of_a_record(bootstrap: str, how: str) -> None:
    command = "topic export few -" if how == "export" else f"topic consume few {how}"
    code, printed = on_terminal(command, bootstrap)
    assert code == 0
    assert printed.count(b"\r\n") >= 3
    assert not set(printed.replace(b"\r\n", b"")) & {0x1B, 0x07, 0xFF, 0x0D}
    assert b"\xc2\x9b" not in printed


def test_a_terminal_is_not_given_a_binary_file(bootstrap: str) -> None:
    assert on_terminal("topic export few - --format parquet", bootstrap) == (2, b"")
