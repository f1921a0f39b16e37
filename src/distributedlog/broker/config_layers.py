"""Where the value of a setting comes from: the layers of its values, the one in force first.

    a topic's or a group's setting           a broker's setting
    the topic's or the group's own           -
    this broker's, changed while running     the same        under the broker's name for it:
    the cluster's, changed while running     the same        retention.ms is log.retention.ms
    what the node was started with           the same
    the default                              the same

Of what was changed while running, only what a running broker takes over and what can be read counts; anything
else in the metadata log is passed over, here as by the partitions themselves.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from distributedlog.broker.settings import SETTINGS, NodeSettings
from distributedlog.broker.settings_schema import Setting, spell
from distributedlog.controller.image import CLUSTER_DEFAULT, MetadataImage, ResourceType
from distributedlog.model import group_settings
from distributedlog.model.errors import ConfigError


class ConfigSource(IntEnum):
    """As Kafka numbers them."""

    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    """Of all brokers."""
    STATIC = 4
    """Of the file, the environment or the command line."""
    DEFAULT = 5
    GROUP = 8


class Layer(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


TOPIC_SETTINGS: Final[Mapping[str, Setting]] = dict(
    sorted(
        ((each.topic_name, each) for each in SETTINGS.values() if each.topic_name),
        key=lambda named: named[0],
    )
)
"""By the topic's name of a setting; the setting itself is that of its default."""
GROUP_SETTINGS: Final[Mapping[str, Setting]] = {
    name: SETTINGS[f"group.{name}"] for name in group_settings.GROUP_SETTINGS
}
"""Likewise, of groups."""


class ConfigLayers:
    """Of one node, under one image."""

    def __init__(self, settings: NodeSettings, image: MetadataImage) -> None:
        self._settings = settings
        self._of_node: dict[str, list[Layer]] = {}
        self.of_cluster = dict(image.settings_of(ResourceType.BROKER, CLUSTER_DEFAULT).items())
        self.of_broker = dict(image.settings_of(ResourceType.BROKER, str(settings.node_id)).items())

    def of_node(self, setting: Setting) -> list[Layer]:
        """At least one.  The list is shared: it is not to be changed."""
        layers = self._of_node.get(setting.name)
        if layers is None:
            layers = self._of_node[setting.name] = self._find(setting)
        return layers

    def _find(self, setting: Setting) -> list[Layer]:
        name = setting.name
        layers = []
        if setting.is_dynamic:
            for values, source in (
                (self.of_broker, ConfigSource.BROKER),
                (self.of_cluster, ConfigSource.CLUSTER),
            ):
                value = values.get(name)
                if value is not None and is_readable(setting, value):
                    layers.append(Layer(name, value, source))
        in_force = self._settings.spelled(name)
        if name in self._settings.sources:
            layers.append(Layer(name, in_force, ConfigSource.STATIC))
            in_force = spell(setting.default)
        # Of a setting that was not given, what is in force is its default, also where that depends on others.
        layers.append(Layer(name, in_force, ConfigSource.DEFAULT))
        return layers

    def of_topic(self, setting: Setting, own: Mapping[str, str]) -> list[Layer]:
        """`own` are all settings that the topic itself has."""
        name = setting.topic_name
        assert name is not None
        layers = self.of_node(setting)
        return [Layer(name, own[name], ConfigSource.TOPIC), *layers] if name in own else layers

    def of_group(self, name: str, own: Mapping[str, str]) -> list[Layer]:
        """`name` as groups have it."""
        layers = self.of_node(GROUP_SETTINGS[name])
        return [Layer(name, own[name], ConfigSource.GROUP), *layers] if name in own else layers


def is_readable(setting: Setting, text: str) -> bool:
    try:
        setting.read(text)
    except ConfigError:
        return False
    return True
