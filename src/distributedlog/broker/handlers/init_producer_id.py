"""InitProducerId: an id and the epoch 0 for an idempotent producer.

A producer that is only idempotent gets a new id each time: nothing connects it with an earlier one, so an id
and epoch that it names are checked to be a pair and otherwise not looked at.

If there is no id to be had right now, the answer is COORDINATOR_LOAD_IN_PROGRESS, as in Kafka: clients of all
kinds try again on it, and give up on most other codes.

A transactional id has a coordinator, which only FindCoordinator can name; as long as there is none, both say
COORDINATOR_NOT_AVAILABLE, on which clients ask again until their own timeout.
"""

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

logger = logging.getLogger(__name__)

NONE = -1


def _refuse(
    request: InitProducerIdRequest, context: RequestContext, code: ErrorCode, text: str
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)


@handles(InitProducerIdRequest, versions=(0, 5), refuse=_refuse)
def init_producer_id(
    services: "Services", request: InitProducerIdRequest, context: RequestContext
) -> Awaitable[Message] | Message:
    if (request.producer_id == NONE) is not (request.producer_epoch == NONE):
        return _refuse(request, context, ErrorCode.INVALID_REQUEST, "an id without an epoch, or the reverse")
    if request.transactional_id is None:
        return _new_producer(services, request, context)
    if not request.transactional_id:
        return _refuse(request, context, ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    return _refuse(request, context, ErrorCode.COORDINATOR_NOT_AVAILABLE, "it has no coordinator")


async def _new_producer(
    services: "Services", request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    try:
        producer_id, epoch = await services.producer_ids.new_producer()
    except DlogError as error:
        logger.debug("no producer id could be had: %s", error)
        return _refuse(request, context, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
