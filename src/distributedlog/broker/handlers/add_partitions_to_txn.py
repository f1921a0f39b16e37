"""AddPartitionsToTxn: partitions become part of a transaction, or are verified to be.

    versions 0 to 3   a client, for one transaction: all of its partitions are added, or none
    versions 4 and 5  brokers that lead partitions, for many transactions at once: to verify that a partition
                      was added, or to add it for a client that does not do so itself (KIP-890); only from
                      brokers that have proved it

| a partition                                | the response has for it                                   |
|--------------------------------------------|-----------------------------------------------------------|
| is not there                               | UNKNOWN_TOPIC_OR_PARTITION                                |
| of an internal topic                       | INVALID_TOPIC_EXCEPTION; brokers may add those of offsets |
| is fine, but another one of it is not      | OPERATION_NOT_ATTEMPTED                                   |
| verified, and not part of the transaction  | TRANSACTION_ABORTABLE                                     |

That a partition is there is checked before it is added, by this broker's own image: so a coordinator that
later finds it gone knows that it was deleted, and needs no marker.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.broker.handlers._transactions import gather, submit, to_transaction_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.controller.image import MetadataImage
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import ClusterAuthorizationError, DlogError, ProducerFencedError
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from distributedlog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from distributedlog.statemachine import Producer
from distributedlog.transactions.requests import AddRequest, Reply, VerifyReply, VerifyRequest
from distributedlog.transactions.transaction import VERSION_CLASSIC, VERSION_EPOCH_PER_TRANSACTION

if TYPE_CHECKING:
    import asyncio

    from distributedlog.broker.services import Services

FENCED_SINCE: Final = 2
OF_BROKERS_SINCE: Final = 4

Errors = dict[TopicPartition, ErrorCode]


class _Asked(NamedTuple):
    """One transaction of a request: refused here, or submitted."""

    transactional_id: str
    partitions: tuple[TopicPartition, ...]
    errors: Errors
    submitted: "asyncio.Future[Reply] | None"


def _make_error_response(
    request: AddPartitionsToTxnRequest, context: RequestContext, code: ErrorCode, text: str
) -> AddPartitionsToTxnResponse:
    """Makes the response to a request that failed as a whole: clients hear it for each partition, in fields
    whose names no rule could guess."""
    if context.api_version >= OF_BROKERS_SINCE:
        return AddPartitionsToTxnResponse(error_code=code)
    errors = dict.fromkeys(_list_partitions(request.v3_and_below_topics), code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(errors))


@handles(
    AddPartitionsToTxnRequest,
    versions=(0, 5),
    error_response=_make_error_response,
    to_error_code=to_transaction_error,
)
def add_partitions_to_txn(
    services: "Services", request: AddPartitionsToTxnRequest, context: RequestContext
) -> HandlerResponse:
    if context.api_version < OF_BROKERS_SINCE:
        only = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return _respond([_begin(services, only, context)], context)
    if context.broker is None:
        raise ClusterAuthorizationError("only brokers ask for the transactions of others")
    return _respond([_begin(services, each, context) for each in request.transactions], context)


def _begin(services: "Services", wanted: AddPartitionsToTxnTransaction, context: RequestContext) -> _Asked:
    partitions = tuple(_list_partitions(wanted.topics))
    producer = Producer(wanted.producer_id, wanted.producer_epoch)
    names = frozenset(partitions)
    is_broker = context.api_version >= OF_BROKERS_SINCE
    request: AddRequest | VerifyRequest
    if wanted.verify_only:
        request = VerifyRequest(wanted.transactional_id, producer, names)
    else:
        errors = _check_partitions(services.metadata.image, partitions, is_broker)
        if errors:
            for each in partitions:
                errors.setdefault(each, ErrorCode.OPERATION_NOT_ATTEMPTED)
            return _Asked(wanted.transactional_id, partitions, errors, None)
        version = VERSION_EPOCH_PER_TRANSACTION if is_broker else VERSION_CLASSIC
        request = AddRequest(wanted.transactional_id, producer, names, version)
    future = submit(services, context, wanted.transactional_id, request)
    return _Asked(wanted.transactional_id, partitions, {}, future)


def _list_partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[TopicPartition]:
    return dict.fromkeys(TopicPartition(topic.name, each) for topic in topics for each in topic.partitions)


def _check_partitions(image: MetadataImage, partitions: Iterable[TopicPartition], is_broker: bool) -> Errors:
    errors: Errors = {}
    for name, named in groupby(partitions, key=itemgetter(0)):
        topic = image.topic_named(name)
        for each in named:
            if name in INTERNAL_TOPICS and not (is_broker and name == OFFSETS_TOPIC):
                errors[each] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif topic is None or each.partition not in topic.partitions:
                errors[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return errors


# --- the response ------------------------------------------------------------------------------


async def _respond(asked: list[_Asked], context: RequestContext) -> AddPartitionsToTxnResponse:
    replies = iter(await gather([each.submitted for each in asked if each.submitted is not None]))
    results = []
    for each in asked:
        errors = each.errors
        if each.submitted is not None:
            errors = _read_errors(each, next(replies), context)
        results.append(
            AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=_by_topic(errors))
        )
    if context.api_version < OF_BROKERS_SINCE:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _read_errors(asked: _Asked, reply: Reply | DlogError, context: RequestContext) -> Errors:
    if isinstance(reply, VerifyReply):
        return dict(reply.errors)
    code = ErrorCode.NONE
    if isinstance(reply, ProducerFencedError) and context.api_version < FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif isinstance(reply, DlogError):
        code = to_transaction_error(reply.code)
    return dict.fromkeys(asked.partitions, code)


def _by_topic(errors: Errors) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, partition), code in errors.items():
        found = AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code)
        topics.setdefault(topic, []).append(found)
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=found) for name, found in topics.items()
    ]
