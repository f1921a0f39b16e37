"""A program that does not stop says where it stands when it is asked."""

import signal
import subprocess
import sys

import pytest

from tests.reliability.programs.stopping import ASK_TASKS, ASK_THREADS

WITH_TASKS = """
import asyncio
from tests.reliability.programs.stopping import stopping

async def waits_for_nobody():
    print("ready", flush=True)
    await asyncio.Event().wait()

async def run():
    stopping()
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
def test_a_program_that_hangs_says_where(program: str, ask: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(ASK_TASKS if ask is ASK_THREADS else ASK_THREADS)  # ends none of them
        running.send_signal(ask)
        said = ""
        while "in waits_for_nobody" not in said:
            line = running.stderr.readline()
            assert line, said
            said += line
        assert running.poll() is None
        running.kill()
