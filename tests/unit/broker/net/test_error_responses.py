"""Error responses derive from the schemas: of every API, in every version, as Kafka's brokers say it."""

import pytest

from distributedlog.broker.net.context import ANONYMOUS, RequestContext
from distributedlog.broker.net.dispatch import load_handlers
from distributedlog.broker.net.error_responses import derive_error_response, make_empty
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import ZERO_UUID
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.codec import decode_all, encode_bytes
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from distributedlog.protocol.schema import Message

CODE = ErrorCode.REQUEST_TIMED_OUT
SERVED = sorted(load_handlers().by_key.values())


def empty_request(kind: type[Message], version: int) -> Message:
    required = {each.name: make_empty(each.kind, version) for each in kind.fields if each.is_required}
    return kind(**required)


@pytest.mark.parametrize("registration", SERVED, ids=lambda each: each.name)
def test_every_api_that_is_served_has_an_error_response_that_can_be_written(registration: object) -> None:
    api = load_handlers().by_key[registration.api]  # type: ignore[attr-defined]
    for version in range(api.versions[0], api.versions[1] + 1):
        request = empty_request(api.request, version)
        if api.api == ApiKey.PRODUCE:
            request.acks = 1  # type: ignore[attr-defined]
        context = RequestContext(ANONYMOUS, "CLIENT", "c", "h", 1, version, 0, 1)
        response = api.make_error_response(request, context, CODE, "it took too long")
        assert response is not None
        decode_all(api.response, version, encode_bytes(response, version))


def test_a_name_that_is_asked_for_twice_is_answered_once() -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in "aba"
    ]
    response = derive_error_response(CreateTopicsRequest(topics=topics, timeout_ms=1), 5, CODE, "late")
    assert isinstance(response, CreateTopicsResponse)
    assert [(each.name, each.error_code, each.error_message) for each in response.topics] == [
        ("a", CODE, "late"),
        ("b", CODE, "late"),
    ]


@pytest.mark.parametrize("version", [1, 5, 6])
def test_topics_are_named_as_the_version_names_them(version: int) -> None:
    request = DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1)
    if version >= 6:
        request.topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in "ab"]
    response = derive_error_response(request, version, CODE, "late")
    assert isinstance(response, DeleteTopicsResponse)
    assert [(each.name, each.error_code) for each in response.responses] == [("a", CODE), ("b", CODE)]


def test_several_coordinators_are_answered_one_by_one_and_one_alone_as_a_whole() -> None:
    alone = derive_error_response(FindCoordinatorRequest(key="g"), 3, CODE, "late")
    assert isinstance(alone, FindCoordinatorResponse)
    assert (alone.error_code, alone.node_id, alone.port) == (CODE, -1, -1)
    several = derive_error_response(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4, CODE, "late")
    assert isinstance(several, FindCoordinatorResponse)
    assert [(each.key, each.error_code) for each in several.coordinators] == [("g", CODE), ("h", CODE)]


def test_offsets_that_are_not_known_are_minus_one() -> None:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[3, 4])]
    response = derive_error_response(OffsetFetchRequest(group_id="g", topics=topics), 1, CODE, "late")
    assert isinstance(response, OffsetFetchResponse)
    (topic,) = response.topics
    assert [(each.partition_index, each.committed_offset, each.error_code) for each in topic.partitions] == [
        (3, -1, CODE),
        (4, -1, CODE),
    ]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    batched = derive_error_response(OffsetFetchRequest(groups=groups), 8, CODE, "late")
    assert isinstance(batched, OffsetFetchResponse)
    assert [(each.group_id, each.error_code, each.topics) for each in batched.groups] == [("g", CODE, [])]
