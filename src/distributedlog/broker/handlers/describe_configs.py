"""DescribeConfigs: the settings of topics, of groups and of this broker, and where they come from.

    resource              settings
    2 topic               those a topic can have, its own or in force from the broker
    4 broker, own id      all of the node, and what else the metadata log has for it
    4 broker, no name     what is set for all brokers while they run
    4 broker, other id    INVALID_REQUEST: only that broker itself knows what it was started with
    32 group              those a group can have, its own or in force from the broker; it need not be there
    other                 INVALID_REQUEST

A setting that this version does not know may hide a secret: its value is not told.  Keys that are asked for
and are not there are left out.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from distributedlog.broker.config_layers import (
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    ConfigLayers,
    ConfigSource,
    Layer,
)
from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, handles
from distributedlog.broker.handlers._configs import broker_id_of
from distributedlog.broker.settings import SETTINGS
from distributedlog.broker.settings_schema import Setting
from distributedlog.controller.image import CLUSTER_DEFAULT, MetadataImage, ResourceType
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidRequestError, UnknownTopicError
from distributedlog.model.ids import check_topic_name
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

UNKNOWN_TYPE: Final = 0
SLICE_RESOURCES: Final = 50
"""How many are described before others have their turn."""

Entry = tuple[str, Setting | None, list[Layer]]
"""A setting's name, what is known of it, and its layers, of which there is at least one."""


def _failed(resource: DescribeConfigsResource, code: ErrorCode, text: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _refuse(
    request: DescribeConfigsRequest, context: RequestContext, code: ErrorCode, text: str
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_failed(each, code, text) for each in request.resources])


@handles(DescribeConfigsRequest, versions=(1, 4), refuse=_refuse)
def describe_configs(
    services: "Services", request: DescribeConfigsRequest, context: RequestContext
) -> Answer:
    description = _Description(services, request)
    resources = _distinct(request.resources)
    if len(resources) > SLICE_RESOURCES:
        return _describe_in_slices(resources, description)
    return DescribeConfigsResponse(results=[description.of(each) for each in resources])


def _distinct(resources: Iterable[DescribeConfigsResource]) -> list[DescribeConfigsResource]:
    """Each of them once: a few bytes of the request come to some kilobytes of the answer."""
    by_name = {(each.resource_type, each.resource_name): each for each in resources}
    return list(by_name.values())


async def _describe_in_slices(
    resources: list[DescribeConfigsResource], description: "_Description"
) -> Message:
    """Whoever asks for the settings of thousands of topics does not hold up everyone else."""
    results = []
    for number, resource in enumerate(resources):
        if number % SLICE_RESOURCES == 0:
            await asyncio.sleep(0)
        results.append(description.of(resource))
    return DescribeConfigsResponse(results=results)


class _Description:
    """Of one request, under one image."""

    def __init__(self, services: "Services", request: DescribeConfigsRequest) -> None:
        self._request = request
        self._image = services.metadata.image
        self._node_id = services.settings.node_id
        self._layers = ConfigLayers(services.settings, self._image)
        self._of_plain_topics: dict[frozenset[str], list[DescribeConfigsResourceResult]] = {}
        """By the keys that are asked for: topics without settings of their own all look the same."""

    def of(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        try:
            configs = self._configs(resource)
        except DlogError as error:
            return _failed(resource, error.code, str(error))
        return DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=configs
        )

    def _configs(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        keys = frozenset(resource.configuration_keys or ())
        entries = _entries(self._node_id, self._image, self._layers, resource)
        if resource.resource_type != ResourceType.TOPIC:
            is_group = resource.resource_type == ResourceType.GROUP
            return self._told(entries, keys, is_changed_at_will=is_group)
        if self._image.settings_of(ResourceType.TOPIC, resource.resource_name):
            return self._told(entries, keys, is_changed_at_will=True)
        configs = self._of_plain_topics.get(keys)
        if configs is None:
            configs = self._of_plain_topics[keys] = self._told(entries, keys, is_changed_at_will=True)
        return configs

    def _told(
        self, entries: Iterable[Entry], keys: frozenset[str], *, is_changed_at_will: bool
    ) -> list[DescribeConfigsResourceResult]:
        told = (entry for entry in entries if not keys or entry[0] in keys)
        return [_tell(self._request, is_changed_at_will, *entry) for entry in told]


# --- which settings a resource has ---------------------------------------------------------------


def _entries(
    node_id: int, image: MetadataImage, layers: ConfigLayers, resource: DescribeConfigsResource
) -> Iterable[Entry]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        if name not in image.topic_ids:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return _of_topic(layers, dict(image.settings_of(ResourceType.TOPIC, name).items()))
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise InvalidRequestError("groups have no settings in common: name one")
        return _of_group(layers, dict(image.settings_of(ResourceType.GROUP, name).items()))
    if resource.resource_type != ResourceType.BROKER:
        raise InvalidRequestError(f"resources of type {resource.resource_type} have no settings here")
    if name == CLUSTER_DEFAULT:
        return _of_cluster(layers)
    if broker_id_of(name) != node_id:
        raise InvalidRequestError(f"this is broker {node_id}: ask broker {name} itself for its settings")
    return _of_node(layers)


def _of_topic(layers: ConfigLayers, own: Mapping[str, str]) -> Iterator[Entry]:
    for name, setting in TOPIC_SETTINGS.items():
        yield name, setting, layers.of_topic(setting, own)


def _of_group(layers: ConfigLayers, own: Mapping[str, str]) -> Iterator[Entry]:
    for name, setting in GROUP_SETTINGS.items():
        yield name, setting, layers.of_group(name, own)


def _of_cluster(layers: ConfigLayers) -> Iterator[Entry]:
    for name, value in sorted(layers.of_cluster.items()):
        yield name, SETTINGS.get(name), [Layer(name, value, ConfigSource.CLUSTER)]


def _of_node(layers: ConfigLayers) -> Iterator[Entry]:
    for name, setting in SETTINGS.items():
        yield name, setting, layers.of_node(setting)
    for values, source in (
        (layers.of_broker, ConfigSource.BROKER),
        (layers.of_cluster, ConfigSource.CLUSTER),
    ):
        for name, value in sorted(values.items()):
            is_told = name in SETTINGS or (source is ConfigSource.CLUSTER and name in layers.of_broker)
            if not is_told:
                yield name, None, [Layer(name, value, source)]


# --- how a setting is told -----------------------------------------------------------------------


def _tell(
    request: DescribeConfigsRequest,
    is_changed_at_will: bool,
    name: str,
    setting: Setting | None,
    layers: list[Layer],
) -> DescribeConfigsResourceResult:
    is_sensitive = setting is None
    synonyms = [
        DescribeConfigsSynonym(
            name=layer.name, value=None if is_sensitive else layer.value, source=layer.source
        )
        for layer in layers
        if layer.value is not None
    ]
    return DescribeConfigsResourceResult(
        name=name,
        value=None if is_sensitive else layers[0].value,
        read_only=not is_changed_at_will and (setting is None or not setting.is_dynamic),
        config_source=layers[0].source,
        is_sensitive=is_sensitive,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=UNKNOWN_TYPE if setting is None else setting.kind,
        documentation=setting.documentation if setting and request.include_documentation else None,
    )
