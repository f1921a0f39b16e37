"""AddOffsetsToTxn (25): adds a group's offsets to a running transaction.

Versions 0 to 4, flexible from 3.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, INT64, STRING
from distributedlog.protocol.schema import Message, field


class AddOffsetsToTxnRequest(Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible_since=3):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


class AddOffsetsToTxnResponse(Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible_since=3):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
