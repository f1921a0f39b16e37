"""Who waits for the end of a sink's batch: it is decided, and its markers are being written.

An end is answered when all of the batch can be seen.  Until then its callback stands here; whoever has given
up waiting ignores the call.  A coordinator that is one no more answers with an error, and the client asks the
next one, which answers the same end the same.  Nothing here survives a crash.
"""

from distributedlog.model.errors import DlogError
from distributedlog.ports.executor import Done, Outcome
from distributedlog.transactions.requests import Reply
from distributedlog.transactions.sinks.requests import SinkEnded


class SinkEnds:
    """Belongs to one coordinator, on the data loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Done[Reply]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait(self, query_id: str, done: Done[Reply]) -> None:
        self._waiting.setdefault(query_id, []).append(done)

    def completed(self, query_id: str) -> None:
        for done in self._waiting.pop(query_id, ()):
            done(Outcome(SinkEnded()))

    def fail(self, error: DlogError) -> None:
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            for done in each:
                done(Outcome(error=error))
