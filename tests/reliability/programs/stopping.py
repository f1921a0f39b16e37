"""When a program is to stop: its stdin has ended.  Before that it may be told to stand still for a while.

doze SECONDS      a line on stdin: it stops polling for so long, as one that is busy with what it has polled

DLOG_LOAD_PAUSE_MS in the environment: how long a producer rests after each record.
"""

import os
import sys
import threading
import time
from collections.abc import Callable

PAUSE_SECONDS = float(os.environ.get("DLOG_LOAD_PAUSE_MS", "0")) / 1000


class Stopping(threading.Event):
    """Set when stdin ends."""

    doze_seconds = 0.0

    def doze(self) -> None:
        """Sleeps between two polls, as long as it was told to."""
        seconds, self.doze_seconds = self.doze_seconds, 0.0
        if seconds:
            time.sleep(seconds)


def stopping() -> Stopping:
    event = Stopping()

    def wait() -> None:
        while line := sys.stdin.readline():
            command, _, seconds = line.partition(" ")
            if command == "doze":
                event.doze_seconds = float(seconds)
        event.set()

    threading.Thread(target=wait, daemon=True).start()
    return event


def step_until_stopped(step: Callable[[], None]) -> None:
    """What a program does between its beginning and its end."""
    stop = stopping()
    while not stop.is_set():
        step()
        stop.doze()
