"""The records of a coordinator, and their bytes in `__consumer_offsets`.

| key, its version     | value, versions written                         | without a value       |
|----------------------|-------------------------------------------------|-----------------------|
| OffsetCommitKey, 1   | OffsetCommitValue: 3; 1 with an expiry of its   | the offset is gone    |
|                      | own, for which only that version has a field    |                       |
| GroupMetadataKey, 2  | GroupMetadataValue: 3                           | the group is gone     |
| 3, 5 to 8, 16        | of consumer groups: 0 (see `consumer.records`)  | that part is gone     |

These are what Kafka's brokers write, so that either reads the other's.  Other kinds of keys belong to groups
that are not known here: they are passed over, and stay in the log.  A value of a version that is not known
is an error, which whoever loads the log counts and logs.

Committed offsets are most of what is ever written, so they bypass the message classes (`encode_records`):

    key      1 i16 | group, topic: i16 length and UTF-8 | partition i32
    value    3 i16 | offset i64 | leader epoch i32 | metadata: i16 length and UTF-8 | commit timestamp i64
             1 i16 | offset i64 | metadata | commit timestamp i64 | expire timestamp i64
"""

import struct
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import MalformedMessageError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.group_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from distributedlog.protocol.schema import Message
from distributedlog.protocol.versioned import decode_versioned, encode_versioned, version_of

OFFSET_KEY_VERSIONS: Final = (0, 1)
GROUP_KEY_VERSION: Final = 2
OFFSET_KEY_VERSION: Final = 1
OFFSET_VALUE_VERSION: Final = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3
CONSUMER_KEY_VERSIONS: Final = frozenset({3, 5, 6, 7, 8, 16})
CONSUMER_VALUE_VERSION: Final = 0
NO_EXPIRY: Final = -1
TEXT_BYTES_MAX: Final = 32767

# Of committed offsets: the parts between their texts.
_SHORT: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_NO_METADATA: Final = struct.Struct(">hqihq")
_BEFORE_METADATA: Final = struct.Struct(">hqi")
_BEHIND_METADATA: Final = struct.Struct(">q")
_BEFORE_METADATA_WITH_EXPIRY: Final = struct.Struct(">hq")
_BEHIND_METADATA_WITH_EXPIRY: Final = struct.Struct(">qq")

RECORD_OVERHEAD_BYTES: Final = 64
"""Lengths, counts, timestamps: more than a record of either kind needs besides its texts and payloads."""


class StoredOffset(NamedTuple):
    """A committed offset as it is stored, with the names of `OffsetCommitValue`."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_EXPIRY


class OffsetRecord(NamedTuple):
    group_id: str
    partition: TopicPartition
    value: StoredOffset | None


class GroupMetadataRecord(NamedTuple):
    key: GroupMetadataKey
    value: GroupMetadataValue | None


class ConsumerRecord(NamedTuple):
    """A record of a consumer group: `consumer.records` says which there are.  The key's class is the kind."""

    key: Message
    value: Message | None


