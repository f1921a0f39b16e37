"""Single records, as calls bring them, made into batches: which partition each goes to, and in whose company.

    call ──► choose a partition for each record ──► batches of each partition, in the order of the call

A batch has at most BATCH_RECORDS_MAX records, and no more bytes, estimated from above, than a topic takes by
default.  A topic may take less; then the batch is sent again in halves (`producing`).

A key's partition is that of Kafka's clients.  Records without a key stay with one partition for about
STICKY_BYTES, then go to the next.

A call may have many records, so they are gone through in steps, STEP_RECORDS at a time, and others run in
between; long keys are hashed in a thread.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Final

from distributedlog.client.partitioner import StickyChoice, partition_of
from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.model.config import KIB, MIB
from distributedlog.model.errors import InvalidRequestError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.layout import HEADER_BYTES
from distributedlog.records.record import Header, Record

RECORDS_MAX: Final = 10_000
"""The records of one call."""
TOPICS_MAX: Final = 100
"""The topics that one call names."""
HEADERS_MAX: Final = 1_000
"""The headers of one record."""
BATCH_RECORDS_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 1 * MIB
STEP_RECORDS: Final = 250
STICKY_BYTES: Final = 16 * KIB
LONG_KEY_BYTES: Final = 16 * KIB
# Length, attributes, timestamp and offset deltas, key and value lengths, header count: each at its longest.
RECORD_OVERHEAD_BYTES: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
HEADER_OVERHEAD_BYTES: Final = 5 + 5

Batches = dict[TopicPartition, list[list[int]]]
"""The batches of each partition in their order, each as the indexes of its records in the call."""


async def check_records(request: pb.ProduceRequest) -> list[str]:
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


class Partitioner:
    """Chooses partitions.  One serves all calls, so that their records without keys are spread."""

    def __init__(self, first: int, threads: Executor) -> None:
        """`first` is the partition that records without a key begin with."""
        self._keyless = StickyChoice(first, STICKY_BYTES)
        self._threads = threads

    async def choose(self, record: pb.ProduceRecord, partition_count: int) -> int:
        if record.HasField("partition"):
            return record.partition
        if not record.HasField("key"):
            return self._keyless.choose(partition_count, record_bytes(record))
        if len(record.key) <= LONG_KEY_BYTES:
            return partition_of(record.key, partition_count)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partition_of, record.key, partition_count)


def record_bytes(record: pb.ProduceRecord) -> int:
    """The most that it can take in a batch."""
    size = RECORD_OVERHEAD_BYTES + len(record.key) + len(record.value)
    for header in record.headers:
        # A character takes at most four bytes.
        size += HEADER_OVERHEAD_BYTES + 4 * len(header.key) + len(header.value)
    return size


async def make_batches(
    request: pb.ProduceRequest, partition_counts: Mapping[str, int], partitioner: Partitioner
) -> Batches:
    """Records of topics without a partition count are left out."""
    batches: Batches = {}
    sizes: dict[TopicPartition, int] = {}
    for at, record in enumerate(request.records):
        count = partition_counts.get(record.topic)
        if count is None:
            continue
        partition = TopicPartition(record.topic, await partitioner.choose(record, count))
        size = record_bytes(record)
        of_partition = batches.setdefault(partition, [])
        is_full = not of_partition or len(of_partition[-1]) >= BATCH_RECORDS_MAX
        if is_full or sizes[partition] + size > BATCH_BYTES_MAX - HEADER_BYTES:
            of_partition.append([])
            sizes[partition] = 0
        of_partition[-1].append(at)
        sizes[partition] += size
        if at % STEP_RECORDS == STEP_RECORDS - 1:
            await asyncio.sleep(0)
    return batches


def record_of(record: pb.ProduceRecord, now_ms: int) -> Record:
    """A record without a timestamp gets `now_ms`."""
    return Record(
        value=record.value if record.HasField("value") else None,
        key=record.key if record.HasField("key") else None,
        headers=tuple(
            Header(each.key, each.value if each.HasField("value") else None) for each in record.headers
        ),
        timestamp_ms=record.timestamp_ms if record.HasField("timestamp_ms") else now_ms,
    )
