"""Groups as brokers tell of them: old ones, loading ones, and coordinators that move."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin.groups import GroupAdmin, GroupListing, GroupMember, is_missing
from distributedlog.client.metadata import Cluster
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import GroupNotFoundError, NonEmptyGroupError, UnsupportedVersionError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from distributedlog.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from distributedlog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from distributedlog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from distributedlog.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from distributedlog.protocol.versioned import encode_versioned
from tests.unit.client.stage import NODE_ID, QUICK, Answer, ScriptedBroker, run

T = TypeVar("T")

SUBSCRIPTION = encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 1)
ASSIGNMENT = encode_versioned(
    ConsumerProtocolAssignment(assigned_partitions=[TopicPartitions(topic="t", partitions=[1, 0])]), 0
)


def broker(answers: dict[ApiKey, Answer], *, list_version: int = 5) -> ScriptedBroker:
    """One that names itself as everybody's coordinator."""
    made = ScriptedBroker(
        answers=answers,
        versions={
            ApiKey.LIST_GROUPS: (0, list_version),
            ApiKey.FIND_COORDINATOR: (0, 4),
            ApiKey.DESCRIBE_GROUPS: (0, 5),
            ApiKey.DELETE_GROUPS: (0, 2),
        },
    )

    def find(request: FindCoordinatorRequest, _version: int) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=each, node_id=NODE_ID, host=made.address.host, port=made.address.port)
                for each in request.coordinator_keys
            ]
        )

    made.answers.setdefault(ApiKey.FIND_COORDINATOR, find)
    return made


def asked(scripted: ScriptedBroker, ask: Callable[[GroupAdmin], Awaitable[T]]) -> T:
    with scripted.running():

        async def work() -> T:
            async with Cluster(parse_bootstrap(scripted.bootstrap), QUICK) as cluster:
                return await ask(GroupAdmin(cluster))

        return run(work())


def test_a_list_is_whole_only_when_nobody_is_loading() -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]

    def tell(_request: ListGroupsRequest, _version: int) -> ListGroupsResponse:
        code = codes.pop(0)
        names = ["b"] if code else ["b", "a"]
        groups = [
            ListedGroup(group_id=each, protocol_type="consumer", group_state="Stable", group_type="classic")
            for each in names
        ]
        return ListGroupsResponse(error_code=code, groups=groups)

    found = asked(broker({ApiKey.LIST_GROUPS: tell}), lambda groups: groups.list_groups())
    assert found == tuple(GroupListing(each, "consumer", "Stable", "classic", NODE_ID) for each in ("a", "b"))
    assert codes == []


def test_a_broker_that_is_too_old_for_a_filter_is_not_taken_at_its_word() -> None:
    def tell(_request: ListGroupsRequest, _version: int) -> ListGroupsResponse:
        return ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])

    (group,) = asked(broker({ApiKey.LIST_GROUPS: tell}, list_version=3), lambda groups: groups.list_groups())
    assert (group.group_id, group.state, group.type) == ("g", "", "")
    for version, states, types in ((3, ["Stable"], []), (4, [], ["classic"])):
        old = broker({ApiKey.LIST_GROUPS: tell}, list_version=version)
        with pytest.raises(UnsupportedVersionError, match="too old"):
            asked(old, lambda groups, s=states, t=types: groups.list_groups(states=s, types=t))  # type: ignore[misc]


def described(state: str, members: list[DescribedGroupMember], code: int = 0) -> DescribeGroupsResponse:
    group = DescribedGroup(
        error_code=code, group_id="g", group_state=state, protocol_type="consumer", protocol_data="range",
        members=members,
    )  # fmt: skip
    return DescribeGroupsResponse(groups=[group])


def test_members_are_shown_with_what_they_read_and_own() -> None:
    readable = DescribedGroupMember(
        member_id="m", group_instance_id="i", client_id="c", client_host="/h", member_metadata=SUBSCRIPTION,
        member_assignment=ASSIGNMENT,
    )  # fmt: skip
    strange = DescribedGroupMember(
        member_id="n", client_id="c", client_host="/h", member_metadata=b"\x7f", member_assignment=b"?"
    )

    def tell(_request: DescribeGroupsRequest, _version: int) -> DescribeGroupsResponse:
        return described("Stable", [readable, strange])

    view = asked(broker({ApiKey.DESCRIBE_GROUPS: tell}), lambda groups: groups.describe_group("g"))
    assert (view.state, view.type, view.assignor, view.is_empty) == ("Stable", "classic", "range", False)
    owned = (TopicPartition("t", 0), TopicPartition("t", 1))
    assert view.members == (
        GroupMember("m", "i", "c", "/h", ("t",), owned),
        GroupMember("n", None, "c", "/h", (), ()),
    )


def test_a_dead_group_is_none_and_a_coordinator_that_moved_is_looked_for_again() -> None:
    answers = [
        described("", [], ErrorCode.NOT_COORDINATOR),
        described("Empty", []),
        described("Dead", []),
    ]

    def tell(_request: DescribeGroupsRequest, _version: int) -> DescribeGroupsResponse:
        return answers.pop(0)

    scripted = broker({ApiKey.DESCRIBE_GROUPS: tell})

    async def both(groups: GroupAdmin) -> None:
        assert (await groups.describe_group("g")).is_empty
        with pytest.raises(GroupNotFoundError, match="there is no group 'g'"):
            await groups.describe_group("g")

    asked(scripted, both)
    assert scripted.count(ApiKey.FIND_COORDINATOR) == 3


def test_what_becomes_of_each_group_that_is_deleted_is_told() -> None:
    codes = {"gone": 0, "absent": ErrorCode.GROUP_ID_NOT_FOUND, "busy": ErrorCode.NON_EMPTY_GROUP}

    def tell(request: DeleteGroupsRequest, _version: int) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=each, error_code=codes[each]) for each in request.groups_names
            ]
        )

    outcomes = asked(broker({ApiKey.DELETE_GROUPS: tell}), lambda groups: groups.delete_groups(list(codes)))
    assert outcomes["gone"] is None
    assert outcomes["absent"] is not None
    assert is_missing(outcomes["absent"])
    assert isinstance(outcomes["busy"], NonEmptyGroupError)
