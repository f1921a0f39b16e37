"""ListConfigResources: the names of what can have settings.

    type                   what is listed
    2 topic                all topics
    4 broker               all brokers that the client can reach
    8 broker logger        the same: each has loggers
    16 client metrics      all subscriptions
    32 group               all groups that have settings of their own, whether or not they are there
    other                  UNSUPPORTED_VERSION

No type means all of them.  Version 0 lists client metrics only.
"""

from typing import TYPE_CHECKING, Final

from distributedlog.broker.cluster.listener_view import nodes_on
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller.image import MetadataImage, ResourceType
from distributedlog.model.errors import UnsupportedVersionError
from distributedlog.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

TYPES: Final = frozenset(ResourceType)


@handles(ListConfigResourcesRequest, versions=(0, 1))
def list_config_resources(
    services: "Services", request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    types = frozenset(request.resource_types or TYPES)
    if context.api_version == 0:
        types = frozenset((ResourceType.CLIENT_METRICS,))
    unknown = sorted(types - TYPES)
    if unknown:
        raise UnsupportedVersionError(f"there are no resources of type {unknown[0]}")
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(types)
            for name in _list_names(services.metadata.image, context.listener, kind)
        ]
    )


def _list_names(image: MetadataImage, listener: str, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return sorted(image.topic_ids)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(node.node_id) for node in nodes_on(image, listener)]
    return sorted(resource.name for resource in image.configs if resource.kind == kind)
