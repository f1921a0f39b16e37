"""Records under way of a producer whose deliveries are told on a thread of its own: a few at a time."""

import threading

from tests.reliability.history import Outcome, Place
from tests.reliability.journal import Journal
from tests.reliability.programs.stopping import PAUSE_SECONDS, Stopping

UNDER_WAY_MAX = 10


class Window:
    """Tells the journal what begins and what ends, from whichever thread."""

    def __init__(self, journal: Journal, stop: Stopping) -> None:
        self._journal = journal
        self._stop = stop
        self._under_way = 0
        self._changed = threading.Condition()

    def begin(self, place: Place, value: str) -> bool:
        """Waits for room; False: it is time to stop, and nothing has begun."""
        with self._changed:
            while self._under_way >= UNDER_WAY_MAX and not self._stop.is_set():
                self._changed.wait(0.1)
            if self._stop.is_set():
                return False
            self._under_way += 1
            self._journal.send(place, value)
            return True

    def rest(self) -> None:
        if PAUSE_SECONDS:
            self._stop.wait(PAUSE_SECONDS)

    def end(self, value: str, outcome: Outcome, offset: int | None) -> None:
        with self._changed:
            self._under_way -= 1
            self._journal.sent(value, outcome, offset)
            self._changed.notify_all()

    def wait_until_empty(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, seconds)
