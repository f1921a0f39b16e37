"""Committed positions, by group and partition.

Only records change them (`replay`).  A position is forgotten by a record without a value: because it was
deleted, because its group was, or because it has expired.

    a position expires when its group has been without members, and the position unchanged, for as long as
    offsets are retained; or, if its client gave it a retention time of its own, at that time

Times are of the wall clock, as they stand in the records.
"""

from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import Final, NamedTuple

from distributedlog.groups.records import NO_EXPIRY, OffsetRecord
from distributedlog.groups.requests import CommitRequest, Position
from distributedlog.model.config import INT64_MAX
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue

NO_LEADER_EPOCH: Final = -1


class StoredPosition(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_EXPIRY


class Offsets:
    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, StoredPosition]] = {}

    # --- replaying -----------------------------------------------------------------------------

    def replay(self, record: OffsetRecord) -> None:
        key, value = record
        partition = TopicPartition(key.topic, key.partition)
        if value is not None:
            positions = self._by_group.setdefault(key.group, {})
            positions[partition] = StoredPosition(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
            )
            return
        found = self._by_group.get(key.group)
        if found is not None:
            found.pop(partition, None)
            if not found:
                del self._by_group[key.group]

    # --- looking -------------------------------------------------------------------------------

    def groups(self) -> KeysView[str]:
        return self._by_group.keys()

    def has(self, group_id: str) -> bool:
        return group_id in self._by_group

    def of(self, group_id: str) -> Mapping[TopicPartition, StoredPosition]:
        return self._by_group.get(group_id, {})

    def fetch(self, group_id: str, partitions: Iterable[TopicPartition] | None) -> Iterator[Position]:
        stored = self.of(group_id)
        for partition in stored if partitions is None else partitions:
            found = stored.get(partition)
            if found is not None:
                yield Position(partition, found.offset, found.leader_epoch, found.metadata)

    def records(self) -> Iterator[OffsetRecord]:
        """All there is, as the records that would make it."""
        for group_id, positions in self._by_group.items():
            for partition, stored in positions.items():
                yield OffsetRecord(_key(group_id, partition), OffsetCommitValue(**stored._asdict()))


# --- making records ----------------------------------------------------------------------------


def _key(group_id: str, partition: TopicPartition) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)


def committed(request: CommitRequest, position: Position, wall_ms: int) -> OffsetRecord:
    retention_ms = request.retention_ms
    value = OffsetCommitValue(
        offset=position.offset,
        # The version with an expiry has no leader epoch; nor have the clients that set one.
        leader_epoch=position.leader_epoch if retention_ms is None else NO_LEADER_EPOCH,
        metadata=position.metadata,
        commit_timestamp=wall_ms,
        expire_timestamp=NO_EXPIRY if retention_ms is None else min(wall_ms + retention_ms, INT64_MAX),
    )
    return OffsetRecord(_key(request.group_id, position.partition), value)


def forgotten(group_id: str, partition: TopicPartition) -> OffsetRecord:
    return OffsetRecord(_key(group_id, partition), None)


def has_expired(stored: StoredPosition, empty_since_ms: int, wall_ms: int, retention_ms: int) -> bool:
    if stored.expire_timestamp != NO_EXPIRY:
        return wall_ms >= stored.expire_timestamp
    return wall_ms - max(stored.commit_timestamp, empty_since_ms) >= retention_ms
