"""TxnOffsetCommit: commits offsets of a group as part of a transaction; they count once that is committed.

Partitions that are not there are refused one by one.  The others are pending together
(`groups.offset_manager`), after the transaction coordinator has confirmed that the group's partition of
`__consumer_offsets` takes part in the transaction, unless offsets of it are pending there already.

    versions   who says so                                   an unconfirmed one is answered with
    0 to 3     the client, by AddOffsetsToTxn, before        INVALID_TXN_STATE
    4          the same                                      TRANSACTION_ABORTABLE
    5          nobody: it is added by this very request      the same

An error of the group, the member or the transaction is that of every partition.  Generations and member ids
are in the request from version 3 on: a consumer that lost its partitions cannot commit for them any more,
whoever its producer is (KIP-447).
"""

from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._groups import respond, submit, to_group_error
from distributedlog.broker.handlers._verification import VerifiedPartitions, make_group_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, Order, RequestError, handles
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.peers.transaction_verifier import Purpose, Question, Verdicts
from distributedlog.groups.placement import partition_of
from distributedlog.groups.requests import (
    CommitReply,
    CommitRequest,
    CommittedOffset,
    TransactionalCommitRequest,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    CoordinatorNotAvailableError,
    DlogError,
    InvalidGroupIdError,
    LoadInProgressError,
    NotCoordinatorError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from distributedlog.protocol.schema import Message
from distributedlog.replication.partition import Partition
from distributedlog.statemachine import Producer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

    from distributedlog.broker.services import Services

ABORTABLE_SINCE: Final = 4
ADDS_SINCE: Final = 5


@handles(TxnOffsetCommitRequest, versions=(0, 5), to_error_code=to_group_error, order=Order.PIPELINED)
def txn_offset_commit(
    services: "Services", request: TxnOffsetCommitRequest, context: RequestContext
) -> HandlerResponse:
    if not request.transactional_id or request.producer_id < 0 or request.producer_epoch < 0:
        raise RequestError(ErrorCode.INVALID_REQUEST, "a transaction has a transactional id, and a producer")
    if not request.group_id:
        raise InvalidGroupIdError("a group needs a name")
    partition = _find_partition(services, request.group_id)
    producer = Producer(request.producer_id, request.producer_epoch)
    if partition.has_open_transaction(*producer):
        return _commit(services, request, context)
    verified = VerifiedPartitions(producer)
    verified.add(partition)
    pending = PendingResponse(is_applied=False)
    is_given_up = False

    def give_up() -> None:
        nonlocal is_given_up
        is_given_up = True
        verified.release()

    def answered(verdicts: Verdicts) -> None:
        if is_given_up:
            return
        pending.on_cancel = None
        try:
            for _, code in verified.take(verdicts):
                raise make_group_error(code)
            if verified.is_of_earlier_epoch(partition):
                raise LoadInProgressError(f"{partition.key} is led anew since the transaction was verified")
            response = _commit(services, request, context)
        except DlogError as error:
            pending.set_exception(error)
        else:
            pending.set_applied()
            _settle(pending, response)
        finally:
            verified.release()

    pending.on_cancel = give_up
    question = Question(request.transactional_id, *producer, _purpose_of(context), verified.keys)
    services.transaction_verifier.ask(question, answered)
    return pending


def _purpose_of(context: RequestContext) -> Purpose:
    if context.api_version >= ADDS_SINCE:
        return Purpose.ADD
    return Purpose.VERIFY_ABORTABLE if context.api_version >= ABORTABLE_SINCE else Purpose.VERIFY


def _find_partition(services: "Services", group_id: str) -> Partition:
    """Finds the partition of the group, if this broker leads it."""
    topic = services.metadata.image.topic_named(OFFSETS_TOPIC)
    if topic is None:
        raise CoordinatorNotAvailableError(f"there is no topic {OFFSETS_TOPIC} yet")
    at = partition_of(group_id, len(topic.partitions))
    partition = services.partitions.get(OFFSETS_TOPIC, at)
    if partition is not None and partition.is_leader:
        return partition
    if topic.partitions[at].leader == services.settings.node_id:  # its log is still being made
        raise LoadInProgressError(f"the coordinator of group {group_id!r} is being made")
    raise NotCoordinatorError(f"this broker does not coordinate group {group_id!r}")


def _settle(pending: PendingResponse, response: "Message | Awaitable[Message | None]") -> None:
    if isinstance(response, Message):
        pending.set_result(response)
        return
    future: asyncio.Future[Message | None] = response  # type: ignore[assignment]
    pending.follow(future)


# --- what is confirmed -------------------------------------------------------------------------


def _commit(
    services: "Services", request: TxnOffsetCommitRequest, context: RequestContext
) -> "Message | Awaitable[Message | None]":
    offsets: list[CommittedOffset] = []
    absent: set[tuple[str, int]] = set()
    for topic in request.topics:
        known = services.metadata.image.topic_named(topic.name)
        for each in topic.partitions:
            if known is None or each.partition_index not in known.partitions:
                absent.add((topic.name, each.partition_index))
                continue
            key = TopicPartition(topic.name, each.partition_index)
            metadata = each.committed_metadata or ""
            offsets.append(CommittedOffset(key, each.committed_offset, each.committed_leader_epoch, metadata))
    commit = CommitRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        tuple(offsets),
    )
    submitted = TransactionalCommitRequest(commit, Producer(request.producer_id, request.producer_epoch))

    def make(reply: CommitReply) -> TxnOffsetCommitResponse:
        return _make_response(request, reply, absent)

    response = respond(submit(services, context, request.group_id, submitted), CommitReply, make)
    assert response is not None
    assert not isinstance(response, PendingResponse)
    return response


def _make_response(
    request: TxnOffsetCommitRequest, reply: CommitReply, absent: set[tuple[str, int]]
) -> TxnOffsetCommitResponse:
    codes = iter(reply.errors)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        if (topic.name, each.partition_index) in absent
                        else next(codes),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
