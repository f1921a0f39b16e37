"""The levels of this process's loggers, told and changed while it runs, as Kafka's BROKER_LOGGER.

    FATAL   ERROR   WARN   INFO   DEBUG   TRACE      as Kafka names them
    50      40      30     20     10      5          as Python's logging counts

A logger is named after its module, and those of packages are above it: `distributedlog.broker.net` is above
`distributedlog.broker.net.server`, and `root` above all.  One without a level of its own has that of the next
above it that has one.  There are those that some module has asked for by now, and their packages.

A level that is taken back is again what it was before the first change, as a rule none of its own.  Nothing
is kept: after a restart the levels are those of the settings.
"""

import logging
from collections.abc import Mapping
from typing import Final

from distributedlog.model.errors import ConfigError, InvalidRequestError

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""From the highest down."""
_levels_before: Final[dict[str, int]] = {}
"""What loggers had of their own before they were changed.  One for the process, as its loggers are."""

logger = logging.getLogger(__name__)


def list_levels() -> dict[str, str]:
    """The level that holds for each logger, by name."""
    names = sorted(logging.root.manager.loggerDict)
    return {ROOT: _name_level(logging.root.level)} | {
        name: _name_level(_find_effective(name)) for name in names if name != ROOT
    }


def _find_effective(name: str) -> int:
    """Found without making a logger of what is only a package until now."""
    while name:
        known = logging.root.manager.loggerDict.get(name)
        if isinstance(known, logging.Logger) and known.level != logging.NOTSET:
            return known.level
        name = name.rpartition(".")[0]
    return logging.root.level


def _name_level(level: int) -> str:
    return next((name for name, lowest in LEVELS.items() if level >= lowest), "TRACE")


def check_level(name: str, level: str) -> None:
    """Raises if the logger cannot have the level."""
    _check_exists(name)
    if level not in LEVELS:
        raise ConfigError(f"{level[:80]!r} is no level of a logger: there are {', '.join(LEVELS)}")


def check_unset(name: str) -> None:
    """Raises if the logger's level cannot be taken back."""
    _check_exists(name)
    if name == ROOT:
        raise InvalidRequestError("the root logger always has a level: set another")


def _check_exists(name: str) -> None:
    if name != ROOT and name not in logging.root.manager.loggerDict:
        raise ConfigError(f"there is no logger {name[:80]!r}")


def set_level(name: str, level: str) -> None:
    """Sets what `check_level` has let pass."""
    changed = logging.root if name == ROOT else logging.getLogger(name)
    _levels_before.setdefault(name, changed.level)
    changed.setLevel(LEVELS[level])
    logger.warning("the level of a logger was set", extra={"fields": {"of": name, "to": level}})


def unset_level(name: str) -> None:
    """Takes back what `check_unset` has let pass."""
    changed = logging.getLogger(name)
    changed.setLevel(_levels_before.pop(name, changed.level))
    logger.warning("the level of a logger was taken back", extra={"fields": {"of": name}})
