"""ListConfigResources: the names of what can have settings.

    type                   what is listed
    2 topic                all topics
    4 broker               all brokers that the client can reach
    32 group               all groups that have settings of their own, whether or not they are there
    8, 16                  nothing: loggers and client metrics have no settings here
    other                  UNSUPPORTED_VERSION

No type means all of them.  Version 0 lists client metrics only.
"""

from typing import TYPE_CHECKING, Final

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.broker.handlers._cluster import nodes_on
from distributedlog.controller.image import MetadataImage, ResourceType
from distributedlog.model.errors import UnsupportedVersionError
from distributedlog.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

CLIENT_METRICS: Final = 16
TYPES: Final = (ResourceType.TOPIC, ResourceType.BROKER, 8, CLIENT_METRICS, ResourceType.GROUP)


@handles(ListConfigResourcesRequest, versions=(0, 1))
def list_config_resources(
    services: "Services", request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    types = frozenset(request.resource_types or TYPES)
    if context.api_version == 0:
        types = frozenset((CLIENT_METRICS,))
    unknown = sorted(types - set(TYPES))
    if unknown:
        raise UnsupportedVersionError(f"there are no resources of type {unknown[0]}")
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(types)
            for name in _names(services.metadata.image, context.listener, kind)
        ]
    )


def _names(image: MetadataImage, listener: str, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return sorted(image.topic_ids)
    if kind == ResourceType.BROKER:
        return [str(node.node_id) for node in nodes_on(image, listener)]
    if kind == ResourceType.GROUP:
        return sorted(resource.name for resource in image.configs if resource.kind == kind)
    return []
