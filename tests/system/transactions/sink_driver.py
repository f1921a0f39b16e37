"""What Spark's driver and its tasks do with an exactly-once sink, without Spark."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.consumer import Consumer
from distributedlog.client.fetcher import FetchOptions
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import BEGINNING, END, Isolation
from distributedlog.client.offsets import resolve
from distributedlog.client.producer import Producer, ProducerOptions
from distributedlog.client.sinks import BATCH_TIMEOUT_MS, Sink, SinkLease
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record

POLL_MS = 1_000
Rows = Mapping[int, Sequence[str]]
"""What an attempt writes, by partition."""


class SinkDriver:
    """A query that writes to one topic."""

    def __init__(self, cluster: Cluster, query_id: str, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.sink = Sink(cluster, query_id)

    async def attempt(
        self, token: int, batch_id: int, attempt_id: str, rows: Rows, timeout_ms: int = BATCH_TIMEOUT_MS
    ) -> SinkLease | None:
        """One attempt of a task: joins, writes and flushes; None if the batch is skipped."""
        lease = await self.sink.join(token, batch_id, attempt_id, timeout_ms=timeout_ms)
        if lease is not None:
            await self.write(lease, rows)
        return lease

    async def write(self, lease: SinkLease, rows: Rows) -> None:
        async with Producer(self.cluster, ProducerOptions(linger_ms=0)) as producer:
            producer.lease(*lease)
            sent = [
                await producer.send(self.topic, Record(row.encode()), partition)
                for partition, texts in rows.items()
                for row in texts
            ]
            await producer.flush()
            for each in sent:
                await each.wait()

    async def end(self, token: int, batch_id: int, *winners: SinkLease | None) -> None:
        leases = [each for each in winners if each is not None]
        if leases:  # else there was nothing to write, or the batch was skipped
            await self.sink.end(token, batch_id, [(each.producer_id, each.epoch) for each in leases])

    async def read(self, partitions: int, isolation: Isolation = Isolation.READ_COMMITTED) -> list[str]:
        """All rows of the topic that a reader sees now."""
        places = [TopicPartition(self.topic, at) for at in range(partitions)]
        options = FetchOptions(isolation=isolation)
        ends = await self.cluster.retrying(
            lambda: resolve(self.cluster, dict.fromkeys(places, END), isolation)
        )
        left = {place for place in places if ends[place] > 0}
        rows: list[str] = []
        async with Consumer(self.cluster, options, tells_empty=True) as consumer:
            await self.cluster.retrying(lambda: consumer.assign(dict.fromkeys(places, BEGINNING)))
            while left:
                for fetched in await consumer.poll(POLL_MS):
                    rows += [(record.value or b"").decode() for record in fetched.records]
                    if fetched.next_offset >= ends[fetched.partition]:
                        left.discard(fetched.partition)
        return sorted(rows)


@asynccontextmanager
async def driving(bootstrap: str, query_id: str, topic: str) -> AsyncIterator[SinkDriver]:
    async with Cluster(parse_bootstrap(bootstrap)) as cluster:
        yield SinkDriver(cluster, query_id, topic)
