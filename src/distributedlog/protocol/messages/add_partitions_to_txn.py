"""AddPartitionsToTxn (24): adds partitions to a running transaction.

Versions 0 to 5, flexible from 3.  To 3 a client asks for one transaction; from 4 a broker asks for many, or
to verify only.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT16, INT32, INT64, STRING, array
from distributedlog.protocol.schema import Message, Struct, field


class AddPartitionsToTxnTopic(Struct):
    name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    verify_only: bool = field(BOOL, default=False)
    """Whether to check only that the partitions are part of the transaction."""
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic))


class AddPartitionsToTxnRequest(
    Message, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible_since=3
):
    transactions: list[AddPartitionsToTxnTransaction] = field(
        array(AddPartitionsToTxnTransaction), since=4, default_factory=list
    )
    v3_and_below_transactional_id: str = field(STRING, until=3, default="")
    v3_and_below_producer_id: int = field(INT64, until=3, default=0)
    v3_and_below_producer_epoch: int = field(INT16, until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        array(AddPartitionsToTxnTopic), until=3, default_factory=list
    )


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16)


class AddPartitionsToTxnTopicResult(Struct):
    name: str = field(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        array(AddPartitionsToTxnPartitionResult)
    )


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = field(STRING)
    topic_results: list[AddPartitionsToTxnTopicResult] = field(array(AddPartitionsToTxnTopicResult))


class AddPartitionsToTxnResponse(
    Message, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible_since=3
):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, since=4, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        array(AddPartitionsToTxnResult), since=4, default_factory=list
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), until=3, default_factory=list
    )
