"""DescribeUserScramCredentials: no user of this broker has any.

Nobody authenticates here yet, so to ask for all users is answered with none, and a user that is asked for by
name with RESOURCE_NOT_FOUND, as in Kafka.  It is served because Kafka's own tool for settings asks it before
it shows the quotas of users.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


@handles(DescribeUserScramCredentialsRequest, versions=(0, 0))
def describe_user_scram_credentials(
    services: "Services", request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(
        results=[
            DescribeUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.RESOURCE_NOT_FOUND,
                error_message=f"the user {name[:80]!r} has no credentials",
                credential_infos=[],
            )
            for name in dict.fromkeys(user.name for user in request.users or ())
        ]
    )
