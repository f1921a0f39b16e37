"""CreateAcls: SECURITY_DISABLED for each of them, since there is no authorizer (`_acls`).

Results have no names: they stand in the order of the creations, also where two are equal.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._acls import NO_AUTHORIZER, NO_AUTHORIZER_TEXT
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(CreateAclsRequest, versions=(1, 3))
def create_acls(
    services: "Services", request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse:
    result = AclCreationResult(error_code=NO_AUTHORIZER, error_message=NO_AUTHORIZER_TEXT)
    return CreateAclsResponse(results=[result] * len(request.creations))
