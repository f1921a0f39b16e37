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
    no whole batch, or more than one, or an old one   INVALID_RECORD
    a batch of an unknown magic, or a wrong CRC       CORRUPT_MESSAGE
    zstd before version 7                             UNSUPPORTED_COMPRESSION_TYPE
    the first batch of a transaction that the         INVALID_TXN_STATE, TRANSACTION_ABORTABLE (11) …, see
    coordinator does not confirm                      `_verification.make_produce_error`
    an internal topic                                 INVALID_TOPIC_EXCEPTION: a client id grants nothing
    too few replicas in sync, for acks -1             NOT_ENOUGH_REPLICAS
    a batch behind one that was refused               as that one (`_refused_batches`)
    what the topic or the disk refuse                 see `storage.append`, `storage.producers`

A transactional batch without a transactional id fails its request, as in Kafka, with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and batches of more than one producer with INVALID_PRODUCER_ID_MAPPING.
Where batches of a request would begin a transaction in their partitions the coordinator of that transaction
is asked first (`_verify_and_append`): whether they are part of it, or, from version 12 on, to add them.
Until it has answered nothing of the request is appended, and everything behind it on its connection waits.

The batch is a view of the frame and goes to the file as it is.  A request that waits lets go of it, and with
it of the frame.  What acks=1 needs is done in the first phase, without a future or a task.

What a request may take on the loop is bounded, though only opening a batch shows how long that takes.  One
small compressed batch is opened as it is appended.  If a request has more of them, or larger ones, they are
opened first, as far as QUICK_BYTES go; those that open to more are prepared beside the loop, before anything
of their request is appended, and everything behind it on its connection waits for that
(`PendingResponse.is_applied`).  Then all is looked up anew: the topic may be gone, led elsewhere or have
other rules, in which case the batch is prepared again.  If the client leaves meanwhile the append is done
all the same; if the request's time is over it is not; if the broker stops nothing is appended any more.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._batch_form import check_form
from distributedlog.broker.handlers._prepared_batches import Preparation, Prepared, Refusal
from distributedlog.broker.handlers._refused_batches import keep_order, note_refused
from distributedlog.broker.handlers._verification import VerifiedPartitions, make_produce_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import (
    CloseConnectionError,
    HandlerResponse,
    Order,
    handles,
)
from distributedlog.broker.net.error_responses import derive_error_response
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.peers.transaction_verifier import Purpose, Question, Verdicts
from distributedlog.broker.replicas.leaders import Leaders
from distributedlog.model.config import KIB, MIB
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DlogError,
    InvalidNameError,
    InvalidTimestampError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    RejectedRecordsError,
)
from distributedlog.model.internal_topics import INTERNAL_TOPICS
from distributedlog.ports.executor import Outcome
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
from distributedlog.records.batch import read_header
from distributedlog.records.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from distributedlog.replication.contract import ACKS_ALL
from distributedlog.replication.partition import Partition
from distributedlog.statemachine import Producer
from distributedlog.storage.append import Origin
from distributedlog.storage.timestamps import Steps

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
NO_OFFSET: Final = -1
TOPIC_IDS_SINCE: Final = 13
NAMES_LEADER_SINCE: Final = 10
ABORTABLE_SINCE: Final = 11
"""The version from which clients know TRANSACTION_ABORTABLE."""
ADDS_PARTITIONS_SINCE: Final = 12

SMALL_COMPRESSED_BYTES: Final = 16 * KIB
SMALL_BYTES: Final = 256 * KIB
QUICK_BYTES: Final = 2 * MIB
"""What may come of the batches of a request on the loop: about a millisecond."""

