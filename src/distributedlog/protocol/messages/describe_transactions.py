"""DescribeTransactions (65): the state of transactions by their id.

Version 0, flexible.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, INT64, STRING, array
from distributedlog.protocol.schema import Message, Struct, field


class DescribeTransactionsRequest(
    Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible_since=0
):
    transactional_ids: list[str] = field(array(STRING))


class TopicData(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class TransactionState(Struct):
    error_code: int = field(INT16, default=0)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: list[TopicData] = field(array(TopicData))


class DescribeTransactionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible_since=0
):
    throttle_time_ms: int = field(INT32, default=0)
    transaction_states: list[TransactionState] = field(array(TransactionState))
