"""One Produce call: its records become batches, and the client's producer delivers them.

The producer finds the leaders, tries again while that may help, and with ACKS_ALL is idempotent: its
retries append nothing twice.  Batches of a partition are sent one after the other, so that a partition
keeps the order of the call; partitions go side by side.

| what happened to a batch                           | what its records get                                  |
|----------------------------------------------------|-------------------------------------------------------|
| acknowledged                                       | partition, offset, timestamp                          |
| too large for the topic, of several records        | it is sent again in halves, in order                  |
| refused                                            | a failure                                             |
| not acknowledged in time                           | REQUEST_TIMED_OUT; `outcome_unknown` unless unsent    |

A caller that goes away takes its call along; what the producer has taken by then may still be appended.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from distributedlog.client.errors import UNKNOWN_OUTCOME, code_of
from distributedlog.client.metadata import Cluster
from distributedlog.client.produce_requests import DOUBTFUL
from distributedlog.client.producer import BatchReport
from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.gateway.batches import Batches, Partitioner, check_records, make_batches, record_of
from distributedlog.gateway.clients import GatewayClient
from distributedlog.gateway.failures import failure, failure_of
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, RecordTooLargeError, UnknownTopicError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import Clock

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
NOWHERE: Final = -1
"""The partition and the offset of a record that has none."""


async def produce(
    client: GatewayClient, request: pb.ProduceRequest, timeout_ms: int, partitioner: Partitioner, clock: Clock
) -> pb.ProduceResponse:
    """Returns a result for each record, in the order of the request."""
    call = _ProduceCall(client, request, clock)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await call.run(partitioner)
    except TimeoutError:
        call.time_out(timeout_ms)
    return pb.ProduceResponse(results=call.results)


class _ProduceCall:
    def __init__(self, client: GatewayClient, request: pb.ProduceRequest, clock: Clock) -> None:
        self._cluster = client.cluster
        self._producer = client.producer(ACKS_ALL if request.acks == pb.ACKS_ALL else ACKS_LEADER)
        self._request = request
        self._now_ms = clock.wall_ms()
        self._sent: set[int] = set()
        """Records that the producer has taken."""
        self._open = set(range(len(request.records)))
        """Records without a result."""
        self.results = [pb.ProduceResult(partition=NOWHERE, offset=NOWHERE) for _ in request.records]

    async def run(self, partitioner: Partitioner) -> None:
        counts = await self._count_partitions(await check_records(self._request))
        batches = await make_batches(self._request, counts, partitioner)
        self._note_partitions(batches, counts)
        async with asyncio.TaskGroup() as sending:
            for partition, of_partition in batches.items():
                if partition.partition < counts[partition.topic]:
                    sending.create_task(self._send_in_order(partition, of_partition))

    def time_out(self, timeout_ms: int) -> None:
        """Every record without a result failed, or nobody knows."""
        for at in self._open:
            text = f"it was not acknowledged within {timeout_ms} ms"
            self.results[at].failure.CopyFrom(
                failure(ErrorCode.REQUEST_TIMED_OUT, text, outcome_unknown=at in self._sent)
            )

    # --- topics --------------------------------------------------------------------------------

    async def _count_partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """A topic that is not there is created, if the cluster does that on first use."""
        counts: dict[str, int] = {}
        failed: dict[str, pb.Failure] = {}
        found = await asyncio.gather(*(_topic(self._cluster, name) for name in topics))
        for name, result in zip(topics, found, strict=True):
            if isinstance(result, int):
                counts[name] = result
            else:
                failed[name] = failure_of(result)
        if failed:
            for at, record in enumerate(self._request.records):
                if record.topic in failed:
                    self._fail([at], failed[record.topic])
        return counts

    def _note_partitions(self, batches: Batches, counts: dict[str, int]) -> None:
        for partition, of_partition in batches.items():
            indexes = [at for batch in of_partition for at in batch]
            for at in indexes:
                self.results[at].partition = partition.partition
            if partition.partition >= counts[partition.topic]:
                last = counts[partition.topic] - 1
                text = f"topic {partition.topic!r} has partitions 0 to {last}, not {partition.partition}"
                self._fail(indexes, failure_of(UnknownTopicError(text)))

    # --- batches -------------------------------------------------------------------------------

    async def _send_in_order(self, partition: TopicPartition, batches: list[list[int]]) -> None:
        for indexes in batches:
            await self._send(partition, indexes)

    async def _send(self, partition: TopicPartition, indexes: list[int]) -> None:
        records = [record_of(self._request.records[at], self._now_ms) for at in indexes]
        try:
            delivery = await self._producer.send_batch(partition, records)
            self._sent.update(indexes)
            report = await asyncio.shield(delivery)
        except DlogError as refused:
            report = BatchReport(partition, len(records), NOWHERE, error=refused)
        if isinstance(report.error, RecordTooLargeError) and not report.parts and len(indexes) > 1:
            # Larger than any request: the producer did not take it.
            self._sent.difference_update(indexes)
            middle = len(indexes) // 2
            await self._send(partition, indexes[:middle])
            await self._send(partition, indexes[middle:])
            return
        for first, part in report.parts or ((0, report),):
            last = first + part.record_count
            self._end(indexes[first:last], [each.timestamp_ms for each in records[first:last]], part)

    def _end(self, indexes: list[int], timestamps_ms: list[int], report: BatchReport) -> None:
        error = report.error
        if error is not None:
            is_unknown = isinstance(error, UNKNOWN_OUTCOME) or code_of(error) in DOUBTFUL
            self._fail(indexes, failure_of(error), outcome_unknown=is_unknown)
        else:
            self._succeed(indexes, timestamps_ms, report)

    def _succeed(self, indexes: list[int], timestamps_ms: list[int], report: BatchReport) -> None:
        for delta, (at, timestamp_ms) in enumerate(zip(indexes, timestamps_ms, strict=True)):
            result = self.results[at]
            if report.base_offset >= 0:
                result.offset = report.base_offset + delta
            result.timestamp_ms = report.append_time_ms if report.append_time_ms >= 0 else timestamp_ms
        self._open.difference_update(indexes)

    def _fail(self, indexes: list[int], failed: pb.Failure, *, outcome_unknown: bool = False) -> None:
        failed.outcome_unknown = failed.outcome_unknown or outcome_unknown
        for at in indexes:
            self.results[at].failure.CopyFrom(failed)
        self._open.difference_update(indexes)


async def _topic(cluster: Cluster, name: str) -> int | DlogError:
    """Returns how many partitions a topic has, or why that is not known."""
    try:
        return await cluster.partition_count(name, allow_creation=True)
    except DlogError as error:
        return error
