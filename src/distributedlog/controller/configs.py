"""Settings of topics, brokers, groups and the cluster: what is in force, and which changes are allowed.

A topic's setting is its own, else the cluster's default (the broker settings of no particular broker), else
the controller's own.  A resource's settings are checked together, as they would be after the change; one
wrong setting refuses the resource and leaves the others of the request alone.

Topics have the settings of a log and the two of replication below; any other name is refused.  So it is with
groups (`model.group_settings`), which need not be there yet.  Brokers may have settings that this version
does not know, as in Kafka: only known ones are checked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from distributedlog.controller.bundles import BUNDLE_RECORDS_MAX
from distributedlog.controller.features import LEVEL_MAX, LEVEL_MIN
from distributedlog.controller.image import CLUSTER_DEFAULT, ConfigResource, MetadataImage, ResourceType
from distributedlog.controller.records import ConfigChanged
from distributedlog.model.config import SECOND_MS, LogConfig
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.errors import (
    BrokerNotRegisteredError,
    ConfigError,
    InvalidRequestError,
    UnknownTopicError,
)
from distributedlog.model.group_settings import read_settings

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
REPLICATION_SETTINGS: Final = frozenset({MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION})
TOPIC_SETTINGS: Final = tuple(sorted({*LogConfig.by_name, *REPLICATION_SETTINGS}))
"""All that a topic may have, by name."""
LIST_SETTINGS: Final = frozenset({"cleanup.policy"})
RECORDS_BESIDE_PARTITIONS: Final = 16
"""Of an entry that changes every partition: what else it may say."""
GROUP_NAME_LENGTH_MAX: Final = 1_000
GROUPS_WITH_SETTINGS_MAX: Final = 10_000
"""They need not be there, so that nothing else bounds how many there are."""
SETTING_NAME_LENGTH_MAX: Final = 255
SETTING_VALUE_LENGTH_MAX: Final = 32_000
SETTINGS_PER_RESOURCE_MAX: Final = 1_000
SETTINGS_LENGTH_MAX: Final = 64_000
"""Of all names and values of one resource: every node keeps the image of them in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """What one controller is set up with."""

    controller_id: int
    cluster_id: str
    level_max: int = LEVEL_MAX
    """The highest level that this process reads and writes."""
    bootstrap_level: int = LEVEL_MAX
    """Of a cluster that this controller is the first of."""
    bootstrap_group_level: int = 0
    """Likewise, of the feature `group.version`."""
    session_timeout_ms: int = 9 * SECOND_MS
    data_loop_lag_ms_max: int = 6 * SECOND_MS
    """A broker whose data loop lags more is as good as silent."""
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    leader_balance_interval_ms: int = 300 * SECOND_MS
    elections_per_balance_max: int = 1_000
    partitions_max: int = 16_000
    """Of the whole cluster: fencing a broker is one entry of the log, whatever it holds."""
    topics_per_request_max: int = 10_000

    def __post_init__(self) -> None:
        if not LEVEL_MIN <= self.bootstrap_level <= self.level_max <= LEVEL_MAX:
            raise ConfigError(
                f"level {self.bootstrap_level} of at most {self.level_max}: "
                f"this version has the levels {LEVEL_MIN} to {LEVEL_MAX}"
            )
        if not 0 < self.partitions_max <= BUNDLE_RECORDS_MAX - RECORDS_BESIDE_PARTITIONS:
            raise ConfigError(
                f"partitions_max is {self.partitions_max}: one entry holds {BUNDLE_RECORDS_MAX}"
            )


class ConfigEdit(NamedTuple):
    name: str
    op: int
    value: str | None = None


# --- what is in force --------------------------------------------------------------------------


def _in_force(image: MetadataImage, topic: str, name: str) -> str | None:
    own = image.settings_of(ResourceType.TOPIC, topic).get(name)
    return own if own is not None else image.settings_of(ResourceType.BROKER, CLUSTER_DEFAULT).get(name)


def min_insync_replicas(image: MetadataImage, config: ControllerConfig, topic: str) -> int:
    text = _in_force(image, topic, MIN_INSYNC_REPLICAS)
    return config.min_insync_replicas if text is None else int(text)


def allows_unclean_election(image: MetadataImage, config: ControllerConfig, topic: str) -> bool:
    text = _in_force(image, topic, UNCLEAN_ELECTION)
    return config.unclean_leader_election if text is None else text.strip().lower() == "true"


# --- changes -----------------------------------------------------------------------------------


def replace_settings(
    image: MetadataImage, resource: ConfigResource, settings: Mapping[str, str | None]
) -> list[ConfigChanged]:
    """The given settings and no others."""
    _check_exists(image, resource)
    nulls = [name for name, value in settings.items() if value is None]
    if nulls:
        raise InvalidRequestError(f"the setting {nulls[0]!r} has no value")
    before = dict(image.settings_of(*resource).items())
    after = {name: value for name, value in settings.items() if value is not None}
    check_settings(resource, after)
    return _differences(resource, before, after)


