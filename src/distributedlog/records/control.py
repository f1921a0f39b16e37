"""Control records: the markers that end a producer's transaction in a partition.

A marker stands alone in a batch that is flagged control and transactional, carries the producer's id and
epoch and no sequence.  Its key is what Kafka's clients look at to tell a commit from an abort.

    key    int16 version (0)   int16 type (0 abort, 1 commit)
    value  int16 version (0)   int32 coordinator epoch

Later versions only add bytes behind these, so a reader takes the part it knows.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import InvalidRecordError
from distributedlog.records.kernel import decode_records
from distributedlog.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    BatchHeader,
    Record,
)
from distributedlog.records.record import DEFAULT_LIMITS, decompress_records, encode_batch

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_RECORD = struct.Struct(">5shhBhiB")
_RECORD_HEAD, _VALUE_BYTES, _NO_HEADERS = bytes((32, 0, 0, 0, 2 * _KEY.size)), 2 * _VALUE.size, 0
"""The record as everybody writes it: its length, no attributes, no deltas, the key's length (varints); the
key; the value's length and the value; the number of headers."""
_BATCH_LENGTH = HEADER_BYTES + _RECORD.size - LOG_OVERHEAD


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


_TYPES = {int(each): each for each in ControlType}


class EndMarker(NamedTuple):
    """How a transaction ended, and which coordinator said so: a lower coordinator epoch is a deposed one."""

    type: ControlType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        return self.type is ControlType.COMMIT


def encode_end_marker_batch(
    marker: EndMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    record = Record(
        key=_KEY.pack(_VERSION, marker.type),
        value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
        timestamp_ms=timestamp_ms,
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_end_marker(buffer: Buffer, position: int, header: BatchHeader) -> EndMarker:
    """The marker in a control batch that was checked."""
    attributes = header.attributes
    if not attributes & CONTROL_BIT or header.record_count != 1:
        raise InvalidRecordError(
            f"a batch of {header.record_count} records at {header.base_offset} is no marker"
        )
    if header.batch_length == _BATCH_LENGTH and not attributes & CODEC_MASK:
        head, key_version, kind, value_bytes, value_version, coordinator_epoch, headers = _RECORD.unpack_from(
            buffer, position + HEADER_BYTES
        )
        if head == _RECORD_HEAD and value_bytes == _VALUE_BYTES and headers == _NO_HEADERS:
            return _make_marker(header.base_offset, key_version, kind, value_version, coordinator_epoch)
    section = decompress_records(buffer, position, header)
    (record,) = decode_records(section, header, DEFAULT_LIMITS.headers_per_record_max)
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        raise InvalidRecordError(f"the control record at {record.offset} is too short for a marker")
    key_version, kind = _KEY.unpack_from(key)
    value_version, coordinator_epoch = _VALUE.unpack_from(value)
    return _make_marker(record.offset, key_version, kind, value_version, coordinator_epoch)


def _make_marker(
    offset: int, key_version: int, kind: int, value_version: int, coordinator_epoch: int
) -> EndMarker:
    found = _TYPES.get(kind)
    if key_version < 0 or value_version < 0 or found is None:
        raise InvalidRecordError(f"the control record at {offset} is of type {kind} and ends no transaction")
    return EndMarker(found, coordinator_epoch)
