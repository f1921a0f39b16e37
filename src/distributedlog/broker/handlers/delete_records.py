"""DeleteRecords: moves the start of logs forward, and responds when that survives a crash.

    an offset                         up to it, if it is committed; at or below the start nothing is done
    -1                                up to the high watermark
    behind the high watermark         OFFSET_OUT_OF_RANGE
    a topic that is only compacted    POLICY_VIOLATION
    an internal topic                 INVALID_TOPIC_EXCEPTION

What was acknowledged and is not yet synced is waited for (`_own_sync`): else it could not be deleted.

Segments that lie wholly below the start are deleted, which syncs names; so the partitions of a request are
done in slices of some milliseconds, between which the loop serves others.  Then the starts are checkpointed
once for all of them.  If that takes longer than the client waits (at least WAIT_MS_MIN) it gets
REQUEST_TIMED_OUT; if it fails, KAFKA_STORAGE_ERROR: the records are gone for readers, but a crash may bring
them back.

Then every replica of ISR and ELR must have deleted the records too, as it does when it fetches next: else a
failover would bring them back.  So it times out while an eligible replica is down.  The response is the
leader's own start.  A topic of which no partition is named is not in the response.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._forwarding import WAIT_MS_MIN
from distributedlog.broker.handlers._own_sync import list_unsynced, wait_for_sync
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidNameError
from distributedlog.model.internal_topics import INTERNAL_TOPICS
from distributedlog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from distributedlog.replication.partition import Partition

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

UNKNOWN_OFFSET: Final = -1
SLICE_MS: Final = 5


@handles(
    DeleteRecordsRequest,
    versions=(0, 2),
    timeout_ms=lambda request: request.timeout_ms,
)
async def delete_records(
    services: "Services", request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    named = ((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    unsynced = list_unsynced(services, named)
    if unsynced:
        await wait_for_sync(services, unsynced)
    response = DeleteRecordsResponse(topics=[])
    deleted: list[tuple[Partition, DeleteRecordsPartitionResult]] = []
    slice_ends_ms = services.clock.monotonic_ms() + SLICE_MS
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            partition, result = _delete(services, topic.name, asked)
            results.append(result)
            if partition is not None:
                deleted.append((partition, result))
            if services.clock.monotonic_ms() >= slice_ends_ms:
                await asyncio.sleep(0)
                slice_ends_ms = services.clock.monotonic_ms() + SLICE_MS
        if results:
            response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    if deleted:
        code = await _make_durable(services, request.timeout_ms)
        codes = [code] * len(deleted) if code else await _wait_for_replicas(services, request, deleted)
        for (_, result), each in zip(deleted, codes, strict=True):
            if each:
                result.error_code, result.low_watermark = each, UNKNOWN_OFFSET
    return response


def _delete(
    services: "Services", topic: str, asked: DeleteRecordsPartition
) -> tuple[Partition | None, DeleteRecordsPartitionResult]:
    """Returns the partition of which records were deleted, and what is said of it."""
    index = asked.partition_index
    try:
        if topic in INTERNAL_TOPICS:
            raise InvalidNameError(f"records of {topic} are deleted by the brokers alone")
        partition = services.partitions.require(topic, index)
        start_offset = partition.delete_records(asked.offset, services.clock.wall_ms())
    except DlogError as error:
        return None, _make_failure(index, error.code)
    return partition, DeleteRecordsPartitionResult(partition_index=index, low_watermark=start_offset)


def _make_failure(partition_index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition_index, low_watermark=UNKNOWN_OFFSET, error_code=code
    )


async def _make_durable(services: "Services", timeout_ms: int) -> ErrorCode:
    """Returns what became of the checkpoint of the new starts."""
    written: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def note(error: BaseException | None) -> None:
        if not written.done():
            written.set_result(ErrorCode.NONE if error is None else ErrorCode.KAFKA_STORAGE_ERROR)

    services.partitions.maintenance.checkpoint_starts(note)
    try:
        return await asyncio.wait_for(written, max(WAIT_MS_MIN, timeout_ms) / 1000)
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT


async def _wait_for_replicas(
    services: "Services",
    request: DeleteRecordsRequest,
    deleted: list[tuple[Partition, DeleteRecordsPartitionResult]],
) -> list[ErrorCode]:
    """Waits until every replica that may lead has deleted the records; what became of each partition."""
    known: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()

    def note(codes: list[ErrorCode]) -> None:
        if not known.done():
            known.set_result(codes)

    awaited = [(partition, result.low_watermark) for partition, result in deleted]
    operation = services.purgatory.add_deletion(awaited, max(WAIT_MS_MIN, request.timeout_ms), note)
    try:
        return await known
    finally:
        if operation is not None:
            services.purgatory.cancel(operation)
