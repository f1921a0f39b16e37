"""CreatePartitions: asks the controller for more partitions, topic by topic.

A topic that stands in the request twice is refused here, once in the answer.
"""

from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.broker.handlers._asking import ask, patience_ms
from distributedlog.controller import requests as controller
from distributedlog.controller.requests import MorePartitions, TopicOutcome, TopicsReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _result(name: str, code: ErrorCode, text: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=text)


def _refuse(
    request: CreatePartitionsRequest, context: RequestContext, code: ErrorCode, text: str
) -> CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(results=[_result(name, code, text) for name in names])


@handles(
    CreatePartitionsRequest,
    versions=(0, 3),
    refuse=_refuse,
    patience_ms=lambda request: patience_ms(request.timeout_ms),
)
def create_partitions(
    services: "Services", request: CreatePartitionsRequest, context: RequestContext
) -> Awaitable[Message]:
    return _create(services, request, context)


async def _create(
    services: "Services", request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    text = "the topic is in the request more than once"
    results = [_result(name, ErrorCode.INVALID_REQUEST, text) for name, count in counts.items() if count > 1]
    once = tuple(_more(topic) for topic in request.topics if counts[topic.name] == 1)
    if once:
        asked = controller.CreatePartitionsRequest(once, request.validate_only)
        reply = await ask(services, context, asked, TopicsReply, request.timeout_ms)
        results += [_of_controller(each) for each in reply.topics]
    return CreatePartitionsResponse(results=results)


def _of_controller(made: TopicOutcome) -> CreatePartitionsTopicResult:
    return _result(made.name or "", made.outcome.error, made.outcome.message)


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    if topic.assignments is None:
        return MorePartitions(topic.name, topic.count)
    assignments = tuple(tuple(each.broker_ids) for each in topic.assignments)
    return MorePartitions(topic.name, topic.count, assignments)
