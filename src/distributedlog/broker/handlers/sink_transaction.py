"""SinkTransaction: what the exactly-once sink of Spark asks for, an API of our own.

A token comes from the controller, so that it rises cluster-wide; everything else is the coordinator's of the
query's transactional id (`transactions/sinks`).  Whoever joins with a higher token fences all before, so one
that the controller has never given out is refused: it would fence a query for good.  What was given out is
below the metadata image's next producer id, or, where the image may be behind, below a token taken now.

| what a sink is told                                    | by                                      |
|--------------------------------------------------------|-----------------------------------------|
| another driver goes on with the query; or the batch    | PRODUCER_FENCED                         |
| was aborted under this token                           |                                         |
| the batch is committed: write nothing                  | `is_skipped`                            |
| the checkpoint is older than the sink; nobody joined;  | INVALID_TXN_STATE                       |
| a winner is none, and all is aborted                   |                                         |
| the token was never given out                          | INVALID_REQUEST                         |
| a batch before is being ended                          | CONCURRENT_TRANSACTIONS: ask again      |
| the coordinator is elsewhere, or loading               | as for every coordinator: ask again     |
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._transactions import submit, to_transaction_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import RequestError, handles
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidRequestError
from distributedlog.protocol.messages.sink_transaction import (
    SinkAttempt,
    SinkOperation,
    SinkTransactionRequest,
    SinkTransactionResponse,
)
from distributedlog.protocol.schema import Message
from distributedlog.statemachine import Producer
from distributedlog.transactions.sinks.query import sink_id_of
from distributedlog.transactions.sinks.records import group_by_topic
from distributedlog.transactions.sinks.requests import (
    SinkAbort,
    SinkDescribe,
    SinkDescription,
    SinkEnd,
    SinkHeartbeat,
    SinkJoin,
    SinkJoined,
    SinkRequest,
    SinkSkipped,
)

if TYPE_CHECKING:
    import asyncio

    from distributedlog.broker.services import Services
    from distributedlog.transactions.requests import Reply

WINNERS_MAX: Final = 10_000


@handles(SinkTransactionRequest, versions=(0, 0), to_error_code=to_transaction_error)
def sink_transaction(
    services: "Services", request: SinkTransactionRequest, context: RequestContext
) -> Awaitable[Message] | Message:
    if request.operation == SinkOperation.TOKEN:
        return _give_token(services, request)
    sink_id, read = sink_id_of(request.query_id), _read_request(request)
    if isinstance(read, SinkJoin) and read.token >= services.metadata.image.next_producer_id:
        return _join_by_later_token(services, context, sink_id, read)
    return _respond(sink_id, submit(services, context, sink_id, read))


async def _give_token(services: "Services", request: SinkTransactionRequest) -> SinkTransactionResponse:
    token = await _new_token(services)
    return SinkTransactionResponse(token=token, transactional_id=sink_id_of(request.query_id), attempts=[])


async def _new_token(services: "Services") -> int:
    try:
        return await services.producer_ids.new_token()
    except DlogError as error:
        raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error


async def _join_by_later_token(
    services: "Services", context: RequestContext, sink_id: str, join: SinkJoin
) -> SinkTransactionResponse:
    """The token is later than all that our image knows of: it is new, or made up."""
    if join.token >= await _new_token(services):
        raise InvalidRequestError(f"the token {join.token} was never given out: ask for one")
    return await _respond(sink_id, submit(services, context, sink_id, join))


def _read_request(request: SinkTransactionRequest) -> SinkRequest:
    query_id, token, batch_id = request.query_id, request.token, request.batch_id
    match request.operation:
        case SinkOperation.JOIN:
            return SinkJoin(query_id, token, batch_id, request.attempt_id, request.timeout_ms)
        case SinkOperation.HEARTBEAT:
            return SinkHeartbeat(query_id, token, batch_id)
        case SinkOperation.END:
            return SinkEnd(query_id, token, batch_id, _read_winners(request))
        case SinkOperation.ABORT:
            return SinkAbort(query_id, token)
        case SinkOperation.DESCRIBE:
            return SinkDescribe(query_id)
    raise InvalidRequestError(f"there is no operation {request.operation}")


def _read_winners(request: SinkTransactionRequest) -> frozenset[Producer]:
    if len(request.winners) > WINNERS_MAX:
        raise InvalidRequestError(f"a batch has at most {WINNERS_MAX} winners, not {len(request.winners)}")
    winners = frozenset(Producer(each.producer_id, each.producer_epoch) for each in request.winners)
    if len({each.producer_id for each in winners}) < len(request.winners):
        raise InvalidRequestError("a producer id is named twice among the winners")
    return winners


async def _respond(sink_id: str, future: "asyncio.Future[Reply]") -> SinkTransactionResponse:
    reply = await future
    response = SinkTransactionResponse(transactional_id=sink_id, attempts=[])
    match reply:
        case SinkJoined():
            response.producer_id, response.producer_epoch = reply.producer
        case SinkSkipped():
            response.is_skipped = True
        case SinkDescription():
            _describe(reply, response)
    return response


def _describe(found: SinkDescription, response: SinkTransactionResponse) -> None:
    query = found.query
    response.token = query.token
    response.state = query.state.label
    response.batch_id = query.batch_id
    response.committed_batch_id = query.committed_batch_id
    response.timeout_ms = query.timeout_ms
    response.start_timestamp_ms = query.start_ms
    response.pooled_count = found.pooled_count
    response.attempts = [
        SinkAttempt(
            producer_id=each.producer.producer_id,
            producer_epoch=each.producer.producer_epoch,
            attempt_id=each.attempt_id,
            partitions=group_by_topic(each.partitions),
        )
        for each in found.attempts
    ]
