"""When a program is to stop: its stdin has ended."""

import sys
import threading


def stopping() -> threading.Event:
    """Set when stdin ends."""
    event = threading.Event()

    def wait() -> None:
        while sys.stdin.readline():
            pass
        event.set()

    threading.Thread(target=wait, daemon=True).start()
    return event
