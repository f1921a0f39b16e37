"""Which of Kafka's settings and quotas are taken over.  Pure.

| set                                    | becomes                                                         |
|----------------------------------------|-----------------------------------------------------------------|
| on a topic                             | the topic's, if it is known and possible here                   |
| while Kafka ran, for all brokers       | the same here, if it is one that a running broker takes over    |
| while Kafka ran, for the broker        | that of the node                                                |
| in server.properties                   | for all brokers, below what was set while Kafka ran             |

More than one replica, or one in sync, is never asked for: there will be one node.  What is left out is told
by name; values are told of topics only, since those of brokers may be secrets.
"""

from collections.abc import Mapping
from typing import Final

from distributedlog.adoption.kafka_image import BROKER_RESOURCE, TOPIC_RESOURCE, KafkaImage
from distributedlog.controller.configs import TOPIC_SETTINGS, check_settings
from distributedlog.controller.features import LEVEL_MAX, METADATA_FEATURE
from distributedlog.controller.image import CLUSTER_DEFAULT, ConfigResource, MetadataImage, ResourceType
from distributedlog.controller.persistent_map import PersistentMap
from distributedlog.controller.quotas import QuotaEdit, edit_quotas, entity_of
from distributedlog.controller.records import ClientQuotaChanged
from distributedlog.model.cluster_settings import (
    CLUSTER_SETTINGS,
    DEFAULT_REPLICATION_FACTOR,
    MIN_INSYNC_REPLICAS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTIONS_TOPIC_MIN_ISR,
    TRANSACTIONS_TOPIC_REPLICATION_FACTOR,
)
from distributedlog.model.errors import ConfigError, InvalidRequestError
from distributedlog.settings.config_layers import is_readable
from distributedlog.settings.node_settings import SETTINGS, SYNONYMS
from distributedlog.settings.schema import spell

RETENTION: Final = "retention.ms"
OF_THE_PLACE: Final = (
    "listener",
    "advertised.",
    "controller.",
    "inter.broker.",
    "process.",
    "node.",
    "broker.",
)
"""Beginnings of names that say where a node is and who it is: the new one says that for itself."""
DIRECTORIES: Final = frozenset({"log.dirs", "log.dir", "metadata.log.dir", "listeners", "cluster.id"})

OF_REPLICAS: Final = frozenset(
    {
        MIN_INSYNC_REPLICAS,
        DEFAULT_REPLICATION_FACTOR,
        OFFSETS_TOPIC_REPLICATION_FACTOR,
        TRANSACTIONS_TOPIC_MIN_ISR,
        TRANSACTIONS_TOPIC_REPLICATION_FACTOR,
    }
)
"""The settings that may be at most 1, since there will be one node."""

BrokerSettings = dict[str, dict[str, str]]
"""Settings by the resource's name: empty for all brokers, else a node's id."""


def usable_topic_settings(topic: str, settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Those that the topic can have here, and why it cannot have the others."""
    usable: dict[str, str] = {}
    notes = []
    for name, value in sorted(settings.items()):
        reason = _why_unusable(topic, name, value)
        if reason is None:
            usable[name] = value
        else:
            notes.append(f"{name}={value} is left out: {reason}")
    return usable, notes


def _why_unusable(topic: str, name: str, value: str) -> str | None:
    if name not in TOPIC_SETTINGS:
        return "there is no such setting here"
    try:
        check_settings(ConfigResource(ResourceType.TOPIC, topic), {name: value})
    except ConfigError as error:
        return str(error)
    if name == MIN_INSYNC_REPLICAS and int(value) > 1:
        return "there will be one replica, and nothing could be written"
    return None


def dynamic_settings(image: KafkaImage, broker_id: int, node_id: int) -> tuple[BrokerSettings, list[str]]:
    """Those of all brokers and those of `broker_id`, for `node_id`."""
    taken: BrokerSettings = {}
    notes = []
    for (kind, name), settings in sorted(image.configs.items()):
        if kind == TOPIC_RESOURCE or not settings:
            continue
        if kind != BROKER_RESOURCE or name not in (CLUSTER_DEFAULT, str(broker_id)):
            whose = f"broker {name}" if kind == BROKER_RESOURCE else f"{name!r} (of the kind {kind})"
            notes.append(f"those of {whose} are left out: {', '.join(sorted(settings))}")
            continue
        resource = CLUSTER_DEFAULT if name == CLUSTER_DEFAULT else str(node_id)
        for setting, value in sorted(settings.items()):
            if resource != CLUSTER_DEFAULT and setting in CLUSTER_SETTINGS:
                notes.append(f"{setting} of broker {name} is left out: it is the whole cluster's here")
            elif _is_usable(setting, value):
                taken.setdefault(resource, {})[setting] = value
            else:
                notes.append(f"{setting} is left out: no running broker takes that over here")
    return taken, notes


def startup_settings(properties: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Those of a file of Kafka's that all brokers can have."""
    taken = {name: value for name, value in properties.items() if _is_usable(name, value)}
    for name, (setting, factor) in SYNONYMS.items():
        if name in properties and setting.is_dynamic and setting.name not in taken:
            try:
                taken[setting.name] = spell(setting.read_synonym(name, factor, properties[name])) or ""
            except ConfigError:
                continue
    to_give = sorted(name for name in properties if name not in taken and _is_of_the_start(name))
    notes = []
    if to_give:
        notes.append(f"give these to the node when you start it: {', '.join(to_give)}")
    return taken, notes


def _is_of_the_start(name: str) -> bool:
    """A setting that a node has to be started with, and that says neither where nor who it is."""
    return (
        name in SETTINGS
        and name not in DIRECTORIES
        and not name.startswith(OF_THE_PLACE)
        and name not in OF_REPLICAS
    )


def usable_quotas(image: KafkaImage) -> tuple[list[ClientQuotaChanged], list[str]]:
    """The records that make those quotas that there can be here; and why there cannot be the others."""
    level = MetadataImage(features=PersistentMap[str, int]().set(METADATA_FEATURE, LEVEL_MAX))
    records: list[ClientQuotaChanged] = []
    notes = []
    for parts, limits in sorted(image.quotas.items(), key=lambda each: str(each[0])):
        for key, limit in sorted(limits.items()):
            try:
                records += edit_quotas(level, entity_of(parts), [QuotaEdit(key, limit)])
            except InvalidRequestError as error:
                whose = ", ".join(f"{kind} {name or '(default)'}" for kind, name in parts)
                notes.append(f"{key} of {whose} is left out: {error}")
    return records, notes


def _is_usable(name: str, value: str) -> bool:
    setting = SETTINGS.get(name)
    if setting is None or not setting.is_dynamic or not is_readable(setting, value):
        return False
    return name not in OF_REPLICAS or int(value) <= 1
