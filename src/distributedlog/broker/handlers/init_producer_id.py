"""InitProducerId: an id and the epoch 0 for an idempotent producer.

A producer that is only idempotent gets a new id each time: nothing connects it with an earlier one, so an id
and epoch that it names are checked to be a pair and otherwise not looked at.

If there is no id to be had right now, the response is COORDINATOR_LOAD_IN_PROGRESS, as in Kafka: clients of
all kinds try again on it, and give up on most other codes.

Transactions are not served yet: a transactional id is refused for good, with the error and for the reason of
`find_coordinator`.
"""

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from distributedlog.broker.handlers.find_coordinator import NO_TRANSACTIONS
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import RequestError, handles
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

logger = logging.getLogger(__name__)

NONE = -1


@handles(InitProducerIdRequest, versions=(0, 5))
def init_producer_id(
    services: "Services", request: InitProducerIdRequest, context: RequestContext
) -> Awaitable[Message] | Message:
    if (request.producer_id == NONE) is not (request.producer_epoch == NONE):
        raise RequestError(ErrorCode.INVALID_REQUEST, "an id without an epoch, or the reverse")
    if request.transactional_id is None:
        return _allocate_producer_id(services, request, context)
    if not request.transactional_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    raise RequestError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)


async def _allocate_producer_id(
    services: "Services", request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    try:
        producer_id, epoch = await services.producer_ids.new_producer()
    except DlogError as error:
        logger.debug("no producer id could be had: %s", error)
        raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
