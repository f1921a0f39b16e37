"""One Fetch call: records of some partitions, streamed for as long as the caller reads them.

    located ──► reading ──► writing ──► reading ...     until every partition has ended or failed,
                   │           │                        or a bound of the call is reached
                   │           └─ the caller reads slowly: after STALL_S what was read ahead is dropped,
                   │              after WRITE_TIMEOUT_S without reading the stream is cut off
                   └─ nothing there: parked on the data loop like any consumer, WAIT_MS_MAX at a time;
                      the client has used up its quota: nothing is read until it may have more (`charging`)

What a stream holds is bounded: the bytes of one fetch (READ_BYTES, or one batch), one opened batch within the
budget that all streams share, and one response.  The next fetch begins when the last one is written.  While
its caller is slow it holds one response only; it reads again from where that one ended.

Partitions take turns being the first of a fetch, so that one with much to read does not starve the others.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Final

from distributedlog.broker.gateway.bridge import Chunk, GatewayBridge, Located, Position, Wanted
from distributedlog.broker.gateway.budget import ByteBudget
from distributedlog.broker.gateway.charging import Caller
from distributedlog.broker.gateway.failures import failure, failure_of
from distributedlog.broker.gateway.reading import SLICE_RECORDS, ChunkReader
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.control.options import MESSAGE_BYTES_MAX
from distributedlog.model.config import INT64_MAX, KIB, MIB, SECOND_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidRequestError, OverloadedError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record
from distributedlog.replication.contract import Isolation, OffsetSpec

POSITIONS_MAX: Final = 1_000
"""Partitions of one call."""
READ_BYTES: Final = 1 * MIB
RESPONSE_BYTES: Final = 256 * KIB
RESPONSE_BYTES_MAX: Final = 2 * MIB
"""Below what gRPC's clients take without being told to: 4 MiB."""
WAIT_MS_MAX: Final = 30 * SECOND_MS
QUOTA_WAIT_MS_MAX: Final = 1 * SECOND_MS
"""At a time: quotas change."""
PAUSE_S: Final = 0.02
"""After a fetch that brought nothing: where nobody can be parked any more, it is answered at once."""
STALL_S: Final = 1.0
WRITE_TIMEOUT_S: Final = 300.0

_EDGES: Final = {pb.EARLIEST: OffsetSpec.EARLIEST, pb.LATEST: OffsetSpec.LATEST}
_ISOLATIONS: Final = {
    pb.READ_COMMITTED: Isolation.READ_COMMITTED,
    pb.READ_UNCOMMITTED: Isolation.READ_UNCOMMITTED,
}

Write = Callable[[bytes], Awaitable[None]]


def wanted_of(request: pb.FetchRequest) -> list[Wanted]:
    """Where to begin; InvalidRequestError for what cannot be meant."""
    if not 0 < len(request.positions) <= POSITIONS_MAX:
        raise InvalidRequestError(
            f"a call reads 1 to {POSITIONS_MAX} partitions, not {len(request.positions)}"
        )
    if request.isolation not in _ISOLATIONS:
        raise InvalidRequestError(f"there is no isolation {request.isolation}")
    found: dict[TopicPartition, Wanted] = {}
    for position in request.positions:
        key = TopicPartition(position.topic, position.partition)
        if key in found:
            raise InvalidRequestError(f"{key} is named twice")
        found[key] = _wanted(position)
    return list(found.values())


def _wanted(position: pb.FetchPosition) -> Wanted:
    topic, partition = position.topic, position.partition
    if partition < 0:
        raise InvalidRequestError(f"there is no partition {partition}")
    match position.WhichOneof("from"):
        case "offset":
            if position.offset < 0:
                raise InvalidRequestError(f"there is no offset {position.offset}")
            return Wanted(topic, partition, position.offset)
        case "timestamp_ms":
            if position.timestamp_ms < 0:
                raise InvalidRequestError(f"there is no time {position.timestamp_ms}")
            return Wanted(topic, partition, OffsetSpec.LATEST, position.timestamp_ms)
        case _:
            if position.edge not in _EDGES:
                raise InvalidRequestError(f"there is no edge {position.edge}")
            return Wanted(topic, partition, _EDGES[position.edge])


