"""Kafka's v2 record batch: where each field lies, and the values that are read from it.

A batch is a header of 61 bytes and then its records.  All integers are big-endian.

    at  bytes  field
     0      8  base offset              written by the leader; outside the checksum
     8      4  batch length             bytes that follow this field: size - 12
    12      4  leader epoch             written by the leader; outside the checksum
    16      1  magic                    2
    17      4  CRC32C                   over everything from the attributes to the end
    21      2  attributes               bits 0-2 codec, 3 timestamp is log append time, 4 transactional,
                                        5 control, 6 the base timestamp is a delete horizon
    23      4  last offset delta        kept by compaction, so also the last sequence of the batch
    27      8  base timestamp           records hold differences to it
    35      8  max timestamp            of the records, or the log append time of them all
    43      8  producer id              -1: none
    51      2  producer epoch
    53      4  base sequence
    57      4  record count
    61         records                  compressed as a whole if the codec is not 0

One record; a varint is zigzag-coded, at most 5 bytes (10 for the timestamp):

    varint  bytes that follow           1 byte  attributes, unused
    varint  timestamp delta             varint  offset delta
    varint  key length, -1 for null     ...     key
    varint  value length, -1 for null   ...     value
    varint  header count                then for each: varint length, key; varint length (-1 null), value

Everything here is immutable data.  Nothing checks what it holds: `batch` and `record` do.
"""

import struct
from typing import NamedTuple

from distributedlog.model.errors import UnsupportedCompressionError
from distributedlog.records.compression import Codec

LOG_OVERHEAD = 12
HEADER_BYTES = 61
RECORD_BYTES_MIN = 7
MAGIC = 2

LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

HEADER_STRUCT = struct.Struct(">qiibIhiqqqhii")
CODEC_MAX = max(Codec)


class BatchHeader(NamedTuple):
    """The 61 bytes, as numbers."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        codec = self.attributes & CODEC_MASK
        if codec > CODEC_MAX:
            raise UnsupportedCompressionError(
                f"the batch is compressed with codec {codec}, which is not known"
            )
        return Codec(codec)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may go; set when compaction first sees them."""
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2^31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def increment_sequence(sequence: int, increment: int) -> int:
    return (sequence + increment) & INT32_MAX


def is_behind(sequence: int, other: int) -> bool:
    """Returns whether a sequence follows another; behind the highest one they begin at 0 again."""
    return 0 < (sequence - other) & INT32_MAX <= INT32_MAX // 2


class Header(NamedTuple):
    """A header of a record.  A key may occur more than once."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """A record.  A null value is a tombstone to compaction; a null key cannot be compacted."""

    value: bytes | None = None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = NO_TIMESTAMP
    offset: int = -1


class RecordSpan(NamedTuple):
    """Where a record lies in a decompressed records section, and what compaction asks about it."""

    offset_delta: int
    timestamp_ms: int
    key: bytes | None
    has_value: bool
    start: int
    end: int


class ScanResult(NamedTuple):
    """What `scan` found: whole, sound batches up to `end`, and why it stopped there.

    | reason | needs_bytes | meaning |
    |---|---|---|
    | None | 0 | the bytes end where a batch ends |
    | set | > 0 | a batch begins at `end` but is cut off: `needs_bytes` from `end` on would show more |
    | set | 0 | what stands at `end` is not a sound batch, however much followed |
    """

    headers: list[BatchHeader]
    end: int
    reason: str | None = None
    needs_bytes: int = 0


class BatchRun(NamedTuple):
    """Batches that a leader has sent, all of them sound."""

    headers: list[BatchHeader]
    length: int
    """How many bytes they have."""
    epoch_max: int
    """The highest of their leader epochs; -1 if there are none."""
    has_producers: bool
    """Whether one of them has a producer id."""
