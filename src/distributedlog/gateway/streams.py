"""One Fetch call: records of some partitions, streamed for as long as the caller reads them.

    located ──► fetching ──► writing ──► fetching ...   until every partition has ended or failed,
                   │            │                       or a bound of the call is reached
                   │            └─ the caller reads slowly: after STALL_S what was read ahead is dropped,
                   │               after WRITE_TIMEOUT_S without reading the stream is cut off
                   └─ nothing there: the broker waits, like for any consumer, WAIT_MS_MAX at a time;
                      the client has used up its quota: the broker answers later

What a stream holds is bounded: the bytes of one fetch from each leader (READ_BYTES, or one batch), one opened
batch within the budget that all streams share, and one response.  While
its caller is slow it holds one response only; it reads again from where that one ended.

Partitions take turns being the first of a fetch, so that one with much to read does not starve the others.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Final

from distributedlog.client.offset_specs import BEGINNING, END, AtOffset, AtTime, Isolation, OffsetSpec
from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.gateway.budget import ByteBudget
from distributedlog.gateway.failures import failure, failure_of
from distributedlog.gateway.fetching import Chunk, Located, PartitionFetcher
from distributedlog.gateway.options import MESSAGE_BYTES_MAX
from distributedlog.gateway.reading import SLICE_RECORDS, ChunkReader
from distributedlog.model.config import INT64_MAX, KIB, MIB, SECOND_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidRequestError, OverloadedError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import Clock
from distributedlog.records.record import Record

POSITIONS_MAX: Final = 1_000
"""Partitions of one call."""
READ_BYTES: Final = 1 * MIB
RESPONSE_BYTES: Final = 256 * KIB
RESPONSE_BYTES_MAX: Final = 2 * MIB
"""The bytes of a response, below what gRPC's clients take by default: 4 MiB."""
WAIT_MS_MAX: Final = 30 * SECOND_MS
PAUSE_S: Final = 0.02
"""The pause after a fetch that brought nothing new."""
STALL_S: Final = 1.0
WRITE_TIMEOUT_S: Final = 300.0

_EDGES: Final = {pb.EARLIEST: BEGINNING, pb.LATEST: END}
_ISOLATIONS: Final = {
    pb.READ_COMMITTED: Isolation.READ_COMMITTED,
    pb.READ_UNCOMMITTED: Isolation.READ_UNCOMMITTED,
}

Write = Callable[[bytes], Awaitable[None]]


def isolation_of(request: pb.FetchRequest) -> Isolation:
    if request.isolation not in _ISOLATIONS:
        raise InvalidRequestError(f"there is no isolation {request.isolation}")
    return _ISOLATIONS[request.isolation]


def specs_of(request: pb.FetchRequest) -> dict[TopicPartition, OffsetSpec]:
    """Returns where to begin; InvalidRequestError for what cannot be meant."""
    if not 0 < len(request.positions) <= POSITIONS_MAX:
        raise InvalidRequestError(
            f"a call reads 1 to {POSITIONS_MAX} partitions, not {len(request.positions)}"
        )
    found: dict[TopicPartition, OffsetSpec] = {}
    for position in request.positions:
        key = TopicPartition(position.topic, position.partition)
        if key in found:
            raise InvalidRequestError(f"{key} is named twice")
        if position.partition < 0:
            raise InvalidRequestError(f"there is no partition {position.partition}")
        found[key] = _spec_of(position)
    return found


def _spec_of(position: pb.FetchPosition) -> OffsetSpec:
    match position.WhichOneof("from"):
        case "offset":
            if position.offset < 0:
                raise InvalidRequestError(f"there is no offset {position.offset}")
            return AtOffset(position.offset)
        case "timestamp_ms":
            if position.timestamp_ms < 0:
                raise InvalidRequestError(f"there is no time {position.timestamp_ms}")
            return AtTime(position.timestamp_ms)
        case _:
            if position.edge not in _EDGES:
                raise InvalidRequestError(f"there is no edge {position.edge}")
            return _EDGES[position.edge]


