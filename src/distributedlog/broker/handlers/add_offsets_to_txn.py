"""AddOffsetsToTxn: the offsets of a group are committed with a transaction.

It adds the partition of `__consumer_offsets` that keeps the group; that is made first if it is not there: the
offsets may be the first that anybody commits.
"""

from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._coordinator_topics import create_coordinator_topic
from distributedlog.broker.handlers._transactions import expect, submit, to_transaction_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.groups.placement import partition_of
from distributedlog.model.errors import CoordinatorNotAvailableError, InvalidGroupIdError
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from distributedlog.statemachine import Producer
from distributedlog.transactions.requests import AddRequest

if TYPE_CHECKING:
    import asyncio

    from distributedlog.broker.services import Services
    from distributedlog.transactions.requests import Reply

FENCED_SINCE: Final = 2


@handles(AddOffsetsToTxnRequest, versions=(0, 4), to_error_code=to_transaction_error)
def add_offsets_to_txn(
    services: "Services", request: AddOffsetsToTxnRequest, context: RequestContext
) -> HandlerResponse:
    if not request.group_id:
        raise InvalidGroupIdError("a group needs a name")
    if services.metadata.image.topic_named(OFFSETS_TOPIC) is None:
        return _create_and_add(services, request, context)
    return _respond(_submit(services, request, context), context)


async def _create_and_add(
    services: "Services", request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    await create_coordinator_topic(services, context, OFFSETS_TOPIC)
    return await _respond(_submit(services, request, context), context)


def _submit(
    services: "Services", request: AddOffsetsToTxnRequest, context: RequestContext
) -> "asyncio.Future[Reply]":
    topic = services.metadata.image.topic_named(OFFSETS_TOPIC)
    if topic is None:
        raise CoordinatorNotAvailableError(f"the topic {OFFSETS_TOPIC} is not there yet")
    partition = TopicPartition(OFFSETS_TOPIC, partition_of(request.group_id, len(topic.partitions)))
    producer = Producer(request.producer_id, request.producer_epoch)
    submitted = AddRequest(request.transactional_id, producer, frozenset({partition}))
    return submit(services, context, request.transactional_id, submitted)


async def _respond(future: "asyncio.Future[Reply]", context: RequestContext) -> AddOffsetsToTxnResponse:
    await expect(future, type(None), context, knows_fenced_since=FENCED_SINCE)
    return AddOffsetsToTxnResponse()
