"""The demo, in its small form: it proves what it says, draws its picture, and leaves nothing running."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 400


@contextmanager
def demo(*arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """In a session of its own, so that whatever it leaves behind can be seen, and is ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "demo", "--small", *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        yield process
    finally:
        if is_anybody_left(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def is_anybody_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_demo_proves_itself_through_a_killed_broker(tmp_path: Path) -> None:
    picture = tmp_path / "pictures" / "lag.png"
    with demo("--picture", picture) as process:
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, output
        assert not is_anybody_left(process.pid)
    assert "kill -9" in output
    assert "serves again" in output
    assert "WRONG" not in output
    assert output.count("right") == 9
    assert "Nothing promised was lost." in output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_demo_leaves_nothing_running_when_it_is_interrupted(tmp_path: Path) -> None:
    with demo("--picture", tmp_path / "lag.png") as process:
        assert process.stdout is not None
        while "a broker serves" not in (line := process.stdout.readline()):
            assert line, "it ended before the broker served"
        process.send_signal(signal.SIGINT)  # Spark is being started at this moment
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 130, output
        assert "Traceback" not in output
        assert not is_anybody_left(process.pid)
