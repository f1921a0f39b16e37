import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from distributedlog.settings.node_settings import NodeSettings
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

EVERY = versions_of(DeleteTopicsRequest)
LATEST = EVERY[-1]
UNKNOWN = Uuid(b"?" * 16)


def ask(broker: Broker, *topics: str | Uuid | None, version: int = LATEST) -> list[DeletableTopicResult]:
    states = [
        DeleteTopicState(name=each, topic_id=ZERO_UUID)
        if isinstance(each, str)
        else DeleteTopicState(topic_id=each or ZERO_UUID)
        for each in topics
    ]
    return ask_for(broker, *states, version=version)


def ask_for(broker: Broker, *states: DeleteTopicState, version: int = LATEST) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(timeout_ms=3_000)
    if version >= 6:
        request.topics = list(states)
    else:
        request.topic_names = [each.name or "" for each in states]
    return broker.ask(request, version, DeleteTopicsResponse).responses


def told(results: list[DeletableTopicResult]) -> list[tuple[str | None, Uuid, ErrorCode]]:
    return [(each.name, each.topic_id, ErrorCode(each.error_code)) for each in results]


@pytest.mark.parametrize("version", EVERY)
def test_every_version_deletes_by_name(version: int) -> None:
    broker = Broker()
    broker.create("t")
    topic_id = broker.image.topic_ids["t"]
    results = ask(broker, "t", "u", version=version)
    assert told(results) == [
        ("t", topic_id if version >= 6 else ZERO_UUID, ErrorCode.NONE),
        ("u", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert bool(results[1].error_message) is (version >= 5)
    assert len(broker.image.topics) == 0


def test_topics_are_deleted_by_id() -> None:
    broker = Broker()
    broker.create("t")
    topic_id = broker.image.topic_ids["t"]
    assert told(ask(broker, topic_id, UNKNOWN)) == [
        ("t", topic_id, ErrorCode.NONE),
        (None, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert "t" not in broker.image.topic_ids


def test_a_topic_is_given_by_name_or_by_id() -> None:
    broker = Broker()
    broker.create("t")
    topic_id = broker.image.topic_ids["t"]
    both = DeleteTopicState(name="t", topic_id=topic_id)
    neither = DeleteTopicState(name=None, topic_id=ZERO_UUID)
    assert told(ask_for(broker, both, neither)) == [
        ("t", topic_id, ErrorCode.INVALID_REQUEST),
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
    ]
    assert "t" in broker.image.topic_ids
    assert broker.controller.asked == []


def test_what_is_in_a_request_twice_stays_and_is_told_once() -> None:
    broker = Broker()
    for name in ("a", "b", "c", "d"):
        broker.create(name)
    ids = broker.image.topic_ids
    results = ask(broker, "a", "a", ids["b"], ids["b"], "c", ids["c"], "d")
    assert sorted(told(results), key=str) == sorted(
        [
            ("a", ZERO_UUID, ErrorCode.INVALID_REQUEST),
            (None, ids["b"], ErrorCode.INVALID_REQUEST),
            ("c", ids["c"], ErrorCode.INVALID_REQUEST),
            ("d", ids["d"], ErrorCode.NONE),
        ],
        key=str,
    )
    assert set(broker.image.topic_ids) == {"a", "b", "c"}


@pytest.mark.parametrize("version", EVERY)
def test_deletion_can_be_switched_off(version: int) -> None:
    broker = Broker(settings=NodeSettings(delete_topic_enable=False))
    broker.create("t")
    (result,) = ask(broker, "t", version=version)
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert (result.name, result.error_code) == ("t", code)
    assert "t" in broker.image.topic_ids


@pytest.mark.parametrize("version", EVERY)
def test_a_request_that_fails_as_a_whole_fails_for_each_topic(version: int) -> None:
    broker = Broker()
    broker.create("t")
    broker.controller.failure = RequestTimedOutError("late")
    results = ask(broker, "t", "u", version=version)
    assert [(each.name, each.error_code) for each in results] == [
        ("t", ErrorCode.REQUEST_TIMED_OUT),
        ("u", ErrorCode.REQUEST_TIMED_OUT),
    ]
    ((_, timeout_ms),) = broker.controller.asked
    assert timeout_ms == 3_000


def test_a_topic_that_was_deleted_and_made_again_is_another_one() -> None:
    broker = Broker()
    broker.create("t")
    old = broker.image.topic_ids["t"]
    ask(broker, "t")
    broker.create("t")
    assert told(ask(broker, old)) == [(None, old, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert "t" in broker.image.topic_ids
