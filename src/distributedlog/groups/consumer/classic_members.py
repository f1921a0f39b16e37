"""Clients of the classic protocol in a consumer group: their requests, served from the coordinator's target.

To such a client the group looks like a classic one whose leader is somebody else: its generation is its
epoch, JoinGroup never waits for others, and SyncGroup brings its part.  It gets REBALANCE_IN_PROGRESS, and
joins again, whenever

    the group's epoch is beyond its own       a new target is there, or will be when it joins
    it has to give up partitions              a cooperative client says in JoinGroup what it still has; an
                                              eager one has given up everything before it joins
    what it waited for has become free        it may have more now

The assignor that a client supports is not used: the group has its own.  It has to be one that all classic
members know, so that the group could be theirs alone again (see `moving`).
"""

from dataclasses import replace

from distributedlog.groups.classic.group import CONSUMER
from distributedlog.groups.consumer import planning, records, sessions
from distributedlog.groups.consumer.group import ConsumerGroup, Draft
from distributedlog.groups.consumer.heartbeat import check_static, find_member, replace_static_member
from distributedlog.groups.consumer.member import ClassicSide, Member, MemberState
from distributedlog.groups.consumer.planning import TopicLookup
from distributedlog.groups.consumer.topics import TopicIdPartition, TopicIdPartitions, Topics
from distributedlog.groups.requests import (
    NO_MEMBER,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    Leaver,
    SupportedProtocol,
    SyncReply,
    SyncRequest,
)
from distributedlog.groups.turn import Turn
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DlogError,
    GroupFullError,
    IllegalGenerationError,
    InconsistentProtocolError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from distributedlog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from distributedlog.protocol.versioned import decode_compatible, encode_versioned, version_of

ASSIGNMENT_VERSION_MAX = ConsumerProtocolAssignment.versions[1]


# --- what clients send each other --------------------------------------------------------------


def read_subscription(supported: SupportedProtocol) -> ConsumerProtocolSubscription:
    try:
        return decode_compatible(ConsumerProtocolSubscription, supported.metadata)
    except DlogError as error:
        raise InconsistentProtocolError(
            f"what the member says for {supported.name!r} is no subscription of a consumer: {error}"
        ) from error


def find_partitions(named: list[TopicPartitions], topics: Topics) -> TopicIdPartitions:
    """Returns the partitions of those topics that are there."""
    found = ((topics.named(each.topic), each.partitions) for each in named)
    return frozenset(
        TopicIdPartition(view.topic_id, partition)
        for view, partitions in found
        if view is not None
        for partition in partitions
    )


def encode_assignment(tps: TopicIdPartitions, supported: SupportedProtocol, topics: Topics) -> bytes:
    """Encodes the assignment as the client reads it, in the version in which it spoke itself."""
    named = [
        TopicPartitions(topic=name, partitions=partitions)
        for topic_id, partitions in records.group_by_topic(tps)
        if (name := topics.name_of(topic_id)) is not None
    ]
    version = min(max(version_of(supported.metadata), 0), ASSIGNMENT_VERSION_MAX)
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=named), version)


# --- JoinGroup ---------------------------------------------------------------------------------


def check_protocols(group: ConsumerGroup, request: JoinRequest) -> ConsumerProtocolSubscription:
    names = {supported.name for supported in request.protocols}
    besides = request.member_id or group.static.get(request.instance_id or "", NO_MEMBER)
    common = group.common_protocols(besides)
    if request.protocol_type != CONSUMER or not names or (common is not None and not names & common):
        raise InconsistentProtocolError(
            f"the member offers no protocol that the others of group {group.group_id!r} know"
        )
    return read_subscription(request.protocols[0])


