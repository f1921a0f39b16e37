"""Metadata: brokers, controller, topics and the leaders of their partitions; topics are created on first use.

What is asked for, by version:

    all topics        null from 1 on; an empty list in 0
    some by name      always; a name that no topic has is created if both the broker and the request allow it
                      (requests say so from 4 on; before, all do)
    some by id        from 12 on; if any id is given, names are not looked at, and nothing is created

A topic to be created is asked of the controller, and the response waits until our image has it; then it is
answered as any other.  If it is not there in time, or it is unknown what became of it, the response is
LEADER_NOT_AVAILABLE; if the controller refused, UNKNOWN_TOPIC_OR_PARTITION, as Kafka's brokers say: both make
clients ask again.  Internal topics are not created here, see `_topics`.

Version 0 knows no offline replicas: brokers that are down are left out of replicas and ISR, with
REPLICA_NOT_AVAILABLE.  LISTENER_NOT_FOUND is the code from 6 on, as LEADER_NOT_AVAILABLE before.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from distributedlog.broker.cluster.listener_view import error_of_absent, forgets_unlisted
from distributedlog.broker.handlers._forwarding import forward, wait_for_logs
from distributedlog.broker.handlers._isolated import send_elsewhere_if_isolated
from distributedlog.broker.handlers._metadata_cache import MetadataCache, TopicDescriber, describe_cluster
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.requests import CreateTopicsRequest, NewTopic, TopicsReply
from distributedlog.model.config import SECOND_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidRequestError
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.model.internal_topics import INTERNAL_TOPICS, METADATA_TOPIC
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

logger = logging.getLogger(__name__)

CREATION_MS_MAX: Final = 5 * SECOND_MS
"""How long the creation of topics is waited for: the client has other requests on this connection."""
_UNSETTLED: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
_SETTLED: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})

_cache = MetadataCache()


def _make_error_response(
    request: MetadataRequest, context: RequestContext, code: ErrorCode, text: str
) -> MetadataResponse:
    """Makes an error for each topic, and from 13 on, as Kafka does, one for the whole beside them."""
    topics = [
        MetadataResponseTopic(error_code=code, name=each.name or "", topic_id=each.topic_id, partitions=[])
        for each in request.topics or ()
    ]
    return MetadataResponse(brokers=[], topics=topics, error_code=code)


@handles(MetadataRequest, versions=(0, 13), error_response=_make_error_response)
def metadata(services: "Services", request: MetadataRequest, context: RequestContext) -> HandlerResponse:
    send_elsewhere_if_isolated(services, context)
    image = services.metadata.image
    if request.topics is None or (not request.topics and context.api_version == 0):
        return _cache.describe_all(
            image,
            context.listener,
            context.api_version,
            cluster_operations=request.include_cluster_authorized_operations,
            topic_operations=request.include_topic_authorized_operations,
            with_fenced=forgets_unlisted(context.software_name),
        )
    _check_request(request, context.api_version)
    ids = dict.fromkeys(each.topic_id for each in request.topics if each.topic_id != ZERO_UUID)
    if ids:
        return _describe_by_id(image, request, context, ids)
    names = _list_names(request)
    absent = [name for name in names if name not in image.topic_ids]
    if absent and services.settings.auto_create_topics and request.allow_auto_topic_creation:
        creatable = [name for name in absent if _is_creatable(name)]
        if creatable:
            return _create_and_describe(services, request, context, names, creatable)
    return _describe_by_name(image, request, context, names, {})


def _check_request(request: MetadataRequest, api_version: int) -> None:
    for each in request.topics or ():
        if api_version < 12 and (each.name is None or each.topic_id != ZERO_UUID):
            raise InvalidRequestError(f"version {api_version} names topics by name, and not by id")
        if each.name is None and each.topic_id == ZERO_UUID:
            raise InvalidRequestError("a topic has neither name nor id")


def _list_names(request: MetadataRequest) -> list[str]:
    return list(dict.fromkeys(each.name for each in request.topics or () if each.name is not None))


# --- creating ----------------------------------------------------------------------------------


def _is_creatable(name: str) -> bool:
    if name in INTERNAL_TOPICS or name == METADATA_TOPIC:
        return False
    return error_of_absent(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _create_and_describe(
    services: "Services",
    request: MetadataRequest,
    context: RequestContext,
    names: list[str],
    creatable: list[str],
) -> Message:
    wanted = CreateTopicsRequest(tuple(NewTopic(name=name) for name in creatable))
    errors: Mapping[str, ErrorCode]
    try:
        reply = await forward(services, context, wanted, TopicsReply, CREATION_MS_MAX)
        await wait_for_logs(services)
        errors = {each.name or "": _translate_creation_error(each.outcome.error) for each in reply.topics}
    except DlogError as error:
        logger.debug("%d topics were not created: %s", len(creatable), error)
        errors = dict.fromkeys(creatable, _translate_creation_error(error.code))
    return _describe_by_name(services.metadata.image, request, context, names, errors)


def _translate_creation_error(code: ErrorCode) -> ErrorCode:
    """The error code of a topic that should be there by now, and is not."""
    if code in _SETTLED or code in _UNSETTLED:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- answering ---------------------------------------------------------------------------------


def _describe_by_name(
    image: MetadataImage,
    request: MetadataRequest,
    context: RequestContext,
    names: Iterable[str],
    errors: Mapping[str, ErrorCode],
) -> MetadataResponse:
    describer = _make_describer(image, request, context)
    topics = []
    for name in names:
        topic = image.topic_named(name)
        if topic is None:
            topics.append(describer.describe_absent(name, errors.get(name, error_of_absent(name))))
        else:
            topics.append(describer.describe(topic))
    return _make_response(image, request, context, topics)


def _describe_by_id(
    image: MetadataImage, request: MetadataRequest, context: RequestContext, ids: Iterable[Uuid]
) -> MetadataResponse:
    describer = _make_describer(image, request, context)
    topics = []
    for topic_id in ids:
        topic = image.topics.get(topic_id)
        topics.append(describer.describe_unknown_id(topic_id) if topic is None else describer.describe(topic))
    return _make_response(image, request, context, topics)


def _make_describer(
    image: MetadataImage, request: MetadataRequest, context: RequestContext
) -> TopicDescriber:
    return TopicDescriber(
        image,
        context.listener,
        context.api_version,
        with_operations=request.include_topic_authorized_operations,
    )


def _make_response(
    image: MetadataImage,
    request: MetadataRequest,
    context: RequestContext,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    return describe_cluster(
        image,
        context.listener,
        topics,
        with_operations=request.include_cluster_authorized_operations,
        with_fenced=forgets_unlisted(context.software_name),
    )
