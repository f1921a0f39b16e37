"""EndTxn (26): commits or aborts a transaction.

Versions 0 to 5, flexible from 3.  5 answers with the producer's next id and epoch (KIP-890).
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT16, INT32, INT64, STRING
from distributedlog.protocol.schema import Message, field


class EndTxnRequest(Message, api_key=ApiKey.END_TXN, versions=(0, 5), flexible_since=3):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)
    """False: abort."""


class EndTxnResponse(Message, api_key=ApiKey.END_TXN, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    producer_id: int = field(INT64, since=5, default=-1)
    """The id to go on with, which is a new one when the epochs ran out."""
    producer_epoch: int = field(INT16, since=5, default=-1)