def edit_settings(
    image: MetadataImage, resource: ConfigResource, edits: Iterable[ConfigEdit]
) -> list[ConfigChanged]:
    """The settings as they are, but for the edits."""
    _check_exists(image, resource)
    before = dict(image.settings_of(*resource).items())
    after = dict(before)
    edited: set[str] = set()
    for edit in edits:
        if edit.name in edited:
            raise InvalidRequestError(f"the setting {edit.name!r} is edited twice")
        edited.add(edit.name)
        value = _edited(before.get(edit.name), edit)
        if value is None:
            after.pop(edit.name, None)
        else:
            after[edit.name] = value
    check_settings(resource, after)
    return _differences(resource, before, after)


def _edited(before: str | None, edit: ConfigEdit) -> str | None:
    if edit.op not in list(ConfigOp):
        raise InvalidRequestError(f"{edit.op} is no operation on a setting")
    if edit.op == ConfigOp.DELETE:
        return None
    if edit.value is None:
        raise InvalidRequestError(f"the setting {edit.name!r} has no value")
    if edit.op == ConfigOp.SET:
        return edit.value
    if edit.name not in LIST_SETTINGS:
        raise ConfigError(f"{edit.name!r} is no list: nothing can be appended to it or taken from it")
    if before is None:
        before = LogConfig().to_properties()[edit.name]
    parts = [part for part in before.split(",") if part]
    given = edit.value.split(",")
    if edit.op == ConfigOp.APPEND:
        return ",".join(parts + [each for each in dict.fromkeys(given) if each not in parts])
    return ",".join(each for each in parts if each not in given)


def _differences(
    resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str]
) -> list[ConfigChanged]:
    return [
        ConfigChanged(
            resource_type=resource.kind, resource_name=resource.name, name=name, value=after.get(name)
        )
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _check_exists(image: MetadataImage, resource: ConfigResource) -> None:
    kind, name = resource
    if kind == ResourceType.TOPIC:
        if not name:
            raise InvalidRequestError("topics have no settings in common: name one")
        if name not in image.topic_ids:
            raise UnknownTopicError(f"there is no topic {name!r}")
    elif kind == ResourceType.BROKER:
        if name == CLUSTER_DEFAULT:
            return
        if not (name.isascii() and name.isdigit() and len(name) <= 10):
            raise InvalidRequestError(f"{name!r} is no broker id")
        if int(name) not in image.brokers:
            raise BrokerNotRegisteredError(f"broker {name} is not registered")
    elif kind == ResourceType.GROUP:
        if not 0 < len(name) <= GROUP_NAME_LENGTH_MAX:
            raise InvalidRequestError("groups have no settings in common: name one, and not at length")
    else:
        raise InvalidRequestError(f"resources of type {kind} have no settings here")


class GroupRoom:
    """How many more groups may have settings.  Counted once for a request, however many of them it brings."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._left: int | None = None

    def take(self, resource: ConfigResource) -> None:
        """For a resource that is to have settings; ConfigError if it is one group too many."""
        if resource.kind != ResourceType.GROUP or resource in self._image.configs:
            return
        if self._left is None:
            groups = sum(each.kind == ResourceType.GROUP for each in self._image.configs)
            self._left = GROUPS_WITH_SETTINGS_MAX - groups
        if self._left <= 0:
            raise ConfigError(f"{GROUPS_WITH_SETTINGS_MAX} groups have settings of their own: no more may")
        self._left -= 1


def check_settings(resource: ConfigResource, settings: Mapping[str, str]) -> None:
    """All settings that the resource would have."""
    if len(settings) > SETTINGS_PER_RESOURCE_MAX:
        raise ConfigError(f"{len(settings)} settings are more than {SETTINGS_PER_RESOURCE_MAX}")
    length = sum(len(name) + len(value) for name, value in settings.items())
    if length > SETTINGS_LENGTH_MAX:
        raise ConfigError(f"the settings have {length} characters in all; at most {SETTINGS_LENGTH_MAX} fit")
    for name, value in settings.items():
        if not 0 < len(name) <= SETTING_NAME_LENGTH_MAX or len(value) > SETTING_VALUE_LENGTH_MAX:
            raise ConfigError(f"the setting {name[:SETTING_NAME_LENGTH_MAX]!r} is too long, or has no name")
        _check_replication(name, value)
    if resource.kind == ResourceType.TOPIC:
        unknown = [name for name in settings if name not in TOPIC_SETTINGS]
        if unknown:
            raise ConfigError(f"unknown setting {unknown[0]!r}; known are {', '.join(TOPIC_SETTINGS)}")
        LogConfig.from_properties(
            {name: value for name, value in settings.items() if name not in REPLICATION_SETTINGS}
        )
    elif resource.kind == ResourceType.GROUP:
        read_settings(settings)


def _check_replication(name: str, value: str) -> None:
    if name == MIN_INSYNC_REPLICAS and not (
        value.isascii() and value.isdigit() and len(value) < 10 and int(value) >= 1
    ):
        raise ConfigError(f"{name} cannot be {value!r}: it is a whole number, at least 1")
    if name == UNCLEAN_ELECTION and value.strip().lower() not in ("true", "false"):
        raise ConfigError(f"{name} cannot be {value!r}: it is true or false")
