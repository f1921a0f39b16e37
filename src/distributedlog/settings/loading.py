"""Where the values of a node's settings come from.

A value is taken from the first of these that has it:

    --set key=value              the command line
    DLOG_KEY                     the environment: upper case, dots become underscores
    "key" = value                the file
    the default

An unknown name is refused, with the name that was probably meant.  A variable of the environment whose name
begins with DLOG_ but is like no setting belongs to someone else and is left alone.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from distributedlog.model.config import LogConfig
from distributedlog.model.errors import ConfigError
from distributedlog.model.suggestions import nearest
from distributedlog.settings.config_file import read_config_file
from distributedlog.settings.node_settings import (
    DATA_DIRECTORY,
    SETTINGS,
    SYNONYMS,
    NodeSettings,
    Source,
)
from distributedlog.settings.schema import Setting

_logger = logging.getLogger(__name__)

REMOVED: Final = {"gateway.listener": "the gateway is a process of its own, 'dlog gateway'"}
"""Settings of earlier versions: files that have them are still read."""


def load_settings(
    path: str | None, overrides: Mapping[str, str], environment: Mapping[str, str]
) -> NodeSettings:
    """The settings in force: of the file (if any), the environment and the command line."""
    layers = (
        (Source.COMMAND_LINE, _known(overrides, "--set")),
        (Source.ENVIRONMENT, _from_environment(environment)),
        (Source.FILE, {} if path is None else _known(read_config_file(path), path)),
    )
    own: dict[str, Any] = {}
    log: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    for source, given in layers:
        for setting, value in _values(given):
            if setting.name not in sources:
                sources[setting.name] = source
                (log if setting.is_log else own)[setting.field] = value
    own.setdefault("data_dir", DATA_DIRECTORY)
    own["data_dir"] = os.path.abspath(os.path.expanduser(own["data_dir"]))
    if own.get("secret_file"):
        own["secret_file"] = os.path.abspath(os.path.expanduser(own["secret_file"]))
    if "control_listener" not in own:
        mine = own.get("node_id", 1)
        for voter in own.get("controller_quorum_voters", ()):
            if voter.node_id == mine:
                own["control_listener"] = voter.endpoint
    return NodeSettings(**own, log=LogConfig(**log), sources=sources)


def _values(given: Mapping[str, str]) -> Iterator[tuple[Setting, Any]]:
    """Yields the values of one source, the finest unit first."""
    for name, text in given.items():
        if name in SETTINGS:
            yield SETTINGS[name], SETTINGS[name].read(text)
    for name, (setting, factor) in SYNONYMS.items():
        if name in given:
            yield setting, setting.read_synonym(name, factor, given[name])


def _known(given: Mapping[str, str], where: str) -> Mapping[str, str]:
    for name in [name for name in given if name in REMOVED]:
        _logger.warning("%s: the setting %s has no effect any more: %s", where, name, REMOVED[name])
        given = {each: text for each, text in given.items() if each != name}
    for name in given:
        if name not in SETTINGS and name not in SYNONYMS:
            raise ConfigError(f"{where}: there is no setting {name[:100]!r}{_meant(name)}")
    return given


def _meant(name: str, known: tuple[str, ...] = ()) -> str:
    close = nearest(name, known or (*SETTINGS, *SYNONYMS))
    return f"; did you mean {close!r}?" if close else "; docs/configuration.md lists them all"


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    by_variable = {name.upper().replace(".", "_"): name for name in (*SETTINGS, *SYNONYMS)}
    found = {}
    for variable, text in environment.items():
        if not variable.startswith("DLOG_"):
            continue
        name = by_variable.get(variable.removeprefix("DLOG_"))
        if name is not None:
            found[name] = text
            continue
        close = nearest(variable.removeprefix("DLOG_"), by_variable)
        if close is not None:
            raise ConfigError(f"environment: there is no setting {variable}; did you mean DLOG_{close}?")
    return found
