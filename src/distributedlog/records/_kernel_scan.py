# cython: language_level=3, embedsignature=True
"""The inner loop that walks batches: unpack a header, find its first flaw, check the checksum, go on.

A header is judged by its own 61 bytes, first as the plain tuple that `struct` gives, which the compiled form
takes apart at once.  The rules for both forms stand in `_kernel`.
"""

import struct
from typing import TYPE_CHECKING, Any

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import (
    CorruptBatchError,
    DlogError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnsupportedCompressionError,
    UnsupportedFormatError,
)
from distributedlog.records.checksum import crc32c
from distributedlog.records.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CODEC_MAX,
    CONTROL_BIT,
    HEADER_BYTES,
    HEADER_STRUCT,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    ScanResult,
)

if TYPE_CHECKING:
    from distributedlog.records import _shim as cython
else:
    try:
        import cython
    except ImportError:
        from distributedlog.records import _shim as cython

COMPILED: bool = cython.compiled

_HEADER_BYTES = cython.declare(cython.Py_ssize_t, HEADER_BYTES)
_LOG_OVERHEAD = cython.declare(cython.Py_ssize_t, LOG_OVERHEAD)
_ATTRIBUTES_AT = cython.declare(cython.Py_ssize_t, ATTRIBUTES_AT)
_MAGIC = cython.declare(cython.longlong, MAGIC)
_CODEC_MASK = cython.declare(cython.longlong, CODEC_MASK)
_CODEC_MAX = cython.declare(cython.longlong, int(CODEC_MAX))
_unpack = HEADER_STRUCT.unpack_from
_pack_offset = struct.Struct(">q").pack_into
_pack_epoch = struct.Struct(">i").pack_into
_new = tuple.__new__
_crc32c = crc32c
_BatchHeader = BatchHeader


def read_batch_header(buffer: Buffer, position: int) -> BatchHeader:
    """The header at `position`, if it is one that a sound batch can have."""
    return _new(_BatchHeader, _read_fields(buffer, position))


@cython.cfunc
def _read_fields(buffer: Any, position: Any) -> tuple:  # type: ignore[type-arg]
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptBatchError(f"a batch header is {HEADER_BYTES} bytes; {len(buffer) - position} are there")
    fields = _unpack(buffer, position)
    if _is_flawed(fields):
        raise _flaw(fields)
    return fields


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _is_flawed(fields: tuple) -> cython.bint:  # type: ignore[type-arg]
    """Whether `_flaw` would find something: the same rules, in C numbers."""
    base_offset: cython.longlong = fields[0]
    length: cython.longlong = fields[1]
    magic: cython.longlong = fields[3]
    attributes: cython.longlong = fields[5]
    last_delta: cython.longlong = fields[6]
    record_count: cython.longlong = fields[12]
    return (
        magic != _MAGIC
        or length < _HEADER_BYTES - _LOG_OVERHEAD
        or record_count < 0
        or last_delta < 0
        or last_delta < record_count - 1
        or base_offset < 0
        or base_offset >= 0x7FFFFFFFFFFFFFFF - last_delta
        or (attributes & _CODEC_MASK) > _CODEC_MAX
    )


def _flaw(fields: Any) -> DlogError:
    """The first thing in a flawed header that no sound batch has."""
    base_offset, length, _, magic, _, attributes, last_delta, _, _, _, _, _, record_count = fields
    if magic in (0, 1):
        return UnsupportedFormatError(f"a batch of format {magic} (magic); only {MAGIC} is read")
    if magic != MAGIC:
        return CorruptBatchError(f"a batch has magic {magic}; only {MAGIC} is known")
    if length < HEADER_BYTES - LOG_OVERHEAD:
        return CorruptBatchError(f"a batch claims a length of {length}, less than its own header's")
    if record_count < 0 or last_delta < 0 or last_delta < record_count - 1:
        return CorruptBatchError(
            f"a batch claims {record_count} records with a last offset delta of {last_delta}"
        )
    if attributes & CODEC_MASK > CODEC_MAX:
        return UnsupportedCompressionError(f"codec {attributes & CODEC_MASK} is not known")
    return CorruptBatchError(f"a batch claims a base offset of {base_offset}")


def check_whole_batch(
    buffer: Buffer, position: int, bytes_max: int, records_max: int, check_crc: bool
) -> BatchHeader:
    """The header of a batch that is whole, within the bounds, and has the checksum it claims."""
    fields = _read_fields(buffer, position)
    start: cython.Py_ssize_t = position
    size: cython.Py_ssize_t = _LOG_OVERHEAD + fields[1]
    if size > bytes_max:
        raise RecordTooLargeError(f"a batch of {size} bytes is over the {bytes_max} allowed")
    if fields[12] > records_max:
        raise InvalidRecordError(f"a batch of {fields[12]} records is over the {records_max} allowed")
    if size > len(buffer) - start:
        raise CorruptBatchError(f"the batch is {size} bytes long, of which {len(buffer) - start} are there")
    if check_crc:
        crc = _crc32c(memoryview(buffer)[start + _ATTRIBUTES_AT : start + size])
        if crc != fields[4]:
            raise CorruptBatchError(f"the batch's CRC32C is {crc:#010x}; its header says {fields[4]:#010x}")
    return _new(_BatchHeader, fields)


def place_batch(
    buffer: Buffer,
    position: int,
    base_offset: int,
    leader_epoch: int,
    bytes_max: int,
    records_max: int,
    oldest_ms: int,
    newest_ms: int,
    is_control_allowed: bool,
) -> BatchHeader:
    """Stamps a new batch with its place in the log and checks it: so its header is read once.

    Only compaction leaves a batch with fewer records than offsets, so a new one has no gaps.
    """
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptBatchError(f"a batch header is {HEADER_BYTES} bytes; {len(buffer) - position} are there")
    _pack_offset(buffer, position, base_offset)
    _pack_epoch(buffer, position + LEADER_EPOCH_AT, leader_epoch)
    header = check_whole_batch(buffer, position, bytes_max, records_max, True)
    if header[12] != header[6] + 1:
        raise InvalidRecordError(f"the batch claims {header[12]} records over {header[6] + 1} offsets")
    if header[5] & CONTROL_BIT and not is_control_allowed:
        raise InvalidRecordError("clients do not write control batches")
    if header[8] >= 0 and (header[8] > newest_ms or header[7] < oldest_ms):
        wrong = header[8] if header[8] > newest_ms else header[7]
        raise InvalidTimestampError(
            f"timestamp {wrong} does not lie between {oldest_ms} and {newest_ms}, as the topic demands"
        )
    return header


def scan_batches(buffer: Buffer, start: int, limit: int, check_crc: bool) -> ScanResult:
    headers: list[BatchHeader] = []
    view = memoryview(buffer)
    position: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = limit
    size: cython.Py_ssize_t
    while position < end:
        if end - position < _HEADER_BYTES:
            return ScanResult(headers, position, "the last batch's header is cut off", HEADER_BYTES)
        fields = _unpack(view, position)
        if _is_flawed(fields):
            return ScanResult(headers, position, str(_flaw(fields)))
        size = _LOG_OVERHEAD + fields[1]
        if size > end - position:
            return ScanResult(headers, position, "the last batch is cut off", size)
        if check_crc:
            crc = _crc32c(view[position + _ATTRIBUTES_AT : position + size])
            if crc != fields[4]:
                return ScanResult(
                    headers, position, f"CRC32C is {crc:#010x}; the header says {fields[4]:#010x}"
                )
        headers.append(_new(_BatchHeader, fields))
        position += size
    return ScanResult(headers, position)
