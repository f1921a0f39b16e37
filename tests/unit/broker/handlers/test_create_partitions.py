import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

EVERY = versions_of(CreatePartitionsRequest)


def more(name: str, count: int, *assignments: tuple[int, ...]) -> CreatePartitionsTopic:
    by_hand = [CreatePartitionsAssignment(broker_ids=list(each)) for each in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=by_hand or None)


def ask(
    broker: Broker, *topics: CreatePartitionsTopic, version: int = EVERY[-1], validate_only: bool = False
) -> list[tuple[str, ErrorCode, str | None]]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=2_000, validate_only=validate_only)
    response = broker.ask(request, version, CreatePartitionsResponse)
    return [(each.name, ErrorCode(each.error_code), each.error_message) for each in response.results]


def count(broker: Broker, name: str) -> int:
    topic = broker.image.topic_named(name)
    assert topic is not None
    return len(topic.partitions)


@pytest.mark.parametrize("version", EVERY)
def test_every_version_adds_partitions(version: int) -> None:
    broker = Broker(1, 2)
    broker.create("t", (1, 2))
    assert ask(broker, more("t", 3), version=version) == [("t", ErrorCode.NONE, None)]
    assert count(broker, "t") == 3
    assert ask(broker, more("t", 4, (2, 1)), version=version) == [("t", ErrorCode.NONE, None)]
    assert broker.stage.partition("t", 3).replicas == (2, 1)


def test_each_topic_is_refused_for_its_own_reason() -> None:
    broker = Broker()
    for name in ("same", "fewer", "wrong", "twice"):
        broker.create(name, (1,), (1,))
    results = ask(
        broker,
        more("absent", 2),
        more("same", 2),
        more("fewer", 1),
        more("wrong", 4, (1,)),
        more("twice", 3),
        more("twice", 4),
    )
    assert {name: code for name, code, _ in results} == {
        "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "same": ErrorCode.INVALID_PARTITIONS,
        "fewer": ErrorCode.INVALID_PARTITIONS,
        "wrong": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    assert len(results) == 5
    assert all(text for _, _, text in results)
    assert count(broker, "twice") == 2


def test_validation_adds_nothing() -> None:
    broker = Broker()
    broker.create("t")
    assert ask(broker, more("t", 3), validate_only=True) == [("t", ErrorCode.NONE, None)]
    assert count(broker, "t") == 1


@pytest.mark.parametrize("version", EVERY)
def test_a_request_that_fails_as_a_whole_fails_for_each_topic(version: int) -> None:
    broker = Broker()
    broker.controller.failure = RequestTimedOutError("late")
    assert ask(broker, more("t", 3), version=version) == [("t", ErrorCode.REQUEST_TIMED_OUT, "late")]
