"""ListTransactions: the transactional ids that this broker coordinates.

Filters by states (names that are none are said back), by producer ids, by how long a transaction is open, and
by a pattern of RE2 that the whole id matches.  While a partition is being read back the list would not be
complete, and the response is COORDINATOR_LOAD_IN_PROGRESS.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._transactions import FutureReply, gather, to_transaction_error
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.groups.consumer.patterns import compile_pattern
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from distributedlog.transactions.requests import ListReply, ListRequest, Reply
from distributedlog.transactions.transaction import TransactionState as State

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

_STATES: Final = {state.label: state for state in State}
_NEVER: Final = frozenset({"Dead", "PrepareEpochFence"})
"""States that Kafka has and that no transaction is seen in, here and there."""


@handles(ListTransactionsRequest, versions=(0, 2), to_error_code=to_transaction_error)
async def list_transactions(
    services: "Services", request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    pattern = compile_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    known = frozenset(_STATES[name] for name in request.state_filters if name in _STATES)
    unknown = [name for name in request.state_filters if name not in _STATES and name not in _NEVER]
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if services.transactions.is_loading else ErrorCode.NONE
    found: list[TransactionState] = []
    if known or not request.state_filters:
        wanted = ListRequest(known, frozenset(request.producer_id_filters), request.duration_filter)
        for reply in await _list_all(services, context, wanted):
            if isinstance(reply, DlogError):
                error = to_transaction_error(reply.code)
                continue
            assert isinstance(reply, ListReply)
            found += [
                TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.label,
                )
                for each in reply.transactions
                if pattern is None or pattern.fullmatch(each.transactional_id)
            ]
    if error is not ErrorCode.NONE:
        found = []
    return ListTransactionsResponse(error_code=error, unknown_state_filters=unknown, transaction_states=found)


async def _list_all(
    services: "Services", context: RequestContext, wanted: ListRequest
) -> list[Reply | DlogError]:
    futures = []
    for coordinator in services.transactions.all_active():
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        coordinator.submit(wanted, context.deadline_ms, FutureReply(future))
        futures.append(future)
    return await gather(futures)
