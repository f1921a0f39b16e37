"""ConsumerGroupHeartbeat: a member joins, stays, changes what it reads, or leaves.

| the request says                       | its member is            | the response                    |
|----------------------------------------|--------------------------|---------------------------------|
| epoch 0                                | not known                | it joins                        |
| epoch 0                                | a member already         | its place again: its response   |
|                                        |                          | was lost, or it began anew      |
| epoch 0, an instance id that is away   | another process          | takes the place, and what it    |
|                                        |                          | holds: nobody else notices      |
| epoch 0, an instance id that is there  | another process          | UNRELEASED_INSTANCE_ID          |
| its epoch, or the one before if it has | a member                 | what is new for it              |
|   no more than is assigned             |                          |                                 |
| any other epoch                        | a member                 | FENCED_MEMBER_EPOCH             |
| any but 0                              | not known                | UNKNOWN_MEMBER_ID               |
| any but 0, an instance id              | of another member by now | FENCED_INSTANCE_ID              |
| -1                                     | a member                 | it is removed                   |
| -2, an instance id                     | a member                 | it is away: it keeps what it    |
|                                        |                          | has until its session ends      |

The response names the assignment only if it changed, or if the member said everything that it has to say:
that is what it does after an error, when it may have missed something.
"""

from dataclasses import replace

from distributedlog.groups.config import NAME_BYTES_MAX, SUBSCRIBED_TOPICS_MAX, GroupConfig
from distributedlog.groups.consumer import planning, records
from distributedlog.groups.consumer.group import ConsumerGroup, Draft
from distributedlog.groups.consumer.member import IS_AWAY, JOINS, Member
from distributedlog.groups.consumer.patterns import PATTERNS_PER_GROUP_MAX, compile_pattern
from distributedlog.groups.consumer.planning import TopicLookup
from distributedlog.groups.consumer.topics import NO_PARTITIONS
from distributedlog.groups.records import utf8_bytes
from distributedlog.groups.requests import ConsumerHeartbeatReply, ConsumerHeartbeatRequest
from distributedlog.groups.turn import Turn
from distributedlog.model.errors import (
    FencedInstanceError,
    FencedMemberEpochError,
    GroupFullError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    UnknownMemberError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
)

UNCHANGED = -1


# --- what can be said without the group --------------------------------------------------------


def check_request(request: ConsumerHeartbeatRequest, config: GroupConfig) -> None:
    epoch = request.epoch
    if epoch < IS_AWAY:
        raise InvalidRequestError(f"there is no epoch {epoch}")
    if epoch != JOINS and not request.member_id:
        raise InvalidRequestError("a member needs an id")
    if epoch == IS_AWAY and request.instance_id is None:
        raise InvalidRequestError("only a static member can leave for a while")
    for text in (request.instance_id, request.rack_id):
        if text is not None and not text:
            raise InvalidRequestError("an instance id and a rack are not empty")
    if epoch == JOINS:
        _check_joining(request)
    _check_sizes(request)
    if request.assignor is not None and request.assignor not in config.consumer_assignors:
        raise UnsupportedAssignorError(
            f"there is no assignor {request.assignor[:100]!r}, but {', '.join(config.consumer_assignors)}"
        )
    if request.pattern:
        compile_pattern(request.pattern)


