"""The records of `__transaction_state`: of each transactional id the last one counts, and null deletes it.

Key version 0, not flexible.  Value versions 0 and 1, flexible from 1, which adds what KIP-890 needs.
"""

from distributedlog.protocol.kinds import INT8, INT16, INT32, INT64, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class TransactionLogKey(Message, versions=(0, 0)):
    transactional_id: str = field(STRING)


class PartitionsOfTopic(Struct):
    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


class TransactionLogValue(Message, versions=(0, 1), flexible_since=1):
    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, since=1, tag=0, default=-1)
    """The one of the last transaction, where the epochs ran out since."""
    next_producer_id: int = field(INT64, since=1, tag=1, default=-1)
    """The one that was given out for the transaction to come."""
    producer_epoch: int = field(INT16)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    """0 empty, 1 ongoing, 2 prepared to commit, 3 prepared to abort, 4 committed, 5 aborted, 6 dead,
    7 prepared to fence."""
    transaction_partitions: list[PartitionsOfTopic] | None = field(nullable(array(PartitionsOfTopic)))
    """Null when the transaction is empty."""
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, since=1, tag=2, default=0)
