"""How far a pipeline is behind its topics, measured beside it.

A run reads what was there when it began, so what Spark itself says of a batch is always "caught up".  How
far behind one really is shows only from outside: the topics' ends now, less what has been read.  A thread
of its own asks for them while the pipeline runs, and notes the difference in the history; while no broker
answers it notes null.
"""

import threading
from collections.abc import Callable, Collection
from typing import Final

from distributedlog.client.blocking import BlockingAdmin
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import DlogError
from distributedlog.pipelines.progress import Positions
from distributedlog.pipelines.status import lag_of

SAMPLE_SECONDS: Final = 1.0
TIMEOUT_MS: Final = 2_000


def topic_ends(
    bootstrap: str, topics: Collection[str], timeout_ms: int = TIMEOUT_MS
) -> dict[str, dict[int, int]]:
    """Topic → partition → end; `DlogError` if no broker answers."""
    with BlockingAdmin(bootstrap, _patience(timeout_ms)) as admin:
        return _ends(admin, topics)


def _patience(timeout_ms: int) -> ClientOptions:
    return ClientOptions(
        connect_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms, call_timeout_ms=timeout_ms
    )


def _ends(admin: BlockingAdmin, topics: Collection[str]) -> dict[str, dict[int, int]]:
    ends: dict[str, dict[int, int]] = {}
    for place, found in admin.offset_ranges(admin.describe_topics(topics)).items():
        ends.setdefault(place.topic, {})[place.partition] = found.end
    return ends


class LagSampler:
    """A context manager: while it is entered, `note` gets the lag, or None, about every second."""

    def __init__(
        self,
        bootstrap: str,
        positions: Callable[[], Positions],
        note: Callable[[int | None], None],
        period_seconds: float = SAMPLE_SECONDS,
    ) -> None:
        self._bootstrap = bootstrap
        self._positions = positions
        self._note = note
        self._period_seconds = period_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="dlog-lag", daemon=True)

    def __enter__(self) -> "LagSampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        with BlockingAdmin(self._bootstrap, _patience(TIMEOUT_MS)) as admin:
            while not self._stopping.wait(self._period_seconds):
                positions = self._positions()
                if positions:
                    self._note(self._measure(admin, positions))

    def _measure(self, admin: BlockingAdmin, positions: Positions) -> int | None:
        try:
            return lag_of(positions, _ends(admin, list(positions)))
        except DlogError:
            return None
