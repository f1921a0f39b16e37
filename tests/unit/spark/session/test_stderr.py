"""What a JVM says on stderr: passed on whole, but for what nobody can use."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributedlog.spark.session import stderr as session_stderr
from distributedlog.spark.session.stderr import (
    LOG_FILE,
    NOISE,
    pass_on_last_words,
    stderr_lent,
    without_closed_connections,
    without_noise,
)

SAID = "WARNING: Using incubator modules: jdk.incubator.vector\nError: a real one\nand its last words"


def say() -> None:
    program = f"import sys; sys.stderr.write({SAID!r})"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_real_errors_reach_the_terminal_and_the_noise_does_not(capfd: pytest.CaptureFixture[str]) -> None:
    with stderr_lent(None):
        say()
    pass_on_last_words()
    assert capfd.readouterr().err == "Error: a real one\nand its last words"
    sys.stderr.write("ours again")
    assert capfd.readouterr().err == "ours again"


def test_with_a_directory_everything_goes_into_its_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with stderr_lent(str(tmp_path)):
            say()
    assert (tmp_path / LOG_FILE).read_text() == SAID * 2
    monkeypatch.setattr(session_stderr, "LOG_BYTES_MAX", 10)
    with stderr_lent(str(tmp_path)):
        say()
    assert (tmp_path / LOG_FILE).read_text() == SAID
    assert (tmp_path / f"{LOG_FILE}.1").read_text() == SAID * 2
    assert capfd.readouterr().err == ""


def test_what_fails_in_between_leaves_this_process_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError), stderr_lent(None):
        subprocess.run([sys.executable, "-c", "import sys; sys.exit('refused')"], check=True)
    pass_on_last_words()
    assert capfd.readouterr().err == "refused\n"
    sys.stderr.write("ours again")
    assert capfd.readouterr().err == "ours again"


def test_what_does_not_end_its_line_is_passed_on_at_once() -> None:
    """Spark's bar of progress only ever goes back to the line's start."""
    noise = NOISE[0] + b"jdk.incubator.vector\n"
    pieces = [noise[:7], noise[7:40], noise[40:] + b"\r[Stage", b" 0:>  ", noise, b"WARN", b"ED\n", b"WARN"]
    passed: list[list[bytes]] = [[]]

    def arriving() -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            passed.append([])

    for part in without_noise(arriving()):
        passed[-1].append(part)
    assert [b"".join(parts) for parts in passed] == [
        b"", b"", b"\r[Stage", b" 0:>  ", noise, b"", b"WARNED\n", b"", b"WARN",
    ]  # fmt: skip


@pytest.mark.parametrize("directory", [None, "."])
def test_a_process_without_a_stderr_lends_one_all_the_same(tmp_path: Path, directory: str | None) -> None:
    program = (
        "import os, subprocess, sys\n"
        "from distributedlog.spark.session.stderr import pass_on_last_words, stderr_lent\n"
        "assert sys.stderr is None\n"
        "with open('data', 'w') as data:\n"
        f"    with stderr_lent({directory!r}):\n"
        "        subprocess.run([sys.executable, '-c', 'import os; os.write(2, b\"said\")'], check=True)\n"
        "    pass_on_last_words()\n"
        "    data.write('ours')\n"
        "print(open('data').read())\n"
    )
    ran = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, program],
        cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert ran.stdout == "ours\n"
    if directory is not None:
        assert (tmp_path / LOG_FILE).read_text() == "said"


UNWANTED = (
    b"Traceback (most recent call last):\n"
    b'  File "/lib/pyspark/daemon.py", line 264, in manager\n'
    b'  File "/lib/pyspark/daemon.py", line 95, in worker\n'
    b"    outfile.flush()\n"
    b"BrokenPipeError: [Errno 32] Broken pipe\n"
)
RESET = UNWANTED.replace(
    b"BrokenPipeError: [Errno 32] Broken pipe", b"ConnectionResetError: [Errno 104] Connection reset by peer"
)


@pytest.mark.parametrize("size", [1, 7, 64, 1024])
def test_workers_whose_rows_nobody_wants_say_nothing(size: int) -> None:
    """Java passes on what they say a thousand bytes at a time, wherever a line ends."""
    real = UNWANTED.replace(b"/lib/pyspark/daemon.py", b"/home/mine.py")
    said = (
        b"before\n"
        + UNWANTED
        + b"between\n"
        + UNWANTED
        + RESET
        + real
        + b"Trace of nothing\n"
        + UNWANTED
        + b"end"
    )
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    expected = b"before\nbetween\n" + real + b"Trace of nothing\nend"
    assert b"".join(without_closed_connections(without_noise(pieces))) == expected


def test_tracebacks_of_two_workers_come_mixed() -> None:
    lines = zip(UNWANTED.splitlines(keepends=True), RESET.splitlines(keepends=True), strict=True)
    mixed = [line for pair in lines for line in pair]
    assert b"".join(without_closed_connections([*mixed, b"end\n"])) == b"end\n"


def test_a_traceback_without_end_is_passed_on() -> None:
    pieces = [UNWANTED.splitlines(keepends=True)[0], *([b"  " + b"x" * 1000 + b"\n"] * 100)]
    assert b"".join(without_closed_connections(pieces)) == b"".join(pieces)
