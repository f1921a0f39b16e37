# cython: language_level=3, embedsignature=True
"""The inner loop that walks batches: unpack a header, find its first flaw, check the checksum, go on.

A header is judged by its own 61 bytes, first as the plain tuple that `struct` gives, which the compiled form
takes apart at once.  `place_batch`, which runs for every append, makes no tuple first: `_place_sound` goes
through the bytes.  What it does not take, the long way refuses, and says why.  The rules for both forms stand
in `_kernel`.
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
    UnexpectedOffsetError,
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
    BatchRun,
    ScanResult,
)

if TYPE_CHECKING:
    from distributedlog.records import _shim as cython
    from distributedlog.records._shim import (
        Py_buffer,
        PyBUF_READ,
        PyBUF_WRITABLE,
        PyBuffer_Release,
        PyMemoryView_FromMemory,
        PyObject_GetBuffer,
        PyType_GenericAlloc,
        set_item,
    )
else:
    try:
        import cython
    except ImportError:
        from distributedlog.records import _shim as cython
    if cython.compiled:
        from cython.cimports.cpython.buffer import (
            Py_buffer,
            PyBUF_READ,
            PyBUF_WRITABLE,
            PyBuffer_Release,
            PyObject_GetBuffer,
        )
        from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
        from cython.cimports.distributedlog.records._tuples import PyType_GenericAlloc, set_item

COMPILED: bool = cython.compiled

_HEADER_BYTES = cython.declare(cython.Py_ssize_t, HEADER_BYTES)
_LOG_OVERHEAD = cython.declare(cython.Py_ssize_t, LOG_OVERHEAD)
_ATTRIBUTES_AT = cython.declare(cython.Py_ssize_t, ATTRIBUTES_AT)
_MAGIC = cython.declare(cython.longlong, MAGIC)
_CODEC_MASK = cython.declare(cython.longlong, CODEC_MASK)
_CONTROL_BIT = cython.declare(cython.longlong, CONTROL_BIT)
_CODEC_MAX = cython.declare(cython.longlong, int(CODEC_MAX))
_unpack = HEADER_STRUCT.unpack_from
_pack_offset = struct.Struct(">q").pack_into
_pack_epoch = struct.Struct(">i").pack_into
_new = tuple.__new__
_crc32c = crc32c
_BatchHeader = BatchHeader
_HEADER_TYPE = cython.declare(type, BatchHeader)


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
    if cython.compiled:
        placed: BatchHeader | None = _place_sound(
            buffer, position, base_offset, leader_epoch, bytes_max, records_max, oldest_ms, newest_ms,
            is_control_allowed,
        )  # fmt: skip
        if placed is not None:
            return placed
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


@cython.cfunc
def _place_sound(
    buffer: Any,
    position: cython.Py_ssize_t,
    base_offset: cython.longlong,
    leader_epoch: cython.longlong,
    bytes_max: cython.longlong,
    records_max: cython.longlong,
    oldest_ms: Any,
    newest_ms: Any,
    is_control_allowed: cython.bint,
) -> Any:
    """The header of a batch with which all is well; None for any other, or for what cannot be written to."""
    view = cython.declare(Py_buffer)
    data = cython.declare(cython.p_uchar)
    size: cython.longlong
    header: Any = None
    try:
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_WRITABLE)
    except BufferError:
        return None
    try:
        if position >= 0 and view.len - position >= _HEADER_BYTES and leader_epoch >> 31 in (0, -1):
            data = cython.cast(cython.p_uchar, view.buf) + position
            _write_number(data, 8, base_offset)
            _write_number(data + 12, 4, leader_epoch)
            size = _LOG_OVERHEAD + _read_number(data + 8, 4)
            if size <= bytes_max and size <= view.len - position:
                header = _read_sound(data, size, records_max, is_control_allowed)
    finally:
        PyBuffer_Release(cython.address(view))
    if header is not None and header[8] >= 0 and (header[8] > newest_ms or header[7] < oldest_ms):
        return None
    return header


@cython.cfunc
def _read_sound(
    data: cython.p_uchar,
    size: cython.longlong,
    records_max: cython.longlong,
    is_control_allowed: cython.bint,
) -> Any:
    """The header of a new batch of this size, whose bytes are all there; None if something is wrong.

    The fields stand where `layout` says.
    """
    base_offset: cython.longlong = _read_number(data, 8)
    attributes: cython.longlong = _read_number(data + 21, 2)
    last_delta: cython.longlong = _read_number(data + 23, 4)
    count: cython.longlong = _read_number(data + 57, 4)
    crc: cython.longlong = _read_number(data + 17, 4) & 0xFFFFFFFF
    if (
        data[16] != _MAGIC
        or size < _HEADER_BYTES
        or last_delta < 0
        or count != last_delta + 1
        or count > records_max
        or base_offset < 0
        or base_offset >= 0x7FFFFFFFFFFFFFFF - last_delta
        or (attributes & _CODEC_MASK) > _CODEC_MAX
        or (attributes & _CONTROL_BIT and not is_control_allowed)
    ):
        return None
    checked = PyMemoryView_FromMemory(
        cython.cast(cython.p_char, data + _ATTRIBUTES_AT), size - _ATTRIBUTES_AT, PyBUF_READ
    )
    if _crc32c(checked) != crc:
        return None
    header = PyType_GenericAlloc(_HEADER_TYPE, 13)
    set_item(header, 0, base_offset)
    set_item(header, 1, size - _LOG_OVERHEAD)
    set_item(header, 2, _read_number(data + 12, 4))
    set_item(header, 3, _MAGIC)
    set_item(header, 4, crc)
    set_item(header, 5, attributes)
    set_item(header, 6, last_delta)
    set_item(header, 7, _read_number(data + 27, 8))
    set_item(header, 8, _read_number(data + 35, 8))
    set_item(header, 9, _read_number(data + 43, 8))
    set_item(header, 10, _read_number(data + 51, 2))
    set_item(header, 11, _read_number(data + 53, 4))
    set_item(header, 12, count)
    return header


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _read_number(data: cython.p_uchar, size: cython.Py_ssize_t) -> cython.longlong:
    """A number of `size` bytes, big-endian and signed."""
    at: cython.Py_ssize_t
    value: cython.ulonglong = 0
    for at in range(size):
        value = (value << 8) | data[at]
    number: cython.longlong = cython.cast(cython.longlong, value << (64 - 8 * size)) >> (64 - 8 * size)
    return number


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_number(data: cython.p_uchar, size: cython.Py_ssize_t, number: cython.longlong) -> cython.void:
    at: cython.Py_ssize_t
    for at in range(size):
        data[size - 1 - at] = (number >> (8 * at)) & 0xFF


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


def check_replicated_batches(
    buffer: Buffer, end_offset: int, leader_epoch: int, bytes_max: int, records_max: int
) -> BatchRun:
    """Checks batches that come with their offsets, up to the first one of an epoch above `leader_epoch`, or
    one behind the first that is cut off.

    Each must be whole and have its checksum, and begin at `end_offset` or after, and after the one before.
    """
    headers: list[BatchHeader] = []
    view = memoryview(buffer)
    position: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(view)
    size: cython.longlong
    next_offset: cython.longlong = end_offset
    base_offset: cython.longlong
    epoch: cython.longlong
    epoch_max: cython.longlong = -1
    has_producers: cython.bint = False
    while position < end:
        if headers and end - position < _HEADER_BYTES:
            break
        fields = _read_fields(view, position)
        size = _LOG_OVERHEAD + fields[1]
        if headers and size > end - position:
            break
        if (
            size > bytes_max
            or fields[12] > records_max
            or size > end - position
            or _crc32c(view[position + _ATTRIBUTES_AT : position + size]) != fields[4]
        ):
            check_whole_batch(buffer, position, bytes_max, records_max, True)  # raises, and says why
        epoch = fields[2]
        if epoch > leader_epoch:
            break
        base_offset = fields[0]
        if base_offset < next_offset:
            raise UnexpectedOffsetError(
                f"a batch starts at offset {base_offset}; the log ends at {next_offset}"
            )
        next_offset = base_offset + fields[6] + 1
        if epoch > epoch_max:
            epoch_max = epoch
        if fields[9] >= 0:
            has_producers = True
        headers.append(_new(_BatchHeader, fields))
        position += size
    return BatchRun(headers, position, epoch_max, has_producers)
