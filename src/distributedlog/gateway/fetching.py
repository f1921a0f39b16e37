"""Where a stream begins in its partitions, and the next bytes of them: the part of a Fetch call that asks
brokers.

    locate    offsets, times and ends become offsets, by ListOffsets
    fetch     one Fetch request to each leader of some of the partitions that has none in flight; returns what
              the first of them brings, while the others go on

| a partition's response                 | then                                                              |
|----------------------------------------|-------------------------------------------------------------------|
| records, or none                       | a chunk                                                           |
| retriable (its leader has moved, say)  | the metadata are asked for anew and it is tried again; a failure  |
|                                        | after RETRY_MS_MAX without a response of another kind             |
| another                                | a chunk with a failure                                            |

A stream has its own connections; `close` ends what is in flight.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from distributedlog.client.errors import error_from, is_retriable, is_stale_view
from distributedlog.client.fetcher import Fetcher, FetchOptions, PreparedFetch
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import LATEST, Isolation, OffsetSpec
from distributedlog.client.offsets import list_offsets, resolve
from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.gateway.failures import failure_of
from distributedlog.model.errors import DlogError, UnknownTopicError, UnknownTopicIdError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.fetch import (
    AbortedTransaction,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

RETRY_MS_MAX: Final = 60_000
UNKNOWN_TOPIC_RETRY_MS_MAX: Final = 5_000
"""A broker may not know yet what it was just given to lead; but most likely the topic was deleted."""
PAUSE_MS_MAX: Final = 1_000


class Located(NamedTuple):
    """Where a stream begins in a partition, and where that ended then; or why it cannot be read."""

    partition: TopicPartition
    offset: int = -1
    end_offset: int = -1
    failure: pb.Failure | None = None


class Chunk(NamedTuple):
    """What one fetch brought of a partition from an offset on."""

    partition: TopicPartition
    offset: int
    data: bytes = b""
    high_watermark: int = -1
    aborted: tuple[AbortedTransaction, ...] = ()
    failure: pb.Failure | None = None


class _InFlight(NamedTuple):
    prepared: PreparedFetch
    response: "asyncio.Task[FetchResponse]"


class PartitionFetcher:
    """The partitions of one stream."""

    def __init__(self, cluster: Cluster, isolation: Isolation) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._in_flight: dict[int, _InFlight] = {}
        """The fetches in flight, by leader."""
        self._failing_since_ms: dict[TopicPartition, int] = {}
        self._attempts = 0
        """Rounds of fetches, one after the other, that brought nothing but retriable errors."""

    async def close(self) -> None:
        tasks = [each.response for each in self._in_flight.values()]
        self._in_flight.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._cluster.close()

    # --- where to begin ------------------------------------------------------------------------

    async def locate(self, wanted: Mapping[TopicPartition, OffsetSpec], *, needs_end: bool) -> list[Located]:
        """Returns offsets in the order of `wanted`.  One that fails leaves the others as they are."""
        try:
            return await self._locate(wanted, needs_end)
        except DlogError as error:
            if len(wanted) == 1:
                (partition,) = wanted
                return [Located(partition, failure=failure_of(error))]
        return [
            located
            for partition, spec in wanted.items()
            for located in await self.locate({partition: spec}, needs_end=needs_end)
        ]

    async def _locate(self, wanted: Mapping[TopicPartition, OffsetSpec], needs_end: bool) -> list[Located]:
        for partition in wanted:
            topic = await self._cluster.topic(partition.topic)
            if topic.partition(partition.partition) is None:
                raise UnknownTopicError(f"there is no partition {partition}")
        offsets = await resolve(self._cluster, wanted, self._isolation)
        ends = {}
        if needs_end:
            ends = await list_offsets(self._cluster, dict.fromkeys(wanted, LATEST), self._isolation)
        return [Located(each, offsets[each], ends[each].offset if needs_end else -1) for each in wanted]

    # --- the next bytes ------------------------------------------------------------------------

    async def fetch(
        self, positions: Mapping[TopicPartition, int], bytes_max: int, wait_ms: int
    ) -> list[Chunk]:
        """Returns what can be read from these offsets on; nothing if nothing comes within `wait_ms`."""
        chunks = await self._start(positions, bytes_max, wait_ms)
        if chunks:
            return chunks
        if not self._in_flight:
            await self._pause()
            return []
        tasks = [each.response for each in self._in_flight.values()]
        await asyncio.wait(tasks, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        ended = [leader for leader, each in self._in_flight.items() if each.response.done()]
        found = [chunk for leader in ended for chunk in self._collect(leader)]
        chunks = [each for each in found if positions.get(each.partition) == each.offset]
        if ended and not found:
            await self._pause()
        elif found:
            self._attempts = 0
        return chunks

    async def _pause(self) -> None:
        self._attempts += 1
        await asyncio.sleep(min(self._cluster.pause_ms(self._attempts), PAUSE_MS_MAX) / 1000)

    async def _start(
        self, positions: Mapping[TopicPartition, int], bytes_max: int, wait_ms: int
    ) -> list[Chunk]:
        """Requests to leaders that have none in flight.  Returns what failed before it could be asked."""
        chunks: list[Chunk] = []
        fetched = {each for in_flight in self._in_flight.values() for each in in_flight.prepared.offsets}
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in positions:
            if partition in fetched:
                continue
            try:
                view = await self._cluster.partition(partition)
            except DlogError as error:
                chunks += self._failed(partition, positions[partition], error)
            else:
                by_leader.setdefault(view.leader_id, []).append(partition)
        options = FetchOptions(
            isolation=self._isolation,
            wait_ms_max=wait_ms,
            bytes_max=bytes_max,
            partition_bytes_max=bytes_max,
        )
        for leader, partitions in by_leader.items():
            if leader not in self._in_flight:
                fetcher = Fetcher(options)
                fetcher.assign({each: positions[each] for each in partitions})
                prepared = fetcher.prepare(partitions, self._cluster.view)
                task = asyncio.create_task(self._ask(leader, prepared, wait_ms))
                self._in_flight[leader] = _InFlight(prepared, task)
        return chunks

    async def _ask(self, leader: int, prepared: PreparedFetch, wait_ms: int) -> FetchResponse:
        connection = await self._cluster.connection(leader)
        version = connection.version_for(FetchRequest, prepared.version_max)
        timeout_ms = self._cluster.options.request_timeout_ms + wait_ms
        return await connection.call(prepared.request, FetchResponse, timeout_ms=timeout_ms, version=version)

    def _collect(self, leader: int) -> list[Chunk]:
        prepared, task = self._in_flight.pop(leader)
        error = task.exception()
        if isinstance(error, DlogError):
            return [
                chunk
                for partition, offset in prepared.offsets.items()
                for chunk in self._failed(partition, offset, error)
            ]
        return [chunk for each, data in prepared.partitions_of(task.result())
                for chunk in self._accept(each, prepared.offsets[each], data)]  # fmt: skip

    def _accept(self, partition: TopicPartition, offset: int, data: PartitionData) -> list[Chunk]:
        if data.error_code:
            return self._failed(partition, offset, error_from(data.error_code, f"partition {partition}"))
        self._failing_since_ms.pop(partition, None)
        aborted = tuple(data.aborted_transactions or ())
        records = b"" if data.records is None else bytes(cast("memoryview", data.records))
        return [Chunk(partition, offset, records, data.high_watermark, aborted)]

    def _failed(self, partition: TopicPartition, offset: int, error: DlogError) -> list[Chunk]:
        """A failure, or nothing if it is worth another try."""
        if is_stale_view(error):
            self._cluster.mark_stale()
        now_ms = self._cluster.clock.monotonic_ms()
        since_ms = self._failing_since_ms.setdefault(partition, now_ms)
        is_unknown = isinstance(error, UnknownTopicError | UnknownTopicIdError)
        retry_ms_max = UNKNOWN_TOPIC_RETRY_MS_MAX if is_unknown else RETRY_MS_MAX
        if is_retriable(error) and now_ms - since_ms < retry_ms_max:
            return []
        return [Chunk(partition, offset, failure=failure_of(error))]
