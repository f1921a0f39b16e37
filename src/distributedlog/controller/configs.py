"""Settings of topics, brokers, groups and the cluster: what is in force, and which changes are allowed.

What is in force of the settings of the whole cluster is `cluster_settings`' to say.  A resource's settings
are checked together, as they would be after the change; one wrong setting refuses the resource and leaves the
others of the request alone.

Topics have the settings of a log, the two of replication below, and those of Kafka that are only kept
(`model.kept_settings`); any other name is refused.  So it is with groups (`model.group_settings`), which need
not be there yet, and with subscriptions to clients' metrics (`model.client_metrics_settings`), which are
nothing but their settings.  A topic's `segment.bytes` has Kafka's bound; smaller segments, as tests need
them, are made with Kafka's `internal.segment.bytes`, of which DescribeConfigs does not tell.  What a topic
has from an earlier version does not stand in the way of other changes.  Brokers may have settings that this
version does not know, as in Kafka: only known ones are checked.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from distributedlog.controller.bundles import BUNDLE_RECORDS_MAX
from distributedlog.controller.cluster_settings import check_cluster_settings
from distributedlog.controller.features import LEVEL_MAX, LEVEL_MIN
from distributedlog.controller.image import (
    CLUSTER_DEFAULT,
    ConfigResource,
    MetadataImage,
    ResourceType,
)
from distributedlog.controller.records import ConfigChanged
from distributedlog.model import client_metrics_settings, group_settings
from distributedlog.model.cluster_settings import CLUSTER_SETTINGS, MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from distributedlog.model.config import MIB, SECOND_MS, LogConfig
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.errors import (
    BrokerNotRegisteredError,
    ConfigError,
    InvalidRequestError,
    UnknownTopicError,
)
from distributedlog.model.ids import check_topic_name
from distributedlog.model.kept_settings import KEPT_SETTINGS

REPLICATION_SETTINGS: Final = frozenset({MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION})
TOPIC_SETTINGS: Final = tuple(sorted({*LogConfig.by_name, *REPLICATION_SETTINGS, *KEPT_SETTINGS}))
"""All that a topic may have, by name."""
SEGMENT_BYTES: Final = "segment.bytes"
INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"
"""Counts before `segment.bytes`, and has no bound but the log's."""
SEGMENT_BYTES_MIN: Final = 1 * MIB
COMPACTION_LAGS: Final = frozenset({"min.compaction.lag.ms", "max.compaction.lag.ms"})
LIST_DEFAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanup.policy": LogConfig().cleanup_policy,
    **{name: setting.default for name, setting in KEPT_SETTINGS.items() if setting.default == ()},
}
"""The settings that are lists, and what they are where a topic says nothing.  As in Kafka nothing can be
appended to the lists of clients' metrics."""
RECORDS_BESIDE_PARTITIONS: Final = 16
"""The records that an entry which changes every partition may have besides."""
UNBOUNDED_KINDS: Final[Mapping[int, str]] = {
    ResourceType.GROUP: "groups",
    ResourceType.CLIENT_METRICS: "subscriptions to metrics",
}
"""Resources that need not be there, so that nothing else bounds how many there are."""
NAME_LENGTH_MAX: Final = 1_000
"""The length of the name of such a resource."""
RESOURCES_WITH_SETTINGS_MAX: Final = 10_000
"""The number of resources of each such kind."""
SETTING_NAME_LENGTH_MAX: Final = 255
SETTING_VALUE_LENGTH_MAX: Final = 32_000
SETTINGS_PER_RESOURCE_MAX: Final = 1_000
SETTINGS_LENGTH_MAX: Final = 64_000
"""The length of all names and values of one resource: every node keeps the image of them in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """What one controller is set up with."""

    controller_id: int
    cluster_id: str
    level_max: int = LEVEL_MAX
    """The highest level that this process reads and writes."""
    bootstrap_level: int = LEVEL_MAX
    """The level of a cluster that this controller is the first of."""
    bootstrap_group_level: int = 0
    """Likewise, of the feature `group.version`."""
    bootstrap_transaction_level: int = 0
    """Likewise of `transaction.version`."""
    cluster_settings: Mapping[str, str] = field(default_factory=dict)
    """What a cluster gets that lacks them, of the settings of the whole cluster; else they have defaults."""
    brokers_expected: int = 1
    """How many brokers a cluster will have that this controller is the first of: it is formatted to replicate
    over as many."""
    refused_timeout_ms: int = 1 * SECOND_MS
    """A broker that has been silent for this long, and whose ports refuse, is fenced."""
    election_timeout_ms: int = 1 * SECOND_MS
    """The voters' own: who elects another controller has not heard the one before it for this long."""
    leader_balance_interval_ms: int = 300 * SECOND_MS
    elections_per_balance_max: int = 1_000
    partitions_max: int = 16_000
    """The partitions of the whole cluster: fencing a broker is one entry of the log, whatever it holds."""
    internal_partitions_reserve: int = 200
    """The partitions, of these, that only internal topics may have: groups can be made in a full cluster."""
    topics_per_request_max: int = 10_000

    def __post_init__(self) -> None:
        if not LEVEL_MIN <= self.bootstrap_level <= self.level_max <= LEVEL_MAX:
            raise ConfigError(
                f"level {self.bootstrap_level} of at most {self.level_max}: "
                f"this version has the levels {LEVEL_MIN} to {LEVEL_MAX}"
            )
        for name, value in self.cluster_settings.items():
            CLUSTER_SETTINGS[name].read(value)
        if not 0 < self.partitions_max <= BUNDLE_RECORDS_MAX - RECORDS_BESIDE_PARTITIONS:
            raise ConfigError(
                f"partitions_max is {self.partitions_max}: one entry holds {BUNDLE_RECORDS_MAX}"
            )


