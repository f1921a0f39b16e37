"""DescribeUserScramCredentials (50): which SCRAM mechanisms users have credentials for.

Version 0, flexible.
"""

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT8, INT16, INT32, STRING, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class UserName(Struct):
    name: str = field(STRING)


class DescribeUserScramCredentialsRequest(
    Message, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_since=0
):
    users: list[UserName] | None = field(nullable(array(UserName)))


class CredentialInfo(Struct):
    mechanism: int = field(INT8)
    iterations: int = field(INT32)


class DescribeUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    credential_infos: list[CredentialInfo] = field(array(CredentialInfo))


class DescribeUserScramCredentialsResponse(
    Message, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_since=0
):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
    results: list[DescribeUserScramCredentialsResult] = field(array(DescribeUserScramCredentialsResult))
