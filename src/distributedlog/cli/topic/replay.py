"""`dlog topic replay`: a part of a topic once more, into another topic, with the pace it had.

Records of all partitions are sent in the order of their timestamps, as far as those rise within each
partition (a merge).  Each partition has a reader of its own that is asked only when nothing of it is left, so
that one that is far ahead in time does not fill the memory.
"""

import asyncio
import heapq
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

import click

from distributedlog.cli.output import output_option, print_json
from distributedlog.cli.progress import count_bar
from distributedlog.cli.records.options import compression_option
from distributedlog.cli.records.pacing import Pace, Rate, RateType
from distributedlog.cli.records.ranges import (
    ISOLATIONS,
    Portion,
    TopicRange,
    range_options,
    read_range,
    resolve_range,
    topic_partitions,
)
from distributedlog.cli.session import cluster_options, run
from distributedlog.cli.topic.produce import Counts
from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin.admin import Admin
from distributedlog.client.fetcher import FetchOptions
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import OffsetSpec
from distributedlog.client.producer import Producer, ProducerOptions
from distributedlog.model.ids import TopicPartition, check_topic_name
from distributedlog.records.compression import Codec
from distributedlog.records.record import Record

READ_BYTES = 256 * 1024
"""The bytes read of a partition at a time: with many partitions all of them are in memory at once."""


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option(
    "--rate",
    type=RateType(),
    default="1x",
    show_default=True,
    metavar="RATE",
    help="1x: as it was; 10x: ten times as fast; 500/s: evenly; max: at once.",
)
@click.option(
    "--gap-max",
    "gap_seconds_max",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="A longer pause between two records counts as this long.",
)
@click.option("--keep-partitions", is_flag=True, help="Into the same partitions; without it, by key.")
@click.option("--now", "stamp_now", is_flag=True, help="New timestamps; without it, the old ones.")
@click.option(
    "--dst-bootstrap", metavar="HOST:PORT,…", help="Brokers of the cluster that DST is in, if it is another."
)
@compression_option
@range_options
@cluster_options
@output_option
def replay(
    source: str,
    target: str,
    rate: Rate,
    gap_seconds_max: float | None,
    keep_partitions: bool,
    stamp_now: bool,
    dst_bootstrap: str | None,
    compression: str,
    start: OffsetSpec,
    end: OffsetSpec,
    partitions: tuple[int, ...],
    isolation: str,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Write records of SRC to DST once more, as fast as they came then, or at another rate.

    Stops at what is the end of SRC when it starts.  DST must be there.

    \b
    dlog topic replay orders test-orders --from -1h
    dlog topic replay orders test-orders --rate 10x --gap-max 5 --now
    dlog topic replay orders orders --rate max --keep-partitions --dst-bootstrap other:9092
    """
    check_topic_name(source)
    check_topic_name(target)
    if source == target and dst_bootstrap is None:
        raise click.UsageError("SRC and DST are the same topic: a replay would only double it")
    gap_ms_max = None if gap_seconds_max is None else int(gap_seconds_max * 1000)
    options = ProducerOptions(
        codec=Codec[compression.upper()],
        delivery_timeout_ms=max(1, int(timeout_seconds * 1000)),
        allow_creation=False,
    )
    counts = Counts(target)

    async def work(admin: Admin) -> None:
        wanted = await resolve_range(admin, source, start, end, partitions, ISOLATIONS[isolation])
        async with AsyncExitStack() as stack:
            there = admin
            if dst_bootstrap is not None:
                addresses = parse_bootstrap(dst_bootstrap)
                there = Admin(await stack.enter_async_context(Cluster(addresses, admin.cluster.options)))
            await _check_target(there, wanted, target, keep_partitions=keep_partitions)
            producer = await stack.enter_async_context(Producer(there.cluster, options, on_batch=counts.add))
            async with aclosing(_paced(admin, wanted, Pace(rate, gap_ms_max))) as records:
                async for place, record in records:
                    partition = place.partition if keep_partitions else None
                    await producer.send(target, _stamped(record, stamp_now=stamp_now), partition)
                    if counts.failure is not None:
                        break
            await producer.flush()
        if counts.failure is not None:
            raise counts.failure

    try:
        code = run(bootstrap, timeout_seconds, work)
        counts.is_complete = True
        return code
    finally:
        if output == "json":
            print_json({**counts.fields(), "type": "replayed", "source": source})
        else:
            counts.show(as_json=False)


async def _check_target(there: Admin, wanted: TopicRange, target: str, *, keep_partitions: bool) -> None:
    chosen = tuple(each.partition for each in wanted.spans) if keep_partitions else ()
    await topic_partitions(there, target, chosen)


async def _paced(
    admin: Admin, wanted: TopicRange, pace: Pace
) -> AsyncGenerator[tuple[TopicPartition, Record], None]:
    """Each record when it is due."""
    began = time.monotonic()
    with count_bar("replaying", wanted.offset_count) as on_progress:
        async with aclosing(merged(admin, wanted)) as records:
            async for place, record in records:
                wait_s = began + pace.due_ms(record.timestamp_ms) / 1000 - time.monotonic()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                yield place, record
                on_progress(1)


def _stamped(record: Record, *, stamp_now: bool) -> Record:
    return Record(record.value, record.key, record.headers) if stamp_now else record


async def merged(admin: Admin, wanted: TopicRange) -> AsyncGenerator[tuple[TopicPartition, Record], None]:
    """The records of all partitions, the oldest next one first; each partition in its own order."""
    options = FetchOptions(isolation=wanted.isolation, partition_bytes_max=READ_BYTES, bytes_max=READ_BYTES)
    waiting: dict[TopicPartition, deque[Record]] = {}
    heap: list[tuple[int, TopicPartition]] = []
    async with AsyncExitStack() as stack:
        readers: dict[TopicPartition, AsyncGenerator[Portion, None]] = {}
        for each, span in wanted.spans.items():
            alone = TopicRange(wanted.topic, {each: span}, wanted.isolation)
            readers[each] = await stack.enter_async_context(aclosing(read_range(admin, alone, options)))

        async def refill(partition: TopicPartition) -> None:
            async for portion in readers[partition]:
                if portion.records:
                    waiting[partition] = deque(portion.records)
                    heapq.heappush(heap, (portion.records[0].timestamp_ms, partition))
                    return

        for each in readers:
            await refill(each)
        while heap:
            _, partition = heapq.heappop(heap)
            queue = waiting[partition]
            yield partition, queue.popleft()
            if queue:
                heapq.heappush(heap, (queue[0].timestamp_ms, partition))
            else:
                await refill(partition)
