"""A consumer group, as its records make it, and drafts of one.

DURABLE: all of it.  Only `replay` changes it, so a coordinator that takes over has the group as it was; what
it lacks are the members' deadlines, which begin anew.

| state       | when, looked at in this order                                               |
|-------------|-----------------------------------------------------------------------------|
| Empty       | it has no members                                                           |
| Assigning   | its epoch is beyond the target's: somebody's next heartbeat makes a new one |
| Reconciling | a member has not come to the target yet                                     |
| Stable      | every member has its part of the target, in the target's epoch              |
| Dead        | it is not there                                                             |

    group epoch    rises when members, subscriptions, or the topics subscribed to change
    target epoch   the group epoch that the target was made for
    member epoch   the target epoch that the member has come to

Invariants: epochs never go down while the group is there (a static member that is away has -2 for the time);
`owners` says of each partition which one member holds it, and is what the members hold; an instance id has
one member.

A turn makes a `Draft`: a copy of the group, to which each record is applied as it is written.  So the next
step of the turn sees it, and a turn that ends with an error has changed nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final, NamedTuple

from distributedlog.groups.consumer import records
from distributedlog.groups.consumer.member import Member
from distributedlog.groups.consumer.topics import NO_PARTITIONS, TopicIdPartition, TopicIdPartitions
from distributedlog.groups.records import ConsumerRecord
from distributedlog.protocol.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)


class ConsumerGroupState(StrEnum):
    """The states of a consumer group, as Kafka spells them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY, _ASSIGNING, _RECONCILING, _STABLE, _DEAD = ConsumerGroupState

TRANSITIONS: Final[Mapping[ConsumerGroupState, frozenset[ConsumerGroupState]]] = {
    _DEAD: frozenset({_STABLE, _RECONCILING}),
    _EMPTY: frozenset({_STABLE, _DEAD}),
    _ASSIGNING: frozenset({_ASSIGNING, _RECONCILING, _STABLE, _EMPTY, _DEAD}),
    _RECONCILING: frozenset({_ASSIGNING, _RECONCILING, _STABLE, _EMPTY, _DEAD}),
    _STABLE: frozenset({_ASSIGNING, _RECONCILING, _STABLE, _EMPTY, _DEAD}),
}
"""What one entry of the log can make of a group.  The first member of a group has everything at once; a group
that comes to be with members came from the classic protocol, one that goes with members goes back there."""


class Resolved(NamedTuple):
    """The topics that a pattern stood for when it was last looked up."""

    topics: frozenset[str]
    version: int
    """The version of the metadata."""
    timestamp_ms: int


