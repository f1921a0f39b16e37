"""What a JVM says on stderr: passed on whole, but for what nobody can use."""

import subprocess
import sys
from pathlib import Path

import pytest

from distributedlog.spark import session_stderr
from distributedlog.spark.session_stderr import LOG_FILE, pass_on_last_words, stderr_lent

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
