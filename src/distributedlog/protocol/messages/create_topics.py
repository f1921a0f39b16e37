"""CreateTopics (19): creates topics.

Versions 2 to 7, flexible from 5.  4 lets -1 stand for the default count of partitions and replicas, 5
answers with what was made, 7 adds topic ids.
"""

from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT8, INT16, INT32, STRING, UUID, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class CreatableReplicaAssignment(Struct):
    partition_index: int = field(INT32)
    broker_ids: list[int] = field(array(INT32))


class CreatableTopicConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(nullable(STRING))


class CreatableTopic(Struct):
    name: str = field(STRING)
    num_partitions: int = field(INT32)
    """-1: as configured, or as `assignments` say."""
    replication_factor: int = field(INT16)
    """-1: as configured, or as `assignments` say."""
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig))


class CreateTopicsRequest(Message, api_key=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible_since=5):
    topics: list[CreatableTopic] = field(array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60000)
    validate_only: bool = field(BOOL, default=False)


class CreatableTopicConfigs(Struct):
    name: str = field(STRING)
    value: str | None = field(nullable(STRING))
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, default=-1)
    is_sensitive: bool = field(BOOL)


class CreatableTopicResult(Struct):
    name: str = field(STRING)
    topic_id: Uuid = field(UUID, since=7, default=ZERO_UUID)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    topic_config_error_code: int = field(INT16, since=5, tag=0, default=0)
    """Why `configs` is left out."""
    num_partitions: int = field(INT32, since=5, default=-1)
    replication_factor: int = field(INT16, since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = field(
        nullable(array(CreatableTopicConfigs)), since=5, default=None
    )


class CreateTopicsResponse(Message, api_key=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible_since=5):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult))
