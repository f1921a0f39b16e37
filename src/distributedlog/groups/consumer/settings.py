"""What is in force for one consumer group: its own settings, else the broker's.

| setting                        | is within the broker's                         | and else is the broker's |
|--------------------------------|------------------------------------------------|--------------------------|
| consumer.session.timeout.ms    | group.consumer.{min,max}.session.timeout.ms    | group.consumer.session…  |
| consumer.heartbeat.interval.ms | group.consumer.{min,max}.heartbeat.interval.ms | group.consumer.heart…    |

A session is longer than an interval.  The other settings of a group (`model.group_settings`) have no effect.
Settings are checked when they are made, by the broker that gets them; the one that coordinates may have other
bounds, and keeps to its own: a value beyond them counts as the bound, and two that contradict each other do
not count.  Members learn of a change with the next heartbeat.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.turn import Turn
from distributedlog.model.errors import ConfigError
from distributedlog.model.group_settings import (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    check_settings,
    read_consumer_settings,
)


def _bounds(config: GroupConfig) -> dict[str, tuple[int, int]]:
    return {
        SESSION_TIMEOUT: (config.consumer_session_timeout_ms_min, config.consumer_session_timeout_ms_max),
        HEARTBEAT_INTERVAL: (
            config.consumer_heartbeat_interval_ms_min,
            config.consumer_heartbeat_interval_ms_max,
        ),
    }


def _override(values: Mapping[str, int], config: GroupConfig) -> GroupConfig:
    return replace(
        config,
        consumer_session_timeout_ms=values.get(SESSION_TIMEOUT, config.consumer_session_timeout_ms),
        consumer_heartbeat_interval_ms=values.get(HEARTBEAT_INTERVAL, config.consumer_heartbeat_interval_ms),
    )


def _is_consistent(config: GroupConfig) -> bool:
    return config.consumer_heartbeat_interval_ms < config.consumer_session_timeout_ms


def check(settings: Mapping[str, str], config: GroupConfig) -> None:
    """All settings that a group would have."""
    check_settings(settings)
    values = read_consumer_settings(settings)
    bounds = _bounds(config)
    for name, value in values.items():
        low, high = bounds[name]
        if not low <= value <= high:
            raise ConfigError(f"{name} cannot be {value}: here it is {low} to {high}")
    if values and not _is_consistent(_override(values, config)):
        raise ConfigError(f"{SESSION_TIMEOUT} has to be longer than {HEARTBEAT_INTERVAL}")


def resolve_config(settings: Mapping[str, str], config: GroupConfig) -> GroupConfig:
    if not settings:
        return config
    try:
        values = read_consumer_settings(settings)
    except ConfigError:
        return config  # made past all checks
    bounds = _bounds(config)
    within = {name: min(max(value, bounds[name][0]), bounds[name][1]) for name, value in values.items()}
    own = _override(within, config)
    return own if _is_consistent(own) else config


def make_group_turn(settings: Mapping[str, str], turn: Turn) -> Turn:
    """The same turn, with what is in force for the group: what is written in the one is in the other."""
    config = resolve_config(settings, turn.config)
    if config is turn.config:
        return turn
    own = copy(turn)
    own.config = config
    return own
