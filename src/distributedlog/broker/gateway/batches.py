"""Single records, as gateway calls bring them, made into batches: which partition each goes to, and in
whose company.

    call ──► place each record ──► one queue per partition ──► batches ──► rounds

Each batch is as large as its topic allows, estimated from above, and has at most BATCH_RECORDS_MAX records; a
record that is too large for its topic stands alone, so that the log refuses it and nothing else.  A *round*
has at most one batch of each partition, in the order of their records: so partitions keep the order of the
call, and the loop that appends may do other things between two rounds.

A key's partition is that of Kafka's clients.  Records without a key stay with one partition for about
STICKY_BYTES, then go to the next: of those that this broker leads, or of all if it leads none; then the
answer says who does.

All of it is work on the control loop, so it is done in steps: nothing here runs over more than one batch, or
STEP_RECORDS records, without letting others run; long keys are hashed in a thread.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple

from distributedlog.client.partitioner import StickyChoice, partition_of
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.model.config import KIB, MIB
from distributedlog.model.errors import InvalidRequestError
from distributedlog.records.layout import HEADER_BYTES, NO_TIMESTAMP
from distributedlog.records.record import Header, Record, encode_batch

RECORDS_MAX: Final = 10_000
"""Of one call."""
TOPICS_MAX: Final = 100
"""That one call names."""
HEADERS_MAX: Final = 1_000
"""Of one record."""
BATCH_RECORDS_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 1 * MIB
STEP_RECORDS: Final = 250
STICKY_BYTES: Final = 16 * KIB
LONG_KEY_BYTES: Final = 16 * KIB
# Length, attributes, timestamp and offset deltas, key and value lengths, header count: each at its longest.
RECORD_OVERHEAD_BYTES: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
HEADER_OVERHEAD_BYTES: Final = 5 + 5


class TopicPlan(NamedTuple):
    """What must be known of a topic to place records in it."""

    partition_count: int
    led: tuple[int, ...]
    """The partitions that this broker leads."""
    batch_bytes_max: int


class Batch(NamedTuple):
    topic: str
    partition: int
    data: bytearray
    indexes: list[int]
    """Which records of the call are in it, in the order of their offsets."""


Round = list[Batch]


async def check(request: pb.ProduceRequest) -> list[str]:
    """The topics that are named; InvalidRequestError for what cannot be meant."""
    if not 0 < len(request.records) <= RECORDS_MAX:
        raise InvalidRequestError(f"a call has 1 to {RECORDS_MAX} records, not {len(request.records)}")
    if request.acks not in pb.Acks.values():
        raise InvalidRequestError(f"there is no acks {request.acks}")
    topics: dict[str, None] = {}
    for at, record in enumerate(request.records):
        if record.HasField("partition") and record.partition < 0:
            raise InvalidRequestError(f"record {at} names partition {record.partition}")
        if record.HasField("timestamp_ms") and record.timestamp_ms < 0:
            raise InvalidRequestError(f"record {at} has the timestamp {record.timestamp_ms}")
        if len(record.headers) > HEADERS_MAX:
            raise InvalidRequestError(
                f"record {at} has {len(record.headers)} headers; {HEADERS_MAX} are allowed"
            )
        topics[record.topic] = None
        if len(topics) > TOPICS_MAX:
            raise InvalidRequestError(f"a call names at most {TOPICS_MAX} topics")
        if at % STEP_RECORDS == STEP_RECORDS - 1:
            await asyncio.sleep(0)
    return list(topics)


class Placer:
    """Chooses partitions.  One serves all calls, so that their records without keys are spread."""

    def __init__(self, first: int, threads: Executor) -> None:
        self._keyless = StickyChoice(first, STICKY_BYTES)
        self._threads = threads

    async def place(self, record: pb.ProduceRecord, plan: TopicPlan) -> int:
        if record.HasField("partition"):
            return record.partition
        if record.HasField("key"):
            key, count = record.key, plan.partition_count
            if len(key) <= LONG_KEY_BYTES:
                return partition_of(key, count)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, partition_of, key, count)
        choices: Sequence[int] = plan.led or range(plan.partition_count)
        return choices[self._keyless.choose(len(choices), record_bytes(record))]


def record_bytes(record: pb.ProduceRecord) -> int:
    """The most that it can take in a batch."""
    size = RECORD_OVERHEAD_BYTES + len(record.key) + len(record.value)
    for header in record.headers:
        # A character takes at most four bytes.
        size += HEADER_OVERHEAD_BYTES + 4 * len(header.key) + len(header.value)
    return size


class _Queue:
    """The records of one partition that are in no finished batch yet."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.bytes = 0
        self.round = 0


async def rounds_of(
    request: pb.ProduceRequest, plans: Mapping[str, TopicPlan], placer: Placer, now_ms: int
) -> tuple[list[Round], dict[int, int]]:
    """The batches to append, and to which partition each record goes.  Records of topics without a plan are
    left out."""
    rounds: list[Round] = []
    placed: dict[int, int] = {}
    async for topic, partition, number, indexes in _gathered(request, plans, placer, placed):
        records = [_record(request.records[at]) for at in indexes]
        data = encode_batch(records, default_timestamp_ms=now_ms)
        while len(rounds) <= number:
            rounds.append([])
        rounds[number].append(Batch(topic, partition, data, indexes))
        await asyncio.sleep(0)
    return rounds, placed


async def _gathered(
    request: pb.ProduceRequest, plans: Mapping[str, TopicPlan], placer: Placer, placed: dict[int, int]
) -> AsyncIterator[tuple[str, int, int, list[int]]]:
    """Topic, partition, number of the round, and the records, of each batch."""
    queues: dict[tuple[str, int], _Queue] = {}
    for at, record in enumerate(request.records):
        plan = plans.get(record.topic)
        if plan is None:
            continue
        partition = placed[at] = await placer.place(record, plan)
        queue = queues.setdefault((record.topic, partition), _Queue())
        size = record_bytes(record)
        room_bytes = min(plan.batch_bytes_max, BATCH_BYTES_MAX) - HEADER_BYTES
        if queue.indexes and (queue.bytes + size > room_bytes or len(queue.indexes) >= BATCH_RECORDS_MAX):
            yield record.topic, partition, queue.round, queue.indexes
            queue.indexes, queue.bytes, queue.round = [], 0, queue.round + 1
        queue.indexes.append(at)
        queue.bytes += size
        if at % STEP_RECORDS == STEP_RECORDS - 1:
            await asyncio.sleep(0)
    for (topic, partition), queue in queues.items():
        yield topic, partition, queue.round, queue.indexes


def _record(record: pb.ProduceRecord) -> Record:
    return Record(
        value=record.value if record.HasField("value") else None,
        key=record.key if record.HasField("key") else None,
        headers=tuple(
            Header(each.key, each.value if each.HasField("value") else None) for each in record.headers
        ),
        timestamp_ms=record.timestamp_ms if record.HasField("timestamp_ms") else NO_TIMESTAMP,
    )
