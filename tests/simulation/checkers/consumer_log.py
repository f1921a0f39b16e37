"""What the committed log says of groups of the new consumer protocol, read by nobody's code but this.

An entry is looked at when all of its records are in: a coordinator writes what belongs together as one.
"""

from collections.abc import Iterable
from typing import NamedTuple

from distributedlog.groups.consumer.topics import NO_PARTITIONS, TopicIdPartition, TopicIdPartitions
from distributedlog.groups.records import ConsumerRecord, GroupRecord
from distributedlog.protocol.messages import group_records as messages


class Said(NamedTuple):
    """What a member subscribes to."""

    topics: frozenset[str]
    pattern: str


class Part(NamedTuple):
    """A member's."""

    epoch: int
    assigned: TopicIdPartitions
    revoking: TopicIdPartitions


class LoggedGroup:
    def __init__(self) -> None:
        self.epoch = 0
        self.target_epoch = 0
        self.said: dict[str, Said] = {}
        self.parts: dict[str, Part] = {}
        self.targets: dict[str, TopicIdPartitions] = {}
        self.patterns: dict[str, frozenset[str]] = {}

    def topics_of(self, member_id: str) -> frozenset[str]:
        said = self.said[member_id]
        return said.topics | self.patterns.get(said.pattern, frozenset())


class ConsumerLog:
    def __init__(self) -> None:
        self.groups: dict[str, LoggedGroup] = {}
        self.written: set[tuple[str, str, int, TopicIdPartitions]] = set()
        """Each part that a member ever had: the group, the member, its epoch and what was assigned."""

    def note(self, record: GroupRecord) -> None:
        if not isinstance(record, ConsumerRecord):
            return
        key, value = record
        assert hasattr(key, "group_id"), "every kind has it"
        group = self.groups.setdefault(key.group_id, LoggedGroup())
        match key:
            case messages.ConsumerGroupMetadataKey():
                if value is None:
                    del self.groups[key.group_id]
                else:
                    assert isinstance(value, messages.ConsumerGroupMetadataValue)
                    group.epoch = value.epoch
            case messages.ConsumerGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, messages.ConsumerGroupTargetAssignmentMetadataValue)
                group.target_epoch = 0 if value is None else value.assignment_epoch
            case messages.ConsumerGroupRegularExpressionKey():
                if value is None:
                    group.patterns.pop(key.regular_expression, None)
                else:
                    assert isinstance(value, messages.ConsumerGroupRegularExpressionValue)
                    group.patterns[key.regular_expression] = frozenset(value.topics)
            case _:
                self._note_member(group, record)

    def _note_member(self, group: LoggedGroup, record: ConsumerRecord) -> None:
        match record:
            case (messages.ConsumerGroupMemberMetadataKey(member_id=member_id), None):
                group.said.pop(member_id, None)
            case (messages.ConsumerGroupTargetAssignmentMemberKey(member_id=member_id), None):
                group.targets.pop(member_id, None)
            case (messages.ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id), None):
                group.parts.pop(member_id, None)
            case (_, messages.ConsumerGroupMemberMetadataValue() as value):
                said = Said(frozenset(value.subscribed_topic_names), value.subscribed_topic_regex or "")
                group.said[record.key.member_id] = said  # type: ignore[attr-defined]  # such keys have it
            case (_, messages.ConsumerGroupTargetAssignmentMemberValue() as value):
                group.targets[record.key.member_id] = _partitions(value.topic_partitions)  # type: ignore[attr-defined]
            case (_, messages.ConsumerGroupCurrentMemberAssignmentValue() as value):
                part = Part(
                    value.member_epoch,
                    _partitions(value.assigned_partitions),
                    _partitions(value.partitions_pending_revocation),
                )
                key = record.key
                assert isinstance(key, messages.ConsumerGroupCurrentMemberAssignmentKey)
                group.parts[key.member_id] = part
                self.written.add((key.group_id, key.member_id, part.epoch, part.assigned))


def _partitions(
    topics: Iterable[messages.CurrentPartitions] | Iterable[messages.TargetPartitions],
) -> TopicIdPartitions:
    return NO_PARTITIONS.union(
        TopicIdPartition(each.topic_id, at) for each in topics for at in each.partitions
    )
