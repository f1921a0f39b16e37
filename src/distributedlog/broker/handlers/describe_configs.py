"""DescribeConfigs: the settings of topics, groups, metrics and this broker, and where they come from.

    resource              settings
    2 topic               those a topic can have, its own or in force from the broker
    4 broker, own id      all of the node, and what else the metadata log has for it
    4 broker, no name     what is set for all brokers while they run
    4 broker, other id    INVALID_REQUEST: only that broker itself knows what it was started with
    8 logger, own id      the levels of this broker's loggers (`observability.loggers`); else as of a broker
    16 client metrics     those a subscription can have, its own or the defaults; it need not be there
    32 group              those a group can have, its own or in force from the broker; it need not be there
    other                 INVALID_REQUEST

A setting that this version does not know may hide a secret: its value is left out.  Keys that are asked for
and are not there are left out.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._configs import parse_broker_id
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.broker.observability import loggers
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
from distributedlog.settings.config_layers import (
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    ConfigLayers,
    ConfigSource,
    Layer,
    make_client_metrics_layers,
)
from distributedlog.settings.kept_settings import CLIENT_METRICS_SETTINGS
from distributedlog.settings.node_settings import SETTINGS
from distributedlog.settings.schema import Setting

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

UNKNOWN_TYPE: Final = 0
SLICE_RESOURCES: Final = 50
"""How many are described before others have their turn."""

Entry = tuple[str, Setting | None, list[Layer]]
"""A setting's name, what is known of it, and its layers, of which there is at least one."""


def _make_failure(resource: DescribeConfigsResource, code: ErrorCode, text: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


@handles(DescribeConfigsRequest, versions=(1, 4))
def describe_configs(
    services: "Services", request: DescribeConfigsRequest, context: RequestContext
) -> HandlerResponse:
    description = _Description(services, request)
    resources = _drop_repeats(request.resources)
    if len(resources) > SLICE_RESOURCES:
        return _describe_in_slices(resources, description)
    return DescribeConfigsResponse(results=[description.of(each) for each in resources])


def _drop_repeats(resources: Iterable[DescribeConfigsResource]) -> list[DescribeConfigsResource]:
    """Each of them once: a few bytes of the request come to some kilobytes of the response."""
    by_name = {(each.resource_type, each.resource_name): each for each in resources}
    return list(by_name.values())


async def _describe_in_slices(
    resources: list[DescribeConfigsResource], description: "_Description"
) -> Message:
    """Describes many resources, and lets others be served between slices of them."""
    results = []
    for number, resource in enumerate(resources):
        if number % SLICE_RESOURCES == 0:
            await asyncio.sleep(0)
        results.append(description.of(resource))
    return DescribeConfigsResponse(results=results)


class _Description:
    """Describes the resources of one request, under one image."""

    def __init__(self, services: "Services", request: DescribeConfigsRequest) -> None:
        self._request = request
        self._image = services.metadata.image
        self._node_id = services.settings.node_id
        self._layers = ConfigLayers(services.settings, self._image)
        self._of_plain_topics: dict[frozenset[str], list[DescribeConfigsResourceResult]] = {}
        """Cached by the keys of a request: topics without settings of their own all look the same."""

    def of(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        try:
            configs = self._describe_configs(resource)
        except DlogError as error:
            return _make_failure(resource, error.code, str(error))
        return DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=configs
        )

    def _describe_configs(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        keys = frozenset(resource.configuration_keys or ())
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            _check_own_id(self._node_id, resource.resource_name)
            return [
                _describe_logger(name, level)
                for name, level in loggers.list_levels().items()
                if not keys or name in keys
            ]
        entries = _iterate_entries(self._node_id, self._image, self._layers, resource)
        if resource.resource_type != ResourceType.TOPIC:
            is_changed_at_will = resource.resource_type != ResourceType.BROKER
            return self._describe_entries(entries, keys, is_changed_at_will=is_changed_at_will)
        if self._image.settings_of(ResourceType.TOPIC, resource.resource_name):
            return self._describe_entries(entries, keys, is_changed_at_will=True)
        configs = self._of_plain_topics.get(keys)
        if configs is None:
            configs = self._of_plain_topics[keys] = self._describe_entries(
                entries, keys, is_changed_at_will=True
            )
        return configs

    def _describe_entries(
        self, entries: Iterable[Entry], keys: frozenset[str], *, is_changed_at_will: bool
    ) -> list[DescribeConfigsResourceResult]:
        described = (entry for entry in entries if not keys or entry[0] in keys)
        return [_describe_entry(self._request, is_changed_at_will, *entry) for entry in described]


# --- which settings a resource has ---------------------------------------------------------------


def _iterate_entries(
    node_id: int, image: MetadataImage, layers: ConfigLayers, resource: DescribeConfigsResource
) -> Iterable[Entry]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        if name not in image.topic_ids:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return _iterate_topic(layers, dict(image.settings_of(ResourceType.TOPIC, name).items()))
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise InvalidRequestError("groups have no settings in common: name one")
        return _iterate_group(layers, dict(image.settings_of(ResourceType.GROUP, name).items()))
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise InvalidRequestError("subscriptions to metrics have no settings in common: name one")
        return _iterate_client_metrics(dict(image.settings_of(ResourceType.CLIENT_METRICS, name).items()))
    if resource.resource_type != ResourceType.BROKER:
        raise InvalidRequestError(f"resources of type {resource.resource_type} have no settings here")
    if name == CLUSTER_DEFAULT:
        return _iterate_cluster(layers)
    _check_own_id(node_id, name)
    return _iterate_node(layers)


def _check_own_id(node_id: int, name: str) -> None:
    if parse_broker_id(name) != node_id:
        raise InvalidRequestError(f"this is broker {node_id}: ask broker {name} itself for its settings")


def _iterate_topic(layers: ConfigLayers, own: Mapping[str, str]) -> Iterator[Entry]:
    for name, setting in TOPIC_SETTINGS.items():
        yield name, setting, layers.of_topic(setting, own)


def _iterate_group(layers: ConfigLayers, own: Mapping[str, str]) -> Iterator[Entry]:
    for name, setting in GROUP_SETTINGS.items():
        yield name, setting, layers.of_group(name, own)


def _iterate_client_metrics(own: Mapping[str, str]) -> Iterator[Entry]:
    for name, setting in CLIENT_METRICS_SETTINGS.items():
        yield name, setting, make_client_metrics_layers(name, own)


def _iterate_cluster(layers: ConfigLayers) -> Iterator[Entry]:
    for name, value in sorted(layers.dynamic.cluster.items()):
        yield name, SETTINGS.get(name), [Layer(name, value, ConfigSource.CLUSTER)]


def _iterate_node(layers: ConfigLayers) -> Iterator[Entry]:
    for name, setting in SETTINGS.items():
        yield name, setting, layers.of_node(setting)
    for values, source in (
        (layers.dynamic.broker, ConfigSource.BROKER),
        (layers.dynamic.cluster, ConfigSource.CLUSTER),
    ):
        for name, value in sorted(values.items()):
            is_described = name in SETTINGS or (
                source is ConfigSource.CLUSTER and name in layers.dynamic.broker
            )
            if not is_described:
                yield name, None, [Layer(name, value, source)]


# --- how a setting is described -----------------------------------------------------------------------


def _describe_entry(
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
        if layer.value is not None and layer.is_synonym
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


def _describe_logger(name: str, level: str) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=level,
        read_only=False,
        config_source=ConfigSource.BROKER_LOGGER,
        is_sensitive=False,
        synonyms=[],
        config_type=UNKNOWN_TYPE,
        documentation="",
    )
