"""DeleteRecords: moves the start of logs forward, and answers when that survives a crash.

    an offset                         up to it, if it is committed; at or below the start nothing is done
    -1                                up to the high watermark
    behind the high watermark         OFFSET_OUT_OF_RANGE
    a topic that is only compacted    POLICY_VIOLATION
    an internal topic                 INVALID_TOPIC_EXCEPTION

Segments that lie wholly below the start are deleted, which syncs names; so the partitions of a request are
done in slices of some milliseconds, between which the loop serves others.  Then the starts are checkpointed
once for all of them.  If that takes longer than the client waits (at least WAIT_MS_MIN) it is told
REQUEST_TIMED_OUT; if it fails, KAFKA_STORAGE_ERROR: the records are gone for readers, but a crash may bring
them back.

The answer is the leader's own start.  Followers move theirs when they fetch next.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.broker.handlers._asking import WAIT_MS_MIN
from distributedlog.broker.handlers._topics import INTERNAL_TOPICS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidNameError
from distributedlog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

UNKNOWN_OFFSET: Final = -1
SLICE_MS: Final = 5


def _refuse(
    request: DeleteRecordsRequest, context: RequestContext, code: ErrorCode, text: str
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_failed(each.partition_index, code) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


@handles(
    DeleteRecordsRequest, versions=(0, 2), refuse=_refuse, patience_ms=lambda request: request.timeout_ms
)
async def delete_records(
    services: "Services", request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse(topics=[])
    deleted: list[DeleteRecordsPartitionResult] = []
    slice_ends_ms = services.clock.monotonic_ms() + SLICE_MS
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            result = _delete(services, topic.name, asked)
            results.append(result)
            if not result.error_code:
                deleted.append(result)
            if services.clock.monotonic_ms() >= slice_ends_ms:
                await asyncio.sleep(0)
                slice_ends_ms = services.clock.monotonic_ms() + SLICE_MS
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    if deleted:
        code = await _made_durable(services, request.timeout_ms)
        for result in deleted if code else ():
            result.error_code, result.low_watermark = code, UNKNOWN_OFFSET
    return response


def _delete(services: "Services", topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    try:
        if topic in INTERNAL_TOPICS:
            raise InvalidNameError(f"records of {topic} are deleted by the brokers alone")
        partition = services.partitions.require(topic, index)
        start_offset = partition.delete_records(asked.offset, services.clock.wall_ms())
    except DlogError as error:
        return _failed(index, error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=start_offset)


def _failed(partition_index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition_index, low_watermark=UNKNOWN_OFFSET, error_code=code
    )


async def _made_durable(services: "Services", timeout_ms: int) -> ErrorCode:
    """What became of the checkpoint of the new starts."""
    written: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def note(error: BaseException | None) -> None:
        if not written.done():
            written.set_result(ErrorCode.NONE if error is None else ErrorCode.KAFKA_STORAGE_ERROR)

    services.partitions.upkeep.checkpoint_starts(note)
    try:
        return await asyncio.wait_for(written, max(WAIT_MS_MIN, timeout_ms) / 1000)
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT
