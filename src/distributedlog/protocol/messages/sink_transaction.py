"""SinkTransaction (30001): batches of many producers that one record decides, for sinks of Spark.

Version 0, flexible.  An API of our own, which Kafka has not; `operation` says what is asked for:

    0 token       a number that rises cluster-wide; any broker
    1 join        the attempt of a task gets a producer id and epoch, or hears that the batch is committed
    2 heartbeat   an attempt still writes, or waits for rows
    3 end         the batch is committed: of the winners everything, of all others nothing
    4 abort       of the batch nothing is committed
    5 describe    what the query is at

All but the first are for the transaction coordinator of the response's `transactional_id`, which is made of
the query's id and is what attempts produce under.
"""

from enum import IntEnum
from typing import Final

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT8, INT16, INT32, INT64, STRING, array, nullable
from distributedlog.protocol.messages.sink_records import SinkWinner
from distributedlog.protocol.messages.transaction_records import PartitionsOfTopic
from distributedlog.protocol.schema import Message, Struct, field

SINK_ID_PREFIX: Final = "dlog.sink/"
"""What the transactional id begins with under which the attempts of a query produce."""
ONE_RUN_PREFIX: Final = "write-without-id/"
"""What the ids of queries begin with that nobody goes on with: their token is in the id.  Such a query is
forgotten some time after its batch has ended; all others are kept, with the last batch they committed."""


class SinkOperation(IntEnum):
    TOKEN = 0
    JOIN = 1
    HEARTBEAT = 2
    END = 3
    ABORT = 4
    DESCRIBE = 5


class SinkTransactionRequest(Message, api_key=ApiKey.SINK_TRANSACTION, versions=(0, 0), flexible_since=0):
    operation: int = field(INT8)
    query_id: str = field(STRING)
    token: int = field(INT64, default=-1)
    batch_id: int = field(INT64, default=-1)
    attempt_id: str = field(STRING, default="")
    """The attempt that joins."""
    timeout_ms: int = field(INT32, default=0)
    """How long the batch of a join stays open without a sign of life."""
    winners: list[SinkWinner] = field(array(SinkWinner))
    """The attempts that an end commits."""


class SinkAttempt(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    attempt_id: str = field(STRING)
    partitions: list[PartitionsOfTopic] = field(array(PartitionsOfTopic))


class SinkTransactionResponse(Message, api_key=ApiKey.SINK_TRANSACTION, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    transactional_id: str = field(STRING, default="")
    token: int = field(INT64, default=-1)
    """A new one; of a description the highest that was seen."""
    is_skipped: bool = field(BOOL, default=False)
    """The batch is committed: the attempt drains its rows and writes nothing."""
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16, default=-1)
    state: str = field(STRING, default="")
    batch_id: int = field(INT64, default=-1)
    committed_batch_id: int = field(INT64, default=-1)
    timeout_ms: int = field(INT32, default=0)
    start_timestamp_ms: int = field(INT64, default=-1)
    attempts: list[SinkAttempt] = field(array(SinkAttempt))
    """Those that hold a producer id."""
    pooled_count: int = field(INT32, default=0)
    """Producer ids that nobody holds."""
