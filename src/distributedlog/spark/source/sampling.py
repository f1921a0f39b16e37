"""How many bytes an offset takes in each partition, where a reader stands.

Nobody keeps that: a limit in bytes is turned into one in offsets by looking at the next few batches of each
partition.  It is an estimate, of bytes as they are stored (compressed, with their headers): what follows may
be larger or smaller.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, cast

from distributedlog.client.fetcher import Fetcher, FetchOptions
from distributedlog.client.metadata import Cluster
from distributedlog.client.options import MIB
from distributedlog.model.buffers import Buffer
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse
from distributedlog.records.batch import HEADER_BYTES, read_header

SAMPLE_BYTES: Final = 64 * 1024
RESPONSE_BYTES_MAX: Final = 16 * MIB


async def sample(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    """Bytes for each offset, of the partitions that had something at their position."""
    fetcher = Fetcher(
        FetchOptions(
            wait_ms_max=0, bytes_min=0, bytes_max=RESPONSE_BYTES_MAX, partition_bytes_max=SAMPLE_BYTES
        )
    )
    fetcher.assign(positions)

    async def ask(leader: int, partitions: list[TopicPartition]) -> dict[TopicPartition, float]:
        connection = await cluster.connection(leader)
        prepared = fetcher.prepare(partitions, cluster.view)
        response = await connection.call(
            prepared.request,
            FetchResponse,
            timeout_ms=cluster.options.request_timeout_ms,
            version=connection.version_for(FetchRequest, prepared.version_max),
        )
        return {
            partition: per
            for partition, data in prepared.partitions_of(response)
            if (per := bytes_per_offset(cast(Buffer, data.records or b""))) is not None
        }

    async def attempt() -> list[dict[TopicPartition, float]]:
        by_leader = await cluster.by_leader(positions)
        return await asyncio.gather(*(ask(leader, led) for leader, led in by_leader.items()))

    return {each: per for found in await cluster.retrying(attempt) for each, per in found.items()}


def bytes_per_offset(data: Buffer) -> float | None:
    """Measures the bytes per offset of the batches that came, of which the last may be cut off."""
    at = taken = offsets = 0
    while len(data) - at >= HEADER_BYTES:
        header = read_header(data, at)
        at += header.size
        taken += header.size
        offsets += header.last_offset_delta + 1
    return taken / offsets if offsets else None
