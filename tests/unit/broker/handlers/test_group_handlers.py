"""The group APIs in every version, over their bytes, on a real coordinator."""

import asyncio
from collections.abc import Awaitable, Iterator
from typing import TypeVar

import pytest

from distributedlog.broker.net.context import ANONYMOUS, RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import ZERO_UUID
from distributedlog.protocol.codec import decode_all, encode_bytes, join_parts
from distributedlog.protocol.framing import decode_response, encode_response
from distributedlog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from distributedlog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from distributedlog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from distributedlog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from distributedlog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from distributedlog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from distributedlog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from distributedlog.protocol.schema import Message
from tests.unit.broker.group_stage import GROUP, TOPIC_NUMBER, GroupStage
from tests.unit.broker.handlers.admin_stage import registration_of, versions_of
from tests.unit.broker.partition_stage import topic_id
from tests.unit.broker.server_stage import bare_services
from tests.unit.groups.stage import subscription

R = TypeVar("R", bound=Message)
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class GroupBroker:
    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.groups = GroupStage()
        self.groups.settle()
        self.services = bare_services(self.groups.stage.settings, self.groups.stage.clock)
        self.services.metadata = self.groups.metadata
        self.services.groups = self.groups.groups

    def ask(self, request: Message, version: int, response: type[R]) -> R:
        """Handles a request as the server does; syncs are done while it waits."""
        return self.runner.run(self._ask(request, version, response))

    async def _ask(self, request: Message, version: int, response: type[R]) -> R:
        registration = registration_of(request)
        frame = bytearray(encode_bytes(request, version))
        received = decode_all(type(request), version, frame)
        deadline_ms = self.groups.stage.clock.monotonic_ms() + 30_000
        context = RequestContext(ANONYMOUS, "L", "client", "127.0.0.1", 7, version, 0, deadline_ms)
        answer: HandlerResponse | None
        try:
            answer = registration.handle(self.services, received, context)
            if isinstance(answer, Awaitable):
                frame[:] = bytes(len(frame))  # what waits must hold nothing of the frame
                waiting = asyncio.ensure_future(answer)
                for _ in range(5):
                    await asyncio.sleep(0)
                    self.groups.settle()
                answer = await waiting
        except DlogError as error:
            answer = registration.make_error_response(received, context, error.code, str(error))
        assert isinstance(answer, Message)
        return decode_response(response, version, join_parts(encode_response(answer, version, 5))[4:])[1]

    def join(self, version: int, member_id: str = "") -> JoinGroupResponse:
        protocol = JoinGroupRequestProtocol(name="range", metadata=subscription("t"))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        return self.ask(request, version, JoinGroupResponse)

    def member(self) -> str:
        """Returns a member of generation 1, with everything assigned to it."""
        joined = self.join(3)
        given = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=1, member_id=joined.member_id, assignments=[given]
        )
        assert self.ask(request, 3, SyncGroupResponse).assignment == b"all"
        return joined.member_id

    def commit(self, offset: int, member_id: str = "", generation: int = -1, version: int = 9) -> list[int]:
        partitions = [
            OffsetCommitRequestPartition(partition_index=at, committed_offset=offset, committed_metadata="m")
            for at in (0, 1)
        ]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[
                OffsetCommitRequestTopic(name="t", topic_id=topic_id(TOPIC_NUMBER), partitions=partitions),
                OffsetCommitRequestTopic(name="gone", topic_id=topic_id(9), partitions=partitions[:1]),
            ],
        )
        response = self.ask(request, version, OffsetCommitResponse)
        return [each.error_code for topic in response.topics for each in topic.partitions]


@pytest.fixture
def broker() -> Iterator[GroupBroker]:
    made = GroupBroker()
    with made.runner:
        yield made


UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", versions_of(JoinGroupRequest))
def test_a_member_joins(broker: GroupBroker, version: int) -> None:
    response = broker.join(version)
    if version >= 4:
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert response.protocol_name == (None if version >= 7 else "")
        response = broker.join(version, response.member_id)
    assert response.error_code == ErrorCode.NONE
    assert response.leader == response.member_id
    assert response.member_id.startswith("client-")
    assert (response.generation_id, response.protocol_name) == (1, "range")
    assert [bytes(each.metadata) for each in response.members] == [subscription("t")]
    assert response.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", versions_of(SyncGroupRequest))
def test_a_member_gets_its_part(broker: GroupBroker, version: int) -> None:
    member = broker.join(3).member_id
    given = [SyncGroupRequestAssignment(member_id=member, assignment=b"all")]
    request = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=member, assignments=given)
    for request.protocol_type, request.protocol_name in ((None, None), ("consumer", None), (None, "range")):
        if version >= 5:
            response = broker.ask(request, version, SyncGroupResponse)
            assert (response.error_code, response.assignment) == (INCONSISTENT, b"")
    request.protocol_type, request.protocol_name = "consumer", "range"
    response = broker.ask(request, version, SyncGroupResponse)
    assert (response.error_code, response.assignment) == (ErrorCode.NONE, b"all")
    request.generation_id = 2
    assert broker.ask(request, version, SyncGroupResponse).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions_of(HeartbeatRequest))
