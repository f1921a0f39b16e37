"""CreatePartitions: asks the controller for more partitions, topic by topic.

A topic that stands in the request twice is refused here, once in the response.
"""

from collections import Counter
from typing import TYPE_CHECKING

from distributedlog.broker.handlers._forwarding import bound_timeout_ms, forward, wait_for_logs
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller import requests as controller
from distributedlog.controller.requests import MorePartitions, TopicOutcome, TopicsReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _make_result(name: str, code: ErrorCode, text: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=text)


@handles(
    CreatePartitionsRequest,
    versions=(0, 3),
    timeout_ms=lambda request: bound_timeout_ms(request.timeout_ms),
)
async def create_partitions(
    services: "Services", request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    text = "the topic is in the request more than once"
    results = [
        _make_result(name, ErrorCode.INVALID_REQUEST, text) for name, count in counts.items() if count > 1
    ]
    once = tuple(_to_more_partitions(topic) for topic in request.topics if counts[topic.name] == 1)
    if once:
        asked = controller.CreatePartitionsRequest(once, request.validate_only)
        reply = await forward(services, context, asked, TopicsReply, request.timeout_ms)
        await wait_for_logs(services)
        results += [_translate(each) for each in reply.topics]
    return CreatePartitionsResponse(results=results)


def _translate(made: TopicOutcome) -> CreatePartitionsTopicResult:
    return _make_result(made.name or "", made.outcome.error, made.outcome.message)


def _to_more_partitions(topic: CreatePartitionsTopic) -> MorePartitions:
    if topic.assignments is None:
        return MorePartitions(topic.name, topic.count)
    assignments = tuple(tuple(each.broker_ids) for each in topic.assignments)
    return MorePartitions(topic.name, topic.count, assignments)