_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_STARTLESS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The errors with which Kafka does not say where the log starts; with any other that refuses a batch it
does."""

_CLIENT: Final = Origin.CLIENT
_FLAGS_AT: Final = ATTRIBUTES_AT + 1

Awaited = list[tuple[Partition, int]]


def _make_error_response(
    request: ProduceRequest, context: RequestContext, code: ErrorCode, text: str
) -> ProduceResponse:
    """Derives the response; with acks 0 there is none, and the connection is closed instead."""
    if request.acks == ACKS_NONE:
        raise CloseConnectionError(f"a produce with acks 0 came to {code.name}: {text}")
    response = derive_error_response(request, context.api_version, code, text)
    assert isinstance(response, ProduceResponse)
    return response


@handles(
    ProduceRequest,
    versions=(3, 13),
    advertised_from=0,
    error_response=_make_error_response,
    timeout_ms=lambda request: request.timeout_ms,
    order=Order.PIPELINED,
)
def produce(services: "Services", request: ProduceRequest, context: RequestContext) -> HandlerResponse:
    acks = request.acks
    if acks not in (ACKS_LEADER, ACKS_ALL, ACKS_NONE):
        text = f"acks is {acks}; it can be 0, 1 or -1"
        return _make_error_response(request, context, ErrorCode.INVALID_REQUIRED_ACKS, text)
    has_much_to_open, is_transactional = _survey(request)
    if is_transactional:
        return _verify_and_append(services, request, context, has_much_to_open)
    if has_much_to_open:
        return _prepare_and_append(services, request, context, Prepared())
    return _append_all(services, request, context, _NOTHING_PREPARED)


def _survey(request: ProduceRequest) -> tuple[bool, bool]:
    """Whether opening its batches may take longer than a request may take on the loop, and whether any is
    part of a transaction."""
    size = compressed = flags = 0
    has_large = False
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None and len(records) >= HEADER_BYTES:
                size += len(records)
                batch_flags = records[_FLAGS_AT]
                flags |= batch_flags
                if batch_flags & CODEC_MASK:
                    compressed += 1
                    has_large = has_large or len(records) > SMALL_COMPRESSED_BYTES
    return has_large or compressed > 1 or size > SMALL_BYTES, bool(flags & TRANSACTIONAL_BIT)


def _append_all(
    services: "Services",
    request: ProduceRequest,
    context: RequestContext,
    prepared: "Prepared",
    pending: PendingResponse | None = None,
) -> ProduceResponse | PendingResponse | None:
    """Appends what each partition takes; the response, or one that comes when all is committed: `pending` if
    there is one already."""
    acks, now_ms = request.acks, services.clock.wall_ms()
    topics: list[TopicProduceResponse] = []
    awaited: Awaited = []
    waiting: list[PartitionProduceResponse] = []
    failures = 0
    for topic in request.topic_data:
        responses: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            try:
                partition_response, partition, end_offset = _append(
                    services, topic, data, acks, now_ms, context, prepared
                )
            except DlogError as error:
                failures += 1
                responses.append(_make_failure(data.index, error))
                continue
            responses.append(partition_response)
            if partition_response.error_code:
                failures += 1
            elif acks == ACKS_ALL:
                awaited.append((partition, end_offset))
                waiting.append(partition_response)
        topics.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses)
        )
    response = ProduceResponse(responses=topics)
    if awaited and (pending is None or not pending.is_cancelled):
        pending = pending or PendingResponse()
        _wait_for_commit(services, request, context, response, pending, awaited, waiting, failures)
        return response if pending.is_decided else pending
    if failures:
        if acks == ACKS_NONE:
            raise CloseConnectionError(f"a produce with acks 0 was refused: {_find_first_error(response)}")
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
    prepared: "Prepared",
) -> tuple[PartitionProduceResponse, Partition, int]:
    """The response of a partition that took its batch, and the offset behind it; or that refused it."""
    index, records = data.index, data.records
    # The request may be kept while it waits; the frame, of which the records are a part, must not be.
    data.records = None
    partition = _find_partition(services, topic, index, context)
    name = partition.topic
    checked = check_form(records, context.api_version)
    try:
        keep_order(context.session, partition, checked)
        preparation = prepared.get(id(data)) if prepared else None
        if preparation is not None:
            checked = preparation.get_batch(partition)
        if prepared.verified is not None and prepared.verified.is_of_earlier_epoch(partition):
            _keep_order(partition, read_header(checked))
            raise NotEnoughReplicasError(f"{name}-{index} is led anew since its transaction was verified")
        base_offset, last_offset, append_time_ms, is_duplicate = partition.append(
            checked, acks, now_ms, _CLIENT, preparation is not None
        )
    except DlogError as error:
        note_refused(context.session, partition, checked, error)
        response = _make_failure(index, error)
        if error.code not in _STARTLESS:
            response.log_start_offset = partition.log.start_offset
        return response, partition, NO_OFFSET
    if not is_duplicate:
        services.metrics.produced(name, last_offset - base_offset + 1, len(checked))
    response = PartitionProduceResponse(
        index=index,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=partition.log.start_offset,
    )
    return response, partition, last_offset + 1


def _find_partition(
    services: "Services", topic: TopicProduceData, index: int, context: RequestContext
) -> Partition:
    """Finds the partition that is meant; DlogError if there is none, or none that clients may write."""
    partitions = services.partitions
    if context.api_version < TOPIC_IDS_SINCE:
        partition = partitions.get(topic.name, index) or partitions.require(topic.name, index)
    else:
        partition = partitions.require_by_id(topic.topic_id, index)
    if partition.topic in INTERNAL_TOPICS:
        raise InvalidNameError(f"{partition.topic} is written by the brokers alone")
    return partition


def _make_failure(index: int, error: DlogError) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=NO_OFFSET, error_message=str(error)
    )
    if isinstance(error, RejectedRecordsError | InvalidTimestampError):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=text)
            for at, text in error.records
        ]
    return response


def _find_first_error(response: ProduceResponse) -> str | None:
    responses = (each for topic in response.responses for each in topic.partition_responses)
    return next(each.error_message for each in responses if each.error_code)


def _name_leaders(services: "Services", context: RequestContext, response: ProduceResponse) -> None:
    """Names the leaders of partitions that are led elsewhere, where the version has a field for it."""
    version = context.api_version
    if version < NAMES_LEADER_SINCE:
        return
    leaders = Leaders(services.partitions, services.metadata.image, context.listener)
    for topic in response.responses:
        for partition_response in topic.partition_responses:
            if partition_response.error_code == _NOT_LEADER:
                key = topic.name if version < TOPIC_IDS_SINCE else topic.topic_id
                partition_response.current_leader = LeaderIdAndEpoch(
                    **leaders.of(key, partition_response.index)._asdict()
                )
    response.node_endpoints = [NodeEndpoint(**node._asdict()) for node in leaders.nodes.values()]


# --- batches that take long ---------------------------------------------------------------------


_NOTHING_PREPARED: Final = Prepared()


def _prepare_and_append(
    services: "Services",
    request: ProduceRequest,
    context: RequestContext,
    prepared: Prepared,
    pending: PendingResponse | None = None,
    has_much_to_open: bool = True,
) -> ProduceResponse | PendingResponse | None:
    """Prepares what takes long beside the loop, and then appends all of the request; `pending` is its
    response if it waited before."""
    first = list(_iterate_unprepared(services, request, context, prepared)) if has_much_to_open else []
    if not first:
        try:
            response = _append_all(services, request, context, prepared, pending)
        finally:
            prepared.close()
        if pending is not None:
            _settle(pending, response)
        return response
    waiting = pending or PendingResponse(is_applied=False)

    def done(outcome: Outcome[None]) -> None:
        waiting.on_cancel = None
        try:
            outcome.value()
            response = _append_all(services, request, context, prepared, waiting)
        except Exception as error:
            waiting.set_exception(error)
        else:
            _settle(waiting, response)
        prepared.close()

    steps = _prepare(services, request, context, prepared, first)
    work = services.preparations.submit(context.client_host, steps, done)
    if work is not None and not work.is_ended:

        def cancel() -> None:
            work.cancel()
            prepared.close()

        waiting.on_cancel = cancel
    return waiting


def _settle(pending: PendingResponse, response: ProduceResponse | PendingResponse | None) -> None:
    """All is appended: what waits is answered now, or when it is committed."""
    pending.set_applied()
    if not isinstance(response, PendingResponse) and not pending.is_decided:
        pending.set_result(response)


def _prepare(
    services: "Services",
    request: ProduceRequest,
    context: RequestContext,
    prepared: Prepared,
    unprepared: list[Preparation],
) -> Steps[None]:
    """Goes on until nothing is left to prepare: while one batch is prepared, rules of others may change."""
    while unprepared:
        yield from unprepared
        unprepared = list(_iterate_unprepared(services, request, context, prepared))


def _iterate_unprepared(
    services: "Services", request: ProduceRequest, context: RequestContext, prepared: Prepared
) -> Iterator[Preparation]:
    """Prepares what can be prepared at once, and yields the rest: all that takes long by the rules of now.
    What is refused anyway does not take long."""
    budget = QUICK_BYTES
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                partition = _find_partition(services, topic, data.index, context)
                partition.check_leader()
                batch = check_form(data.records, context.api_version)
            except DlogError:
                continue
            preparation = prepared.get(id(data))
            if preparation is not None and preparation.is_up_to_date(partition):
                continue
            prepared.pop(id(data), None)
            rules = partition.log.rules
            if rules.takes_long(batch):
                prepared[id(data)] = preparation = Preparation(batch, rules)
                left = preparation.try_quickly(budget)
                if left is None:
                    yield preparation
                budget = left or 0


# --- transactions -----------------------------------------------------------------------------


def _verify_and_append(
    services: "Services", request: ProduceRequest, context: RequestContext, has_much_to_open: bool
) -> HandlerResponse:
    """Asks the coordinator about partitions in which the request begins a transaction, and then appends."""
    go_on = partial(_prepare_and_append, services, request, context, has_much_to_open=has_much_to_open)
    if request.transactional_id is None:
        if not _has_transactional_batch(request):
            return go_on(Prepared())
        text = "a transactional batch without a transactional id"
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _make_error_response(request, context, code, text)
    purpose = _purpose_of(context)
    prepared = Prepared()
    unverified = []
    for data, partition, header in _iterate_unverified(services, request, context):
        if purpose is Purpose.ADD and header.base_sequence and _is_unknown(partition, header):
            prepared[id(data)] = Refusal(_out_of_order(partition, header))
        else:
            unverified.append((data, partition, header))
    producers = {Producer(header.producer_id, header.producer_epoch) for _, _, header in unverified}
    if len(producers) > 1:
        text = "transactional batches of more than one producer"
        return _make_error_response(request, context, ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
    if not unverified:
        return go_on(prepared)
    verified = prepared.verified = VerifiedPartitions(*producers)
    for _, partition, _ in unverified:
        verified.add(partition)
    pending = PendingResponse(is_applied=False)

    def answered(verdicts: Verdicts) -> None:
        if pending.on_cancel is None:
            return  # nobody waits for it any more, and nothing is appended
        pending.on_cancel = None
        refused = dict(verified.take(verdicts))
        for data, partition, header in unverified:
            if partition in refused:
                error = make_produce_error(refused[partition], purpose)
                prepared[id(data)] = Refusal(error)
                if isinstance(error, NotEnoughReplicasError):  # which is sent again
                    _keep_order(partition, header)
        try:
            go_on(prepared, pending)
        except Exception as error:
            pending.set_exception(error)

    def give_up() -> None:
        verified.release()
        for _, partition, header in unverified:
            _keep_order(partition, header)

    pending.on_cancel = give_up
    question = Question(request.transactional_id, *verified.producer, purpose, verified.keys)
    services.transaction_verifier.ask(question, answered)
    return pending


def _has_transactional_batch(request: ProduceRequest) -> bool:
    """Whether any batch is part of a transaction: the bit alone says so also in bytes that are no batch."""
    return any(
        data.records is not None
        and len(data.records) >= HEADER_BYTES
        and data.records[MAGIC_AT] == MAGIC
        and data.records[_FLAGS_AT] & TRANSACTIONAL_BIT
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _keep_order(partition: Partition, header: BatchHeader) -> None:
    partition.verifications.refuse(header.producer_id, header.producer_epoch, header.base_sequence)


def _purpose_of(context: RequestContext) -> Purpose:
    if context.api_version >= ADDS_PARTITIONS_SINCE:
        return Purpose.ADD
    return Purpose.VERIFY_ABORTABLE if context.api_version >= ABORTABLE_SINCE else Purpose.VERIFY


def _iterate_unverified(
    services: "Services", request: ProduceRequest, context: RequestContext
) -> Iterator[tuple[PartitionProduceData, Partition, BatchHeader]]:
    """Yields what would begin a transaction; neither what goes on with one, nor what is refused anyway, nor
    what stands in the log already."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                partition = _find_partition(services, topic, data.index, context)
                partition.check_leader()
                batch = check_form(data.records, context.api_version)
                if not batch[_FLAGS_AT] & TRANSACTIONAL_BIT:
                    continue
                header = read_header(batch)
                producer = Producer(header.producer_id, header.producer_epoch)
                is_new = partition.log.producers.check(header, origin=_CLIENT) is None
            except DlogError:
                continue
            if is_new and not partition.has_open_transaction(*producer):
                yield data, partition, header


def _is_unknown(partition: Partition, header: BatchHeader) -> bool:
    return partition.log.producers.get(header.producer_id) is None


def _out_of_order(partition: Partition, header: BatchHeader) -> OutOfOrderSequenceError:
    """Where every transaction has an epoch of its own, sequences begin at 0: what comes before was refused,
    or is on its way."""
    return OutOfOrderSequenceError(
        f"{partition.key} knows nothing of producer {header.producer_id}: it begins with sequence 0, not "
        f"{header.base_sequence}"
    )


# --- acks=all ----------------------------------------------------------------------------------


def _wait_for_commit(
    services: "Services",
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    pending: PendingResponse,
    awaited: Awaited,
    waiting: list[PartitionProduceResponse],
    failures: int,
) -> None:
    """Decides `pending` once it is known of every partition whether its batch is committed; perhaps now."""

    def done(codes: list[ErrorCode]) -> None:
        if failures or any(codes):
            for partition_response, code in zip(waiting, codes, strict=True):
                partition_response.error_code = code
            _name_leaders(services, context, response)
        pending.set_result(response)

    operation = services.purgatory.add_produce(awaited, request.timeout_ms, done)
    if operation is not None:
        pending.on_cancel = partial(services.purgatory.cancel, operation)
