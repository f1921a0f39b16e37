"""Groups: which there are, who is in them, and taking them away.  Their committed offsets: `group_offsets`.

Every broker knows the groups that it coordinates, so a list is whole only when all brokers have responded;
one that is still reading its groups back is waited for.  A group is described by its coordinator: by
ConsumerGroupDescribe where it is of the new protocol, by DescribeGroups otherwise.  One that is not there is
`GroupNotFoundError`.

What members of classic groups say and are given is opaque to brokers; of consumers it is read here.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from distributedlog.client.admin.group_offsets import GroupOffsets
from distributedlog.client.errors import as_error_code, check_response, code_of, is_retriable
from distributedlog.client.metadata import Cluster
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, GroupNotFoundError, UnsupportedVersionError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from distributedlog.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from distributedlog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from distributedlog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from distributedlog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from distributedlog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from distributedlog.protocol.versioned import decode_compatible

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The type of groups of the new protocol; and, of classic ones, the protocol type of consumers."""
EMPTY, DEAD = "Empty", "Dead"
_NOT_THIS_KIND: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
NO_EPOCH: Final = -1
STATES_SINCE, TYPES_SINCE = 4, 5
"""The versions of ListGroups from which on groups can be filtered by these."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str
    """Empty where the broker is too old to say; so is `type`."""
    type: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    subscribed: tuple[str, ...]
    """Topics, as far as they can be read."""
    partitions: tuple[TopicPartition, ...]
    """What it owns; nothing while that is not decided."""


@dataclass(frozen=True, slots=True)
class GroupView:
    group_id: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    epoch: int
    """The epoch of groups of the new protocol; -1 of others."""
    members: tuple[GroupMember, ...]

    @property
    def is_empty(self) -> bool:
        return self.state in (EMPTY, DEAD)


class GroupAdmin:
    """Works on a cluster that it is given."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def offsets(self, group_id: str) -> GroupOffsets:
        return GroupOffsets(self.cluster, group_id)

    # --- looking -------------------------------------------------------------------------------

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> tuple[GroupListing, ...]:
        """Lists the groups of all brokers, by name; only those of these states and types, if any are
        given."""
        brokers = await self.cluster.retrying(self.cluster.brokers)
        found = await asyncio.gather(*(self._list(each.node_id, states, types) for each in brokers))
        unique = {listing.group_id: listing for listings in found for listing in listings}
        return tuple(unique[group_id] for group_id in sorted(unique))

    async def _list(
        self, node_id: int, states: Collection[str], types: Collection[str]
    ) -> list[GroupListing]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        async def attempt() -> ListGroupsResponse:
            connection = await self.cluster.connection(node_id)
            version = connection.version_for(ListGroupsRequest)
            if (states and version < STATES_SINCE) or (types and version < TYPES_SINCE):
                raise UnsupportedVersionError(f"broker {node_id} is too old to filter groups by that")
            response = await self.cluster.call(connection, request, ListGroupsResponse)
            check_response(response.error_code, f"the groups of broker {node_id}")
            return response

        response = await self.cluster.retrying(attempt)
        return [
            GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type, node_id)
            for each in response.groups
        ]

    async def describe_group(self, group_id: str) -> GroupView:
        """Raises `GroupNotFoundError` for one that is not there."""
        coordinator = self.offsets(group_id)

        async def attempt() -> GroupView:
            try:
                return await self._describe(coordinator, group_id)
            except DlogError:
                coordinator.forget_coordinator()
                raise

        return await self.cluster.retrying(attempt)

    async def _describe(self, coordinator: GroupOffsets, group_id: str) -> GroupView:
        connection = await coordinator.coordinator()
        if connection.serves(ConsumerGroupDescribeRequest):
            request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
            response = await self.cluster.call(connection, request, ConsumerGroupDescribeResponse)
            for described in response.groups:
                code = as_error_code(described.error_code)
                if code not in _NOT_THIS_KIND:
                    check_response(code, f"group {group_id!r}", described.error_message)
                    return _consumer_group(described)
        classic = await self.cluster.call(
            connection, DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse
        )
        for found in classic.groups:
            if as_error_code(found.error_code) is not ErrorCode.GROUP_ID_NOT_FOUND:
                check_response(found.error_code, f"group {group_id!r}", found.error_message)
                if found.group_state != DEAD:
                    return _classic_group(found)
        raise GroupNotFoundError(f"there is no group {group_id!r}")

    # --- deleting ------------------------------------------------------------------------------

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, DlogError | None]:
        """Returns what became of each, with its committed offsets: None if it is gone, or the reason why
        not."""
        return {group_id: await self._delete(group_id) for group_id in group_ids}

    async def _delete(self, group_id: str) -> DlogError | None:
        coordinator = self.offsets(group_id)
        request = DeleteGroupsRequest(groups_names=[group_id])

        async def attempt() -> None:
            try:
                connection = await coordinator.coordinator()
                response = await self.cluster.call(connection, request, DeleteGroupsResponse)
                for described in response.results:
                    check_response(described.error_code, f"group {group_id!r}")
            except DlogError:
                coordinator.forget_coordinator()
                raise

        try:
            await self.cluster.retrying(attempt)
        except DlogError as error:
            if is_retriable(error):
                raise
            return error
        return None


def is_missing(error: DlogError) -> bool:
    return code_of(error) is ErrorCode.GROUP_ID_NOT_FOUND


def is_refused_for_members(error: DlogError) -> bool:
    """A change that only a group without members allows."""
    return code_of(error) in (
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    )


# --- reading responses -------------------------------------------------------------------------


def _consumer_group(described: DescribedConsumerGroup) -> GroupView:
    members = tuple(
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            tuple(sorted(each.subscribed_topic_names)),
            _sorted(
                TopicPartition(topic.topic_name, index)
                for topic in each.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for each in described.members
    )
    return GroupView(
        described.group_id,
        described.group_state,
        CONSUMER,
        CONSUMER,
        described.assignor_name,
        described.group_epoch,
        members,
    )


def _classic_group(described: DescribedGroup) -> GroupView:
    is_consumer = described.protocol_type == CONSUMER
    members = tuple(_classic_member(each, is_consumer) for each in described.members)
    return GroupView(
        described.group_id,
        described.group_state,
        CLASSIC,
        described.protocol_type,
        described.protocol_data,
        NO_EPOCH,
        members,
    )


def _classic_member(described: DescribedGroupMember, is_consumer: bool) -> GroupMember:
    subscribed: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    if is_consumer:
        subscribed = _subscribed(described.member_metadata)
        partitions = _assigned(described.member_assignment)
    return GroupMember(
        described.member_id,
        described.group_instance_id,
        described.client_id,
        described.client_host,
        subscribed,
        partitions,
    )


def _subscribed(metadata: bytes) -> tuple[str, ...]:
    """Nothing where it cannot be read: other kinds of clients say other things there."""
    try:
        return tuple(sorted(decode_compatible(ConsumerProtocolSubscription, metadata).topics))
    except DlogError:
        return ()


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        described = decode_compatible(ConsumerProtocolAssignment, assignment)
    except DlogError:
        return ()
    return _sorted(
        TopicPartition(each.topic, index)
        for each in described.assigned_partitions
        for index in each.partitions
    )


def _sorted(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partitions))
