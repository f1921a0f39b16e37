"""The settings that are in force for a topic's logs on this broker.

A setting is the topic's own, else what was changed while running (`DynamicConfigs`; under Kafka's names for
brokers: `log.retention.ms`), else what the node was started with; where the whole cluster has one value
(`model.cluster_settings`) what the node was started with does not count.  The controller checks a topic's
settings before they are stored, but not all of a broker's: one that cannot be is passed over, with a warning.
"""

import logging

from distributedlog.controller.configs import (
    INTERNAL_SEGMENT_BYTES,
    SEGMENT_BYTES,
    DynamicConfigs,
)
from distributedlog.controller.image import MetadataImage, ResourceType
from distributedlog.model.cluster_settings import CLUSTER_SETTINGS
from distributedlog.model.config import LogConfig
from distributedlog.model.errors import ConfigError
from distributedlog.settings.log_settings import LOG_SETTING_NAMES
from distributedlog.settings.node_settings import NodeSettings

_logger = logging.getLogger("distributedlog.broker")


class LogConfigs:
    """What is in force under one image.  Make another one when the settings of brokers change."""

    def __init__(self, settings: NodeSettings, image: MetadataImage) -> None:
        self._settings = settings
        self._dynamic = DynamicConfigs(image, settings.node_id)
        self._base = self._with_broker_settings(settings.log)

    def _with_broker_settings(self, log: LogConfig) -> LogConfig:
        properties = log.to_properties()
        for name, broker_name in LOG_SETTING_NAMES.items():
            if broker_name in CLUSTER_SETTINGS:
                properties[name] = CLUSTER_SETTINGS[broker_name].default_text
            given = (value for value, _ in self._dynamic.values(broker_name))
            usable = (value for value in given if _is_usable(name, broker_name, value))
            properties[name] = next(usable, properties[name])
        return LogConfig.from_properties(properties)

    def log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        given = dict(image.settings_of(ResourceType.TOPIC, topic).items())
        own = {name: value for name, value in given.items() if name in LogConfig.by_name}
        if INTERNAL_SEGMENT_BYTES in given:
            own[SEGMENT_BYTES] = given[INTERNAL_SEGMENT_BYTES]
        return LogConfig.from_properties({**self._base.to_properties(), **own}) if own else self._base


def _is_usable(name: str, broker_name: str, value: str) -> bool:
    try:
        LogConfig.from_properties({name: value})
    except ConfigError as error:
        _logger.warning("the setting %s is passed over: %s", broker_name, error)
        return False
    return True
