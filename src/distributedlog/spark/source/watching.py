"""Waiting for something new without asking again and again.

An idle query asks a source for new offsets about ninety times a second.  Here the question is passed on to
the brokers, as a fetch at the end of every partition, which they answer when something comes or the time is
over: an idle query costs a few requests a second, and yet sees a record at once.

The fetches have connections of their own (a broker answers in order, and what is behind a fetch that waits
would wait too).  One not answered yet is kept for the next call.  What came is not read here: an answer
with something in it means that it is worth looking at the ends.  An error means that too, and that leaders
may have changed; after a short pause, so that one that stays does not make an idle query ask without end.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from distributedlog.client.errors import check_response
from distributedlog.client.fetcher import Fetcher, FetchOptions, PreparedFetch
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import Isolation
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse

FAILURE_PAUSE_MS: Final = 50
BROKER_WAIT_MS: Final = 2_000


class Watch:
    """Everything is called on the loop of the cluster."""

    def __init__(self, cluster: Cluster, isolation: Isolation) -> None:
        self._cluster = cluster
        self._options = FetchOptions(
            isolation=isolation, wait_ms_max=BROKER_WAIT_MS, bytes_max=1, partition_bytes_max=1
        )
        self._open: dict[int, tuple[PreparedFetch, asyncio.Future[FetchResponse]]] = {}
        """The open requests, by leader."""

    async def wait(self, ends: Mapping[TopicPartition, int], wait_ms: int) -> None:
        """Returns when something may have come behind the ends, or when the time is over."""
        deadline_ms = self._cluster.clock.monotonic_ms() + wait_ms
        while (left_ms := deadline_ms - self._cluster.clock.monotonic_ms()) > 0:
            try:
                await self._ask(ends)
                if await self._wait_for_records(left_ms):
                    return
            except DlogError:
                self._cluster.mark_stale()
                await asyncio.sleep(min(FAILURE_PAUSE_MS, left_ms) / 1000)
                return

    async def _wait_for_records(self, wait_ms: int) -> bool:
        """Waits for the first responses; returns whether one has records.  Raises if a broker is gone, or
        refuses."""
        if not self._open:
            await asyncio.sleep(wait_ms / 1000)
            return False
        done, _ = await asyncio.wait(
            [future for _, future in self._open.values()],
            timeout=wait_ms / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        has_records = False
        for leader in [leader for leader, (_, future) in self._open.items() if future in done]:
            prepared, future = self._open.pop(leader)
            response = future.result()
            check_response(response.error_code, f"a fetch that waits at broker {leader}")
            for _, data in prepared.partitions_of(response):
                check_response(data.error_code, f"a fetch that waits at broker {leader}")
                has_records |= bool(data.records)
        return has_records

    async def _ask(self, ends: Mapping[TopicPartition, int]) -> None:
        fetcher = Fetcher(self._options)
        fetcher.assign(ends)
        for leader, partitions in (await self._cluster.by_leader(ends)).items():
            if leader in self._open:
                continue
            connection = await self._cluster.connection(leader)
            prepared = fetcher.prepare(partitions, self._cluster.view)
            future = connection.submit(
                prepared.request,
                FetchResponse,
                timeout_ms=self._cluster.options.request_timeout_ms + BROKER_WAIT_MS,
                version=connection.version_for(FetchRequest, prepared.version_max),
            )
            future.add_done_callback(look_at)
            self._open[leader] = prepared, future


def look_at(future: "asyncio.Future[FetchResponse]") -> None:
    """Retrieves the failure of a fetch: it may be left behind when its query stops, and asyncio logs what
    nobody has retrieved."""
    if not future.cancelled():
        future.exception()
