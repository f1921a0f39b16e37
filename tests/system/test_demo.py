"""The demo, in its small form: it proves what it says, draws its picture, and leaves nothing running."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.system.dev_cluster import heeding_interrupts

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 400
NOTICE_SECONDS = 10.0


@contextmanager
def demo(*arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """Runs the demo in a session of its own, so that whatever it leaves behind can be seen, and is ended."""
    with heeding_interrupts():
        process = subprocess.Popen(
            [sys.executable, "-m", "demo", "--small", *map(str, arguments)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None or is_anybody_left(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def alive_in(group: int) -> list[str]:
    """The processes of a group, without those that have ended and only wait to be collected."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                command, _, rest = (entry / "stat").read_text().rpartition(")")
                state, _, process_group = rest.split()[:3]
                if int(process_group) == group and state != "Z":
                    found.append(command)
    return found


def is_anybody_left(group: int) -> bool:
    """Workers end when they notice that their JVM has: they are given a moment for that."""
    deadline = time.monotonic() + NOTICE_SECONDS
    while alive_in(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(alive_in(group))


def test_the_demo_proves_itself_through_a_killed_leader(tmp_path: Path) -> None:
    picture = tmp_path / "pictures" / "lag.png"
    with demo("--picture", picture) as process:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, output
        assert not is_anybody_left(process.pid)
    assert "which led orders, is gone" in output
    assert "serves again" in output
    assert "WRONG" not in output
    assert output.count("right") == 8
    assert "Nothing promised was lost." in output
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("moment", ["three brokers serve", "Spark"])
def test_the_demo_leaves_nothing_running_when_it_is_interrupted(tmp_path: Path, moment: str) -> None:
    """Interrupts it while Spark is being started, and while the first run is going on."""
    with demo("--picture", tmp_path / "lag.png") as process:
        assert process.stdout is not None
        while moment not in (line := process.stdout.readline()):
            assert line, "it ended before it was interrupted"
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 130, output
        assert "Traceback" not in output
        assert not is_anybody_left(process.pid)
