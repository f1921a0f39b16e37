"""The records of a coordinator, and their bytes in `__consumer_offsets`.

| key, its version     | value, versions written                         | without a value       |
|----------------------|-------------------------------------------------|-----------------------|
| OffsetCommitKey, 1   | OffsetCommitValue: 3; 1 with an expiry of its   | the position is gone  |
|                      | own, for which only that version has a field    |                       |
| GroupMetadataKey, 2  | GroupMetadataValue: 3                           | the group is gone     |
| 3, 5 to 8, 16        | of consumer groups: 0 (see `consumer.records`)  | that part is gone     |

These are what Kafka's brokers write, so that either reads the other's.  Other kinds of keys belong to groups
that are not known here: they are passed over, and stay in the log.  A value of a version that is not known
cannot be passed over: that would be to forget what was committed.
"""

from typing import Final, NamedTuple

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import MalformedMessageError
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

RECORD_OVERHEAD_BYTES: Final = 64
"""Lengths, counts, timestamps: more than a record of either kind needs besides its texts and payloads."""


class OffsetRecord(NamedTuple):
    key: OffsetCommitKey
    value: OffsetCommitValue | None


class GroupMetadataRecord(NamedTuple):
    key: GroupMetadataKey
    value: GroupMetadataValue | None


class ConsumerRecord(NamedTuple):
    """Of a consumer group: `consumer.records` says which there are.  The key's class is the kind."""

    key: Message
    value: Message | None


GroupRecord = OffsetRecord | GroupMetadataRecord | ConsumerRecord


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    if isinstance(record, OffsetRecord):
        key = encode_versioned(record.key, OFFSET_KEY_VERSION)
        if record.value is None:
            return key, None
        expires = record.value.expire_timestamp != NO_EXPIRY
        version = OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else OFFSET_VALUE_VERSION
        return key, encode_versioned(record.value, version)
    if isinstance(record, ConsumerRecord):
        key = encode_versioned(record.key, record.key.versions[0])
        return key, None if record.value is None else encode_versioned(record.value, CONSUMER_VALUE_VERSION)
    key = encode_versioned(record.key, GROUP_KEY_VERSION)
    return key, None if record.value is None else encode_versioned(record.value, GROUP_VALUE_VERSION)


def decode_record(key: Buffer | None, value: Buffer | None) -> GroupRecord | None:
    """None for a kind that is not known.  What is kept of it is not a view of the buffers."""
    if key is None:
        raise MalformedMessageError("a record of the offsets topic has no key")
    kind = version_of(key)
    if kind in OFFSET_KEY_VERSIONS:
        position = decode_versioned(OffsetCommitKey, key)[1]
        return OffsetRecord(
            position, None if value is None else decode_versioned(OffsetCommitValue, value)[1]
        )
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


# --- sizes -------------------------------------------------------------------------------------


def utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def size_bound(record: GroupRecord) -> int:
    """At least as many bytes as the record takes in a batch."""
    if isinstance(record, OffsetRecord):
        value_bytes = 0 if record.value is None else utf8_bytes(record.value.metadata)
        key = record.key
        return RECORD_OVERHEAD_BYTES + utf8_bytes(key.group) + utf8_bytes(key.topic) + value_bytes
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
