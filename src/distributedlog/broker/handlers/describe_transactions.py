"""DescribeTransactions: the state of each transactional id, by its coordinator."""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._transactions import gather, submit, to_transaction_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from distributedlog.transactions.requests import DescribeReply, DescribeRequest, Reply

if TYPE_CHECKING:
    import asyncio

    from distributedlog.broker.services import Services


@handles(DescribeTransactionsRequest, versions=(0, 0))
def describe_transactions(
    services: "Services", request: DescribeTransactionsRequest, context: RequestContext
) -> HandlerResponse:
    ids = list(dict.fromkeys(request.transactional_ids))
    return _respond(ids, [submit(services, context, each, DescribeRequest(each)) for each in ids])


async def _respond(ids: list[str], futures: "list[asyncio.Future[Reply]]") -> DescribeTransactionsResponse:
    replies = await gather(futures)
    return DescribeTransactionsResponse(
        transaction_states=[_describe(*each) for each in zip(ids, replies, strict=True)]
    )


def _describe(transactional_id: str, reply: Reply | DlogError) -> TransactionState:
    if isinstance(reply, DlogError):
        return TransactionState(
            error_code=to_transaction_error(reply.code),
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    assert isinstance(reply, DescribeReply)
    found = reply.transaction
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(found.partitions):
        topics.setdefault(topic, []).append(partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