def join(draft: Draft, request: JoinRequest, new_id: str, lookup: TopicLookup, turn: Turn) -> Member:
    """Writes what the join leads to; the member as it is then.  `new_id` is for one that has none."""
    group = draft.group
    subscription = check_protocols(group, request)
    member = _identified(draft, request, new_id, turn)
    updated = replace(
        member,
        instance_id=request.instance_id,
        rack_id=subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=tuple(sorted(set(subscription.topics))),
        pattern=None,
        classic=ClassicSide(request.session_timeout_ms, request.protocols),
    )
    is_new = updated.member_id not in group.members
    if is_new or updated != member:
        draft.write(records.make_subscription_record(group.group_id, updated))
    is_changed = is_new or updated.topics != member.topics or updated.pattern != member.pattern
    planning.refresh(draft, lookup, turn, is_changed=is_changed)
    planning.assign(draft, lookup, turn)
    owned = find_partitions(subscription.owned_partitions, lookup.topics)
    planning.advance(draft, updated.member_id, owned)
    return group.members[updated.member_id]


def _identified(draft: Draft, request: JoinRequest, new_id: str, turn: Turn) -> Member:
    group = draft.group
    if request.instance_id is not None:
        if request.member_id:
            return check_static(group, request.member_id, request.instance_id)
        known_id = group.static.get(request.instance_id)
        if known_id is not None:
            return replace_static_member(draft, group.members[known_id], new_id)
    member_id = request.member_id or new_id
    member = group.members.get(member_id)
    if member is None:
        if len(group.members) >= turn.config.consumer_members_max:
            raise GroupFullError(f"group {group.group_id!r} has {len(group.members)} members: it is full")
        return Member(member_id)
    return member


def make_join_reply(member: Member) -> JoinReply:
    assert member.classic is not None
    return JoinReply(
        member_id=member.member_id,
        generation=member.epoch,
        protocol_type=CONSUMER,
        protocol=member.classic.protocols[0].name,
    )


# --- SyncGroup and Heartbeat -------------------------------------------------------------------


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Member, ClassicSide]:
    member = find_member(group, member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberError(f"member {member_id!r} does not speak the classic protocol")
    if generation != member.epoch:
        raise IllegalGenerationError(
            f"member {member_id!r} is in generation {member.epoch}, not {generation}"
        )
    return member, member.classic


def sync(group: ConsumerGroup, request: SyncRequest, lookup: TopicLookup, turn: Turn) -> SyncReply:
    member, side = _classic_member(group, request.member_id, request.instance_id, request.generation)
    supported = side.protocols[0]
    for claimed, actual in ((request.protocol_type, CONSUMER), (request.protocol, supported.name)):
        if claimed is not None and claimed != actual:
            raise InconsistentProtocolError(
                f"group {group.group_id!r} has the protocol {actual!r}, not {claimed!r}"
            )
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        sessions.require_rejoin(group.group_id, member, turn)
        raise RebalanceInProgressError(f"group {group.group_id!r} is in another epoch by now")
    sessions.mark_synced(group.group_id, member, turn)
    sessions.keep_alive(group.group_id, member, turn)
    assignment = encode_assignment(member.assigned, supported, lookup.topics)
    return SyncReply(ErrorCode.NONE, CONSUMER, supported.name, assignment)


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, turn: Turn) -> None:
    member, _ = _classic_member(group, request.member_id, request.instance_id, request.generation)
    sessions.keep_alive(group.group_id, member, turn)
    waits_no_more = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)
    must_revoke = member.state is MemberState.UNREVOKED_PARTITIONS
    if member.epoch < group.epoch or must_revoke or waits_no_more:
        sessions.require_rejoin(group.group_id, member, turn)
        raise RebalanceInProgressError(f"member {member.member_id!r} has to join again")


# --- LeaveGroup --------------------------------------------------------------------------------


def find_leaving_member(group: ConsumerGroup, who: Leaver) -> Member:
    """The member that is to go, whichever protocol it speaks: administrators remove members in this way too,
    by their ids or by their instance ids alone."""
    if who.instance_id is not None and who.member_id == NO_MEMBER:
        member_id = group.static.get(who.instance_id, NO_MEMBER)
        return check_static(group, member_id, who.instance_id)
    return find_member(group, who.member_id, who.instance_id)
