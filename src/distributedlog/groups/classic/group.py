"""A classic group as its coordinator sees it while it lives.

    Empty ──► PreparingRebalance ──► CompletingRebalance ──► Stable     all have joined; the leader assigned
      ▲              │  ▲                      │                │
      └──────────────┘  └──────────────────────┴────────────────┘       somebody came, left or changed
    nobody joined

| state               | members                             | JoinGroup waits for | SyncGroup waits for      |
|---------------------|-------------------------------------|---------------------|--------------------------|
| Empty               | none                                | the initial delay   | refused                  |
| PreparingRebalance  | some have joined, some are to       | the others          | refused, join again      |
| CompletingRebalance | of a generation without assignments | the others          | the leader's assignments |
| Stable              | of a generation, each with its part | the others          | nothing                  |
| Dead                | none: the group was deleted         | -                   | -                        |

SOFT STATE: all of this object.  What the log knows of it is the record of `make_group_metadata_record`,
written whenever the group becomes Stable or Empty, and when a static member is replaced in a Stable group.  A
coordinator that takes over makes the group from that record: the last generation that had its assignments,
whose members have a full session timeout for their next heartbeat.  Whoever waited at the barrier gets a
broken connection or NOT_COORDINATOR, and joins again.

Invariants: a generation's number never goes down; members of one generation, and no others, hold its
assignments; each instance id has at most one member; the leader is a member unless there are none.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from distributedlog.groups.member_bytes import MEMBER_OVERHEAD_BYTES, sum_protocol_bytes
from distributedlog.groups.records import GroupMetadataRecord
from distributedlog.groups.requests import NO_MEMBER, JoinedMember, SupportedProtocol
from distributedlog.model.errors import (
    DlogError,
    FencedInstanceError,
    IllegalGenerationError,
    UnknownMemberError,
)
from distributedlog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from distributedlog.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from distributedlog.protocol.versioned import decode_compatible

CONSUMER: Final = "consumer"
"""The protocol type whose metadata are subscriptions that a coordinator can read."""


class GroupState(StrEnum):
    """The states of a group, as Kafka spells them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(StrEnum):
    REBALANCE = "somebody came, left or changed"
    JOINED = "all who are to be members have joined"
    NOBODY = "the barrier is over and nobody is there"
    ASSIGNED = "the leader has assigned"
    DELETED = "the group was deleted"