GroupRecord = OffsetRecord | GroupMetadataRecord | ConsumerRecord


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Returns key and value."""
    if isinstance(record, OffsetRecord):
        (encoded,) = encode_records((record,))
        return encoded
    if isinstance(record, ConsumerRecord):
        key = encode_versioned(record.key, record.key.versions[0])
        return key, None if record.value is None else encode_versioned(record.value, CONSUMER_VALUE_VERSION)
    key = encode_versioned(record.key, GROUP_KEY_VERSION)
    return key, None if record.value is None else encode_versioned(record.value, GROUP_VALUE_VERSION)


def encode_records(records: Iterable[GroupRecord]) -> list[tuple[bytes, bytes | None]]:
    """Keys and values.  What the keys of one group and topic have in common is encoded once."""
    encoded: list[tuple[bytes, bytes | None]] = []
    shared_group = shared_topic = None
    shared = b""
    for record in records:
        if type(record) is not OffsetRecord:
            encoded.append(encode_record(record))
            continue
        group_id, (topic, index), value = record
        if topic is not shared_topic or group_id is not shared_group:
            shared_group, shared_topic = group_id, topic
            shared = _SHORT.pack(OFFSET_KEY_VERSION) + _text(group_id) + _text(topic)
        encoded.append((shared + _PARTITION.pack(index), None if value is None else _encode_offset(value)))
    return encoded


def record_key(record: GroupRecord) -> Hashable:
    """Returns what tells the record from others as its encoded key does, which is what compaction goes by."""
    if type(record) is OffsetRecord:
        return record.group_id, record.partition
    return encode_record(record._replace(value=None))[0]


def _encode_offset(value: StoredOffset) -> bytes:
    offset, leader_epoch, metadata, committed_ms, expires_ms = value
    if not metadata and expires_ms == NO_EXPIRY:  # as most are
        return _NO_METADATA.pack(OFFSET_VALUE_VERSION, offset, leader_epoch, 0, committed_ms)
    if expires_ms != NO_EXPIRY:
        head = _BEFORE_METADATA_WITH_EXPIRY.pack(OFFSET_VALUE_VERSION_WITH_EXPIRY, offset)
        return head + _text(metadata) + _BEHIND_METADATA_WITH_EXPIRY.pack(committed_ms, expires_ms)
    head = _BEFORE_METADATA.pack(OFFSET_VALUE_VERSION, offset, leader_epoch)
    return head + _text(metadata) + _BEHIND_METADATA.pack(committed_ms)


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > TEXT_BYTES_MAX:
        raise MalformedMessageError(f"a text of {len(data)} bytes does not fit a record")
    return _SHORT.pack(len(data)) + data


def decode_record(key: Buffer | None, value: Buffer | None) -> GroupRecord | None:
    """Decodes a record; None for a kind that is not known.  What is kept of it is not a view of the
    buffers."""
    if key is None:
        raise MalformedMessageError("a record of the offsets topic has no key")
    kind = version_of(key)
    if kind in OFFSET_KEY_VERSIONS:
        return _decode_offset(decode_versioned(OffsetCommitKey, key)[1], value)
    if kind in CONSUMER_KEY_VERSIONS:
        key_type, value_type = GROUP_RECORDS[kind]
        found = decode_versioned(key_type, key)[1]
        return ConsumerRecord(found, None if value is None else decode_versioned(value_type, value)[1])
    if kind != GROUP_KEY_VERSION:
        return None
    group = decode_versioned(GroupMetadataKey, key)[1]
    if value is None:
        return GroupMetadataRecord(group, None)
    metadata = decode_versioned(GroupMetadataValue, value)[1]
    for member in metadata.members:
        member.subscription, member.assignment = bytes(member.subscription), bytes(member.assignment)
    return GroupMetadataRecord(group, metadata)


def _decode_offset(key: OffsetCommitKey, value: Buffer | None) -> OffsetRecord:
    partition = TopicPartition(key.topic, key.partition)
    if value is None:
        return OffsetRecord(key.group, partition, None)
    found = decode_versioned(OffsetCommitValue, value)[1]
    stored = StoredOffset(
        found.offset, found.leader_epoch, found.metadata, found.commit_timestamp, found.expire_timestamp
    )
    return OffsetRecord(key.group, partition, stored)


# --- sizes -------------------------------------------------------------------------------------


def utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def size_bounds(records: Iterable[GroupRecord]) -> int:
    """Returns at least as many bytes as the records take in one batch."""
    size = 0
    group_id = topic = None
    key_bytes = 0
    for record in records:
        if type(record) is not OffsetRecord:
            size += size_bound(record)
            continue
        partition, value = record.partition, record.value
        if partition.topic is not topic or record.group_id is not group_id:
            group_id, topic = record.group_id, partition.topic
            key_bytes = RECORD_OVERHEAD_BYTES + utf8_bytes(group_id) + utf8_bytes(topic)
        size += key_bytes
        if value is not None and value.metadata:
            size += utf8_bytes(value.metadata)
    return size


def size_bound(record: GroupRecord) -> int:
    """Returns at least as many bytes as the record takes in a batch."""
    if isinstance(record, OffsetRecord):
        return size_bounds((record,))
    if isinstance(record, ConsumerRecord):
        return RECORD_OVERHEAD_BYTES + sum(len(part or b"") for part in encode_record(record))
    size = RECORD_OVERHEAD_BYTES + utf8_bytes(record.key.group)
    value = record.value
    if value is None:
        return size
    size += (
        utf8_bytes(value.protocol_type) + utf8_bytes(value.protocol or "") + utf8_bytes(value.leader or "")
    )
    for member in value.members:
        texts = (member.member_id, member.group_instance_id or "", member.client_id, member.client_host)
        size += RECORD_OVERHEAD_BYTES + sum(utf8_bytes(text) for text in texts)
        size += len(member.subscription) + len(member.assignment)
    return size
