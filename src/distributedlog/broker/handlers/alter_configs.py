"""AlterConfigs: replaces all settings of each resource.

What is checked where stands in `_configs`.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._configs import Change, alter
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.image import ConfigResource
from distributedlog.controller.requests import ItemOutcome
from distributedlog.model.config_ops import ConfigOp
from distributedlog.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
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


@handles(AlterConfigsRequest, versions=(0, 2))
async def alter_configs(
    services: "Services", request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    changes = [
        Change(
            ConfigResource(resource.resource_type, resource.resource_name),
            tuple(ConfigEdit(each.name, ConfigOp.SET, each.value) for each in resource.configs),
        )
        for resource in request.resources
    ]
    outcomes = await alter(services, context, changes, validate_only=request.validate_only, replaces_all=True)
    return AlterConfigsResponse(responses=list(map(_make_result, request.resources, outcomes)))
