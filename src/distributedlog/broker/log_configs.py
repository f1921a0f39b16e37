"""The settings that are in force for a topic's logs on this broker.

A setting is the topic's own, else this broker's or the cluster's as changed while running (under Kafka's
names for brokers: `log.retention.ms`), else what the node was started with.  The controller checks a topic's
settings before they are stored, but not all of a broker's: one that cannot be is passed over, with a warning.
"""

import logging

from distributedlog.broker.settings import LOG_SETTING_NAMES, NodeSettings
from distributedlog.controller.configs import MIN_INSYNC_REPLICAS
from distributedlog.controller.image import CLUSTER_DEFAULT, MetadataImage, ResourceType
from distributedlog.model.config import LogConfig
from distributedlog.model.errors import ConfigError

_logger = logging.getLogger("distributedlog.broker")


class LogConfigs:
    """What is in force under one image.  Make another one when the settings of brokers change."""

    def __init__(self, settings: NodeSettings, image: MetadataImage) -> None:
        self._settings = settings
        self._layers = [
            image.settings_of(ResourceType.BROKER, str(settings.node_id)),
            image.settings_of(ResourceType.BROKER, CLUSTER_DEFAULT),
        ]
        self._base = self._with_broker_settings(settings.log)

    def _with_broker_settings(self, log: LogConfig) -> LogConfig:
        properties = log.to_properties()
        for name, broker_name in LOG_SETTING_NAMES.items():
            given = (value for layer in self._layers if (value := layer.get(broker_name)) is not None)
            usable = (value for value in given if _is_usable(name, broker_name, value))
            properties[name] = next(usable, properties[name])
        return LogConfig.from_properties(properties)

    def log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        own = {
            name: value
            for name, value in image.settings_of(ResourceType.TOPIC, topic).items()
            if name in LogConfig.by_name
        }
        return LogConfig.from_properties({**self._base.to_properties(), **own}) if own else self._base

    def min_insync_replicas(self, image: MetadataImage, topic: str) -> int:
        """The controller has checked it, whoever's it is."""
        for layer in (image.settings_of(ResourceType.TOPIC, topic), *self._layers):
            value = layer.get(MIN_INSYNC_REPLICAS)
            if value is not None:
                return int(value)
        return self._settings.min_insync_replicas


def _is_usable(name: str, broker_name: str, value: str) -> bool:
    try:
        LogConfig.from_properties({name: value})
    except ConfigError as error:
        _logger.warning("the setting %s is passed over: %s", broker_name, error)
        return False
    return True