def _check_joining(request: ConsumerHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == UNCHANGED:
        raise InvalidRequestError("a member that joins says how long it takes to give up partitions")
    if request.owned is None or request.owned:
        raise InvalidRequestError("a member that joins owns nothing, and says so")
    if request.topics is None and request.pattern is None:
        raise InvalidRequestError("a member that joins says what it subscribes to")


def _check_sizes(request: ConsumerHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms < UNCHANGED:
        raise InvalidRequestError(f"{request.rebalance_timeout_ms} ms are no time")
    texts = (
        request.member_id,
        request.instance_id,
        request.rack_id,
        request.assignor,
        *(request.topics or ()),
    )
    if any(text is not None and utf8_bytes(text) > NAME_BYTES_MAX for text in texts):
        raise InvalidRequestError(f"a name has more than {NAME_BYTES_MAX} bytes")
    if request.topics is not None and len(request.topics) > SUBSCRIBED_TOPICS_MAX:
        raise InvalidRequestError(
            f"{len(request.topics)} topics are more than a member may name: {SUBSCRIBED_TOPICS_MAX}"
        )


# --- who it is ---------------------------------------------------------------------------------


def check_static(group: ConsumerGroup, member_id: str, instance_id: str) -> Member:
    """The member that has the instance id, if it is who it says."""
    known_id = group.static.get(instance_id)
    if known_id is None:
        raise UnknownMemberError(f"group {group.group_id!r} has no member of instance {instance_id!r}")
    if known_id != member_id:
        raise FencedInstanceError(f"instance {instance_id!r} is another member now")
    return group.members[known_id]


def find_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    if instance_id is not None:
        return check_static(group, member_id, instance_id)
    member = group.members.get(member_id)
    if member is None:
        raise UnknownMemberError(f"group {group.group_id!r} has no member {member_id!r}")
    return member


def _check_epoch(member: Member, request: ConsumerHeartbeatRequest) -> None:
    if request.epoch == member.epoch:
        return
    has_no_more = request.owned is not None and request.owned <= member.assigned
    if request.epoch != member.previous_epoch or not has_no_more:
        raise FencedMemberEpochError(
            f"member {member.member_id!r} is in epoch {member.epoch}, not {request.epoch}: "
            "it has to give up everything and join again"
        )


def _joining(draft: Draft, request: ConsumerHeartbeatRequest, config: GroupConfig) -> Member:
    group = draft.group
    if request.instance_id is not None:
        known_id = group.static.get(request.instance_id)
        if known_id is not None and known_id != request.member_id:
            known = group.members[known_id]
            if known.classic is None and not known.is_away:
                raise UnreleasedInstanceError(
                    f"instance {request.instance_id!r} is still the member {known_id!r}"
                )
            return replace_static_member(draft, known, request.member_id)
    member = group.members.get(request.member_id)
    if member is None:
        if len(group.members) >= config.consumer_members_max:
            raise GroupFullError(f"group {group.group_id!r} has {len(group.members)} members: it is full")
        return Member(request.member_id)
    if member.is_away:
        member = replace(member, epoch=JOINS, previous_epoch=JOINS)
        draft.write(records.make_current_record(group.group_id, member))
    return member


def replace_static_member(draft: Draft, known: Member, new_id: str) -> Member:
    """Another process is the static member now: under a new id, with all that the old one had."""
    member = replace(known, member_id=new_id, epoch=JOINS, previous_epoch=JOINS)
    target = draft.group.target(known.member_id)
    draft.write(*records.make_member_tombstones(draft.group_id, known.member_id))
    draft.write(
        records.make_subscription_record(draft.group_id, member),
        records.make_target_record(draft.group_id, new_id, target),
        records.make_current_record(draft.group_id, member),
    )
    return member


# --- staying -----------------------------------------------------------------------------------


def _merge_request(member: Member, request: ConsumerHeartbeatRequest) -> Member:
    """The member with what it says of itself now."""
    topics = member.topics if request.topics is None else tuple(sorted(set(request.topics)))
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms
            if request.rebalance_timeout_ms == UNCHANGED
            else request.rebalance_timeout_ms
        ),
        topics=topics,
        pattern=member.pattern if request.pattern is None else request.pattern or None,
        assignor=member.assignor if request.assignor is None else request.assignor,
        classic=None,
    )


def _is_full(request: ConsumerHeartbeatRequest) -> bool:
    says_subscription = request.topics is not None or request.pattern is not None
    return request.epoch == JOINS or (
        request.rebalance_timeout_ms != UNCHANGED and says_subscription and request.owned is not None
    )


def find_settled_member(group: ConsumerGroup, request: ConsumerHeartbeatRequest) -> Member | None:
    """The member, if it is where the target wants it and says nothing new: most heartbeats are such."""
    member = group.members.get(request.member_id)
    if (
        member is None
        or request.epoch != member.epoch
        or group.epoch != group.target_epoch
        or not member.is_reconciled_to(group.target_epoch)
        or (request.instance_id is not None and group.static.get(request.instance_id) != member.member_id)
        or _merge_request(member, request) != member
    ):
        return None
    return member


def apply_heartbeat(
    draft: Draft, request: ConsumerHeartbeatRequest, lookup: TopicLookup, turn: Turn
) -> Member:
    """Writes what the heartbeat leads to; the member as it is then."""
    group = draft.group
    if request.epoch == JOINS:
        before = _joining(draft, request, turn.config)
    else:
        before = find_member(group, request.member_id, request.instance_id)
        _check_epoch(before, request)
    updated = _merge_request(before, request)
    _check_pattern(group, updated)
    is_new = group.members.get(updated.member_id) is None
    if is_new or updated != before:
        draft.write(records.make_subscription_record(group.group_id, updated))
    is_changed = is_new or updated.topics != before.topics or updated.pattern != before.pattern
    planning.refresh(draft, lookup, turn, is_changed=is_changed)
    planning.assign(draft, lookup, turn)
    planning.advance(draft, updated.member_id, request.owned)
    return group.members[updated.member_id]


def _check_pattern(group: ConsumerGroup, member: Member) -> None:
    if member.pattern is None or member.pattern in group.patterns:
        return
    others = {each.pattern for each in group.members.values() if each.member_id != member.member_id}
    others -= {None, member.pattern}
    if len(others) >= PATTERNS_PER_GROUP_MAX:
        raise InvalidRegularExpressionError(
            f"group {group.group_id!r} subscribes by {len(others)} patterns: no more are allowed"
        )


def make_reply(
    request: ConsumerHeartbeatRequest, before: Member | None, member: Member, config: GroupConfig
) -> ConsumerHeartbeatReply:
    sends_assignment = _is_full(request) or before is None or before.assigned != member.assigned
    return ConsumerHeartbeatReply(
        member.member_id,
        member.epoch,
        config.consumer_heartbeat_interval_ms,
        member.assigned if sends_assignment else None,
    )


# --- going away --------------------------------------------------------------------------------


def leave_temporarily(draft: Draft, member: Member) -> Member:
    """A static member keeps its place, and has given up whatever it had to: its process ends."""
    away = replace(member, epoch=IS_AWAY, previous_epoch=IS_AWAY, revoking=NO_PARTITIONS)
    draft.write(records.make_current_record(draft.group_id, away))
    return away
