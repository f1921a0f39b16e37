"""DeleteTopics (20): deletes topics.

Versions 1 to 6, flexible from 4.  5 adds error messages, 6 names topics by name or id.
"""

from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, STRING, UUID, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class DeleteTopicState(Struct):
    name: str | None = field(nullable(STRING), default=None)
    topic_id: Uuid = field(UUID)


class DeleteTopicsRequest(Message, api_key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible_since=4):
    topics: list[DeleteTopicState] = field(array(DeleteTopicState), since=6, default_factory=list)
    topic_names: list[str] = field(array(STRING), until=5, default_factory=list)
    timeout_ms: int = field(INT32)


class DeletableTopicResult(Struct):
    name: str | None = field(nullable(STRING, since=6))
    topic_id: Uuid = field(UUID, since=6, default=ZERO_UUID)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), since=5, default=None)


class DeleteTopicsResponse(Message, api_key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible_since=4):
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))
