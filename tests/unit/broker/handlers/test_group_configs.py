"""Settings of groups, through the handlers: changed within the bounds of the broker, told in layers."""

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from distributedlog.settings.loading import load_settings
from tests.unit.broker.handlers.admin_stage import Broker
from tests.unit.broker.handlers.config_requests import GROUP, describe, one
from tests.unit.broker.handlers.test_incremental_alter_configs import APPEND, DELETE, SET, ask, settings

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
STRING, INT = 2, 3
OF_GROUP, OF_STATIC, OF_DEFAULT = 8, 4, 5
DEFAULTS = {
    SESSION: "45000",
    INTERVAL: "5000",
    "share.auto.offset.reset": "latest",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.record.lock.duration.ms": "30000",
    "share.session.timeout.ms": "45000",
    "streams.heartbeat.interval.ms": "5000",
    "streams.initial.rebalance.delay.ms": "3000",
    "streams.num.standby.replicas": "0",
    "streams.session.timeout.ms": "45000",
}


def test_a_group_is_told_its_own_settings_and_behind_them_the_brokers() -> None:
    broker = Broker()
    before = {each.name: (each.value, each.config_source) for each in describe(broker, GROUP, "g").configs}
    assert before == {name: (value, OF_DEFAULT) for name, value in DEFAULTS.items()}
    assert ask(broker, GROUP, "g", (SESSION, SET, "50000")) is ErrorCode.NONE
    told = one(broker, GROUP, "g", SESSION, synonyms=True)
    assert (told.value, told.config_source, told.read_only) == ("50000", OF_GROUP, False)
    assert [(each.name, each.value, each.source) for each in told.synonyms] == [(SESSION, "50000", OF_GROUP)]
    told = one(broker, GROUP, "g", INTERVAL, synonyms=True)
    assert [(each.name, each.value, each.source) for each in told.synonyms] == [
        (INTERVAL, "5000", OF_DEFAULT)
    ]
    assert one(broker, GROUP, "other", SESSION).value == "45000"


def test_what_the_broker_was_started_with_stands_before_the_default() -> None:
    broker = Broker(settings=load_settings(None, {f"group.{SESSION}": "46000"}, {}))
    told = one(broker, GROUP, "g", SESSION, synonyms=True)
    assert (told.value, told.config_source) == ("46000", OF_STATIC)
    assert [(each.name, each.value, each.source) for each in told.synonyms] == [
        (f"group.{SESSION}", "46000", OF_STATIC),
        (SESSION, "45000", OF_DEFAULT),
    ]


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("share.auto.offset.reset", STRING, "by_duration:PT1H"),
        ("share.isolation.level", STRING, "read_committed"),
        ("share.record.lock.duration.ms", INT, "20000"),
        ("streams.num.standby.replicas", INT, "1"),
    ],
)
def test_a_setting_without_effect_is_kept_and_told_and_that_it_has_none(
    name: str, kind: int, value: str
) -> None:
    broker = Broker()
    assert ask(broker, GROUP, "g", (name, SET, value)) is ErrorCode.NONE
    told = one(broker, GROUP, "g", name, synonyms=True, documentation=True)
    assert (told.value, told.config_source, told.config_type) == (value, OF_GROUP, kind)
    assert [(each.name, each.value, each.source) for each in told.synonyms] == [(name, value, OF_GROUP)]
    assert (told.documentation or "").startswith("Kept and described, without effect here.")
    with_effect = one(broker, GROUP, "g", SESSION, documentation=True).documentation or ""
    assert "without effect" not in with_effect


def test_what_was_set_is_taken_back() -> None:
    broker = Broker()
    assert ask(broker, GROUP, "g", (SESSION, SET, "50000"), (INTERVAL, SET, "6000")) is ErrorCode.NONE
    assert ask(broker, GROUP, "g", (SESSION, DELETE, None)) is ErrorCode.NONE
    assert settings(broker, GROUP, "g") == {INTERVAL: "6000"}
    assert one(broker, GROUP, "g", SESSION).value == "45000"


@pytest.mark.parametrize(
    ("name", "op", "value"),
    [
        (SESSION, SET, "44999"),
        (SESSION, SET, "60001"),
        (INTERVAL, SET, "4999"),
        (INTERVAL, SET, "15001"),
        (SESSION, SET, "soon"),
        (SESSION, APPEND, "50000"),
        ("share.session.timeout.ms", SET, "44999"),
        ("share.auto.offset.reset", SET, "none"),
        ("streams.num.standby.replicas", SET, "3"),
        ("no.such", SET, "1"),
    ],
)
def test_what_is_beyond_the_brokers_bounds_is_refused(name: str, op: int, value: str) -> None:
    broker = Broker()
    assert ask(broker, GROUP, "g", (name, op, value)) is ErrorCode.INVALID_CONFIG
    assert settings(broker, GROUP, "g") == {}


def test_all_settings_of_a_group_are_replaced_at_once_within_the_same_bounds() -> None:
    broker = Broker()
    assert ask(broker, GROUP, "g", (SESSION, SET, "50000")) is ErrorCode.NONE
    assert _replace(broker, INTERVAL, "15001") is ErrorCode.INVALID_CONFIG
    assert _replace(broker, INTERVAL, "6000") is ErrorCode.NONE
    assert settings(broker, GROUP, "g") == {INTERVAL: "6000"}


def _replace(broker: Broker, name: str, value: str) -> ErrorCode:
    configs = [AlterableConfig(name=name, value=value)]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=configs)
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    (result,) = broker.ask(request, 2, AlterConfigsResponse).responses
    return ErrorCode(result.error_code)