class FetchStream:
    """Made for one call; `run` once."""

    def __init__(
        self,
        request: pb.FetchRequest,
        bridge: GatewayBridge,
        write: Write,
        caller: Caller,
        *,
        budget: ByteBudget,
        threads: Executor,
        stall_s: float = STALL_S,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self._request = request
        self._bridge = bridge
        self._write_bytes = write
        self._caller = caller
        self._unpaid_bytes = 0
        self._budget = budget
        self._threads = threads
        self._stall_s = stall_s
        self._write_timeout_s = write_timeout_s
        self._isolation = _ISOLATIONS.get(request.isolation, Isolation.READ_COMMITTED)
        self._response_bytes = min(request.response_bytes_max or RESPONSE_BYTES, RESPONSE_BYTES_MAX)
        self._records_left = request.records_max or INT64_MAX
        self._bytes_left = request.bytes_max or INT64_MAX
        self._open: dict[TopicPartition, Position] = {}
        """The partitions that are still read, the next one first."""
        self._ends: dict[TopicPartition, int] = {}
        self._failures: list[pb.Failure] = []
        self._partition_count = len(request.positions)
        self._chunks: list[Chunk] = []
        self._reader: ChunkReader | None = None

    async def run(self) -> pb.Failure | None:
        """Until the stream has ended; why, if every partition failed."""
        try:
            located = await self._bridge.locate(
                wanted_of(self._request), self._isolation, self._request.until_end, self._caller
            )
            for each in located:
                await self._begin(each)
            await self._read_all()
        finally:
            self._drop()
            self._bridge.pay_last(self._caller, self._unpaid_bytes)
        if len(self._failures) == self._partition_count:
            return self._failures[0]
        return None

    async def _begin(self, located: Located) -> None:
        key = TopicPartition(located.topic, located.partition)
        if located.failure is not None:
            await self._fail(key, located.failure)
            return
        self._open[key] = Position(located.topic, located.topic_id, located.partition, located.offset)
        if self._request.until_end:
            self._ends[key] = located.end_offset
            self._end_if_read(key)

    @property
    def _is_wanting(self) -> bool:
        return self._records_left > 0 and self._bytes_left > 0

    async def _read_all(self) -> None:
        idle_since_ms = self._bridge.clock.monotonic_ms()
        while self._open and self._is_wanting:
            if await self._wait_for_quota():
                idle_since_ms = self._bridge.clock.monotonic_ms()
            wait_ms = self._wait_ms(idle_since_ms)
            if wait_ms < 0:
                return
            positions = list(self._open.values())
            self._chunks = await self._bridge.fetch(
                positions, self._isolation, READ_BYTES, wait_ms, self._caller
            )
            records_left = self._records_left
            while self._chunks and self._is_wanting:
                await self._pass_on(self._chunks.pop(0))
            if self._records_left < records_left:
                idle_since_ms = self._bridge.clock.monotonic_ms()
            if list(self._open.values()) == positions:
                await asyncio.sleep(PAUSE_S)
            self._take_turns()

    async def _wait_for_quota(self) -> bool:
        """Pays for what was sent; whether there was a wait for more to be allowed."""
        has_waited = False
        while True:
            unpaid_bytes, self._unpaid_bytes = self._unpaid_bytes, 0
            wait_ms = await self._bridge.pay(self._caller, unpaid_bytes)
            if not wait_ms:
                return has_waited
            has_waited = True
            await asyncio.sleep(min(wait_ms, QUOTA_WAIT_MS_MAX) / 1000)

    def _take_turns(self) -> None:
        if self._open:
            first = next(iter(self._open))
            self._open[first] = self._open.pop(first)

    def _wait_ms(self, idle_since_ms: int) -> int:
        """How long the next fetch may wait for something to come; negative: the stream is over."""
        if not self._request.max_wait_ms:
            return WAIT_MS_MAX
        left_ms = idle_since_ms + self._request.max_wait_ms - self._bridge.clock.monotonic_ms()
        return min(left_ms, WAIT_MS_MAX) if left_ms > 0 else -1

    # --- one partition of one fetch ------------------------------------------------------------

    async def _pass_on(self, chunk: Chunk) -> None:
        key = TopicPartition(chunk.position.topic, chunk.position.partition)
        if chunk.failure is not None:
            await self._fail(key, chunk.failure)
            return
        offset, high_watermark = chunk.position.offset, chunk.high_watermark
        self._reader = ChunkReader(chunk.data, offset, chunk.aborted, self._budget, self._threads)
        records_left = self._records_left
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
            if self._records_left < records_left:
                self._bridge.count_sent(key.topic, records_left - self._records_left)

    async def _write_slice(self, key: TopicPartition, reader: ChunkReader, high_watermark: int) -> bool:
        """False: there is nothing more, or nothing more that is wanted."""
        bytes_max = min(self._response_bytes, self._bytes_left)
        records = await reader.next(bytes_max, min(self._records_left, SLICE_RECORDS))
        end_offset = self._ends.get(key, INT64_MAX)
        wanted = [each for each in records if each.offset < end_offset]
        self._open[key] = self._open[key]._replace(offset=reader.next_offset)
        del reader
        if wanted:
            response = pb.FetchResponse(
                topic=key.topic,
                partition=key.partition,
                records=[_fetched(record) for record in wanted],
                high_watermark=high_watermark,
                next_offset=self._open[key].offset,
            )
            self._records_left -= len(wanted)
            self._bytes_left -= sum(map(_bytes_of, wanted))
            await self._write(response)
        return not self._end_if_read(key) and bool(records)

    def _end_if_read(self, key: TopicPartition) -> bool:
        position = self._open.get(key)
        if position is not None and position.offset < self._ends.get(key, INT64_MAX):
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
                next_offset=0 if position is None else position.offset,
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
        self._unpaid_bytes += len(data)
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
