"""CreateTopics: asks the controller, and responds with what was made.

Refused here: a name that stands in the request twice, and that of the metadata log; all else is the
controller's to judge, topic by topic.  From 5 on the response has the settings in force for each new topic
and where they come from (see `config_layers`), with `validate_only` too.
"""

from collections import Counter
from typing import TYPE_CHECKING

from distributedlog.broker.handlers._forwarding import bound_timeout_ms, forward, wait_for_logs
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller import requests as controller
from distributedlog.controller.requests import NewTopic, TopicOutcome, TopicsReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.internal_topics import METADATA_TOPIC
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.settings.config_layers import TOPIC_SETTINGS, ConfigLayers

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _make_failure(name: str, code: ErrorCode, text: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=text, configs=[])


@handles(
    CreateTopicsRequest,
    versions=(2, 7),
    timeout_ms=lambda request: bound_timeout_ms(request.timeout_ms),
)
async def create_topics(
    services: "Services", request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    refused = [
        _make_failure(name, *reason) for name, count in counts.items() if (reason := _find_fault(name, count))
    ]
    wanted = {
        topic.name: topic for topic in request.topics if not _find_fault(topic.name, counts[topic.name])
    }
    results: list[CreatableTopicResult] = []
    if wanted:
        asked = controller.CreateTopicsRequest(
            tuple(_to_new_topic(topic) for topic in wanted.values()), request.validate_only
        )
        reply = await forward(services, context, asked, TopicsReply, request.timeout_ms)
        await wait_for_logs(services)
        layers = ConfigLayers(services.settings, services.metadata.image)
        results = [
            _make_result(each, wanted[each.name or ""], layers if context.api_version >= 5 else None)
            for each in reply.topics
        ]
    return CreateTopicsResponse(topics=results + refused)


def _find_fault(name: str, count: int) -> tuple[ErrorCode, str] | None:
    """Returns what speaks against it before the controller is asked."""
    if count > 1:
        return ErrorCode.INVALID_REQUEST, "the topic is in the request more than once"
    if name == METADATA_TOPIC:
        return ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is the name of the metadata log"
    return None


def _to_new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        configs=tuple((each.name, each.value) for each in topic.configs),
    )


def _make_result(
    made: TopicOutcome, topic: CreatableTopic, layers: ConfigLayers | None
) -> CreatableTopicResult:
    if made.outcome.error is not ErrorCode.NONE:
        return _make_failure(topic.name, made.outcome.error, made.outcome.message)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=made.topic_id,
        num_partitions=made.num_partitions,
        replication_factor=made.replication_factor,
        configs=None if layers is None else _describe_configs(topic, layers),
    )


def _describe_configs(topic: CreatableTopic, layers: ConfigLayers) -> list[CreatableTopicConfigs]:
    own = {each.name: each.value for each in topic.configs if each.value is not None}
    configs = []
    for name, setting in TOPIC_SETTINGS.items():
        in_force = layers.of_topic(setting, own)[0]
        configs.append(
            CreatableTopicConfigs(
                name=name,
                value=own.get(name, in_force.value),
                read_only=False,
                config_source=in_force.source,
                is_sensitive=False,
            )
        )
    return configs
