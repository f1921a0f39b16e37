"""Levels of loggers, through the handlers."""

import logging
from collections.abc import Iterator

import pytest

from distributedlog.model.error_codes import ErrorCode
from tests.unit.broker.handlers.admin_stage import Broker
from tests.unit.broker.handlers.config_requests import EVERY, describe, one
from tests.unit.broker.handlers.test_incremental_alter_configs import APPEND, DELETE, SET, SUBTRACT, ask

LOGGER = 8
NAME = "tests_of_logger_configs.module"
OF_LOGGER = 6


@pytest.fixture(autouse=True)
def _levels_afterwards() -> Iterator[None]:
    logging.getLogger(NAME)
    yield
    logging.getLogger(NAME).setLevel(logging.NOTSET)


def level(broker: Broker) -> str | None:
    return one(broker, LOGGER, "1", NAME).value


def test_a_level_is_changed_while_the_broker_runs_and_taken_back() -> None:
    broker = Broker()
    before = level(broker)
    assert ask(broker, LOGGER, "1", (NAME, SET, "TRACE"), validate_only=True) is ErrorCode.NONE
    assert level(broker) == before
    assert ask(broker, LOGGER, "1", (NAME, SET, "TRACE")) is ErrorCode.NONE
    assert level(broker) == "TRACE"
    assert logging.getLogger(NAME).isEnabledFor(5)
    assert ask(broker, LOGGER, "1", (NAME, DELETE, None)) is ErrorCode.NONE
    assert level(broker) == before
    assert broker.controller.asked == [], "it is nobody else's"


@pytest.mark.parametrize("version", EVERY)
def test_every_version_tells_all_loggers(version: int) -> None:
    told = {each.name: each for each in describe(Broker(), LOGGER, "1", version=version).configs}
    assert {"root", NAME, "distributedlog.broker.observability.loggers", "distributedlog.broker"} <= set(told)
    assert not any(each.read_only or each.is_sensitive or each.synonyms for each in told.values())
    assert all(each.config_source == OF_LOGGER for each in told.values())
    assert {each.value for each in told.values()} <= {"FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"}


@pytest.mark.parametrize(
    ("broker_name", "name", "op", "value", "code"),
    [
        ("1", NAME, SET, "BANANA", ErrorCode.INVALID_CONFIG),
        ("1", NAME, SET, "debug", ErrorCode.INVALID_CONFIG),
        ("1", NAME, SET, None, ErrorCode.INVALID_REQUEST),
        ("1", "no.such", SET, "INFO", ErrorCode.INVALID_CONFIG),
        ("1", "no.such", DELETE, None, ErrorCode.INVALID_CONFIG),
        ("1", "root", DELETE, None, ErrorCode.INVALID_REQUEST),
        ("1", NAME, APPEND, "INFO", ErrorCode.INVALID_REQUEST),
        ("1", NAME, SUBTRACT, "INFO", ErrorCode.INVALID_REQUEST),
        ("2", NAME, SET, "INFO", ErrorCode.INVALID_REQUEST),
        ("", NAME, SET, "INFO", ErrorCode.INVALID_REQUEST),
        ("one", NAME, SET, "INFO", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused(
    broker_name: str, name: str, op: int, value: str | None, code: ErrorCode
) -> None:
    broker = Broker(1, 2)
    before = level(broker)
    assert ask(broker, LOGGER, broker_name, (name, op, value)) is code
    assert level(broker) == before


def test_one_wrong_level_changes_none() -> None:
    broker = Broker()
    before = level(broker)
    edits = ((NAME, SET, "TRACE"), ("no.such", SET, "TRACE"))
    assert ask(broker, LOGGER, "1", *edits) is ErrorCode.INVALID_CONFIG
    assert level(broker) == before


@pytest.mark.parametrize("name", ["2", "", "one"])
def test_only_the_brokers_own_are_told(name: str) -> None:
    result = describe(Broker(1, 2), LOGGER, name)
    assert (result.error_code, result.configs) == (ErrorCode.INVALID_REQUEST, [])
