"""When a program is to stop: its stdin has ended.  Before that it may be told to stand still for a while.

doze SECONDS      a line on stdin: it stops polling for so long, as one that is busy with what it has polled
"""

import sys
import threading
import time


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
