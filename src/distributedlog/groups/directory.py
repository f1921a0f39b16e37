"""Which groups there are: listed, described, deleted.

A group that has only committed offsets, and no member ever, has no live group: it counts as Empty.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from distributedlog.groups.classic import rebalance
from distributedlog.groups.classic.group import ClassicGroup, GroupEvent, GroupState
from distributedlog.groups.committed_offsets import CommittedOffsets, make_offset_tombstone
from distributedlog.groups.consumer import moving
from distributedlog.groups.consumer.groups import ConsumerGroups
from distributedlog.groups.records import GroupMetadataRecord, GroupRecord, size_bound, size_bounds
from distributedlog.groups.requests import (
    PART_DONE,
    DescribedMember,
    DescribeReply,
    GroupListing,
    ListReply,
    PartDone,
)
from distributedlog.groups.turn import Turn
from distributedlog.model.errors import GroupNotFoundError, NonEmptyGroupError, PolicyViolationError
from distributedlog.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue

CLASSIC: Final = "classic"
"""The type of these groups, as Kafka names it."""
CONSUMER: Final = "consumer"
"""The type of the others, and what both are groups of."""


class Directory:
    def __init__(
        self,
        groups: dict[str, ClassicGroup],
        stored: Mapping[str, GroupMetadataValue],
        offsets: CommittedOffsets,
        consumers: ConsumerGroups,
    ) -> None:
        self._consumers = consumers
        self._groups = groups
        self._stored = stored
        self._offsets = offsets

    def has(self, group_id: str) -> bool:
        return (
            group_id in self._groups
            or group_id in self._stored
            or group_id in self._consumers.by_id
            or self._offsets.has(group_id)
        )

    def check_room(self, group_id: str, turn: Turn) -> None:
        """Checks that there is room before a group is made that was not there."""
        count = max(len(self._groups) + len(self._consumers.by_id), len(self._offsets.groups()))
        if not self.has(group_id) and count >= turn.config.groups_max:
            raise PolicyViolationError(f"there are {count} groups here, and no more are allowed")

    # --- looking -------------------------------------------------------------------------------

    def list_groups(self) -> ListReply:
        return ListReply(tuple(self._listings()))

    def _listings(self) -> Iterator[GroupListing]:
        for group in self._groups.values():
            yield GroupListing(group.group_id, group.protocol_type, group.state, CLASSIC)
        consumers = self._consumers.by_id
        for consumer in consumers.values():
            yield GroupListing(consumer.group_id, CONSUMER, consumer.state, CONSUMER)
        for group_id in self._offsets.groups():
            if group_id not in self._groups and group_id not in consumers:
                yield GroupListing(group_id, "", GroupState.EMPTY, CLASSIC)

    def describe(self, group_id: str) -> DescribeReply:
        """One that is not there, or is no classic group, is Dead.  Assignments are described of a
        Stable group only: before, they are not decided."""
        group = self._groups.get(group_id)
        if group is None:
            is_there = self._offsets.has(group_id) and group_id not in self._consumers.by_id
            state = GroupState.EMPTY if is_there else GroupState.DEAD
            return DescribeReply(group_id, state, "", "", ())
        is_stable = group.state is GroupState.STABLE
        members = tuple(
            DescribedMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.metadata(group.protocol) if is_stable else b"",
                each.assignment if is_stable else b"",
            )
            for each in group.members.values()
        )
        protocol = group.protocol if is_stable and group.protocol is not None else ""
        return DescribeReply(group_id, group.state, group.protocol_type, protocol, members)

    # --- deleting ------------------------------------------------------------------------------

    def delete(self, group_id: str, turn: Turn) -> PartDone | None:
        if turn.pending and group_id in turn.groups_in_transactions():
            raise NonEmptyGroupError(f"group {group_id!r} has offsets in an open transaction")
        if not self.has(group_id):
            raise GroupNotFoundError(f"there is no group {group_id!r}")
        group = self._groups.get(group_id)
        if group is not None and group.state is not GroupState.EMPTY:
            raise NonEmptyGroupError(f"group {group_id!r} is {group.state}: it has members")
        consumer = self._consumers.by_id.get(group_id)
        if consumer is not None and consumer.members:
            raise NonEmptyGroupError(f"group {group_id!r} is {consumer.state}: it has members")
        if not write_some(
            turn, (make_offset_tombstone(group_id, each) for each in self._offsets.of(group_id))
        ):
            return PART_DONE
        self.remove_group(group_id, turn)
        return None

    def remove_group(self, group_id: str, turn: Turn) -> None:
        """A group without members, whose committed offsets are gone or are going with it."""
        if group_id in self._stored:
            turn.write(GroupMetadataRecord(GroupMetadataKey(group=group_id), None))
        consumer = self._consumers.by_id.get(group_id)
        if consumer is not None:
            turn.records += moving.make_tombstones(consumer)
        group = self._groups.pop(group_id, None)
        if group is not None:
            for member_id in list(group.pending):
                rebalance.forget_pending(group, member_id, turn)
            group.move(GroupEvent.DELETED, turn.wall_ms)


def write_some(turn: Turn, records: Iterator[GroupRecord]) -> bool:
    """Writes as many as fit half an entry, so that there is room for what belongs to them; returns whether
    that was all."""
    size = size_bounds(turn.records)
    for record in records:
        size += size_bound(record)
        if turn.records and size > turn.config.entry_bytes_max // 2:
            return False
        turn.write(record)
    return True
