"""The levels of loggers, told and changed."""

import logging
from collections.abc import Iterator

import pytest

from distributedlog.broker.observability import loggers
from distributedlog.model.errors import ConfigError, InvalidRequestError

PACKAGE, MODULE = "tests_of_loggers.package", "tests_of_loggers.package.module"


@pytest.fixture(autouse=True)
def _levels_afterwards() -> Iterator[None]:
    logging.getLogger(MODULE)
    root_level = logging.root.level
    yield
    logging.root.setLevel(root_level)
    for name in (PACKAGE, MODULE):
        logging.getLogger(name).setLevel(logging.NOTSET)
    loggers._levels_before.clear()


def test_a_logger_has_the_level_of_what_is_above_it_until_it_has_its_own() -> None:
    loggers.set_level("root", "ERROR")
    assert loggers.list_levels()[MODULE] == loggers.list_levels()[PACKAGE] == "ERROR"
    loggers.set_level(PACKAGE, "INFO")
    assert loggers.list_levels()[MODULE] == "INFO"
    loggers.set_level(MODULE, "FATAL")
    told = loggers.list_levels()
    assert (told["root"], told[PACKAGE], told[MODULE]) == ("ERROR", "INFO", "FATAL")
    loggers.unset_level(MODULE)
    assert loggers.list_levels()[MODULE] == "INFO"
    loggers.unset_level(PACKAGE)
    assert loggers.list_levels()[MODULE] == "ERROR"


@pytest.mark.parametrize("level", ["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"])
def test_every_level_holds_and_is_told_as_kafka_names_it(level: str) -> None:
    loggers.set_level(PACKAGE, level)
    assert loggers.list_levels()[MODULE] == level
    logger = logging.getLogger(MODULE)
    lowest = loggers.LEVELS[level]
    assert logger.isEnabledFor(lowest)
    assert not logger.isEnabledFor(lowest - 1)


def test_a_level_that_is_taken_back_is_what_it_was_at_the_start() -> None:
    logging.getLogger(PACKAGE).setLevel(logging.WARNING)
    loggers.set_level(PACKAGE, "DEBUG")
    loggers.set_level(PACKAGE, "TRACE")
    loggers.unset_level(PACKAGE)
    assert loggers.list_levels()[PACKAGE] == "WARN"
    loggers.unset_level(PACKAGE)
    assert loggers.list_levels()[PACKAGE] == "WARN", "what was not changed stays"


def test_to_look_makes_no_logger() -> None:
    loggers.list_levels()
    assert not isinstance(logging.root.manager.loggerDict["tests_of_loggers"], logging.Logger)


def test_what_is_no_logger_and_no_level_is_refused() -> None:
    for name in ("tests_of_loggers.none", "", "tests_of_loggers."):
        with pytest.raises(ConfigError, match="no logger"):
            loggers.check_level(name, "INFO")
        with pytest.raises(ConfigError, match="no logger"):
            loggers.check_unset(name)
    for level in ("BANANA", "info", "WARNING", ""):
        with pytest.raises(ConfigError, match="no level"):
            loggers.check_level(PACKAGE, level)
    with pytest.raises(InvalidRequestError, match="root"):
        loggers.check_unset("root")
    loggers.check_level("root", "INFO")
    loggers.check_unset(PACKAGE)
