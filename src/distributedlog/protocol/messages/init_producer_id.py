"""InitProducerId (22): gives a producer its id and epoch, fencing older ones of its transactional id.

Versions 0 to 6, flexible from 2.  3 lets a producer raise its own epoch, 6 adds two-phase commit (KIP-939).
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT16, INT32, INT64, STRING, nullable
from distributedlog.protocol.schema import Message, field


class InitProducerIdRequest(Message, api_key=ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible_since=2):
    transactional_id: str | None = field(nullable(STRING))
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, since=3, default=-1)
    """The caller's own when it asks for its next epoch, else -1."""
    producer_epoch: int = field(INT16, since=3, default=-1)
    enable2_pc: bool = field(BOOL, since=6, default=False)
    keep_prepared_txn: bool = field(BOOL, since=6, default=False)


class InitProducerIdResponse(Message, api_key=ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible_since=2):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
    ongoing_txn_producer_id: int = field(INT64, since=6, default=-1)
    ongoing_txn_producer_epoch: int = field(INT16, since=6, default=-1)
