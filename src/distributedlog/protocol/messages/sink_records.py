"""The records of sinks in `__transaction_state`: of a query, and of each producer id in its pool.

Keys of version 1000 and 1001, numbers that Kafka has no kind of record for: its brokers and tools pass them
over.  Values of version 0, flexible.  Null deletes a producer id, and a query that nobody goes on with.
"""

from distributedlog.protocol.kinds import INT8, INT16, INT32, INT64, STRING, array
from distributedlog.protocol.messages.transaction_records import PartitionsOfTopic
from distributedlog.protocol.schema import Message, Struct, field


class SinkQueryKey(Message, versions=(1000, 1000)):
    query_id: str = field(STRING)


class SinkLeaseKey(Message, versions=(1001, 1001)):
    query_id: str = field(STRING)
    producer_id: int = field(INT64)


class SinkWinner(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)


class SinkQueryValue(Message, versions=(0, 0), flexible_since=0):
    token: int = field(INT64)
    """The highest token that was seen."""
    batch_token: int = field(INT64)
    """The token of the batch."""
    batch_id: int = field(INT64)
    state: int = field(INT8)
    """The numbers are those of TransactionLogValue."""
    timeout_ms: int = field(INT32)
    winners: list[SinkWinner] = field(array(SinkWinner))
    """The winners of the last decision to commit."""
    committed_batch_id: int = field(INT64)
    """-1: none."""
    start_timestamp_ms: int = field(INT64)
    last_update_timestamp_ms: int = field(INT64)


class SinkLeaseValue(Message, versions=(0, 0), flexible_since=0):
    producer_epoch: int = field(INT16)
    attempt_id: str = field(STRING)
    """Empty: the producer id is free."""
    partitions: list[PartitionsOfTopic] = field(array(PartitionsOfTopic))
    last_update_timestamp_ms: int = field(INT64)