ALL_BROKERS: Final = ConfigResource(ResourceType.BROKER, CLUSTER_DEFAULT)


class ConfigEdit(NamedTuple):
    name: str
    op: int
    value: str | None = None


# --- precedence --------------------------------------------------------------------------------


class DynamicConfigs:
    """The settings of an image that a broker has at run time, and their precedence.

    A topic's or group's own setting comes first, then the broker's, then the default of the whole cluster.
    What the node was started with comes after these, and is not the image's to know.  Of the settings of the
    whole cluster a broker has none.
    """

    __slots__ = ("broker", "cluster")

    def __init__(self, image: MetadataImage, broker_id: int) -> None:
        self.broker = image.settings_of(ResourceType.BROKER, str(broker_id))
        self.cluster = image.settings_of(ResourceType.BROKER, CLUSTER_DEFAULT)

    def values(self, broker_name: str) -> Iterator[tuple[str, bool]]:
        """Yields the values of a broker's setting, the one that counts first, and whether it is the
        broker's own."""
        for settings, is_own in ((self.broker, True), (self.cluster, False)):
            value = settings.get(broker_name)
            if value is not None and not (is_own and broker_name in CLUSTER_SETTINGS):
                yield value, is_own


# --- changes -----------------------------------------------------------------------------------


def replace_settings(
    image: MetadataImage, resource: ConfigResource, settings: Mapping[str, str | None]
) -> list[ConfigChanged]:
    """The given settings and no others; those of the whole cluster stay, since they cannot be removed."""
    _check_exists(image, resource)
    nulls = [name for name, value in settings.items() if value is None]
    if nulls:
        raise InvalidRequestError(f"the setting {nulls[0]!r} has no value")
    before = dict(image.settings_of(*resource).items())
    stays = CLUSTER_SETTINGS.keys() if resource == ALL_BROKERS else ()
    after = {name: before[name] for name in stays if name in before}
    after |= {name: value for name, value in settings.items() if value is not None}
    check_settings(resource, after, before)
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
    check_settings(resource, after, before)
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
    if edit.name not in LIST_DEFAULTS:
        raise ConfigError(f"{edit.name!r} is no list: nothing can be appended to it or taken from it")
    parts = [part for part in before.split(",") if part] if before is not None else LIST_DEFAULTS[edit.name]
    given = edit.value.split(",")
    if edit.op == ConfigOp.APPEND:
        return ",".join([*parts, *(each for each in dict.fromkeys(given) if each not in parts)])
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
        check_topic_name(name)
        if name not in image.topic_ids:
            raise UnknownTopicError(f"there is no topic {name!r}")
    elif kind == ResourceType.BROKER:
        if name == CLUSTER_DEFAULT:
            return
        if not (name.isascii() and name.isdigit() and len(name) <= 10):
            raise InvalidRequestError(f"{name!r} is no broker id")
        if int(name) not in image.brokers:
            raise BrokerNotRegisteredError(f"broker {name} is not registered")
    elif kind in UNBOUNDED_KINDS:
        if not 0 < len(name) <= NAME_LENGTH_MAX:
            raise InvalidRequestError(
                f"{UNBOUNDED_KINDS[kind]} have no settings in common: name one, and not at length"
            )
    else:
        raise InvalidRequestError(f"resources of type {kind} have no settings here")


