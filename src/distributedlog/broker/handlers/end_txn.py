"""EndTxn: a producer commits or aborts its transaction.

The response leaves when the decision is committed; markers are written after that.  From version 5 on, which
clients use where the feature `transaction.version` is 2, every end raises the producer's epoch, and the
response says which id and epoch to go on with (KIP-890).
"""

from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._transactions import expect, submit, to_transaction_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from distributedlog.statemachine import Producer
from distributedlog.transactions.requests import EndRequest, ProducerReply
from distributedlog.transactions.transaction import VERSION_CLASSIC, VERSION_EPOCH_PER_TRANSACTION

if TYPE_CHECKING:
    import asyncio

    from distributedlog.broker.services import Services
    from distributedlog.transactions.requests import Reply

FENCED_SINCE: Final = 2
RAISES_EPOCH_SINCE: Final = 5


@handles(EndTxnRequest, versions=(0, 5), to_error_code=to_transaction_error)
def end_txn(services: "Services", request: EndTxnRequest, context: RequestContext) -> HandlerResponse:
    raises_epoch = context.api_version >= RAISES_EPOCH_SINCE
    submitted = EndRequest(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        request.committed,
        VERSION_EPOCH_PER_TRANSACTION if raises_epoch else VERSION_CLASSIC,
    )
    return _respond(submit(services, context, request.transactional_id, submitted), context)


async def _respond(future: "asyncio.Future[Reply]", context: RequestContext) -> EndTxnResponse:
    reply = await expect(future, ProducerReply, context, knows_fenced_since=FENCED_SINCE)
    if context.api_version < RAISES_EPOCH_SINCE:
        return EndTxnResponse()
    return EndTxnResponse(
        producer_id=reply.producer.producer_id, producer_epoch=reply.producer.producer_epoch
    )
