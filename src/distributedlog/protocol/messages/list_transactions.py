"""ListTransactions (66): the transactions a broker coordinates.

Versions 0 to 2, all flexible.  1 filters by duration, 2 by a pattern of ids.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, INT64, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class ListTransactionsRequest(Message, api_key=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible_since=0):
    state_filters: list[str] = field(array(STRING))
    producer_id_filters: list[int] = field(array(INT64))
    duration_filter: int = field(INT64, since=1, default=-1)
    transactional_id_pattern: str | None = field(nullable(STRING), since=2, default=None)


class TransactionState(Struct):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


class ListTransactionsResponse(Message, api_key=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    unknown_state_filters: list[str] = field(array(STRING))
    transaction_states: list[TransactionState] = field(array(TransactionState))
