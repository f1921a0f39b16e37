"""Produce: appends one record batch to each partition that is named.

    acks   is answered                                                        if a partition refuses
    0      never                                                              the connection is closed
    1      when the leader has appended; nothing is known of the disk yet     for that partition
    -1     when all is committed: everyone in sync has it, and it is synced   for that partition
    other  at once, INVALID_REQUIRED_ACKS for every partition                 nothing was appended

Partitions stand for themselves: some may be appended to and others refuse.  Each is answered in the place it
has in the request, with the offset of its first record; a batch that is in the log already (idempotence) with
the offset that it got then.

A partition refuses what Kafka refuses, with Kafka's code and our words:

    no topic or partition of that name, or id (13)    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
    led elsewhere                                     NOT_LEADER_OR_FOLLOWER, and from 10 on who leads
    no batch, or more than one, or of magic 0 or 1    INVALID_RECORD
    a batch that is cut short, or has a wrong CRC     CORRUPT_MESSAGE
    zstd before version 7                             UNSUPPORTED_COMPRESSION_TYPE
    a transactional batch                             INVALID_TXN_STATE, see `_check_transaction`
    an internal topic                                 INVALID_TOPIC_EXCEPTION, but for Kafka's admin tools
    too few replicas in sync, for acks -1             NOT_ENOUGH_REPLICAS
    what the topic or the disk refuse                 see `storage.append`, `storage.producers`

The batch is a view of the frame and goes to the file as it is.  A request that waits lets go of it, and with
it of the frame.  What acks=1 needs is done in phase one, without a future or a task.
"""

from struct import Struct as Layout
from typing import TYPE_CHECKING, Final, cast

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, CloseConnectionError, handles
from distributedlog.broker.handlers._leaders import Leaders
from distributedlog.broker.handlers._parking import ParkedAnswer
from distributedlog.broker.handlers._topics import INTERNAL_TOPICS
from distributedlog.model.buffers import Buffer, MutableBuffer
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    CorruptBatchError,
    DlogError,
    InvalidNameError,
    InvalidRecordError,
    InvalidTransactionStateError,
    RejectedRecordsError,
    UnsupportedCompressionError,
)
from distributedlog.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from distributedlog.records.compression import Codec
from distributedlog.records.layout import CODEC_MASK, HEADER_BYTES, LOG_OVERHEAD, MAGIC, TRANSACTIONAL_BIT
from distributedlog.replication.contract import ACKS_ALL
from distributedlog.replication.partition import Partition

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
NO_OFFSET: Final = -1
TOPIC_IDS_SINCE: Final = 13
NAMES_LEADER_SINCE: Final = 10
ZSTD_SINCE: Final = 7
ADMIN_CLIENT_ID: Final = "__admin_client"

_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_HEAD: Final = Layout(">8xi4xb4xh")  # batch length, magic, attributes
_head_of = _HEAD.unpack_from
_ZSTD: Final = int(Codec.ZSTD)
_REMARKABLE: Final = CODEC_MASK | TRANSACTIONAL_BIT

Awaited = list[tuple[Partition, int]]


