"""IncrementalAlterConfigs: changes single settings of each resource.

What is checked where stands in `_configs`.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.broker.handlers._configs import Change, alter
from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.image import ConfigResource
from distributedlog.controller.requests import Outcome
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _result(resource: AlterConfigsResource, outcome: Outcome) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=outcome.error,
        error_message=outcome.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _refuse(
    request: IncrementalAlterConfigsRequest, context: RequestContext, code: ErrorCode, text: str
) -> IncrementalAlterConfigsResponse:
    outcome = Outcome(code, text)
    return IncrementalAlterConfigsResponse(responses=[_result(each, outcome) for each in request.resources])


@handles(IncrementalAlterConfigsRequest, versions=(0, 1), refuse=_refuse)
def incremental_alter_configs(
    services: "Services", request: IncrementalAlterConfigsRequest, context: RequestContext
) -> Awaitable[Message]:
    return _alter(services, request, context)


async def _alter(
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
    return IncrementalAlterConfigsResponse(responses=list(map(_result, request.resources, outcomes)))
