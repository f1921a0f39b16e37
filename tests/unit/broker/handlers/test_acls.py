"""DescribeAcls, CreateAcls and DeleteAcls of a broker without an authorizer."""

from typing import Any

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from distributedlog.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from distributedlog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tests.unit.broker.handlers.admin_stage import Broker

TEXT = "No Authorizer is configured."
TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3
FILTER: dict[str, Any] = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": None,
    "pattern_type_filter": LITERAL,
    "principal_filter": None,
    "host_filter": None,
    "operation": READ,
    "permission_type": ALLOW,
}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_described(version: int) -> None:
    response = Broker().ask(DescribeAclsRequest(**FILTER), version, DescribeAclsResponse)
    assert (response.error_code, response.error_message) == (ErrorCode.SECURITY_DISABLED, TEXT)
    assert response.resources == []


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_created_each_for_itself(version: int, count: int) -> None:
    acl = AclCreation(
        resource_type=TOPIC,
        resource_name="orders",
        principal="User:ann",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    response = Broker().ask(CreateAclsRequest(creations=[acl] * count), version, CreateAclsResponse)
    told = [(each.error_code, each.error_message) for each in response.results]
    assert told == [(ErrorCode.SECURITY_DISABLED, TEXT)] * count


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_deleted_each_filter_for_itself(version: int, count: int) -> None:
    filters = [DeleteAclsFilter(**FILTER)] * count
    response = Broker().ask(DeleteAclsRequest(filters=filters), version, DeleteAclsResponse)
    told = [(each.error_code, each.error_message, each.matching_acls) for each in response.filter_results]
    assert told == [(ErrorCode.SECURITY_DISABLED, TEXT, [])] * count