def _refuse(request: ProduceRequest, context: RequestContext, code: ErrorCode, text: str) -> ProduceResponse:
    if request.acks == ACKS_NONE:
        raise CloseConnectionError(f"a produce with acks 0 came to {code.name}: {text}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=NO_OFFSET, error_message=text
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


@handles(
    ProduceRequest,
    versions=(3, 13),
    advertised_from=0,
    refuse=_refuse,
    patience_ms=lambda request: request.timeout_ms,
)
def produce(services: "Services", request: ProduceRequest, context: RequestContext) -> Answer:
    acks = request.acks
    if acks not in (ACKS_LEADER, ACKS_ALL, ACKS_NONE):
        text = f"acks is {acks}; it can be 0, 1 or -1"
        return _refuse(request, context, ErrorCode.INVALID_REQUIRED_ACKS, text)
    now_ms = services.clock.wall_ms()
    topics: list[TopicProduceResponse] = []
    awaited: Awaited = []
    waiting: list[PartitionProduceResponse] = []
    failures = 0
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            try:
                answer, partition, end_offset = _append(services, topic, data, acks, now_ms, context)
            except DlogError as error:
                failures += 1
                answers.append(_refused(data.index, error))
                continue
            answers.append(answer)
            if acks == ACKS_ALL:
                awaited.append((partition, end_offset))
                waiting.append(answer)
        topics.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
    response = ProduceResponse(responses=topics)
    if awaited:
        return _when_committed(services, request, context, response, awaited, waiting, failures)
    if failures:
        if acks == ACKS_NONE:
            raise CloseConnectionError(f"a produce with acks 0 was refused: {_first_refusal(response)}")
        _name_leaders(services, context, response)
    return None if acks == ACKS_NONE else response


# --- one partition -----------------------------------------------------------------------------


def _append(
    services: "Services",
    topic: TopicProduceData,
    data: PartitionProduceData,
    acks: int,
    now_ms: int,
    context: RequestContext,
) -> tuple[PartitionProduceResponse, Partition, int]:
    """The answer of a partition that took its batch, and the offset behind it."""
    index, records, partitions = data.index, data.records, services.partitions
    # The request may be kept while it waits; the frame, of which the records are a part, must not be.
    data.records = None
    if context.api_version < TOPIC_IDS_SINCE:
        partition = partitions.get(topic.name, index) or partitions.require(topic.name, index)
    else:
        partition = partitions.require_by_id(topic.topic_id, index)
    name = partition.topic
    if name in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise InvalidNameError(f"{name} is written by the brokers alone")
    checked = _check_form(records, context.api_version)
    base_offset, last_offset, append_time_ms, is_duplicate = partition.append(checked, acks, now_ms)
    if not is_duplicate:
        services.metrics.produced(name, last_offset - base_offset + 1, len(checked))
    answer = PartitionProduceResponse(
        index=index,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=partition.log.start_offset,
    )
    return answer, partition, last_offset + 1


def _check_form(records: Buffer | None, version: int) -> MutableBuffer:
    """What can be seen from outside: one whole batch, of the format and with the means of this version."""
    size = 0 if records is None else len(records)
    if records is None or size < HEADER_BYTES:
        if records is not None and size > 16 and records[16] != MAGIC:
            raise InvalidRecordError(f"the batch has the magic {records[16]}; it must be {MAGIC}")
        if size:
            raise CorruptBatchError(f"{size} bytes are not a whole batch")
        raise InvalidRecordError("there is no batch to append")
    length, magic, attributes = _head_of(records)
    if magic != MAGIC:
        raise InvalidRecordError(f"the batch has the magic {magic}; it must be {MAGIC}")
    if length + LOG_OVERHEAD != size:
        if length + LOG_OVERHEAD > size:
            raise CorruptBatchError(f"a batch of {length + LOG_OVERHEAD} bytes is cut short at {size}")
        raise InvalidRecordError("there must be exactly one batch for each partition")
    if attributes & _REMARKABLE:
        if attributes & CODEC_MASK == _ZSTD and version < ZSTD_SINCE:
            raise UnsupportedCompressionError(f"zstd needs Produce version {ZSTD_SINCE}; this is {version}")
        if attributes & TRANSACTIONAL_BIT:
            _check_transaction()
    return cast(MutableBuffer, records)  # a view of the frame, which is a bytearray


def _check_transaction() -> None:
    """Whether the coordinator of the batch's transaction knows that this partition is part of it.  There are
    no coordinators yet, so no partition was ever added to a transaction: Kafka's answer to that."""
    raise InvalidTransactionStateError("the partition was not added to the transaction")


def _refused(index: int, error: DlogError) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=NO_OFFSET, error_message=str(error)
    )
    if isinstance(error, RejectedRecordsError):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=text)
            for at, text in error.records
        ]
    return answer


def _first_refusal(response: ProduceResponse) -> str | None:
    answers = (each for topic in response.responses for each in topic.partition_responses)
    return next(each.error_message for each in answers if each.error_code)


def _name_leaders(services: "Services", context: RequestContext, response: ProduceResponse) -> None:
    """For partitions that are led elsewhere, where the version has a place for it."""
    version = context.api_version
    if version < NAMES_LEADER_SINCE:
        return
    leaders = Leaders(services, context.listener)
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == _NOT_LEADER:
                key = topic.name if version < TOPIC_IDS_SINCE else topic.topic_id
                answer.current_leader = LeaderIdAndEpoch(**leaders.of(key, answer.index)._asdict())
    response.node_endpoints = [NodeEndpoint(**node._asdict()) for node in leaders.nodes.values()]


# --- acks=all ----------------------------------------------------------------------------------


def _when_committed(
    services: "Services",
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    awaited: Awaited,
    waiting: list[PartitionProduceResponse],
    failures: int,
) -> Answer:
    """The response when it is known of every partition whether its batch is committed."""
    parked_answer = ParkedAnswer(services.delayed)

    def done(codes: list[ErrorCode]) -> None:
        if failures or any(codes):
            for answer, code in zip(waiting, codes, strict=True):
                answer.error_code = code
            _name_leaders(services, context, response)
        parked_answer.parked = None
        parked_answer.set_result(response)

    parked_answer.parked = services.delayed.produce(awaited, request.timeout_ms, done)
    return response if parked_answer.parked is None else parked_answer
