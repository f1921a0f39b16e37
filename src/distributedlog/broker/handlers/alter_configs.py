"""AlterConfigs: replaces all settings of each resource.

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
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
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
    request: AlterConfigsRequest, context: RequestContext, code: ErrorCode, text: str
) -> AlterConfigsResponse:
    outcome = Outcome(code, text)
    return AlterConfigsResponse(responses=[_result(each, outcome) for each in request.resources])


@handles(AlterConfigsRequest, versions=(0, 2), refuse=_refuse)
def alter_configs(
    services: "Services", request: AlterConfigsRequest, context: RequestContext
) -> Awaitable[Message]:
    return _alter(services, request, context)


async def _alter(
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
    return AlterConfigsResponse(responses=list(map(_result, request.resources, outcomes)))
