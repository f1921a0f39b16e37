import pytest

from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.image import ConfigResource, ResourceType
from distributedlog.controller.requests import IncrementalAlterConfigsRequest
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import PolicyViolationError, RequestTimedOutError
from distributedlog.model.ids import ZERO_UUID
from distributedlog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.settings.loading import load_settings
from tests.unit.broker.handlers.admin_stage import TIMEOUT_MS, Broker, registration_of, versions_of

EVERY = versions_of(CreateTopicsRequest)
LATEST = EVERY[-1]


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: tuple[tuple[int, ...], ...] = (),
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(assignments)
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def ask(
    broker: Broker, *topics: CreatableTopic, version: int = LATEST, **fields: object
) -> dict[str, CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), **fields)  # type: ignore[arg-type]
    response = broker.ask(request, version, CreateTopicsResponse)
    results = {each.name: each for each in response.topics}
    assert len(results) == len(response.topics)
    return results


def errors(results: dict[str, CreatableTopicResult]) -> dict[str, ErrorCode]:
    return {name: ErrorCode(result.error_code) for name, result in results.items()}


@pytest.mark.parametrize("version", EVERY)
def test_every_version_creates_topics(version: int) -> None:
    broker = Broker(1, 2)
    results = ask(broker, topic("t", 3, 2), topic("bad name"), version=version)
    assert errors(results) == {"t": ErrorCode.NONE, "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert "characters" in (results["bad name"].error_message or "")
    made = broker.image.topic_named("t")
    assert made is not None
    assert len(made.partitions) == 3
    assert len(made.partitions[0].replicas) == 2
    result = results["t"]
    assert (result.num_partitions, result.replication_factor) == ((3, 2) if version >= 5 else (-1, -1))
    assert result.topic_id == (made.topic_id if version >= 7 else ZERO_UUID)
    assert bool(result.configs) is (version >= 5)
    assert not results["bad name"].configs


def test_what_is_left_open_is_as_configured() -> None:
    broker = Broker(1, 2, num_partitions=4, default_replication_factor=2)
    result = ask(broker, topic("t", -1, -1))["t"]
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_replicas_may_be_chosen_by_hand() -> None:
    broker = Broker(1, 2)
    chosen = topic("t", -1, -1, assignments=((2, 1), (1, 2)))
    assert ask(broker, chosen)["t"].num_partitions == 2
    assert broker.stage.partition("t", 0).replicas == (2, 1)
    both = topic("u", 2, -1, assignments=((2, 1), (1, 2)))
    assert errors(ask(broker, both)) == {"u": ErrorCode.INVALID_REQUEST}


def test_each_topic_is_refused_for_its_own_reason() -> None:
    broker = Broker()
    broker.create("there")
    broker.create("a.b")
    results = ask(
        broker,
        topic("there"),
        topic("a_b"),
        topic("no-partitions", 0),
        topic("no-replicas", 1, 0),
        topic("many-replicas", 1, 2),
        topic("unknown-setting", no_such="1"),
        topic("wrong-value", retention_ms="soon"),
        topic("null-value", retention_ms=None),
        topic("__cluster_metadata"),
        topic("good", retention_ms="1000"),
    )
    assert errors(results) == {
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "no-partitions": ErrorCode.INVALID_PARTITIONS,
        "no-replicas": ErrorCode.INVALID_REPLICATION_FACTOR,
        "many-replicas": ErrorCode.INVALID_REPLICATION_FACTOR,
        "unknown-setting": ErrorCode.INVALID_CONFIG,
        "wrong-value": ErrorCode.INVALID_CONFIG,
        "null-value": ErrorCode.INVALID_CONFIG,
        "__cluster_metadata": ErrorCode.INVALID_REQUEST,
        "good": ErrorCode.NONE,
    }
    assert all(result.error_message for name, result in results.items() if name != "good")
    assert (results["no-replicas"].num_partitions, results["no-replicas"].configs) == (-1, [])


def test_a_topic_that_is_named_twice_is_refused_once_and_not_created() -> None:
    broker = Broker()
    results = ask(broker, topic("t"), topic("t", 2), topic("u"))
    assert errors(results) == {"t": ErrorCode.INVALID_REQUEST, "u": ErrorCode.NONE}
    assert set(broker.image.topic_ids) == {"u"}


def test_nobody_is_asked_if_nothing_is_left_to_ask() -> None:
    broker = Broker()
    ask(broker, topic("t"), topic("t"))
    assert ask(broker) == {}
    assert broker.controller.asked == []


def test_validation_answers_as_creation_would_and_creates_nothing() -> None:
    broker = Broker(num_partitions=2)
    result = ask(broker, topic("t", -1), validate_only=True)["t"]
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)
    assert result.configs
    assert "t" not in broker.image.topic_ids


def test_coordinators_topics_may_be_created_by_name() -> None:
    assert errors(ask(Broker(), topic("__consumer_offsets"))) == {"__consumer_offsets": ErrorCode.NONE}


def test_a_new_topic_is_told_its_settings_and_where_they_come_from() -> None:
    broker = Broker(settings=load_settings(None, {"log.segment.bytes": "2048"}, {}))
    of_cluster = ConfigResource(ResourceType.BROKER, "")
    edit = ConfigEdit("log.flush.interval.messages", ConfigOp.SET, "7")
    broker.stage.ask(IncrementalAlterConfigsRequest(((of_cluster, (edit,)),)), object)
    broker.controller.catch_up()
    configs = ask(broker, topic("t", cleanup_policy="compact", min_insync_replicas="2"))["t"].configs
    assert configs is not None
    names = [each.name for each in configs]
    assert names == sorted(names)
    told = {each.name: (each.value, each.config_source) for each in configs}
    assert told["cleanup.policy"] == ("compact", 1)
    assert told["min.insync.replicas"] == ("2", 1)
    assert told["flush.messages"] == ("7", 3)
    assert told["segment.bytes"] == ("2048", 4)
    assert told["retention.ms"] == ("604800000", 5)
    assert told["unclean.leader.election.enable"] == ("false", 3)
    assert not any(each.read_only or each.is_sensitive for each in configs)


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("error", [RequestTimedOutError("late"), PolicyViolationError("too much")])
def test_a_request_that_fails_as_a_whole_fails_for_each_topic(
    version: int, error: RequestTimedOutError | PolicyViolationError
) -> None:
    broker = Broker()
    broker.controller.failure = error
    results = ask(broker, topic("t"), topic("u"), version=version)
    assert errors(results) == {"t": error.code, "u": error.code}
    assert results["t"].error_message == str(error)


@pytest.mark.parametrize(
    ("allowed_ms", "waited_ms"), [(-1, 1_000), (0, 1_000), (5_000, 5_000), (2**31 - 1, TIMEOUT_MS)]
)
def test_the_controller_is_waited_for_as_long_as_the_client_allows(allowed_ms: int, waited_ms: int) -> None:
    broker = Broker()
    ask(broker, topic("t"), timeout_ms=allowed_ms)
    ((_, timeout_ms),) = broker.controller.asked
    assert timeout_ms == waited_ms


def test_a_client_cannot_park_a_request_for_weeks() -> None:
    timeout_of = registration_of(CreateTopicsRequest).timeout_ms
    assert timeout_of is not None
    assert timeout_of(CreateTopicsRequest(topics=[], timeout_ms=2**31 - 1)) == 600_000
    assert timeout_of(CreateTopicsRequest(topics=[], timeout_ms=-1)) == 0
