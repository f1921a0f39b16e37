"""A program that does not stop says where it stands when it is asked."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.reliability.programs.stopping import ASK_TASKS, ASK_THREADS

WAIT_SECONDS = 60.0
WITH_TASKS = """
import asyncio
from tests.reliability.programs.stopping import stopping

async def waits_for_nobody():
    await asyncio.Event().wait()

async def run():
    stopping()
    asyncio.get_running_loop().call_soon(lambda: print("ready", flush=True))
    await waits_for_nobody()

asyncio.run(run())
"""
WITHOUT = """
import threading
from tests.reliability.programs.stopping import stopping

def waits_for_nobody():
    print("ready", flush=True)
    threading.Event().wait()

stopping()
waits_for_nobody()
"""


@pytest.mark.parametrize(("program", "ask"), [(WITH_TASKS, ASK_TASKS), (WITHOUT, ASK_THREADS)])
def test_a_program_that_hangs_says_where(program: str, ask: signal.Signals, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with (
        said.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
        ) as running,
    ):
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + WAIT_SECONDS
        while "in waits_for_nobody" not in said.read_text():
            assert time.monotonic() < deadline, said.read_text()
            running.send_signal(ask)
            time.sleep(0.05)
        running.send_signal(ASK_TASKS if ask is ASK_THREADS else ASK_THREADS)  # ends none of them
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(0.2)
        running.kill()
