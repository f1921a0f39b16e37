"""DeleteAcls: SECURITY_DISABLED for each filter, since there is no authorizer (`_acls`).

Results have no names: they stand in the order of the filters, also where two are equal.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._acls import NO_AUTHORIZER, NO_AUTHORIZER_TEXT
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(DeleteAclsRequest, versions=(1, 3))
def delete_acls(
    services: "Services", request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(
        error_code=NO_AUTHORIZER, error_message=NO_AUTHORIZER_TEXT, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))
