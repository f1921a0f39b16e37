"""The APIs of consumer groups in every version, over their bytes, on a real coordinator."""

from collections.abc import Iterator
from typing import Any

import pytest

from distributedlog.controller.features import GROUP_FEATURE
from distributedlog.controller.records import FeatureLevelSet, PartitionCreated
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from distributedlog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from distributedlog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from distributedlog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tests.unit.broker.group_stage import GROUP, TOPIC_NUMBER
from tests.unit.broker.handlers.admin_stage import versions_of
from tests.unit.broker.handlers.test_group_handlers import GroupBroker
from tests.unit.broker.partition_stage import ME, topic_id

HEARTBEATS = versions_of(ConsumerGroupHeartbeatRequest)
DESCRIBES = versions_of(ConsumerGroupDescribeRequest)


class ConsumerBroker(GroupBroker):
    def __init__(self, level: int = 1) -> None:
        super().__init__()
        self.groups.metadata.apply(FeatureLevelSet(name=GROUP_FEATURE, feature_level=level))

    def beat(self, version: int = 1, epoch: int = 0, **more: Any) -> ConsumerGroupHeartbeatResponse:
        joins = epoch == 0
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": "m0",
            "member_epoch": epoch,
            "rebalance_timeout_ms": 60_000 if joins else -1,
            "subscribed_topic_names": ["t"] if joins else None,
            "topic_partitions": [] if joins else None,
            **more,
        }
        request = ConsumerGroupHeartbeatRequest(**fields)
        return self.ask(request, version, ConsumerGroupHeartbeatResponse)

    def describe(self, *group_ids: str, version: int = 1) -> list[DescribedGroup]:
        request = ConsumerGroupDescribeRequest(
            group_ids=list(group_ids or (GROUP,)), include_authorized_operations=True
        )
        return self.ask(request, version, ConsumerGroupDescribeResponse).groups


@pytest.fixture
def broker() -> Iterator[ConsumerBroker]:
    made = ConsumerBroker()
    with made.runner:
        yield made


def parts(response: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    if response.assignment is None:
        return None
    for each in response.assignment.topic_partitions:
        assert each.topic_id == topic_id(TOPIC_NUMBER)
    return [partition for each in response.assignment.topic_partitions for partition in each.partitions]


@pytest.mark.parametrize("version", HEARTBEATS)
def test_a_member_joins_stays_and_leaves(broker: ConsumerBroker, version: int) -> None:
    joined = broker.beat(version)
    assert (joined.error_code, joined.member_id, joined.member_epoch, parts(joined)) == (0, "m0", 1, [0])
    assert joined.heartbeat_interval_ms == 5_000
    owned = [OwnedTopicPartitions(topic_id=topic_id(TOPIC_NUMBER), partitions=[0])]
    stayed = broker.beat(version, 1, topic_partitions=owned)
    assert (stayed.error_code, stayed.member_epoch, parts(stayed)) == (0, 1, None)
    fenced = broker.beat(version, 9)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert fenced.error_message is not None
    left = broker.beat(version, -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert broker.describe()[0].group_state == "Empty"


def test_only_the_older_version_is_given_an_id(broker: ConsumerBroker) -> None:
    given = broker.beat(0, member_id="")
    assert given.member_id is not None
    assert given.member_id.startswith("client-")
    assert broker.beat(1, member_id="").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("group_id", ["", " ", "\t\n"])
@pytest.mark.parametrize("version", HEARTBEATS)
def test_a_member_names_its_group(broker: ConsumerBroker, version: int, group_id: str) -> None:
    assert broker.beat(version, group_id=group_id).error_code == ErrorCode.INVALID_REQUEST


def test_a_group_without_a_name_is_not_described(broker: ConsumerBroker) -> None:
    (described,) = broker.describe("")
    assert described.error_code == ErrorCode.INVALID_GROUP_ID


def test_a_pattern_is_looked_up_in_the_cluster_and_never_means_internal_topics(
    broker: ConsumerBroker,
) -> None:
    joined = broker.beat(subscribed_topic_names=None, subscribed_topic_regex=".*")
    assert parts(joined) == [0]
    wrong = broker.beat(member_id="m1", subscribed_topic_regex="(")
    assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_member_hears_of_new_partitions(broker: ConsumerBroker) -> None:
    broker.beat()
    created = PartitionCreated(
        partition_id=1,
        topic_id=topic_id(TOPIC_NUMBER),
        replicas=[ME],
        isr=[ME],
        leader=ME,
        leader_epoch=0,
    )
    broker.groups.metadata.apply(created)
    assert parts(broker.beat(epoch=1)) == [0, 1]


@pytest.mark.parametrize("version", DESCRIBES)
def test_a_group_is_described_once_however_often_it_is_named(broker: ConsumerBroker, version: int) -> None:
    broker.beat(instance_id="i0", rack_id="r0", server_assignor="range")
    group, other = broker.describe(GROUP, "other", GROUP, version=version)
    assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert (group.assignor_name, group.authorized_operations > 0) == ("range", True)
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == (
        "m0",
        "i0",
        "r0",
        1,
    )
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "")
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_id, topic.topic_name, topic.partitions) == (topic_id(TOPIC_NUMBER), "t", [0])
    assert member.member_type == (1 if version >= 1 else -1)


def test_each_way_of_describing_knows_its_own_kind_of_group(broker: ConsumerBroker) -> None:
    broker.beat()
    request = DescribeGroupsRequest(groups=[GROUP])
    for version, code in ((5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
        (told,) = broker.ask(request, version, DescribeGroupsResponse).groups
        assert (told.error_code, told.group_state) == (code, "Dead")
    listed = broker.ask(
        ListGroupsRequest(states_filter=["Stable"], types_filter=["Consumer"]), 5, ListGroupsResponse
    )
    (group,) = listed.groups
    assert (group.group_id, group.group_type, group.group_state) == (GROUP, "consumer", "Stable")
    assert broker.ask(ListGroupsRequest(types_filter=["classic"]), 5, ListGroupsResponse).groups == []
    broker.beat(epoch=-1)
    broker.member()
    (classic,) = broker.describe()
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_commits_and_fetches_are_told_apart_by_their_epochs(broker: ConsumerBroker) -> None:
    broker.beat()
    assert broker.commit(5, "m0", 1)[0] == ErrorCode.NONE
    assert broker.commit(5, "m0", 0)[0] == ErrorCode.STALE_MEMBER_EPOCH
    assert broker.commit(5, "m0", 1, version=8)[0] == ErrorCode.UNSUPPORTED_VERSION

    def fetch(version: int, member_id: str | None, epoch: int) -> int:
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=None, member_id=member_id, member_epoch=epoch)
        request = OffsetFetchRequest(groups=[group])
        (told,) = broker.ask(request, version, OffsetFetchResponse).groups
        return told.error_code

    assert fetch(9, "m0", 1) == ErrorCode.NONE
    assert fetch(9, "m0", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(9, "m1", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(9, None, -1) == ErrorCode.NONE


def test_a_cluster_that_was_not_raised_has_no_consumer_groups() -> None:
    broker = ConsumerBroker(level=0)
    with broker.runner:
        for version in HEARTBEATS:
            assert broker.beat(version).error_code == ErrorCode.UNSUPPORTED_VERSION
        for version in DESCRIBES:
            (told,) = broker.describe(version=version)
            assert told.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert broker.join(3).error_code == 0, "classic groups are there"
