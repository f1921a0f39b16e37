# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""The inner loops that look at records without making anything of them.

`count_keyless` says whether every frame of a section is sound; it accepts exactly what `decode_records`
decodes.  `find_timestamp` finds a record by its time; of other records it reads no more than their sizes,
times and offsets.  A walk holds no object and needs no interpreter lock, so that a
large section can be walked on another thread while the loop serves others.  What is wrong it does not say:
the caller asks `_kernel`'s cursor, which raises the error.  The rules for both forms are in `_kernel`.

A walk returns -1 (UNSOUND) at the first flaw.  A number that is read comes back as `16 * value + bytes`; 0
where it is cut off, or has too many bits.
"""

from typing import TYPE_CHECKING

from distributedlog.model.buffers import Buffer
from distributedlog.records.layout import RECORD_BYTES_MIN, BatchHeader

if TYPE_CHECKING:
    from distributedlog.records import _shim as cython
    from distributedlog.records._shim import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
else:
    try:
        import cython
    except ImportError:
        from distributedlog.records import _shim as cython
    if cython.compiled:
        from cython.cimports.cpython.buffer import (
            Py_buffer,
            PyBUF_SIMPLE,
            PyBuffer_Release,
            PyObject_GetBuffer,
        )

COMPILED: bool = cython.compiled

UNSOUND = -1
ABSENT = -2
_RECORD_BYTES_MIN = cython.declare(cython.Py_ssize_t, RECORD_BYTES_MIN)


def count_keyless(
    buffer: Buffer, start: int, end: int, header: BatchHeader, headers_max: int, releases_lock: bool
) -> int:
    """Returns how many records have no key, or UNSOUND if one of them cannot be decoded.

    The records are those between `start` and `end`.  It runs for every append, so it takes no slice.
    """
    first: cython.Py_ssize_t = start
    limit: cython.Py_ssize_t = end
    count: cython.longlong = header[12]
    last_delta: cython.longlong = header[6]
    headers: cython.longlong = headers_max
    keyless: cython.longlong
    if not 0 <= first <= limit <= len(buffer):
        return UNSOUND
    if not cython.compiled:
        return _walk(memoryview(buffer)[first:limit], limit - first, count, last_delta, headers)
    view = cython.declare(Py_buffer)
    data = cython.declare(cython.p_const_uchar)
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    data = cython.cast(cython.p_const_uchar, view.buf) + first
    if releases_lock:
        with cython.nogil:
            keyless = _walk(data, limit - first, count, last_delta, headers)
    else:
        keyless = _walk(data, limit - first, count, last_delta, headers)
    PyBuffer_Release(cython.address(view))
    return keyless


def find_timestamp(
    section: Buffer, header: BatchHeader, timestamp_ms: int, start: int, end_offset: int, newest: bool
) -> tuple[int, int]:
    """Finds the first record at or after a time with an offset from `start` up to `end_offset`; the first of
    the highest timestamp among those if `newest`.

    Returns its offset and its timestamp; for the offset UNSOUND if a frame up to it is not sound, ABSENT if
    there is none.  Other threads run meanwhile.
    """
    view = cython.declare("const unsigned char[::1]")
    data = cython.declare("const unsigned char *")
    end: cython.Py_ssize_t = len(section)
    count: cython.longlong = header.record_count
    append_time: cython.bint = header.is_log_append_time
    base: cython.longlong = header.max_timestamp if append_time else header.base_timestamp
    least: cython.longlong = timestamp_ms
    base_offset: cython.longlong = header.base_offset
    low: cython.longlong = max(start - base_offset, 0)
    high: cython.longlong = min(end_offset - base_offset, header.last_offset_delta + 1)
    takes_newest: cython.bint = newest
    at: cython.Py_ssize_t
    number: cython.longlong
    if count <= 0:
        return ABSENT, 0
    if end == 0:
        return UNSOUND, 0
    view = section
    if cython.compiled:  # noqa: SIM108 - the compiler takes one branch
        data = cython.address(view[0])
    else:
        data = section
    with cython.nogil:
        at = _find(data, end, count, base, append_time, least, low, high, takes_newest)
    if at < 0:
        return at, 0
    at += 1 + (_number(data, at, end) & 15)
    number = base if append_time else _add64(base, _long_value(data, at, end))
    return base_offset + (_number(data, at + _long_bytes(data, at, end), end) >> 4), number


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _find(
    data: cython.p_const_uchar,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base: cython.longlong,
    append_time: cython.bint,
    least: cython.longlong,
    low: cython.longlong,
    high: cython.longlong,
    newest: cython.bint,
) -> cython.Py_ssize_t:
    """Where the record begins."""
    at: cython.Py_ssize_t = 0
    found: cython.Py_ssize_t = -2
    begin: cython.Py_ssize_t
    limit: cython.Py_ssize_t
    number: cython.longlong
    timestamp: cython.longlong = base
    highest: cython.longlong = base
    previous: cython.longlong = -1
    if count > end // _RECORD_BYTES_MIN:
        return -1
    while count > 0:
        count -= 1
        begin = at
        number = _number(data, at, end)
        if (number & 15) == 0:
            return -1
        at += number & 15
        number >>= 4
        if number < _RECORD_BYTES_MIN - 1 or number > end - at:
            return -1
        limit = at + number
        number = _long_bytes(data, at + 1, limit)
        if number == 0:
            return -1
        if not append_time:
            timestamp = _add64(base, _long_value(data, at + 1, limit))
        number = _number(data, at + 1 + number, limit)
        if (number & 15) == 0:
            return -1
        number >>= 4
        if number <= previous:
            return -1
        previous = number
        if number >= high:
            break
        if number >= low and timestamp >= least and (found < 0 or timestamp > highest):
            found = begin
            highest = timestamp
            if not newest:
                break
        at = limit
    return found


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk(
    data: cython.p_const_uchar,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    last_delta: cython.longlong,
    headers_max: cython.longlong,
) -> cython.longlong:
    at: cython.Py_ssize_t
    limit: cython.Py_ssize_t = 0
    previous: cython.longlong = -1
    keyless: cython.longlong = 0
    number: cython.longlong
    if count > end // _RECORD_BYTES_MIN:
        return -1
    while count > 0:
        count -= 1
        # Where a record begins depends on the size of the one before alone, not on what is inside it: the
        # processor looks at several at a time.
        at = limit
        number = _number(data, at, end)
        if (number & 15) == 0:
            return -1
        at += number & 15
        number >>= 4
        if number < _RECORD_BYTES_MIN - 1 or number > end - at:
            return -1
        limit = at + number
        number = _long_bytes(data, at + 1, limit)
        if number == 0:
            return -1
        at += 1 + number
        number = _number(data, at, limit)
        if (number & 15) == 0:
            return -1
        at += number & 15
        number >>= 4
        if number <= previous or number > last_delta:
            return -1
        previous = number
        number = _field(data, at, limit)
        if number == 0:
            return -1
        if number < 0:
            keyless += 1
            number = -number
        at += number
        number = _field(data, at, limit)
        if number == 0:
            return -1
        at += number if number > 0 else -number
        if at == limit - 1 and data[at] == 0:  # no headers, as most
            continue
        if not _are_headers(data, at, limit, headers_max):
            return -1
    return keyless if limit == end else -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _are_headers(
    data: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    limit: cython.Py_ssize_t,
    headers_max: cython.longlong,
) -> cython.bint:
    """Whether a count of headers stands here, and they take all up to `limit`."""
    number: cython.longlong = _number(data, at, limit)
    headers: cython.longlong = number >> 4
    if (number & 15) == 0:
        return False
    at += number & 15
    if headers < 0 or headers > (limit - at) // 2 or headers > headers_max:
        return False
    while headers > 0:
        headers -= 1
        number = _field(data, at, limit)
        if number <= 0:  # a header has a key
            return False
        at += number
        number = _field(data, at, limit)
        if number == 0:
            return False
        at += number if number > 0 else -number
    return at == limit


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _field(data: cython.p_const_uchar, at: cython.Py_ssize_t, limit: cython.Py_ssize_t) -> cython.longlong:
    """The bytes of a field with its length; those of the length, negative, for null; 0 if it is unsound."""
    number: cython.longlong = _number(data, at, limit)
    size: cython.longlong = number & 15
    number >>= 4
    if size == 0 or number < -1 or number > limit - at - size:
        return 0
    return -size if number < 0 else size + number


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _number(data: cython.p_const_uchar, at: cython.Py_ssize_t, limit: cython.Py_ssize_t) -> cython.longlong:
    """A zigzag number of 32 bits.  Most are one byte, and nearly all others two."""
    value: cython.longlong
    byte: cython.longlong
    if at < limit:
        value = data[at]
        if value < 0x80:
            return ((value >> 1) ^ -(value & 1)) * 16 + 1
        if at + 1 < limit:
            byte = data[at + 1]
            if byte < 0x80:
                value = (value & 0x7F) | (byte << 7)
                return ((value >> 1) ^ -(value & 1)) * 16 + 2
    return _long_number(data, at, limit)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _long_number(
    data: cython.p_const_uchar, at: cython.Py_ssize_t, limit: cython.Py_ssize_t
) -> cython.longlong:
    value: cython.longlong = 0
    size: cython.longlong = 0
    byte: cython.longlong
    while at + size < limit and size < 5:
        byte = data[at + size]
        if size == 4 and byte > 0x0F:
            return 0
        value |= (byte & 0x7F) << (7 * size)
        size += 1
        if byte < 0x80:
            return ((value >> 1) ^ -(value & 1)) * 16 + size
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _long_bytes(
    data: cython.p_const_uchar, at: cython.Py_ssize_t, limit: cython.Py_ssize_t
) -> cython.longlong:
    """How many bytes a number of 64 bits takes; 0 if it is unsound."""
    size: cython.longlong = 0
    byte: cython.longlong
    if at < limit and data[at] < 0x80:
        return 1
    while at + size < limit and size < 10:
        byte = data[at + size]
        size += 1
        if size == 10 and byte > 0x01:
            return 0
        if byte < 0x80:
            return size
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _long_value(
    data: cython.p_const_uchar, at: cython.Py_ssize_t, limit: cython.Py_ssize_t
) -> cython.longlong:
    """A zigzag number of 64 bits that `_long_bytes` found sound."""
    value: cython.ulonglong = 0
    half: cython.longlong
    shift: cython.longlong = 0
    byte: cython.ulonglong
    while at < limit:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    half = value >> 1
    return -half - 1 if value & 1 else half


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _add64(left: cython.longlong, right: cython.longlong) -> cython.longlong:
    """The sum as 64 bits keep it, as in `_kernel`."""
    first: cython.ulonglong = left
    second: cython.ulonglong = right
    total: cython.ulonglong = first + second
    if not cython.compiled:
        total &= 0xFFFFFFFFFFFFFFFF
        total -= (total >> 63) << 64
    return total
