"""DescribeUserScramCredentials: no user of this broker has any.

Nobody authenticates here yet, so to ask for all users is answered with none, and a user that is asked for by
name with RESOURCE_NOT_FOUND, or with DUPLICATE_RESOURCE if it is named twice, as in Kafka.  It is served
because Kafka's own tool for settings asks it before it shows the quotas of users.
"""

from collections import Counter
from typing import TYPE_CHECKING

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
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
            _make_failure(name, ErrorCode.DUPLICATE_RESOURCE, "is asked for twice")
            if count > 1
            else _make_failure(name, ErrorCode.RESOURCE_NOT_FOUND, "has no credentials")
            for name, count in Counter(user.name for user in request.users or ()).items()
        ]
    )


def _make_failure(name: str, code: ErrorCode, text: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=f"the user {name[:80]!r} {text}", credential_infos=[]
    )
