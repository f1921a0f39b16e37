"""Members of a group by hand: each request by itself, each answer in a form in which brokers can be compared.

Ids that a broker makes are left out; so is everything that is not the same twice on one broker.
"""

import socket
import struct
from collections.abc import Mapping
from typing import Any, TypeVar

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import decode_response, encode_request
from distributedlog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from distributedlog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from distributedlog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from distributedlog.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
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
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from distributedlog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from distributedlog.protocol.schema import Message
from distributedlog.protocol.versioned import decode_compatible, encode_versioned

R = TypeVar("R", bound=Message)

TOPIC, GROUP = "t", "g"
SECONDS_MAX = 30.0
ID_REQUIRED = "MEMBER_ID_REQUIRED"
_SIZE = struct.Struct(">i")


def _name(code: int) -> str:
    return ErrorCode(code).name


class GroupProbe:
    def __init__(self, port: int) -> None:
        self._port = port
        self.topic_id: Uuid = ZERO_UUID
        """Learned from the first assignment."""
        self.ids: dict[str, str] = {}
        """The ids of classic members, by what they are called here."""

    def call(self, request: Message, version: int, response: type[R]) -> R:
        with socket.create_connection(("127.0.0.1", self._port), SECONDS_MAX) as connection:
            connection.sendall(join_parts(encode_request(request, version, 1, "probe")))
            size = _SIZE.unpack(self._read(connection, _SIZE.size))[0]
            return decode_response(response, version, self._read(connection, size))[1]

    def _read(self, connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = connection.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    def is_coordinated(self) -> bool:
        """Whether the group's coordinator answers; asking makes the offsets topic."""
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        (found,) = self.call(asked, 4, FindCoordinatorResponse).coordinators
        if found.error_code:
            return False
        fetched = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
        return not self.call(fetched, 8, OffsetFetchResponse).groups[0].error_code

    # --- the new protocol ----------------------------------------------------------------------

    def beat(
        self,
        member_id: str,
        epoch: int = 0,
        owned: list[int] | None = None,
        *,
        instance: str | None = None,
        **more: Any,
    ) -> object:
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": instance,
            "topic_partitions": None if owned is None else self._owned(owned),
        }
        if epoch == 0:
            fields |= {
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": [TOPIC],
                "topic_partitions": [],
            }
        asked = ConsumerGroupHeartbeatRequest(**(fields | more))
        told = self.call(asked, 1, ConsumerGroupHeartbeatResponse)
        if told.error_code:
            return _name(told.error_code)
        if told.assignment is None:
            return told.member_epoch, None
        for each in told.assignment.topic_partitions:
            self.topic_id = each.topic_id
        parts = [at for each in told.assignment.topic_partitions for at in each.partitions]
        return told.member_epoch, sorted(parts)

    def _owned(self, partitions: list[int]) -> list[OwnedTopicPartitions]:
        return [OwnedTopicPartitions(topic_id=self.topic_id, partitions=partitions)] if partitions else []

    def describe(self) -> object:
        asked = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
        (group,) = self.call(asked, 1, ConsumerGroupDescribeResponse).groups
        members = sorted(
            (
                each.member_epoch,
                each.member_type,
                [at for topic in each.assignment.topic_partitions for at in sorted(topic.partitions)],
                [at for topic in each.target_assignment.topic_partitions for at in sorted(topic.partitions)],
                each.subscribed_topic_names,
                each.subscribed_topic_regex,
            )
            for each in group.members
        )
        return (
            _name(group.error_code), group.group_state, group.group_epoch, group.assignment_epoch,
            group.assignor_name, members,
        )  # fmt: skip

    # --- the classic protocol ------------------------------------------------------------------

    def join(self, who: str, owned: list[int] | None = None, **more: Any) -> object:
        held = [TopicPartitions(topic=TOPIC, partitions=owned)] if owned else []
        subscription = ConsumerProtocolSubscription(topics=[TOPIC], owned_partitions=held)
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.ids.get(who, ""),
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [
                JoinGroupRequestProtocol(
                    name=more.pop("protocol", "range"), metadata=encode_versioned(subscription, 1)
                )
            ],
        }
        told = self.call(JoinGroupRequest(**(fields | more)), 9, JoinGroupResponse)
        if told.member_id and _name(told.error_code) in ("NONE", ID_REQUIRED):
            self.ids[who] = told.member_id
        if told.error_code:
            return _name(told.error_code)
        leads = told.leader == told.member_id
        return (
            told.generation_id, told.protocol_type, told.protocol_name, leads, len(told.members),
            told.skip_assignment,
        )  # fmt: skip

    def sync(self, who: str, generation: int, given: Mapping[str, list[int]] | None = None) -> object:
        asked = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=self.ids[who],
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=self.ids[name], assignment=_assignment(parts))
                for name, parts in (given or {}).items()
            ],
        )
        told = self.call(asked, 5, SyncGroupResponse)
        if told.error_code:
            return _name(told.error_code)
        assigned = decode_compatible(ConsumerProtocolAssignment, bytes(told.assignment)).assigned_partitions
        return sorted(at for each in assigned for at in each.partitions)

    def classic_beat(self, who: str, generation: int) -> str:
        member_id = self.ids.get(who, who)
        asked = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
        return _name(self.call(asked, 4, HeartbeatResponse).error_code)

    def leave(self, who: str) -> list[str]:
        asked = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self.ids.get(who, who))])
        return [_name(each.error_code) for each in self.call(asked, 4, LeaveGroupResponse).members]

    # --- positions, and what there is ----------------------------------------------------------

    def commit(self, member_id: str, epoch: int, version: int = 9) -> str:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topic = OffsetCommitRequestTopic(name=TOPIC, topic_id=self.topic_id, partitions=[partition])
        asked = OffsetCommitRequest(
            group_id=GROUP, member_id=member_id, generation_id_or_member_epoch=epoch, topics=[topic]
        )
        told = self.call(asked, version, OffsetCommitResponse)
        return _name(told.topics[0].partitions[0].error_code)

    def fetch(self, member_id: str | None, epoch: int) -> str:
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=None, member_id=member_id, member_epoch=epoch)
        told = self.call(OffsetFetchRequest(groups=[group]), 9, OffsetFetchResponse)
        return _name(told.groups[0].error_code)

    def kind(self) -> list[tuple[str, str, str]]:
        told = self.call(ListGroupsRequest(), 5, ListGroupsResponse)
        return [(each.group_type, each.group_state, each.protocol_type) for each in told.groups]


def _assignment(partitions: list[int]) -> bytes:
    named = [TopicPartitions(topic=TOPIC, partitions=partitions)]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=named), 1)
