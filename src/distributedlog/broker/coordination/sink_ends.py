"""Who waits for the end of a sink's batch: it is decided, and its markers are being written.

An end is answered when all of the batch can be seen.  Until then its callback stands here; whoever has given
up waiting ignores the call.  A driver asks again and again while a partition is offline, so of a query only
the last ones wait, and the first of more are told to ask again.  A coordinator that is one no more answers
with an error, and the client asks the next one, which answers the same end the same.  Nothing here survives a
crash.
"""

from collections import deque
from typing import Final

from distributedlog.model.errors import CoordinatorNotAvailableError, DlogError
from distributedlog.ports.executor import Done, Outcome
from distributedlog.transactions.requests import Reply
from distributedlog.transactions.sinks.requests import SinkEnded

WAITING_MAX: Final = 100
"""The ends of one query that wait at a time."""


class SinkEnds:
    """Belongs to one coordinator, on the data loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Done[Reply]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait(self, query_id: str, done: Done[Reply]) -> None:
        waiting = self._waiting.setdefault(query_id, deque())
        waiting.append(done)
        if len(waiting) > WAITING_MAX:
            waiting.popleft()(Outcome(error=CoordinatorNotAvailableError("the batch is still being ended")))

    def completed(self, query_id: str) -> None:
        for done in self._waiting.pop(query_id, ()):
            done(Outcome(SinkEnded()))

    def fail(self, error: DlogError) -> None:
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            for done in each:
                done(Outcome(error=error))
