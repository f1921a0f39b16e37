"""InitProducerId: a producer id and an epoch.

A producer that is only idempotent gets a new id each time, and epoch 0: nothing connects it with an earlier
one, so an id and epoch that it names are checked to be a pair and otherwise not looked at.  If there is no id
to be had right now, the response is COORDINATOR_LOAD_IN_PROGRESS, as in Kafka: clients of all kinds try again
on it, and give up on most other codes.

A transactional producer asks the coordinator of its transactional id, which keeps its producer id and raises
the epoch, so that others that had the id are fenced (`transactions/producers`).  Two-phase commit with
prepared transactions that are kept (KIP-939) is refused: its version is not advertised.
"""

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._transactions import expect, submit, to_transaction_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import RequestError, handles
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.schema import Message
from distributedlog.statemachine import Producer
from distributedlog.transactions.config import check_timeout
from distributedlog.transactions.requests import InitRequest, ProducerReply

if TYPE_CHECKING:
    import asyncio

    from distributedlog.broker.services import Services
    from distributedlog.transactions.requests import Reply

logger = logging.getLogger(__name__)

NONE = -1
FENCED_SINCE: Final = 4


@handles(InitProducerIdRequest, versions=(0, 5), to_error_code=to_transaction_error)
def init_producer_id(
    services: "Services", request: InitProducerIdRequest, context: RequestContext
) -> Awaitable[Message] | Message:
    if (request.producer_id == NONE) is not (request.producer_epoch == NONE):
        raise RequestError(ErrorCode.INVALID_REQUEST, "an id without an epoch, or the reverse")
    if request.transactional_id is None:
        return _allocate_producer_id(services, request, context)
    if not request.transactional_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if request.enable2_pc or request.keep_prepared_txn:
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, "transactions are not kept prepared (KIP-939)")
    check_timeout(request.transaction_timeout_ms, services.settings.transaction_timeout_ms_max)
    expected = None
    if request.producer_id != NONE:
        expected = Producer(request.producer_id, request.producer_epoch)
    submitted = InitRequest(request.transactional_id, request.transaction_timeout_ms, expected)
    return _respond(submit(services, context, request.transactional_id, submitted), context)


async def _respond(future: "asyncio.Future[Reply]", context: RequestContext) -> InitProducerIdResponse:
    reply = await expect(future, ProducerReply, context, knows_fenced_since=FENCED_SINCE)
    return InitProducerIdResponse(
        producer_id=reply.producer.producer_id, producer_epoch=reply.producer.producer_epoch
    )


async def _allocate_producer_id(
    services: "Services", request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    try:
        producer_id, epoch = await services.producer_ids.new_producer()
    except DlogError as error:
        logger.debug("no producer id could be had: %s", error)
        raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
