import pytest

from distributedlog.broker.replicas.log_configs import LogConfigs
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.broker.handlers.admin_stage import Broker, versions_of
from tests.unit.broker.handlers.config_requests import BROKER, TOPIC, one, store

EVERY = versions_of(IncrementalAlterConfigsRequest)
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def ask(
    broker: Broker,
    kind: int,
    name: str,
    *edits: tuple[str, int, str | None],
    version: int = EVERY[-1],
    validate_only: bool = False,
) -> ErrorCode:
    configs = [AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in edits]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = broker.ask(request, version, IncrementalAlterConfigsResponse).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert bool(result.error_message) is bool(result.error_code)
    return ErrorCode(result.error_code)


def settings(broker: Broker, kind: int, name: str) -> dict[str, str]:
    return dict(broker.image.settings_of(kind, name).items())


@pytest.mark.parametrize("version", EVERY)
def test_every_version_changes_single_settings(version: int) -> None:
    broker = Broker()
    broker.create("t", retention_ms="1000", segment_ms="5", cleanup_policy="delete")
    code = ask(
        broker,
        TOPIC,
        "t",
        ("retention.ms", SET, "2000"),
        ("segment.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
        version=version,
    )
    assert code is ErrorCode.NONE
    assert settings(broker, TOPIC, "t") == {"retention.ms": "2000", "cleanup.policy": "delete,compact"}
    assert ask(broker, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"), version=version) == 0
    assert settings(broker, TOPIC, "t")["cleanup.policy"] == "compact"


def test_validation_changes_nothing() -> None:
    broker = Broker()
    broker.create("t")
    assert ask(broker, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True) is ErrorCode.NONE
    assert settings(broker, TOPIC, "t") == {}


def test_what_is_described_is_what_the_logs_are_given() -> None:
    broker = Broker()
    broker.create("t")
    for kind, name, key, value in (
        (BROKER, "", "log.retention.ms", "3000"),
        (BROKER, "1", "log.retention.ms", "2000"),
        (TOPIC, "t", "retention.ms", "1000"),
    ):
        assert ask(broker, kind, name, (key, SET, value)) is ErrorCode.NONE
        in_force = LogConfigs(broker.services.settings, broker.image).log_config(broker.image, "t")
        assert one(broker, TOPIC, "t", "retention.ms").value == str(in_force.retention_ms) == value


def test_a_setting_that_cannot_be_changed_can_still_be_taken_away() -> None:
    broker = Broker()
    store(broker, BROKER, "1", max_connections="9")
    assert ask(broker, BROKER, "1", ("max.connections", SET, "8")) is ErrorCode.INVALID_REQUEST
    assert ask(broker, BROKER, "1", ("max.connections", DELETE, None)) is ErrorCode.NONE
    assert settings(broker, BROKER, "1") == {}


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_an_edit_that_cannot_be_is_refused(edits: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    broker = Broker()
    broker.create("t")
    assert ask(broker, TOPIC, "t", *edits) is code
    assert settings(broker, TOPIC, "t") == {}


def test_a_brokers_setting_is_checked() -> None:
    broker = Broker(1, 2)
    for name in ("1", ""):
        assert ask(broker, BROKER, name, ("log.segment.bytes", SET, "1")) is ErrorCode.INVALID_REQUEST
        assert ask(broker, BROKER, name, ("log.segment.bytes", SET, "2048")) is ErrorCode.NONE
    assert ask(broker, BROKER, "2", ("log.segment.bytes", SET, "2048")) is ErrorCode.INVALID_REQUEST
    assert ask(broker, 3, "m", ("metrics", SET, "x")) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", EVERY)
def test_a_request_that_fails_as_a_whole_fails_for_each_resource(version: int) -> None:
    broker = Broker()
    broker.controller.failure = RequestTimedOutError("late")
    code = ask(broker, TOPIC, "t", ("retention.ms", SET, "1"), version=version)
    assert code is ErrorCode.REQUEST_TIMED_OUT
