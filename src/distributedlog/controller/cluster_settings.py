"""The one truth of the settings of the whole cluster (`model.cluster_settings`): functions over the image.

    the topic's own (where topics have it)  →  the cluster's, in the image  →  the default of this version

Controllers and brokers both ask here and nowhere else, so under one image they have one answer.  What a node
was started with is no layer of it: it is only what a cluster is formatted with.  The first entry of a new
cluster has a record for each of them; a cluster that was formatted by an earlier version gets those it lacks
from the first controller that knows them, which also takes back what single brokers have.
"""

from collections.abc import Iterator, Mapping

from distributedlog.controller.image import CLUSTER_DEFAULT, ConfigResource, MetadataImage, ResourceType
from distributedlog.controller.records import ConfigChanged
from distributedlog.model.cluster_settings import (
    BROKER_SESSION_TIMEOUT,
    CLUSTER_SETTINGS,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_ELECTION,
)
from distributedlog.model.errors import ConfigError

DATA_LOOP_LAG_PARTS = 3, 4
"""The part of the session timeout that a data loop may lag; a broker beyond it is fenced.  No less than a
lease lasts: a loop that is stuck does not hear that its lease is given up, and may answer once more when it
goes on (decision 14)."""


def read_cluster_setting(image: MetadataImage, name: str) -> int:
    setting = CLUSTER_SETTINGS[name]
    return _read(name, image.settings_of(ResourceType.BROKER, CLUSTER_DEFAULT).get(name), setting.default)


def _read(name: str, text: str | None, otherwise: int) -> int:
    """What cannot be read was written by a version that did not check it, and is passed over."""
    if text is None:
        return otherwise
    try:
        return CLUSTER_SETTINGS[name].read(text)
    except ConfigError:
        return otherwise


def _read_for_topic(image: MetadataImage, topic: str, name: str) -> int:
    own = image.settings_of(ResourceType.TOPIC, topic).get(name)
    return _read(name, own, read_cluster_setting(image, name))


def min_insync_replicas(image: MetadataImage, topic: str) -> int:
    return _read_for_topic(image, topic, MIN_INSYNC_REPLICAS)


def allows_unclean_election(image: MetadataImage, topic: str) -> bool:
    return bool(_read_for_topic(image, topic, UNCLEAN_ELECTION))


def session_timeout_ms(image: MetadataImage) -> int:
    return read_cluster_setting(image, BROKER_SESSION_TIMEOUT)


def data_loop_lag_ms_max(image: MetadataImage) -> int:
    part, parts = DATA_LOOP_LAG_PARTS
    return session_timeout_ms(image) * part // parts


# --- writing -----------------------------------------------------------------------------------


def settle_cluster_settings(image: MetadataImage, given: Mapping[str, str]) -> list[ConfigChanged]:
    """What a new controller writes: the settings that the cluster lacks, as `given` or else by default, and
    the removal of what single brokers have of them."""
    present = image.settings_of(ResourceType.BROKER, CLUSTER_DEFAULT)
    records = [
        _record(CLUSTER_DEFAULT, name, given.get(name, setting.default_text))
        for name, setting in sorted(CLUSTER_SETTINGS.items())
        if name not in present
    ]
    records += [_record(broker, name, None) for broker, name in _find_of_single_brokers(image)]
    return records


def _find_of_single_brokers(image: MetadataImage) -> Iterator[tuple[str, str]]:
    for resource, settings in sorted(image.configs.items(), key=lambda each: each[0]):
        if resource.kind == ResourceType.BROKER and resource.name != CLUSTER_DEFAULT:
            for name in sorted(CLUSTER_SETTINGS.keys() & {name for name, _ in settings.items()}):
                yield resource.name, name


def _record(broker: str, name: str, value: str | None) -> ConfigChanged:
    return ConfigChanged(resource_type=ResourceType.BROKER, resource_name=broker, name=name, value=value)


def check_cluster_settings(
    resource: ConfigResource, after: Mapping[str, str], before: Mapping[str, str]
) -> None:
    """Refuses values of single brokers, the removal of the cluster's, and changes of what is fixed."""
    if resource.kind != ResourceType.BROKER:
        return
    for name, setting in CLUSTER_SETTINGS.items():
        now, was = after.get(name), before.get(name)
        if now == was:
            continue
        if resource.name != CLUSTER_DEFAULT:
            if now is not None:
                raise ConfigError(
                    f"{name} is a setting of the whole cluster, and not of broker {resource.name}: "
                    "set it for all brokers"
                )
        elif now is None:
            raise ConfigError(
                f"{name} cannot be removed from the cluster's settings: set it to another value"
            )
        elif not setting.is_dynamic and was is not None:
            raise ConfigError(f"{name} is {was} since the cluster was formatted, and cannot be changed")
        else:
            setting.read(now)