class FetchStream:
    """Made for one call; `run` once."""

    def __init__(
        self,
        request: pb.FetchRequest,
        fetcher: PartitionFetcher,
        write: Write,
        clock: Clock,
        *,
        budget: ByteBudget,
        threads: Executor,
        stall_s: float = STALL_S,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self._request = request
        self._fetcher = fetcher
        self._write_bytes = write
        self._clock = clock
        self._budget = budget
        self._threads = threads
        self._stall_s = stall_s
        self._write_timeout_s = write_timeout_s
        self._response_bytes = min(request.response_bytes_max or RESPONSE_BYTES, RESPONSE_BYTES_MAX)
        self._records_left = request.records_max or INT64_MAX
        self._bytes_left = request.bytes_max or INT64_MAX
        self._open: dict[TopicPartition, int] = {}
        """The partitions that are still read, with the next offset; the next to be fetched first."""
        self._ends: dict[TopicPartition, int] = {}
        self._failures: list[pb.Failure] = []
        self._partition_count = len(request.positions)
        self._chunks: list[Chunk] = []
        self._reader: ChunkReader | None = None

    async def run(self) -> pb.Failure | None:
        """Runs until the stream has ended; returns why, if every partition failed."""
        try:
            specs = specs_of(self._request)
            for each in await self._fetcher.locate(specs, needs_end=self._request.until_end):
                await self._begin(each)
            await self._read_all()
        finally:
            self._drop()
            await self._fetcher.close()
        if len(self._failures) == self._partition_count:
            return self._failures[0]
        return None

    async def _begin(self, located: Located) -> None:
        key = located.partition
        if located.failure is not None:
            await self._fail(key, located.failure)
            return
        self._open[key] = located.offset
        if self._request.until_end:
            self._ends[key] = located.end_offset
            self._end_if_read(key)

    @property
    def _is_wanting(self) -> bool:
        return self._records_left > 0 and self._bytes_left > 0

    async def _read_all(self) -> None:
        idle_since_ms = self._clock.monotonic_ms()
        while self._open and self._is_wanting:
            wait_ms = self._wait_ms(idle_since_ms)
            if wait_ms < 0:
                return
            positions = dict(self._open)
            self._chunks = await self._fetcher.fetch(positions, READ_BYTES, wait_ms)
            records_left = self._records_left
            while self._chunks and self._is_wanting:
                await self._pass_on(self._chunks.pop(0))
            if self._records_left < records_left:
                idle_since_ms = self._clock.monotonic_ms()
            if self._open == positions:
                await asyncio.sleep(PAUSE_S)
            self._take_turns()

    def _take_turns(self) -> None:
        if self._open:
            first = next(iter(self._open))
            self._open[first] = self._open.pop(first)

    def _wait_ms(self, idle_since_ms: int) -> int:
        """Returns how long the next fetch may wait for something to come; negative: the stream is over."""
        if not self._request.max_wait_ms:
            return WAIT_MS_MAX
        left_ms = idle_since_ms + self._request.max_wait_ms - self._clock.monotonic_ms()
        return min(left_ms, WAIT_MS_MAX) if left_ms > 0 else -1

    # --- one partition of one fetch ------------------------------------------------------------

    async def _pass_on(self, chunk: Chunk) -> None:
        key = chunk.partition
        if chunk.failure is not None:
            await self._fail(key, chunk.failure)
            return
        high_watermark = chunk.high_watermark
        self._reader = ChunkReader(chunk.data, chunk.offset, chunk.aborted, self._budget, self._threads)
        del chunk  # what the reader holds can be dropped while the caller is slow; this could not
        try:
            while self._is_wanting and self._reader is not None:
                if not await self._write_slice(key, self._reader, high_watermark):
                    break
        except OverloadedError:
            raise
        except DlogError as error:
            await self._fail(key, failure_of(error))
        finally:
            self._close_reader()

    async def _write_slice(self, key: TopicPartition, reader: ChunkReader, high_watermark: int) -> bool:
        """Writes a slice; False: there is nothing more, or nothing more that is wanted."""
        bytes_max = min(self._response_bytes, self._bytes_left)
        records = await reader.next(bytes_max, min(self._records_left, SLICE_RECORDS))
        end_offset = self._ends.get(key, INT64_MAX)
        wanted = [each for each in records if each.offset < end_offset]
        self._open[key] = reader.next_offset
        del reader
        if wanted:
            response = pb.FetchResponse(
                topic=key.topic,
                partition=key.partition,
                records=[_fetched(record) for record in wanted],
                high_watermark=high_watermark,
                next_offset=self._open[key],
            )
            self._records_left -= len(wanted)
            self._bytes_left -= sum(map(_bytes_of, wanted))
            await self._write(response)
        return not self._end_if_read(key) and bool(records)

    def _end_if_read(self, key: TopicPartition) -> bool:
        position = self._open.get(key)
        if position is not None and position < self._ends.get(key, INT64_MAX):
            return False
        self._open.pop(key, None)
        return True

    async def _fail(self, key: TopicPartition, failed: pb.Failure) -> None:
        """A partition that failed is told of and read no more."""
        position = self._open.pop(key, None)
        self._failures.append(failed)
        await self._write(
            pb.FetchResponse(
                topic=key.topic,
                partition=key.partition,
                failure=failed,
                next_offset=0 if position is None else position,
            )
        )

    # --- writing -------------------------------------------------------------------------------

    async def _write(self, response: pb.FetchResponse) -> None:
        """Waits until the caller has room for it."""
        data = response.SerializeToString()
        if len(data) > MESSAGE_BYTES_MAX:
            await self._fail(
                TopicPartition(response.topic, response.partition),
                failure(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"the record at offset {response.records[0].offset} makes a message of {len(data)} "
                    f"bytes; {MESSAGE_BYTES_MAX} are allowed",
                ),
            )
            return
        del response
        writing = asyncio.ensure_future(self._write_bytes(data))
        try:
            await asyncio.wait({writing}, timeout=self._stall_s)
            if not writing.done():
                self._drop()
                await asyncio.wait({writing}, timeout=self._write_timeout_s)
            if not writing.done():
                raise OverloadedError(f"nothing was read from the stream for {self._write_timeout_s:g} s")
            writing.result()
        finally:
            writing.cancel()

    def _drop(self) -> None:
        """Everything that was read ahead."""
        self._chunks = []
        self._close_reader()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _fetched(record: Record) -> pb.FetchedRecord:
    return pb.FetchedRecord(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=[pb.RecordHeader(key=each.key, value=each.value) for each in record.headers],
    )


def _bytes_of(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(each.key) + len(each.value or b"") for each in record.headers)
