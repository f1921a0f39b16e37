"""What the log says of consumer groups.  Kinds of keys by their numbers in `protocol.messages.group_records`.

    3   the group: its epoch, and a hash of the topics it was made for     5  a member and its subscription
    6   the epoch of the target                                            7  a member's part of the target
    16  the topics that a pattern stood for                                8  a member's epoch, what it holds

A member is the records 5, 7 and 8 together; a record without a value takes its part away.  All records of one
turn are one entry, so a group is never read back half changed.

Kind 4, what older brokers knew of the topics, is passed over: the hash in kind 3 does its work.  It differs
from Kafka's, and is only ever compared with another of ours: of a group that was taken over from Kafka the
first heartbeat makes a new target, which is as a rule the old one.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from distributedlog.groups.consumer.member import ClassicSide, Member, MemberState
from distributedlog.groups.consumer.topics import TopicIdPartition, TopicIdPartitions
from distributedlog.groups.records import ConsumerRecord
from distributedlog.groups.requests import SupportedProtocol
from distributedlog.model.ids import Uuid
from distributedlog.protocol.messages import group_records as messages

Value = messages.ConsumerGroupMemberMetadataValue
CurrentValue = messages.ConsumerGroupCurrentMemberAssignmentValue

_STATES: Final = {state.value: state for state in MemberState}


# --- partitions by topic id --------------------------------------------------------------------


def group_by_topic(tps: Iterable[TopicIdPartition]) -> Iterator[tuple[Uuid, list[int]]]:
    """Groups partitions in an order that depends on nothing but them: equal assignments have equal bytes."""
    topics: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(tps):
        topics.setdefault(topic_id, []).append(partition)
    yield from topics.items()


def read_partitions(
    topics: Iterable[messages.CurrentPartitions] | Iterable[messages.TargetPartitions],
) -> TopicIdPartitions:
    return frozenset(
        TopicIdPartition(each.topic_id, partition) for each in topics for partition in each.partitions
    )


# --- records -----------------------------------------------------------------------------------


def make_group_record(group_id: str, epoch: int, metadata_hash: int) -> ConsumerRecord:
    value = messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return ConsumerRecord(messages.ConsumerGroupMetadataKey(group_id=group_id), value)


def make_target_epoch_record(group_id: str, epoch: int) -> ConsumerRecord:
    value = messages.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return ConsumerRecord(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def make_target_record(group_id: str, member_id: str, target: TopicIdPartitions) -> ConsumerRecord:
    value = messages.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            messages.TargetPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in group_by_topic(target)
        ]
    )
    return ConsumerRecord(_target_key(group_id, member_id), value)


def make_subscription_record(group_id: str, member: Member) -> ConsumerRecord:
    classic = None
    if member.classic is not None:
        classic = messages.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                messages.ClassicProtocol(name=supported.name, metadata=supported.metadata)
                for supported in member.classic.protocols
            ],
        )
    value = Value(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.pattern or "",  # as Kafka writes it: null would be another thing there
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )
    return ConsumerRecord(_member_key(group_id, member.member_id), value)


def make_current_record(group_id: str, member: Member) -> ConsumerRecord:
    value = CurrentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_current(member.assigned),
        partitions_pending_revocation=_current(member.revoking),
    )
    return ConsumerRecord(_current_key(group_id, member.member_id), value)


def _current(tps: TopicIdPartitions) -> list[messages.CurrentPartitions]:
    return [
        messages.CurrentPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in group_by_topic(tps)
    ]


def make_pattern_record(
    group_id: str, pattern: str, topics: Iterable[str], version: int, wall_ms: int
) -> ConsumerRecord:
    value = messages.ConsumerGroupRegularExpressionValue(
        topics=sorted(topics), version=version, timestamp=wall_ms
    )
    return ConsumerRecord(_pattern_key(group_id, pattern), value)


def _member_key(group_id: str, member_id: str) -> messages.ConsumerGroupMemberMetadataKey:
    return messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)


def _target_key(group_id: str, member_id: str) -> messages.ConsumerGroupTargetAssignmentMemberKey:
    return messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)


def _current_key(group_id: str, member_id: str) -> messages.ConsumerGroupCurrentMemberAssignmentKey:
    return messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)


def _pattern_key(group_id: str, pattern: str) -> messages.ConsumerGroupRegularExpressionKey:
    return messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)


# --- without a value ---------------------------------------------------------------------------


def make_member_tombstones(group_id: str, member_id: str) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(_current_key(group_id, member_id), None),
        ConsumerRecord(_target_key(group_id, member_id), None),
        ConsumerRecord(_member_key(group_id, member_id), None),
    ]


def make_pattern_tombstone(group_id: str, pattern: str) -> ConsumerRecord:
    return ConsumerRecord(_pattern_key(group_id, pattern), None)


def make_group_tombstones(group_id: str) -> list[ConsumerRecord]:
    """Makes the tombstones of a group once its members and patterns are gone."""
    return [
        ConsumerRecord(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        ConsumerRecord(messages.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


# --- back ----------------------------------------------------------------------------------------


def apply_subscription(member: Member, value: Value) -> Member:
    """The member with what a record says that it said."""
    classic = value.classic_member_metadata
    side = None
    if classic is not None:
        protocols = tuple(
            SupportedProtocol(each.name, bytes(each.metadata)) for each in classic.supported_protocols
        )
        side = ClassicSide(classic.session_timeout_ms, protocols)
    return Member(
        member_id=member.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topics=tuple(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex or None,
        assignor=value.server_assignor,
        classic=side,
        epoch=member.epoch,
        previous_epoch=member.previous_epoch,
        state=member.state,
        assigned=member.assigned,
        revoking=member.revoking,
    )


def read_state(value: CurrentValue) -> MemberState:
    return _STATES.get(value.state, MemberState.UNKNOWN)
