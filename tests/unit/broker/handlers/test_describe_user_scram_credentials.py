from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tests.unit.broker.handlers.admin_stage import Broker


def ask(names: list[str] | None) -> list[tuple[str, int]]:
    users = None if names is None else [UserName(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=users)
    response = Broker().ask(request, 0, DescribeUserScramCredentialsResponse)
    assert response.error_code == ErrorCode.NONE
    assert not any(each.credential_infos for each in response.results)
    return [(each.user, each.error_code) for each in response.results]


def test_nobody_has_credentials() -> None:
    assert ask(None) == []
    assert ask(["ann", "bob", "ann"]) == [
        ("ann", ErrorCode.DUPLICATE_RESOURCE),
        ("bob", ErrorCode.RESOURCE_NOT_FOUND),
    ]
