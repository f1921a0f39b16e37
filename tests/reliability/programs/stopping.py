"""When a program is to stop: its stdin has ended.  Before that it may be told to stand still for a while.

doze SECONDS      a line on stdin: it stops polling for so long, as one that is busy with what it has polled

DLOG_LOAD_PAUSE_MS in the environment: how long a producer rests after each record.

Where it stands it says on stderr, asked by ASK_THREADS for its threads and by ASK_TASKS for its tasks: of a
program that does not stop nothing else is known.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

ASK_THREADS, ASK_TASKS = signal.SIGUSR1, signal.SIGUSR2
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
    tell_where_it_stands()

    def wait() -> None:
        while line := sys.stdin.readline():
            command, _, seconds = line.partition(" ")
            if command == "doze":
                event.doze_seconds = float(seconds)
        event.set()

    threading.Thread(target=wait, daemon=True).start()
    return event


def tell_where_it_stands() -> None:
    faulthandler.register(ASK_THREADS, all_threads=True)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        signal.signal(ASK_TASKS, signal.SIG_IGN)
    else:
        loop.add_signal_handler(ASK_TASKS, _tell_tasks, loop)


def _tell_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """A task knows its outermost coroutine alone: each knows what it awaits."""
    for task in asyncio.all_tasks(loop):
        print(task.get_name(), "awaits", file=sys.stderr)
        awaited: Any = task.get_coro()
        while (frame := getattr(awaited, "cr_frame", None)) is not None:
            traceback.print_stack(frame, limit=1, file=sys.stderr)
            awaited = awaited.cr_await
    sys.stderr.flush()


def step_until_stopped(step: Callable[[], None]) -> None:
    """What a program does between its beginning and its end."""
    stop = stopping()
    while not stop.is_set():
        step()
        stop.doze()
