"""IncrementalAlterConfigs: changes single settings of each resource.

What is checked where stands in `_configs`.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._configs import Change, alter
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.image import ConfigResource
from distributedlog.controller.requests import ItemOutcome
from distributedlog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _make_result(resource: AlterConfigsResource, outcome: ItemOutcome) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=outcome.error,
        error_message=outcome.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


@handles(IncrementalAlterConfigsRequest, versions=(0, 1))
async def incremental_alter_configs(
    services: "Services", request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    changes = [
        Change(
            ConfigResource(resource.resource_type, resource.resource_name),
            tuple(ConfigEdit(each.name, each.config_operation, each.value) for each in resource.configs),
        )
        for resource in request.resources
    ]
    outcomes = await alter(
        services, context, changes, validate_only=request.validate_only, replaces_all=False
    )
    return IncrementalAlterConfigsResponse(responses=list(map(_make_result, request.resources, outcomes)))
