import pytest

from distributedlog.model.cluster_settings import CLUSTER_SETTINGS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from tests.unit.broker.handlers.admin_stage import Broker, versions_of
from tests.unit.broker.handlers.config_requests import BROKER, TOPIC, store

EVERY = versions_of(AlterConfigsRequest)


def resource(kind: int, name: str, *settings: tuple[str, str | None]) -> AlterConfigsResource:
    configs = [AlterableConfig(name=key, value=value) for key, value in settings]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def ask(
    broker: Broker, *resources: AlterConfigsResource, version: int = EVERY[-1], validate_only: bool = False
) -> list[tuple[str, ErrorCode]]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response = broker.ask(request, version, AlterConfigsResponse)
    assert [each.resource_type for each in response.responses] == [each.resource_type for each in resources]
    assert all(bool(each.error_message) is bool(each.error_code) for each in response.responses)
    return [(each.resource_name, ErrorCode(each.error_code)) for each in response.responses]


def settings(broker: Broker, kind: int, name: str) -> dict[str, str]:
    return dict(broker.image.settings_of(kind, name).items())


@pytest.mark.parametrize("version", EVERY)
def test_every_version_replaces_all_settings(version: int) -> None:
    broker = Broker()
    broker.create("t", retention_ms="1000", segment_ms="5")
    store(broker, BROKER, "1", log_retention_ms="7")
    results = ask(
        broker,
        resource(TOPIC, "t", ("retention.ms", "2000")),
        resource(BROKER, "1", ("log.segment.bytes", "4096")),
        resource(BROKER, "", ("log.retention.ms", "-1")),
        version=version,
    )
    assert results == [("t", ErrorCode.NONE), ("1", ErrorCode.NONE), ("", ErrorCode.NONE)]
    assert settings(broker, TOPIC, "t") == {"retention.ms": "2000"}
    assert settings(broker, BROKER, "1") == {"log.segment.bytes": "4096"}
    of_all = settings(broker, BROKER, "")
    assert of_all.pop("log.retention.ms") == "-1"
    assert set(of_all) == set(CLUSTER_SETTINGS), "those of the whole cluster cannot be removed, and stay"


def test_validation_changes_nothing() -> None:
    broker = Broker()
    broker.create("t", retention_ms="1000")
    assert ask(broker, resource(TOPIC, "t"), validate_only=True) == [("t", ErrorCode.NONE)]
    assert settings(broker, TOPIC, "t") == {"retention.ms": "1000"}


def test_each_resource_is_refused_for_its_own_reason() -> None:
    broker = Broker(1, 2)
    broker.create("t")
    results = ask(
        broker,
        resource(TOPIC, "absent", ("retention.ms", "1")),
        resource(TOPIC, "", ("retention.ms", "1")),
        resource(BROKER, "2", ("log.retention.ms", "1")),
        resource(BROKER, "x", ("log.retention.ms", "1")),
        resource(8, "1", ("root", "DEBUG")),
        resource(TOPIC, "t", ("retention.ms", "1")),
    )
    assert results == [
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", ErrorCode.INVALID_REQUEST),
        ("2", ErrorCode.INVALID_REQUEST),
        ("x", ErrorCode.INVALID_REQUEST),
        ("1", ErrorCode.INVALID_REQUEST),
        ("t", ErrorCode.NONE),
    ]


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("log.retention.ms", "soon", ErrorCode.INVALID_REQUEST),
        ("log.retention.ms", "-2", ErrorCode.INVALID_REQUEST),
        ("log.retention.ms", None, ErrorCode.INVALID_REQUEST),
        ("broker.session.timeout.ms", "3000", ErrorCode.INVALID_REQUEST),
        ("listeners", "PLAINTEXT://127.0.0.1:1", ErrorCode.INVALID_REQUEST),
        ("log.retention.hours", "3", ErrorCode.INVALID_REQUEST),
        ("min.insync.replicas", "0", ErrorCode.INVALID_REQUEST),
        ("somebody.elses", "anything", ErrorCode.NONE),
    ],
)
def test_a_brokers_setting_is_checked(name: str, value: str | None, code: ErrorCode) -> None:
    broker = Broker()
    for resource_name in ("1", ""):
        assert ask(broker, resource(BROKER, resource_name, (name, value))) == [(resource_name, code)]
        before = CLUSTER_SETTINGS.keys() if resource_name == "" else ()
        assert (name in settings(broker, BROKER, resource_name)) is (code is ErrorCode.NONE or name in before)


def test_a_setting_of_the_whole_cluster_is_set_for_all_brokers_and_for_no_single_one() -> None:
    broker = Broker()
    for name in ("min.insync.replicas", "num.partitions", "unclean.leader.election.enable"):
        value = "true" if name.endswith("enable") else "2"
        assert ask(broker, resource(BROKER, "1", (name, value))) == [("1", ErrorCode.INVALID_CONFIG)]
        assert ask(broker, resource(BROKER, "", (name, value))) == [("", ErrorCode.NONE)]
        assert settings(broker, BROKER, "")[name] == value
    assert settings(broker, BROKER, "1") == {}


def test_a_topics_setting_is_checked() -> None:
    broker = Broker()
    broker.create("t")
    for name, value, code in (
        ("retention.ms", "soon", ErrorCode.INVALID_CONFIG),
        ("no.such", "1", ErrorCode.INVALID_CONFIG),
        ("retention.ms", None, ErrorCode.INVALID_REQUEST),
    ):
        assert ask(broker, resource(TOPIC, "t", (name, value))) == [("t", code)]
    twice = resource(TOPIC, "t", ("retention.ms", "1"), ("retention.ms", "2"))
    assert ask(broker, twice) == [("t", ErrorCode.INVALID_REQUEST)]


def test_a_resource_that_is_named_twice_is_refused_both_times() -> None:
    broker = Broker()
    broker.create("t")
    broker.create("u")
    results = ask(
        broker,
        resource(TOPIC, "t", ("retention.ms", "1")),
        resource(TOPIC, "u", ("retention.ms", "1")),
        resource(TOPIC, "t", ("retention.ms", "2")),
    )
    assert results == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
        ("t", ErrorCode.INVALID_REQUEST),
    ]
    assert settings(broker, TOPIC, "t") == {}


@pytest.mark.parametrize("version", EVERY)
def test_a_request_that_fails_as_a_whole_fails_for_each_resource(version: int) -> None:
    broker = Broker()
    broker.controller.failure = RequestTimedOutError("late")
    results = ask(broker, resource(TOPIC, "t"), resource(BROKER, ""), version=version)
    assert results == [("t", ErrorCode.REQUEST_TIMED_OUT), ("", ErrorCode.REQUEST_TIMED_OUT)]
