"""CreateTopics: asks the controller, and answers with what was made.

Refused here: a name that stands in the request twice, and that of the metadata log; all else is the
controller's to judge, topic by topic.  From 5 on the answer has the settings in force for each new topic and
where they come from (see `config_layers`), with `validate_only` too.
"""

from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from distributedlog.broker.config_layers import TOPIC_SETTINGS, ConfigLayers
from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.broker.handlers._asking import ask, patience_ms
from distributedlog.broker.handlers._topics import METADATA_TOPIC
from distributedlog.controller import requests as controller
from distributedlog.controller.requests import NewTopic, TopicOutcome, TopicsReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _failed(name: str, code: ErrorCode, text: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=text, configs=[])


def _refuse(
    request: CreateTopicsRequest, context: RequestContext, code: ErrorCode, text: str
) -> CreateTopicsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(topics=[_failed(name, code, text) for name in names])


@handles(
    CreateTopicsRequest,
    versions=(2, 7),
    refuse=_refuse,
    patience_ms=lambda request: patience_ms(request.timeout_ms),
)
def create_topics(
    services: "Services", request: CreateTopicsRequest, context: RequestContext
) -> Awaitable[Message]:
    return _create(services, request, context)


async def _create(
    services: "Services", request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    refused = [_failed(name, *reason) for name, count in counts.items() if (reason := _wrong(name, count))]
    wanted = {topic.name: topic for topic in request.topics if not _wrong(topic.name, counts[topic.name])}
    results: list[CreatableTopicResult] = []
    if wanted:
        asked = controller.CreateTopicsRequest(
            tuple(_new_topic(topic) for topic in wanted.values()), request.validate_only
        )
        reply = await ask(services, context, asked, TopicsReply, request.timeout_ms)
        layers = ConfigLayers(services.settings, services.metadata.image)
        results = [
            _result(each, wanted[each.name or ""], layers if context.api_version >= 5 else None)
            for each in reply.topics
        ]
    return CreateTopicsResponse(topics=results + refused)


def _wrong(name: str, count: int) -> tuple[ErrorCode, str] | None:
    """What speaks against it before the controller is asked."""
    if count > 1:
        return ErrorCode.INVALID_REQUEST, "the topic is in the request more than once"
    if name == METADATA_TOPIC:
        return ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is the name of the metadata log"
    return None


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        configs=tuple((each.name, each.value) for each in topic.configs),
    )


def _result(made: TopicOutcome, topic: CreatableTopic, layers: ConfigLayers | None) -> CreatableTopicResult:
    if made.outcome.error is not ErrorCode.NONE:
        return _failed(topic.name, made.outcome.error, made.outcome.message)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=made.topic_id,
        num_partitions=made.num_partitions,
        replication_factor=made.replication_factor,
        configs=None if layers is None else _configs(topic, layers),
    )


def _configs(topic: CreatableTopic, layers: ConfigLayers) -> list[CreatableTopicConfigs]:
    own = {each.name: each.value for each in topic.configs if each.value is not None}
    configs = []
    for name, setting in TOPIC_SETTINGS.items():
        in_force = layers.of_topic(setting, own)[0]
        configs.append(
            CreatableTopicConfigs(
                name=name,
                value=in_force.value,
                read_only=False,
                config_source=in_force.source,
                is_sensitive=False,
            )
        )
    return configs
