"""What is live is on a terminal only."""

import os
import pty
import subprocess
import sys

CODE = """
import time
from distributedlog.cli.progress import live_line
with live_line(lambda: "run 3 of many"):
    time.sleep(0.6)
    print("a row", flush=True)
"""


def test_a_live_line_is_for_terminals_and_leaves_pipes_clean() -> None:
    piped = subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True, timeout=60)
    assert (piped.stdout, piped.stderr) == (b"a row\n", b"")


def test_on_a_terminal_it_is_shown_and_taken_away() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-c", CODE], stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        assert process.stdout is not None
        assert process.stdout.read() == b"a row\n"
    assert b"run 3 of many" in shown
    assert shown.rstrip().endswith(b"\x1b[2K"), "the line is empty again"
