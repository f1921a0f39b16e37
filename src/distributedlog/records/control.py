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
from distributedlog.records.layout import NO_LEADER_EPOCH, BatchHeader, Record
from distributedlog.records.record import DEFAULT_LIMITS, decompress_records, encode_batch

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


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
    if not header.is_control or header.record_count != 1:
        raise InvalidRecordError(
            f"a batch of {header.record_count} records at {header.base_offset} is no marker"
        )
    section = decompress_records(buffer, position, header)
    (record,) = decode_records(section, header, DEFAULT_LIMITS.headers_per_record_max)
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        raise InvalidRecordError(f"the control record at {record.offset} is too short for a marker")
    key_version, kind = _KEY.unpack_from(key)
    value_version, coordinator_epoch = _VALUE.unpack_from(value)
    if key_version < 0 or value_version < 0 or kind not in tuple(ControlType):
        raise InvalidRecordError(
            f"the control record at {record.offset} is of type {kind} and ends no transaction"
        )
    return EndMarker(ControlType(kind), coordinator_epoch)