class ResourceRoom:
    """How many more resources may have settings, of the kinds that nothing else bounds.  Counted once for a
    request, however many of them it brings."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._left: Counter[int] | None = None

    def take(self, resource: ConfigResource) -> None:
        """Takes room for a resource that is to have settings; ConfigError if it is one too many."""
        kind = resource.kind
        if kind not in UNBOUNDED_KINDS or resource in self._image.configs:
            return
        if self._left is None:
            self._left = Counter(dict.fromkeys(UNBOUNDED_KINDS, RESOURCES_WITH_SETTINGS_MAX))
            self._left.subtract(each.kind for each in self._image.configs)
        if self._left[kind] <= 0:
            raise ConfigError(
                f"{RESOURCES_WITH_SETTINGS_MAX} {UNBOUNDED_KINDS[kind]} have settings: no more may"
            )
        self._left[kind] -= 1


def check_settings(
    resource: ConfigResource, settings: Mapping[str, str], before: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Checks all settings that the resource would have; `before` are those that it has."""
    if len(settings) > SETTINGS_PER_RESOURCE_MAX:
        raise ConfigError(f"{len(settings)} settings are more than {SETTINGS_PER_RESOURCE_MAX}")
    length = sum(len(name) + len(value) for name, value in settings.items())
    if length > SETTINGS_LENGTH_MAX:
        raise ConfigError(f"the settings have {length} characters in all; at most {SETTINGS_LENGTH_MAX} fit")
    for name, value in settings.items():
        if not 0 < len(name) <= SETTING_NAME_LENGTH_MAX or len(value) > SETTING_VALUE_LENGTH_MAX:
            raise ConfigError(f"the setting {name[:SETTING_NAME_LENGTH_MAX]!r} is too long, or has no name")
        if name in REPLICATION_SETTINGS:
            CLUSTER_SETTINGS[name].read(value)
    check_cluster_settings(resource, settings, before)
    if resource.kind == ResourceType.TOPIC:
        _check_topic_settings(settings, before)
    elif resource.kind == ResourceType.GROUP:
        group_settings.check_settings(settings)
    elif resource.kind == ResourceType.CLIENT_METRICS:
        client_metrics_settings.check_settings(settings)


def _check_topic_settings(settings: Mapping[str, str], before: Mapping[str, str]) -> None:
    unknown = [name for name in settings if name not in TOPIC_SETTINGS and name != INTERNAL_SEGMENT_BYTES]
    if unknown:
        raise ConfigError(f"unknown setting {unknown[0]!r}; known are {', '.join(TOPIC_SETTINGS)}")
    for name in KEPT_SETTINGS.keys() & settings.keys():
        KEPT_SETTINGS[name].parse(settings[name])
    if INTERNAL_SEGMENT_BYTES in settings:
        LogConfig.from_properties({SEGMENT_BYTES: settings[INTERNAL_SEGMENT_BYTES]})
    config = LogConfig.from_properties(
        {name: value for name, value in settings.items() if name in LogConfig.by_name}
    )
    changed = {name for name, value in settings.items() if before.get(name) != value}
    if SEGMENT_BYTES in changed and config.segment_bytes < SEGMENT_BYTES_MIN:
        raise ConfigError(
            f"{SEGMENT_BYTES} is {config.segment_bytes}; it must be at least {SEGMENT_BYTES_MIN}"
        )
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms and changed & COMPACTION_LAGS:
        raise ConfigError(
            f"min.compaction.lag.ms, {config.min_compaction_lag_ms}, is above max.compaction.lag.ms, "
            f"{config.max_compaction_lag_ms}"
        )
