"""Settings of subscriptions to clients' metrics, through the handlers: kept and described."""

import pytest

from distributedlog.model.error_codes import ErrorCode
from tests.unit.broker.handlers.admin_stage import Broker
from tests.unit.broker.handlers.config_requests import EVERY, describe, one
from tests.unit.broker.handlers.test_incremental_alter_configs import APPEND, DELETE, SET, SUBTRACT, ask

METRICS = 16
OF_METRICS, OF_DEFAULT = 7, 5


@pytest.mark.parametrize("version", EVERY)
def test_a_subscription_that_is_not_there_has_the_defaults(version: int) -> None:
    told = {each.name: each for each in describe(Broker(), METRICS, "m", version=version).configs}
    values = {name: (each.value, each.config_source, each.read_only) for name, each in told.items()}
    assert values == {
        "interval.ms": ("300000", OF_DEFAULT, False),
        "match": ("", OF_DEFAULT, False),
        "metrics": ("", OF_DEFAULT, False),
    }


def test_what_is_set_is_told_and_that_it_has_no_effect() -> None:
    broker = Broker()
    edits = (("interval.ms", SET, "5000"), ("metrics", SET, "a., b."), ("match", SET, "client_id=x"))
    assert ask(broker, METRICS, "m", *edits) is ErrorCode.NONE
    told = one(broker, METRICS, "m", "metrics", documentation=True, synonyms=True)
    assert (told.value, told.config_source) == ("a.,b.", OF_METRICS)
    assert [(each.name, each.value, each.source) for each in told.synonyms] == [
        ("metrics", "a.,b.", OF_METRICS)
    ]
    assert (told.documentation or "").startswith("Kept and described, without effect here.")
    assert one(broker, METRICS, "other", "metrics").config_source == OF_DEFAULT
    for op in (APPEND, SUBTRACT):
        assert ask(broker, METRICS, "m", ("metrics", op, "a.")) is ErrorCode.INVALID_CONFIG
    assert ask(broker, METRICS, "m", ("interval.ms", DELETE, None)) is ErrorCode.NONE
    told = one(broker, METRICS, "m", "interval.ms", synonyms=True)
    assert (told.value, told.synonyms) == ("300000", [])


@pytest.mark.parametrize(
    ("resource", "name", "value", "code"),
    [
        ("m", "interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("m", "interval.ms", "x", ErrorCode.INVALID_CONFIG),
        ("m", "no.such", "1", ErrorCode.INVALID_REQUEST),
        ("m", "match", "nobody=x", ErrorCode.INVALID_CONFIG),
        ("", "interval.ms", "5000", ErrorCode.INVALID_REQUEST),
        ("m" * 1_001, "interval.ms", "5000", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_kafka_refuses_is_refused(resource: str, name: str, value: str, code: ErrorCode) -> None:
    broker = Broker()
    assert ask(broker, METRICS, resource, (name, SET, value)) is code
    assert not broker.image.settings_of(METRICS, resource)


def test_the_one_without_a_name_is_not_told() -> None:
    assert describe(Broker(), METRICS, "").error_code == ErrorCode.INVALID_REQUEST
