"""Where the value of a setting comes from: the layers of its values, the effective one first.

    a topic's or a group's setting           a broker's setting
    the topic's or the group's own           -
    this broker's, changed while running     the same        under the broker's name for it:
    the cluster's, changed while running     the same        retention.ms is log.retention.ms
    what the node was started with           the same
    the default                              the same

Settings that are only kept have the first and the last of these, and so have those of clients' metrics.  As
in Kafka, behind a group's own value no other is told, and its default has the group's name for it.
Of a setting of the whole cluster (`model.cluster_settings`) only the topic's own, the cluster's and the
default are layers: what a node is started with, or a broker is given, has no effect.

Of what was changed while running, only what a running broker takes over and what can be read counts; anything
else in the metadata log is passed over, here as by the partitions themselves.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from distributedlog.controller.cluster_settings import read_cluster_setting
from distributedlog.controller.configs import DynamicConfigs
from distributedlog.controller.image import MetadataImage
from distributedlog.model import group_settings
from distributedlog.model.cluster_settings import CLUSTER_SETTINGS
from distributedlog.model.errors import ConfigError
from distributedlog.settings.kept_settings import (
    CLIENT_METRICS_SETTINGS,
    KEPT_GROUP_SETTINGS,
    KEPT_SETTINGS,
    NAMED_BY_BROKERS,
)
from distributedlog.settings.node_settings import SETTINGS, NodeSettings
from distributedlog.settings.schema import Setting, spell


class ConfigSource(IntEnum):
    """The sources of settings, as Kafka numbers them."""

    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    """Set for all brokers."""
    STATIC = 4
    """Set in the file, the environment or the command line."""
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Layer(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    is_synonym: bool = True
    """Not so for the default of a setting that only topics have, or clients' metrics."""


TOPIC_SETTINGS: Final[Mapping[str, Setting]] = dict(
    sorted(
        (
            (each.topic_name, each)
            for each in (*SETTINGS.values(), *KEPT_SETTINGS.values())
            if each.topic_name
        ),
        key=lambda named: named[0],
    )
)
"""The settings by the name that topics have for them; the setting itself is that of its default."""
GROUP_SETTINGS: Final[Mapping[str, Setting]] = {
    name: KEPT_GROUP_SETTINGS.get(name) or SETTINGS[f"group.{name}"] for name in group_settings.GROUP_SETTINGS
}
"""Likewise, of groups."""


class ConfigLayers:
    """The layers of one node's settings, under one image."""

    def __init__(self, settings: NodeSettings, image: MetadataImage) -> None:
        self._settings = settings
        self._of_node: dict[str, list[Layer]] = {}
        self.dynamic = DynamicConfigs(image, settings.node_id)

    def of_node(self, setting: Setting) -> list[Layer]:
        """Returns the layers of a node's setting, at least one.  The list is shared: it is not to be
        changed."""
        layers = self._of_node.get(setting.name)
        if layers is None:
            layers = self._of_node[setting.name] = self._find(setting)
        return layers

    def _find(self, setting: Setting) -> list[Layer]:
        name = setting.name
        layers = []
        if setting.is_dynamic or setting.is_cluster_wide:
            for value, is_own in self.dynamic.values(name):
                if is_readable(setting, value):
                    layers.append(Layer(name, value, ConfigSource.BROKER if is_own else ConfigSource.CLUSTER))
        if setting.is_cluster_wide:
            return [*layers, Layer(name, spell(setting.default), ConfigSource.DEFAULT)]
        effective = self._settings.spelled(name)
        if name in self._settings.sources:
            layers.append(Layer(name, effective, ConfigSource.STATIC))
            effective = spell(setting.default)
        # The effective value of a setting that was not given is its default, also where that depends on
        # others.
        layers.append(Layer(name, effective, ConfigSource.DEFAULT))
        return layers

    def of_topic(self, setting: Setting, own: Mapping[str, str]) -> list[Layer]:
        """Returns the layers of a topic's setting; `own` are all settings that the topic itself has."""
        name = setting.topic_name
        assert name is not None
        layers = [_make_kept_default(setting)] if name in KEPT_SETTINGS else self.of_node(setting)
        if name not in own:
            return layers
        return [Layer(name, _normalize(setting, own[name]), ConfigSource.TOPIC), *layers]

    def of_group(self, name: str, own: Mapping[str, str]) -> list[Layer]:
        """`name` as groups have it."""
        setting = GROUP_SETTINGS[name]
        if name in own:
            return [Layer(name, _normalize(setting, own[name]), ConfigSource.GROUP)]
        if name in KEPT_GROUP_SETTINGS:
            return [Layer(name, spell(setting.default), ConfigSource.DEFAULT)]
        *set_somewhere, default = self.of_node(setting)
        return [*set_somewhere, default._replace(name=name)]


def make_client_metrics_layers(name: str, own: Mapping[str, str]) -> list[Layer]:
    """`own` are all settings that the subscription has."""
    setting = CLIENT_METRICS_SETTINGS[name]
    if name in own:
        return [Layer(name, _normalize(setting, own[name]), ConfigSource.CLIENT_METRICS)]
    return [Layer(name, spell(setting.default), ConfigSource.DEFAULT, is_synonym=False)]


def _make_kept_default(setting: Setting) -> Layer:
    is_synonym = setting.topic_name in NAMED_BY_BROKERS
    return Layer(setting.name, spell(setting.default), ConfigSource.DEFAULT, is_synonym)


def _normalize(setting: Setting, text: str) -> str | None:
    """The value as it is spelled here, however it was given: `0.5f` is told as 0.5."""
    try:
        return spell(setting.read(text))
    except ConfigError:
        return text


def find_without_effect(settings: NodeSettings, image: MetadataImage) -> Iterator[str]:
    """Says of each setting of the whole cluster that this node was given whether the cluster has another."""
    for name, source in settings.sources.items():
        common = CLUSTER_SETTINGS.get(name)
        if common is not None and common.read(settings.spelled(name) or "") != read_cluster_setting(
            image, name
        ):
            yield (
                f"{name}={settings.spelled(name)} ({source.value}) has no effect: the whole cluster has "
                f"{read_cluster_setting(image, name)}; change it with `dlog cluster config set {name}=VALUE`"
            )


def is_readable(setting: Setting, text: str) -> bool:
    try:
        setting.read(text)
    except ConfigError:
        return False
    return True
