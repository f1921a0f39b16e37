"""DescribeAcls, CreateAcls, DeleteAcls: neither broker has an authorizer."""

from typing import Any

from distributedlog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from distributedlog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from distributedlog.protocol.messages.describe_acls import DescribeAclsRequest
from tests.compat.differential.asking import Conversation
from tests.compat.differential.registry import probe

TOPIC, LITERAL, MATCH, READ, ALLOW, ANYTHING = 2, 3, 2, 3, 3, 1


def _filter(**facts: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "t",
        "pattern_type_filter": LITERAL,
        "principal_filter": "User:ann",
        "host_filter": "*",
        "operation": READ,
        "permission_type": ALLOW,
        **facts,
    }


def _acl(**facts: Any) -> AclCreation:
    return AclCreation(**{
        "resource_type": TOPIC,
        "resource_name": "t",
        "resource_pattern_type": LITERAL,
        "principal": "User:ann",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
        **facts,
    })  # fmt: skip


EVERYTHING = {
    "resource_type_filter": ANYTHING,
    "resource_name_filter": None,
    "pattern_type_filter": MATCH,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANYTHING,
    "permission_type": ANYTHING,
}


@probe(DescribeAclsRequest)
def acls_described(of: Conversation, version: int) -> None:
    of.ask("of a topic", DescribeAclsRequest(**_filter()), version)
    of.ask("all", DescribeAclsRequest(**_filter(**EVERYTHING)), version)


@probe(CreateAclsRequest)
def acls_created(of: Conversation, version: int) -> None:
    for count in range(3):
        of.ask(f"{count} alike", CreateAclsRequest(creations=[_acl()] * count), version)
    two = [_acl(), _acl(resource_name="u")]
    of.ask("two", CreateAclsRequest(creations=two), version)
    of.ask("no principal", CreateAclsRequest(creations=[_acl(principal="ann")]), version)


@probe(DeleteAclsRequest)
def acls_deleted(of: Conversation, version: int) -> None:
    for count in range(3):
        filters = [DeleteAclsFilter(**_filter())] * count
        of.ask(f"{count} filters", DeleteAclsRequest(filters=filters), version)
    of.ask("all", DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter(**EVERYTHING))]), version)