TRANSITIONS: Final[Mapping[tuple[GroupState, GroupEvent], GroupState]] = {
    (GroupState.EMPTY, GroupEvent.REBALANCE): GroupState.PREPARING,
    (GroupState.EMPTY, GroupEvent.DELETED): GroupState.DEAD,
    (GroupState.PREPARING, GroupEvent.JOINED): GroupState.COMPLETING,
    (GroupState.PREPARING, GroupEvent.NOBODY): GroupState.EMPTY,
    (GroupState.COMPLETING, GroupEvent.REBALANCE): GroupState.PREPARING,
    (GroupState.COMPLETING, GroupEvent.ASSIGNED): GroupState.STABLE,
    (GroupState.STABLE, GroupEvent.REBALANCE): GroupState.PREPARING,
}
"""A pair that is not here cannot happen: a KeyError is a defect."""


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: tuple[SupportedProtocol, ...],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.join_waiter: int | None = None
        """The waiter of the JoinGroup that waits at the barrier."""
        self.sync_waiter: int | None = None
        self.is_new = False
        """It has never been in a generation."""

    @property
    def size(self) -> int:
        """What it holds of the coordinator's memory, in bytes."""
        texts = (self.member_id, self.instance_id or "", self.client_id)
        metadata_bytes = sum(map(len, texts)) + sum_protocol_bytes(self.protocols)
        return MEMBER_OVERHEAD_BYTES + metadata_bytes + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        return next((supported.metadata for supported in self.protocols if supported.name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The protocol it likes best among those that all have."""
        return next(supported.name for supported in self.protocols if supported.name in candidates)


class ClassicGroup:
    def __init__(self, group_id: str, state_since_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = state_since_ms
        """The time since when, by the wall clock."""
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        """The members in the order in which they came."""
        self.static: dict[str, str] = {}
        """Instance ids, and the member that each is now."""
        self.pending: set[str] = set()
        """Ids that were given out and have not joined yet."""
        self.unsynced: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.initial_delay_left_ms: int | None = None
        """How much longer an empty group may wait for more members."""
        self.has_newcomers = False
        """Somebody has come since the initial delay was last prolonged."""

    def move(self, event: GroupEvent, wall_ms: int) -> None:
        self.state = TRANSITIONS[self.state, event]
        self.state_since_ms = wall_ms

    # --- members -------------------------------------------------------------------------------

    @property
    def is_void(self) -> bool:
        """There is nothing here that a new object of the same name would not have."""
        return self.state is GroupState.EMPTY and not self.pending and not self.generation

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member:
        member = self.members.pop(member_id)
        self.unsynced.discard(member_id)
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename(self, old_id: str, new_id: str) -> Member:
        """A static member that comes back gets a new id and keeps its place."""
        renamed = [(new_id if key == old_id else key, each) for key, each in self.members.items()]
        self.members = dict(renamed)
        member = self.members[new_id]
        member.member_id = new_id
        assert member.instance_id is not None
        self.static[member.instance_id] = new_id
        if old_id in self.unsynced:
            self.unsynced.discard(old_id)
            self.unsynced.add(new_id)
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def check_identity(self, member_id: str, instance_id: str | None) -> Member:
        """The member, if it is who it says."""
        if instance_id is not None:
            if instance_id not in self.static:
                raise UnknownMemberError(f"group {self.group_id!r} has no member of instance {instance_id!r}")
            if self.static[instance_id] != member_id:
                raise FencedInstanceError(f"instance {instance_id!r} is another member now")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberError(f"group {self.group_id!r} has no member {member_id!r}")
        return member

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """The member, if it is of this generation."""
        member = self.check_identity(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGenerationError(
                f"group {self.group_id!r} is in generation {self.generation}, not {generation}"
            )
        return member

    @property
    def all_joined(self) -> bool:
        return not self.pending and all(each.join_waiter is not None for each in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol))
            for each in self.members.values()
        )

    # --- protocols -----------------------------------------------------------------------------

    def candidates(self) -> set[str]:
        """The protocols that every member knows."""
        offered = [{supported.name for supported in each.protocols} for each in self.members.values()]
        return set.intersection(*offered) if offered else set()

    def accepts(
        self, protocol_type: str, protocols: tuple[SupportedProtocol, ...], besides: str = NO_MEMBER
    ) -> bool:
        """Returns whether somebody with these offers has something in common with all others."""
        if not protocol_type or not protocols:
            return False
        others = [each for each in self.members.values() if each.member_id != besides]
        if not others:
            return not self.members or protocol_type == self.protocol_type
        if protocol_type != self.protocol_type:
            return False
        names = {supported.name for supported in protocols}
        for other in others:
            names &= {supported.name for supported in other.protocols}
        return bool(names)

    def select_protocol(self) -> str:
        """Each member votes for the first of its own that all know; of equals the first voter's wins."""
        candidates = self.candidates()
        votes = Counter(each.vote(candidates) for each in self.members.values())
        return votes.most_common(1)[0][0]

    def subscribed_topics(self) -> frozenset[str] | None:
        """Returns what the members read; None if that cannot be known."""
        if not self.members or self.protocol is None:
            return frozenset()
        topics: set[str] = set()
        for member in self.members.values():
            found = read_topics(self.protocol_type, member.metadata(self.protocol))
            if found is None:
                return None
            topics |= found
        return frozenset(topics)


def read_topics(protocol_type: str, metadata: bytes) -> frozenset[str] | None:
    """Returns what a member subscribes to, if it is a consumer and says so in a form that is known."""
    if protocol_type != CONSUMER:
        return None
    try:
        return frozenset(decode_compatible(ConsumerProtocolSubscription, metadata).topics)
    except DlogError:
        return None


# --- the log -----------------------------------------------------------------------------------


def make_group_metadata_record(group: ClassicGroup) -> GroupMetadataRecord:
    members = [
        MemberMetadata(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout=each.rebalance_timeout_ms,
            session_timeout=each.session_timeout_ms,
            subscription=each.metadata(group.protocol),
            assignment=each.assignment,
        )
        for each in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=members,
    )
    return GroupMetadataRecord(GroupMetadataKey(group=group.group_id), value)


def restore_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group as its record says: Stable, or Empty."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation = value.generation
    group.protocol_type = value.protocol_type
    group.protocol = value.protocol
    for stored in value.members:
        protocols = (
            () if value.protocol is None else (SupportedProtocol(value.protocol, stored.subscription),)
        )
        rebalance_ms = stored.rebalance_timeout
        member = Member(
            stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout,
            rebalance_timeout_ms=stored.session_timeout if rebalance_ms < 0 else rebalance_ms,
            protocols=protocols,
        )
        member.assignment = stored.assignment
        group.add(member, value.protocol_type)
    if group.members:
        group.state = GroupState.STABLE
        group.leader_id = value.leader if value.leader in group.members else next(iter(group.members))
    return group