def test_a_member_is_heard(broker: GroupBroker, version: int) -> None:
    request = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=broker.member())
    assert broker.ask(request, version, HeartbeatResponse).error_code == ErrorCode.NONE
    request.member_id = "stranger"
    assert broker.ask(request, version, HeartbeatResponse).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions_of(LeaveGroupRequest))
def test_a_member_leaves(broker: GroupBroker, version: int) -> None:
    member = broker.member()
    request = LeaveGroupRequest(group_id=GROUP)
    if version < 3:
        for request.member_id, code in ((member, ErrorCode.NONE), (member, ErrorCode.UNKNOWN_MEMBER_ID)):
            assert broker.ask(request, version, LeaveGroupResponse).error_code == code
        return
    request.members = [MemberIdentity(member_id=each) for each in (member, "stranger")]
    response = broker.ask(request, version, LeaveGroupResponse)
    assert response.error_code == ErrorCode.NONE
    assert [(each.member_id, each.error_code) for each in response.members] == [
        (member, ErrorCode.NONE),
        ("stranger", ErrorCode.UNKNOWN_MEMBER_ID),
    ]


@pytest.mark.parametrize("version", versions_of(OffsetCommitRequest))
def test_positions_are_stored_and_what_is_not_there_is_refused(broker: GroupBroker, version: int) -> None:
    absent = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN
    assert broker.commit(5, version=version) == [ErrorCode.NONE, UNKNOWN, absent]
    assert broker.groups.committed() == [5]
    assert broker.commit(6, "m", 3, version) == [ErrorCode.UNKNOWN_MEMBER_ID] * 3


@pytest.mark.parametrize("version", versions_of(OffsetCommitRequest))
def test_a_member_of_a_group_that_is_not_there_commits_nothing(broker: GroupBroker, version: int) -> None:
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert broker.commit(6, "m", 3, version) == [code] * 3
    assert broker.groups.committed() == []


@pytest.mark.parametrize("version", versions_of(OffsetFetchRequest))
def test_positions_are_given_back(broker: GroupBroker, version: int) -> None:
    broker.commit(5)
    request = OffsetFetchRequest(group_id=GROUP)
    request.topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    by_id = [
        OffsetFetchRequestTopics(name="t", topic_id=topic_id(TOPIC_NUMBER), partition_indexes=[0, 1]),
        OffsetFetchRequestTopics(name="gone", topic_id=topic_id(9), partition_indexes=[0]),
    ]
    request.groups = [
        OffsetFetchRequestGroup(group_id=GROUP, topics=by_id),
        OffsetFetchRequestGroup(group_id="other", topics=None),
        OffsetFetchRequestGroup(group_id=GROUP, topics=None),
    ]
    response = broker.ask(request, version, OffsetFetchResponse)
    if version < 8:
        ((first, second),) = (topic.partitions for topic in response.topics)
        assert (first.committed_offset, first.metadata, second.committed_offset) == (5, "m", -1)
        if version >= 2:
            request.topics = None
            everything = broker.ask(request, version, OffsetFetchResponse)
            assert [len(topic.partitions) for topic in everything.topics] == [1]
        return
    named, other, everything_of = response.groups
    assert [[each.committed_offset for each in topic.partitions] for topic in named.topics] == [[5, -1], [-1]]
    codes = [each.error_code for topic in named.topics for each in topic.partitions]
    assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else 0]
    assert (other.topics, other.error_code) == ([], ErrorCode.NONE)
    ((only,),) = (topic.partitions for topic in everything_of.topics)
    assert only.committed_offset == 5
    assert everything_of.topics[0].topic_id == (topic_id(TOPIC_NUMBER) if version >= 10 else ZERO_UUID)


@pytest.mark.parametrize("version", versions_of(OffsetFetchRequest))
def test_a_coordinator_that_is_loading_says_so_and_not_that_there_is_nothing(
    broker: GroupBroker, version: int
) -> None:
    """It says so for the group and in versions 2 to 7 for each partition: aiokafka looks at those alone."""
    broker.commit(5)
    broker.groups.restart()
    broker.services.groups = broker.groups.groups
    request = OffsetFetchRequest(group_id=GROUP)
    request.topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request.groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if version >= 8:
        answers = [each.error_code for each in broker.ask(request, version, OffsetFetchResponse).groups]
    else:
        response = broker.ask(request, version, OffsetFetchResponse)
        answers = [each.error_code for topic in response.topics for each in topic.partitions]
        answers += [response.error_code] if version >= 2 else []
    assert answers == ([loading] * 2 if 2 <= version < 8 else [loading])