class ConsumerGroup:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Instance ids, and the member that each is now."""
        self.targets: dict[str, TopicIdPartitions] = {}
        self.owners: dict[TopicIdPartition, str] = {}
        self.patterns: dict[str, Resolved] = {}

    # --- looking -------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def target(self, member_id: str) -> TopicIdPartitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def find_known(self, member_id: str, instance_id: str | None) -> Member | None:
        """The member of this id, or the one whose place a process of this instance id takes."""
        return self.members.get(member_id) or self.members.get(self.static.get(instance_id or "", ""))

    def is_free(self, tp: TopicIdPartition) -> bool:
        return tp not in self.owners

    def resolve_topics(self, member: Member) -> frozenset[str]:
        """Returns what it subscribes to, by name and by pattern."""
        topics = frozenset(member.topics)
        found = self.patterns.get(member.pattern) if member.pattern is not None else None
        return topics if found is None else topics | found.topics

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*(self.resolve_topics(member) for member in self.members.values()))

    def waits_for_others(self, member: Member) -> bool:
        """Returns whether something meant for it is still held by another."""
        missing = self.target(member.member_id) - member.assigned
        return any(not self.is_free(tp) for tp in missing)

    # --- the classic protocol ------------------------------------------------------------------

    @property
    def classic_count(self) -> int:
        return sum(member.classic is not None for member in self.members.values())

    def common_protocols(self, besides: str) -> set[str] | None:
        """Returns the protocols that all classic members know; None if there is no such member."""
        sides = [
            each.classic
            for each in self.members.values()
            if each.classic is not None and each.member_id != besides
        ]
        if not sides:
            return None
        known = Counter(name for side in sides for name in {supported.name for supported in side.protocols})
        return {name for name, count in known.items() if count == len(sides)}

    # --- replaying -----------------------------------------------------------------------------

    def replay(self, record: ConsumerRecord) -> None:
        key, value = record
        match key:
            case ConsumerGroupMetadataKey():
                assert isinstance(value, ConsumerGroupMetadataValue), "without one the group is gone"
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
                self._replay_member(member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
                self.target_epoch = 0 if value is None else value.assignment_epoch
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                if value is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = records.read_partitions(value.topic_partitions)
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                self._replay_current(member_id, value)
            case ConsumerGroupRegularExpressionKey(regular_expression=pattern):
                assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
                if value is None:
                    self.patterns.pop(pattern, None)
                else:
                    self.patterns[pattern] = Resolved(frozenset(value.topics), value.version, value.timestamp)

    def _replay_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        known = self.members.get(member_id)
        if known is not None and self.static.get(known.instance_id or "") == member_id:
            del self.static[known.instance_id or ""]
        if value is not None:
            member = records.apply_subscription(known or Member(member_id), value)
            self.members[member_id] = member
            if member.instance_id is not None:
                self.static[member.instance_id] = member_id
        elif known is not None:
            self._release(known)
            del self.members[member_id]

    def _replay_current(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        known = self.members.get(member_id)
        if known is None:
            if value is None:
                return
            known = Member(member_id)  # its subscription stands behind it in a log that was compacted
        self._release(known)
        if value is None:
            blank = Member(member_id)
            known = replace(
                known,
                epoch=blank.epoch,
                previous_epoch=blank.previous_epoch,
                state=blank.state,
                assigned=NO_PARTITIONS,
                revoking=NO_PARTITIONS,
            )
        else:
            known = replace(
                known,
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=records.read_state(value),
                assigned=records.read_partitions(value.assigned_partitions),
                revoking=records.read_partitions(value.partitions_pending_revocation),
            )
        self.members[member_id] = known
        for tp in known.holds:
            self.owners[tp] = member_id

    def _release(self, member: Member) -> None:
        for tp in member.holds:
            if self.owners.get(tp) == member.member_id:
                del self.owners[tp]

    def records(self) -> Iterator[ConsumerRecord]:
        """All there is, as the records that would make it."""
        for member in self.members.values():
            yield records.make_subscription_record(self.group_id, member)
        for pattern, found in self.patterns.items():
            yield records.make_pattern_record(self.group_id, pattern, *found)
        yield records.make_group_record(self.group_id, self.epoch, self.metadata_hash)
        for member_id, target in self.targets.items():
            yield records.make_target_record(self.group_id, member_id, target)
        yield records.make_target_epoch_record(self.group_id, self.target_epoch)
        for member in self.members.values():
            yield records.make_current_record(self.group_id, member)

    def copy(self) -> "ConsumerGroup":
        other = ConsumerGroup(self.group_id)
        other.epoch, other.metadata_hash, other.target_epoch = (
            self.epoch,
            self.metadata_hash,
            self.target_epoch,
        )
        other.members = dict(self.members)
        other.static = dict(self.static)
        other.targets = dict(self.targets)
        other.owners = dict(self.owners)
        other.patterns = dict(self.patterns)
        return other


class Draft:
    """A group as it will be when the records of this turn are replayed, and those records."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group.copy()
        self.records: list[ConsumerRecord] = []
        self.unresolved: list[str] = []
        """Patterns that take longer to look up than this turn may."""

    @property
    def group_id(self) -> str:
        return self.group.group_id

    @property
    def members(self) -> Mapping[str, Member]:
        return self.group.members

    def write(self, *written: ConsumerRecord) -> None:
        for record in written:
            self.records.append(record)
            self.group.replay(record)
