"""Committed offsets, by group and partition.

Only records change them (`replay`).  A tombstone removes a committed offset: because it was deleted, because
its group was, or because it has expired.

    a committed offset expires when its group has been without members, and the offset unchanged, for as long
    as offsets are retained; or, if its client gave it a retention time of its own, at that time

Times are of the wall clock, as they stand in the records.
"""

from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import Final

from distributedlog.groups.records import NO_EXPIRY, OffsetRecord, StoredOffset
from distributedlog.groups.requests import CommitRequest, CommittedOffset
from distributedlog.model.config import INT64_MAX
from distributedlog.model.ids import TopicPartition

NO_LEADER_EPOCH: Final = -1


class CommittedOffsets:
    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, StoredOffset]] = {}

    # --- replaying -----------------------------------------------------------------------------

    def replay(self, record: OffsetRecord) -> None:
        group_id, partition, value = record
        found = self._by_group.get(group_id)
        if value is not None:
            if found is None:
                found = self._by_group[group_id] = {}
            found[partition] = value
        elif found is not None:
            found.pop(partition, None)
            if not found:
                del self._by_group[group_id]

    # --- looking -------------------------------------------------------------------------------

    def groups(self) -> KeysView[str]:
        return self._by_group.keys()

    def has(self, group_id: str) -> bool:
        return group_id in self._by_group

    def of(self, group_id: str) -> Mapping[TopicPartition, StoredOffset]:
        return self._by_group.get(group_id, {})

    def fetch(self, group_id: str, partitions: Iterable[TopicPartition] | None) -> Iterator[CommittedOffset]:
        stored = self.of(group_id)
        new = tuple.__new__  # past the constructor, which costs several times as much
        for partition in stored if partitions is None else partitions:
            found = stored.get(partition)
            if found is not None:
                yield new(CommittedOffset, (partition, found.offset, found.leader_epoch, found.metadata))

    def records(self) -> Iterator[OffsetRecord]:
        """All there is, as the records that would make it."""
        for group_id, offsets in self._by_group.items():
            for partition, stored in offsets.items():
                yield OffsetRecord(group_id, partition, stored)


# --- making records ----------------------------------------------------------------------------


def make_offset_records(
    request: CommitRequest, offsets: Iterable[CommittedOffset], wall_ms: int
) -> list[OffsetRecord]:
    """Makes the records of those offsets of a request that are taken."""
    group_id, retention_ms = request.group_id, request.retention_ms
    if retention_ms is None:
        # Past the constructors, which cost several times as much: offsets are committed by the million.
        new = tuple.__new__
        return [
            new(OffsetRecord, (group_id, at, new(StoredOffset, (offset, epoch, text, wall_ms, NO_EXPIRY))))
            for at, offset, epoch, text in offsets
        ]
    expires_ms = min(wall_ms + retention_ms, INT64_MAX)
    # The version with an expiry has no leader epoch; nor have the clients that set one.
    return [
        OffsetRecord(group_id, at, StoredOffset(offset, NO_LEADER_EPOCH, text, wall_ms, expires_ms))
        for at, offset, _, text in offsets
    ]


def make_offset_tombstone(group_id: str, partition: TopicPartition) -> OffsetRecord:
    return OffsetRecord(group_id, partition, None)


def has_expired(stored: StoredOffset, empty_since_ms: int, wall_ms: int, retention_ms: int) -> bool:
    if stored.expire_timestamp != NO_EXPIRY:
        return wall_ms >= stored.expire_timestamp
    return wall_ms - max(stored.commit_timestamp, empty_since_ms) >= retention_ms
