"""Waiting for something new without asking again and again.

An idle query asks a source for news about ninety times a second.  Here the question is passed on to the
brokers, as a fetch at the end of every partition, which they answer when something comes or the time is over:
an idle query costs a few requests a second, and yet sees a record at once.

The fetches have connections of their own (a broker answers in order, and what is behind a fetch that waits
would wait too).  One not answered yet is kept for the next call.  What came is not read here: an answer
with something in it means that it is worth looking at the ends.  An error means that too, and that leaders
may have changed; after a short pause, so that one that stays does not make an idle query ask without end.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from distributedlog.client.errors import check_answer
from distributedlog.client.fetcher import Fetcher, FetchOptions
from distributedlog.client.metadata import Cluster
from distributedlog.client.places import Isolation
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
        self._open: dict[int, asyncio.Future[FetchResponse]] = {}
        """By leader."""

    async def wait(self, ends: Mapping[TopicPartition, int], wait_ms: int) -> None:
        """Returns when something may have come behind the ends, or when the time is over."""
        deadline_ms = self._cluster.clock.monotonic_ms() + wait_ms
        while (left_ms := deadline_ms - self._cluster.clock.monotonic_ms()) > 0:
            try:
                await self._ask(ends)
                if await self._is_news(left_ms):
                    return
            except DlogError:
                self._cluster.mark_stale()
                await asyncio.sleep(min(FAILURE_PAUSE_MS, left_ms) / 1000)
                return

    async def _is_news(self, wait_ms: int) -> bool:
        """Whether a broker has something.  Raises if one is gone, or refuses."""
        if not self._open:
            await asyncio.sleep(wait_ms / 1000)
            return False
        done, _ = await asyncio.wait(
            self._open.values(), timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED
        )
        is_news = False
        for leader in [leader for leader, future in self._open.items() if future in done]:
            answer = self._open.pop(leader).result()
            check_answer(answer.error_code, f"a fetch that waits at broker {leader}")
            for each in [each for topic in answer.responses for each in topic.partitions]:
                check_answer(each.error_code, f"a fetch that waits at broker {leader}")
                is_news |= bool(each.records)
        return is_news

    async def _ask(self, ends: Mapping[TopicPartition, int]) -> None:
        fetcher = Fetcher(self._options)
        fetcher.assign(ends)
        for leader, partitions in (await self._cluster.by_leader(ends)).items():
            if leader in self._open:
                continue
            connection = await self._cluster.connection(leader)
            question = fetcher.question(partitions, self._cluster.view)
            future = connection.submit(
                question.request,
                FetchResponse,
                timeout_ms=self._cluster.options.request_timeout_ms + BROKER_WAIT_MS,
                version=connection.version_for(FetchRequest, question.version_max),
            )
            future.add_done_callback(look_at)
            self._open[leader] = future


def look_at(future: "asyncio.Future[FetchResponse]") -> None:
    """A question may be left behind when its asker stops: its failure is nobody's."""
    if not future.cancelled():
        future.exception()
