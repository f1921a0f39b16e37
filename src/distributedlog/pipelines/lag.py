"""How far a pipeline is behind its topics, measured beside it.

A run reads what was there when it began, so what Spark itself says of a batch is always "caught up".  How
far behind one really is shows only from outside: the topics' ends now, less what has been read.  A thread
of its own asks for them while the pipeline runs, and notes the difference in the history; while no broker
answers it notes null.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.admin.group_lag import measure_lag as group_lag
from distributedlog.client.offset_specs import Isolation
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.pipelines.progress import Positions
from distributedlog.pipelines.status import FlowLag, lag_of

SAMPLE_SECONDS: Final = 1.0
TIMEOUT_MS: Final = 2_000
LOOK_BYTES: Final = 1
"""One fetch of each partition: what comes with it is enough to know the first record's timestamp."""


def measure(
    bootstrap: str, positions: Mapping[str, Positions], timeout_ms: int = TIMEOUT_MS
) -> dict[str, FlowLag]:
    """Measures the lag of each flow by its positions; `DlogError` if no broker answers."""
    return asyncio.run(_measure(bootstrap, positions, timeout_ms))


async def _measure(bootstrap: str, positions: Mapping[str, Positions], timeout_ms: int) -> dict[str, FlowLag]:
    async with Admin.connect(bootstrap, _client_options(timeout_ms)) as admin:
        topics = sorted({topic for each in positions.values() for topic in each})
        views = await admin.describe_topics(topics)
        there = {view.name: [each.index for each in view.partitions] for view in views}
        return {flow: await _flow_lag(admin, each, there) for flow, each in positions.items()}


async def _flow_lag(admin: Admin, positions: Positions, there: Mapping[str, Sequence[int]]) -> FlowLag:
    places: dict[TopicPartition, int | None] = {
        TopicPartition(topic, index): read.get(index, 0)
        for topic, read in positions.items()
        for index in there.get(topic, ())
    }
    isolation = Isolation.READ_UNCOMMITTED
    found = await group_lag(admin.cluster, places, isolation=isolation, counted_bytes_max=LOOK_BYTES)
    now_ms = int(time.time() * 1000)
    waits = [each.seconds_at(now_ms) for each in found.values()]
    known = [each for each in waits if each is not None]
    return FlowLag(
        sum(max(0, each.end - (each.committed_offset or 0)) for each in found.values()),
        max(known, default=0.0) if len(known) == len(waits) else None,
    )


def _client_options(timeout_ms: int) -> ClientOptions:
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
        with BlockingAdmin(self._bootstrap, _client_options(TIMEOUT_MS)) as admin:
            while not self._stopping.wait(self._period_seconds):
                positions = self._positions()
                if positions:
                    self._note(self._measure(admin, positions))

    def _measure(self, admin: BlockingAdmin, positions: Positions) -> int | None:
        try:
            return lag_of(positions, _ends(admin, list(positions)))
        except DlogError:
            return None