@pytest.mark.parametrize("version", versions_of(HeartbeatRequest))
def test_a_heartbeat_to_a_coordinator_that_is_loading_is_no_error(broker: GroupBroker, version: int) -> None:
    broker.commit(5)
    broker.groups.restart()
    broker.services.groups = broker.groups.groups
    request = HeartbeatRequest(group_id=GROUP, member_id="m", generation_id=1)
    assert broker.ask(request, version, HeartbeatResponse).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", versions_of(DescribeGroupsRequest))
def test_groups_are_described(broker: GroupBroker, version: int) -> None:
    member = broker.member()
    request = DescribeGroupsRequest(groups=[GROUP, "never"])
    request.include_authorized_operations = True
    group, never = broker.ask(request, version, DescribeGroupsResponse).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (shown,) = group.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member, "client", "/127.0.0.1")
    assert (shown.member_metadata, shown.member_assignment) == (subscription("t"), b"all")
    assert group.authorized_operations == (0b110101001000 if version >= 3 else -(2**31))
    assert never.group_state == "Dead"
    assert never.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


@pytest.mark.parametrize("version", versions_of(ListGroupsRequest))
def test_groups_are_listed_by_state_and_type(broker: GroupBroker, version: int) -> None:
    broker.member()
    broker.groups.commit(1, "alone")
    broker.groups.settle()

    def names(states: list[str], types: list[str]) -> list[str]:
        request = ListGroupsRequest()
        request.states_filter, request.types_filter = states, types
        response = broker.ask(request, version, ListGroupsResponse)
        assert response.error_code == ErrorCode.NONE
        return sorted(each.group_id for each in response.groups)

    assert names([], []) == ["alone", GROUP]
    if version >= 4:
        assert names(["stable"], []) == [GROUP]
    if version >= 5:
        assert names(["Empty"], ["Classic"]) == ["alone"]
        assert names([], ["consumer"]) == []


@pytest.mark.parametrize("version", versions_of(DeleteGroupsRequest))
def test_groups_without_members_are_deleted(broker: GroupBroker, version: int) -> None:
    broker.member()
    broker.groups.commit(1, "alone")
    broker.groups.settle()
    request = DeleteGroupsRequest(groups_names=[GROUP, "alone", "never", "alone"])
    response = broker.ask(request, version, DeleteGroupsResponse)
    assert [(each.group_id, each.error_code) for each in response.results] == [
        (GROUP, ErrorCode.NON_EMPTY_GROUP),
        ("alone", ErrorCode.NONE),
        ("never", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert broker.groups.committed("alone") == []


def test_positions_are_deleted_unless_they_are_in_use(broker: GroupBroker) -> None:
    broker.commit(5)
    topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    request = OffsetDeleteRequest(group_id=GROUP, topics=[topic])
    broker.member()
    response = broker.ask(request, 0, OffsetDeleteResponse)
    codes = [each.error_code for each in response.topics[0].partitions]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    request.group_id = "never"
    assert broker.ask(request, 0, OffsetDeleteResponse).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    broker.groups.commit(5, "never")
    broker.groups.settle()
    response = broker.ask(request, 0, OffsetDeleteResponse)
    assert [each.error_code for each in response.topics[0].partitions] == [ErrorCode.NONE]
    assert broker.groups.committed("never") == []


def test_offsets_of_unknown_partitions_are_not_deleted_but_named(broker: GroupBroker) -> None:
    broker.commit(5)
    parts = [OffsetDeleteRequestPartition(partition_index=at) for at in (99, 0)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=parts) for name in ("nowhere", "t")]
    response = broker.ask(OffsetDeleteRequest(group_id=GROUP, topics=topics), 0, OffsetDeleteResponse)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = [[each.error_code for each in topic.partitions] for topic in response.topics]
    assert codes == [[unknown, unknown], [unknown, ErrorCode.NONE]]


@pytest.mark.parametrize(("version", "operations"), [(3, 3400), (5, 3400), (6, -(2**31))])
def test_operations_of_a_group_that_is_not_there_are_told_as_long_as_it_is_no_error(
    broker: GroupBroker, version: int, operations: int
) -> None:
    request = DescribeGroupsRequest(groups=["never"], include_authorized_operations=True)
    (described,) = broker.ask(request, version, DescribeGroupsResponse).groups
    assert described.authorized_operations == operations


def test_offsets_of_a_group_without_a_name_are_not_deleted(broker: GroupBroker) -> None:
    broker.groups.commit(5, "")
    broker.groups.settle()
    topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    response = broker.ask(OffsetDeleteRequest(group_id="", topics=[topic]), 0, OffsetDeleteResponse)
    assert (response.error_code, response.topics) == (ErrorCode.INVALID_GROUP_ID, [])
    assert broker.groups.committed("") == [5]


def test_a_topic_without_partitions_is_not_in_the_response(broker: GroupBroker) -> None:
    broker.commit(5)
    topics = [OffsetDeleteRequestTopic(name="t", partitions=[])]
    response = broker.ask(OffsetDeleteRequest(group_id=GROUP, topics=topics), 0, OffsetDeleteResponse)
    assert (response.error_code, response.topics) == (ErrorCode.NONE, [])
