"""Record batches as wholes: read the header, check, stamp, scan.  The records stay closed.

What a broker does with a produced batch is all here: `check_batch` (CRC32C over attributes to end, counts,
lengths) and `stamp`, which writes the base offset and the leader epoch in place; that is allowed because both
lie before the checksum.  `place_batch` does the two in one.  Only `stamp_append_time` changes bytes under
the checksum, and renews it.

`scan` is recovery's: it walks a window of a segment and stops at the first batch that is not whole and
sound.  It says which of the two it was, because a torn tail is cut and corruption is not.

The byte layout stands in `layout`.
"""

import struct
from collections.abc import Iterator

from distributedlog.model.buffers import Buffer, MutableBuffer
from distributedlog.model.errors import CorruptBatchError
from distributedlog.model.limits import RecordLimits
from distributedlog.records.checksum import crc32c
from distributedlog.records.kernel import check_whole_batch, place_batch, read_batch_header, scan_batches
from distributedlog.records.layout import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    LEADER_EPOCH_AT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP_AT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    ScanResult,
    increment_sequence,
)

__all__ = [
    "HEADER_BYTES",
    "LOG_OVERHEAD",
    "MAGIC",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "ScanResult",
    "check_batch",
    "clear_append_time",
    "increment_sequence",
    "place_batch",
    "read_header",
    "scan",
    "stamp",
    "stamp_append_time",
]

_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_UINT32 = struct.Struct(">I")


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, with lengths and counts that are possible.  No checksum is computed."""
    return read_batch_header(buffer, position)


def whole_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of each batch in a run; the last may be cut off, and is then left out."""
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if position + header.size > len(buffer):
            return
        yield position, header
        position += header.size


def check_batch(
    buffer: Buffer, position: int = 0, *, limits: RecordLimits, check_crc: bool = True
) -> BatchHeader:
    """The header of a batch that is whole, within the limits, and has the checksum it claims."""
    return check_whole_batch(buffer, position, limits.batch_bytes_max, limits.records_max, check_crc)


def stamp(buffer: MutableBuffer, position: int, base_offset: int, leader_epoch: int) -> None:
    """Gives a batch its place in the log.  The checksum stays right: it covers neither field."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buffer: MutableBuffer, position: int, now_ms: int) -> None:
    """Makes `now_ms` the timestamp of every record of a whole batch, and the checksum right again."""
    header = read_header(buffer, position)
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatchError("only a whole batch can be stamped with its append time")
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_AT, now_ms)
    crc = crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end])
    _UINT32.pack_into(buffer, position + CRC_AT, crc)


def clear_append_time(buffer: MutableBuffer, position: int) -> None:
    """Takes back the claim that the times of a whole batch are those of its append, and makes the checksum
    right again."""
    header = read_header(buffer, position)
    end = position + header.size
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, header.attributes & ~LOG_APPEND_TIME_BIT)
    _UINT32.pack_into(buffer, position + CRC_AT, crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end]))


def scan(
    buffer: Buffer, position: int = 0, limit: int | None = None, *, check_crc: bool = True
) -> ScanResult:
    """Walks batches from `position` to `limit` (None: the buffer's end).  Never raises for what it reads."""
    end = len(buffer) if limit is None else min(limit, len(buffer))
    return scan_batches(buffer, position, end, check_crc)
