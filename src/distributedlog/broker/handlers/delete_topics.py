"""DeleteTopics: by name, or from 6 on by id.

Refused here: topics that are given by name and id or by neither, and what stands in the request twice, each
once in the response.  Where deletion is switched off, all are, with the code that each version knows.
"""

from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from distributedlog.broker.handlers._forwarding import bound_timeout_ms, forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import RequestError, handles
from distributedlog.controller import requests as controller
from distributedlog.controller.requests import TopicsReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _list_topics(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """The same in all versions."""
    by_name = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    return by_name + request.topics


@handles(
    DeleteTopicsRequest,
    versions=(1, 6),
    timeout_ms=lambda request: bound_timeout_ms(request.timeout_ms),
)
def delete_topics(
    services: "Services", request: DeleteTopicsRequest, context: RequestContext
) -> Awaitable[Message] | Message:
    if not services.settings.delete_topic_enable:
        is_known = context.api_version >= 3
        code = ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST
        raise RequestError(code, "delete.topic.enable is false on this broker")
    return _delete(services, request, context)


async def _delete(
    services: "Services", request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    results = []
    counts: Counter[str | Uuid] = Counter()
    for topic in _list_topics(request):
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            results.append(
                _make_failure(topic.name, topic.topic_id, "give a topic's name or its id, not both")
            )
        elif topic.name is None and topic.topic_id == ZERO_UUID:
            results.append(_make_failure(None, ZERO_UUID, "neither a name nor an id is given"))
        else:
            counts[topic.topic_id if topic.name is None else topic.name] += 1
    for wanted, count in counts.items():
        if count > 1:
            results.append(
                _make_failure(*_split_name_and_id(wanted), "the topic is in the request more than once")
            )
    once = tuple(wanted for wanted, count in counts.items() if count == 1)
    if once:
        asked = controller.DeleteTopicsRequest(once)
        reply = await forward(services, context, asked, TopicsReply, request.timeout_ms)
        results += _make_results(reply)
    return DeleteTopicsResponse(responses=results)


def _split_name_and_id(wanted: str | Uuid) -> tuple[str | None, Uuid]:
    return (wanted, ZERO_UUID) if isinstance(wanted, str) else (None, wanted)


def _make_failure(name: str | None, topic_id: Uuid, text: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=text
    )


def _make_results(reply: TopicsReply) -> list[DeletableTopicResult]:
    """One for each topic: the controller has two for one that was given by its name and by its id."""
    results = {
        (each.name, each.topic_id): DeletableTopicResult(
            name=each.name,
            topic_id=each.topic_id,
            error_code=each.outcome.error,
            error_message=each.outcome.message,
        )
        for each in reply.topics
    }
    return list(results.values())
