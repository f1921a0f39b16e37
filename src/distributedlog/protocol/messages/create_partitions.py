"""CreatePartitions (37): raises the number of a topic's partitions.

Versions 0 to 3, flexible from 2.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = field(array(INT32))


class CreatePartitionsTopic(Struct):
    name: str = field(STRING)
    count: int = field(INT32)
    assignments: list[CreatePartitionsAssignment] | None = field(nullable(array(CreatePartitionsAssignment)))


class CreatePartitionsRequest(Message, api_key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible_since=2):
    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)


class CreatePartitionsTopicResult(Struct):
    name: str = field(STRING)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)


class CreatePartitionsResponse(Message, api_key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))
