"""DescribeAcls: SECURITY_DISABLED, since there is no authorizer (`_acls`)."""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._acls import NO_AUTHORIZER, NO_AUTHORIZER_TEXT
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(DescribeAclsRequest, versions=(1, 3))
def describe_acls(
    services: "Services", request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=NO_AUTHORIZER, error_message=NO_AUTHORIZER_TEXT, resources=[])
