"""A group moves between the classic protocol and the new one.

| the group                        | the request                      | it becomes                        |
|----------------------------------|----------------------------------|-----------------------------------|
| classic, Empty                   | ConsumerGroupHeartbeat, epoch 0  | a consumer group, the old gone    |
| consumer, Empty                  | JoinGroup                        | a classic group, likewise         |
| classic, has members             | ConsumerGroupHeartbeat, epoch 0  | a consumer group with its members |
| consumer, all others are classic | the last other leaves or expires | a classic group with the others   |

Committed offsets belong to the name and stay.  The last two are allowed by `group.consumer.migration.policy`;
where it is not, and where members' subscriptions cannot be read, the newcomer is refused
(GROUP_ID_NOT_FOUND), or the group stays a consumer group, which serves its classic members as well.

Upwards: the generation becomes the group's epoch, each member's assignment what it holds.  Whoever waits at a
barrier has to join again, and so has everybody else by the next heartbeat, for the newcomer raises the
epoch.  Where assignments were thrown away, because a generation ended before it had its own, a member holds
what it said that it owned, if that is nobody else's: a cooperative one goes on reading it.

Downwards: the epoch becomes the generation, what each member holds its assignment (not its part of the
target, which another may still be reading); then the group prepares its next generation as after any other
departure.  Where the last other one did not leave, but a classic process took its place by its instance id,
the group is Stable at once.

Either move is one entry of the log: a group is never read back as both.
"""

from collections.abc import Mapping

from distributedlog.groups.classic import rebalance
from distributedlog.groups.classic.group import CONSUMER, ClassicGroup, GroupState
from distributedlog.groups.classic.group import Member as ClassicMember
from distributedlog.groups.consumer import records, sessions
from distributedlog.groups.consumer.classic_members import (
    encode_assignment,
    find_partitions,
    read_subscription,
)
from distributedlog.groups.consumer.group import ConsumerGroup, Draft
from distributedlog.groups.consumer.member import ClassicSide, Member
from distributedlog.groups.consumer.planning import hash_topics
from distributedlog.groups.consumer.topics import NO_PARTITIONS, TopicIdPartition, TopicIdPartitions, Topics
from distributedlog.groups.records import ConsumerRecord, GroupMetadataRecord
from distributedlog.groups.requests import SupportedProtocol
from distributedlog.groups.turn import Timer, TimerKey, Turn
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, GroupNotFoundError, InconsistentProtocolError
from distributedlog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from distributedlog.protocol.messages.group_records import GroupMetadataKey
from distributedlog.protocol.versioned import decode_compatible

# --- upwards -----------------------------------------------------------------------------------


def check_upgrade(group: ClassicGroup, turn: Turn) -> None:
    if not turn.config.migration_policy.may_upgrade:
        raise GroupNotFoundError(f"group {group.group_id!r} is a classic group, and may not be moved over")
    if group.protocol_type != CONSUMER:
        raise GroupNotFoundError(f"group {group.group_id!r} is a classic group, and not one of consumers")
    if len(group.members) >= turn.config.consumer_members_max:
        raise GroupNotFoundError(f"group {group.group_id!r} is a classic group with too many members")


def upgrade(group: ClassicGroup, topics: Topics) -> Draft:
    """The consumer group that the classic group with members becomes, and its records."""
    draft = Draft(ConsumerGroup(group.group_id))
    subscriptions = {member_id: _subscription(group, old) for member_id, old in group.members.items()}
    holds = _holds(group, {name: owned for name, (_, owned) in subscriptions.items()}, topics)
    for old in group.members.values():
        supported, subscription = subscriptions[old.member_id]
        member = Member(
            member_id=old.member_id,
            instance_id=old.instance_id,
            rack_id=subscription.rack_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            topics=tuple(sorted(set(subscription.topics))),
            classic=ClassicSide(
                old.session_timeout_ms,
                (supported, *(each for each in old.protocols if each is not supported)),
            ),
            epoch=group.generation,
            previous_epoch=group.generation,
            assigned=holds[old.member_id],
        )
        draft.write(
            records.make_subscription_record(group.group_id, member),
            records.make_target_record(group.group_id, member.member_id, member.assigned),
            records.make_current_record(group.group_id, member),
        )
    draft.write(
        records.make_group_record(group.group_id, group.generation, hash_topics(draft.group, topics)),
        records.make_target_epoch_record(group.group_id, group.generation),
    )
    return draft


