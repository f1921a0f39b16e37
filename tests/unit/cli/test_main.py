"""The command as a whole: help, exit codes, one line for what goes wrong, and leaving quietly."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from distributedlog import Log, Record, __version__
from distributedlog.cli.main import root
from tests.unit.cli.conftest import Dlog, first_log, flip

DLOG = [sys.executable, "-m", "distributedlog.cli.main"]


def start(*arguments: object, **environment: str) -> "subprocess.Popen[bytes]":
    """Starts a process, used in a `with`, which closes its pipes and waits for it."""
    return subprocess.Popen(
        [*DLOG, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        preexec_fn=_heed_interrupts,
    )


def _heed_interrupts() -> None:
    """A test run in the background ignores Ctrl-C, and what it starts would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """More output than a pipe holds."""
    path = tmp_path / "large"
    with Log.open(str(path), background=False) as log:
        log.append_many([Record(b"x" * 100, b"key-%d" % number) for number in range(5000)])
    return path


def test_help_teaches_what_it_is_what_to_try_and_where_to_read_on() -> None:
    shown = CliRunner().invoke(root, ["--help"])
    assert shown.exit_code == 0
    assert "commit log" in shown.output
    assert all(f"dlog {command}" in shown.output for command in ("dev", "topic produce", "log verify"))
    assert "docs/cli.md" in shown.output
    assert "Exit codes" in shown.output


@pytest.mark.parametrize("command", ["dump", "verify", "index", "repair", "compact"])
def test_every_command_has_help_of_its_own(command: str) -> None:
    shown = CliRunner().invoke(root, ["log", command, "-h"])
    assert shown.exit_code == 0
    assert f"Usage: dlog log {command}" in shown.output
    assert command in CliRunner().invoke(root, ["log", "--help"]).output


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, (*path, name))


@pytest.mark.parametrize("path", list(leaves(root)), ids=" ".join)
def test_every_command_shows_how_it_is_used(path: tuple[str, ...]) -> None:
    """An example, and for each value a word for what is to be written."""
    shown = CliRunner().invoke(root, [*path, "--help"], terminal_width=100).output
    examples, _, options = shown.partition("Options:")
    assert f"dlog {' '.join(path)}" in examples.partition("\n")[2]
    assert not re.search(r"\b(TEXT|INTEGER|FLOAT|PATH|RANGE)\b", options), options


def test_a_command_that_was_mistyped_is_guessed(dlog: Dlog) -> None:
    refused = dlog("topc", "list")
    assert (refused.code, "here; did you mean topic?" in refused.err) == (2, True)
    refused = dlog("topic", "xyzzy")
    assert (refused.code, "here; there are list, create, describe" in refused.err) == (2, True)


def test_help_imports_nothing_heavy() -> None:
    ours = {f"distributedlog.{package}" for package in ("storage", "records", "embedded", "cli.log")}
    program = (
        "import sys; from distributedlog.cli.main import main; code = main(['--help']); "
        f"sys.exit(code or bool(sys.modules.keys() & { {'rich', 'crc32c', 'asyncio'} | ours!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0
    assert b"Usage: dlog" in done.stdout


def test_the_version_is_one_line(dlog: Dlog) -> None:
    assert dlog("--version").out == f"dlog {__version__}\n"


def test_no_command_at_all_shows_the_help_as_wrong_usage(dlog: Dlog) -> None:
    outcome = dlog()
    assert outcome.code == 2
    assert "To try it" in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["frobnicate"], 2, "no command 'frobnicate'"),
        (["log", "frobnicate"], 2, "there are dump, verify, index, repair, compact"),
        (["log", "dump"], 2, "Missing argument"),
        (["log", "dump", "--frobnicate", "."], 2, "--frobnicate"),
        (["log", "dump", "no/such/place"], 1, "there is nothing at no/such/place"),
        (["log", "verify", "no/such/place"], 1, "name a data directory"),
        (["log", "dump", __file__], 2, "is not a file of a log"),
        (["log", "verify", __file__], 2, "name the directory"),
        (["log", "dump", ".", "--limit", "0"], 2, "--limit"),
        (["log", "dump", ".", "--from-time", "yesterday"], 2, "is not a time"),
        (["log", "dump", ".", "-o", "yaml"], 2, "'table', 'json'"),
    ],
)
def test_a_wrong_input_is_one_line_that_says_what_to_do(
    dlog: Dlog, arguments: list[str], code: int, says: str
) -> None:
    outcome = dlog(*arguments)
    assert outcome.code == code
    assert outcome.out == ""
    assert outcome.err.startswith("dlog: ")
    assert outcome.err.count("\n") == 1
    assert says in outcome.err


def test_a_directory_without_logs_is_not_found(dlog: Dlog, tmp_path: Path) -> None:
    outcome = dlog("log", "verify", tmp_path)
    assert outcome.code == 1
    assert "holds no log" in outcome.err


def test_a_topic_that_is_not_there_is_answered_with_those_that_are(dlog: Dlog, data: Path) -> None:
    outcome = dlog("log", "dump", data, "--topic", "orders")
    assert outcome.code == 1
    assert "events, users" in outcome.err


def test_a_file_without_permission_is_an_environment_error(dlog: Dlog, data: Path) -> None:
    broken = data / "users-0" / "leader-epoch-checkpoint"
    broken.unlink()
    broken.mkdir()
    outcome = dlog("log", "dump", data / "users-0", "--all")
    assert outcome.code == 3
    assert outcome.err.startswith("dlog: ")
    assert outcome.err.count("\n") == 1


def test_the_traceback_is_shown_only_when_asked_for(data: Path) -> None:
    flip(first_log(data / "users-0"), 100)
    quiet = start("log", "compact", data / "users-0")
    _, said = quiet.communicate(timeout=30)
    assert quiet.returncode == 1
    assert said.count(b"\n") == 1
    assert b"Traceback" not in said
    loud = start("log", "compact", data / "users-0", DLOG_DEBUG="1")
    _, said = loud.communicate(timeout=30)
    assert b"Traceback" in said
    assert loud.returncode == 1


def test_control_c_leaves_quietly(large: Path) -> None:
    with start("log", "dump", large, "--records", "-o", "json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()  # it is at work, and will soon wait for its reader
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(timeout=30) == 130
        assert process.stderr.read() == b""


def test_a_reader_that_leaves_is_no_error_to_talk_about(large: Path) -> None:
    with start("log", "dump", large, "--records", "-o", "json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=30) == 141
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        ("<&-", ["topic", "delete", "orders"], 2),
        (">&-", ["log", "verify"], 0),
        ("2>&-", ["log", "verify"], 0),
        ("<&- >&- 2>&-", ["log", "verify"], 0),
        ("2>&-", ["log", "verify", "nowhere"], 2),
    ],
)
def test_a_stream_that_is_closed_is_no_bug(data: Path, closed: str, arguments: list[str], code: int) -> None:
    given = [*arguments, str(data)] if arguments[0] == "log" else arguments
    command = [sys.executable, "-m", "distributedlog.cli.main", *given]
    ran = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True, timeout=60)
    assert (ran.returncode, b"a bug" in ran.stderr) == (code, False), ran.stderr