def _subscription(
    group: ClassicGroup, member: ClassicMember
) -> tuple[SupportedProtocol, ConsumerProtocolSubscription]:
    supported = next((each for each in member.protocols if each.name == group.protocol), None)
    if supported is None:
        supported = member.protocols[0]
    try:
        return supported, read_subscription(supported)
    except InconsistentProtocolError as error:
        raise GroupNotFoundError(f"classic group {group.group_id!r} cannot be moved over: {error}") from error


def _holds(
    group: ClassicGroup, subscriptions: Mapping[str, ConsumerProtocolSubscription], topics: Topics
) -> dict[str, TopicIdPartitions]:
    """Returns what each member holds.  What was assigned counts first: what members say that they own may be
    old."""
    holds: dict[str, TopicIdPartitions] = {}
    taken: set[TopicIdPartition] = set()
    for member_id, member in group.members.items():
        holds[member_id] = _assigned(group, member, topics) - taken
        taken |= holds[member_id]
    if group.state is GroupState.STABLE:
        return holds
    for member_id, member in group.members.items():
        if not member.assignment:
            holds[member_id] = find_partitions(subscriptions[member_id].owned_partitions, topics) - taken
            taken |= holds[member_id]
    return holds


def _assigned(group: ClassicGroup, member: ClassicMember, topics: Topics) -> TopicIdPartitions:
    if not member.assignment:
        return NO_PARTITIONS
    try:
        assignment = decode_compatible(ConsumerProtocolAssignment, member.assignment)
    except DlogError as error:
        raise GroupNotFoundError(f"classic group {group.group_id!r} cannot be moved over: {error}") from error
    return find_partitions(assignment.assigned_partitions, topics)


def retire(group: ClassicGroup, turn: Turn) -> None:
    """The classic group ends here: whoever waits has to join again, and no deadline is left."""
    for member in group.members.values():
        rebalance.release(member, turn, ErrorCode.REBALANCE_IN_PROGRESS)
        turn.timers.cancel(rebalance.session_key(group, member))
        rebalance.discharge(group, member.member_id, turn)
    for member_id in list(group.pending):
        rebalance.forget_pending(group, member_id, turn)
    for timer in (Timer.JOIN, Timer.SYNC):
        turn.timers.cancel(TimerKey(timer, group.group_id))


def make_classic_tombstone(group_id: str) -> GroupMetadataRecord:
    return GroupMetadataRecord(GroupMetadataKey(group=group_id), None)


# --- downwards ---------------------------------------------------------------------------------


def may_downgrade(group: ConsumerGroup, without: frozenset[str], turn: Turn) -> bool:
    """Returns whether those who stay all speak the classic protocol, and there is somebody."""
    staying = [each for each in group.members.values() if each.member_id not in without]
    return (
        bool(staying)
        and all(each.classic is not None for each in staying)
        and turn.config.migration_policy.may_downgrade
        and len(staying) <= turn.config.members_max
        and bool(_common(staying))
    )


def _common(members: list[Member]) -> set[str]:
    """The protocols that all of them know."""
    offered = [
        {supported.name for supported in each.classic.protocols}
        for each in members
        if each.classic is not None
    ]
    return set.intersection(*offered)


def downgrade(group: ConsumerGroup, without: frozenset[str], topics: Topics, wall_ms: int) -> ClassicGroup:
    """The classic group of those who stay, Stable with what they hold."""
    staying = [each for each in group.members.values() if each.member_id not in without]
    protocol = next(
        supported.name
        for supported in (staying[0].classic.protocols if staying[0].classic is not None else ())
        if supported.name in _common(staying)
    )
    classic = ClassicGroup(group.group_id, wall_ms)
    classic.generation = group.epoch
    classic.protocol = protocol
    for each in staying:
        assert each.classic is not None
        member = ClassicMember(
            each.member_id,
            instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            session_timeout_ms=each.classic.session_timeout_ms,
            rebalance_timeout_ms=sessions.rebalance_timeout_ms(each),
            protocols=each.classic.protocols,
        )
        supported = next(supported for supported in each.classic.protocols if supported.name == protocol)
        member.assignment = encode_assignment(each.holds, supported, topics)
        classic.add(member, CONSUMER)
    classic.state = GroupState.STABLE
    return classic


def make_tombstones(group: ConsumerGroup) -> list[ConsumerRecord]:
    """Records that take all of a group away."""
    gone: list[ConsumerRecord] = []
    for member_id in group.members:
        gone += records.make_member_tombstones(group.group_id, member_id)
    gone += [records.make_pattern_tombstone(group.group_id, pattern) for pattern in group.patterns]
    return gone + records.make_group_tombstones(group.group_id)
