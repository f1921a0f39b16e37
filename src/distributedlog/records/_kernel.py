# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""The inner loops that read records: to objects, spans, columns.  Compiled by Cython or run as it stands.

| part | used by |
|---|---|
| `Cursor`, which walks the records of a section; `decode_records`, `find_spans`, ... | `record` |
| `BinarySink`, `ColumnWriter`: records to Arrow buffers with no object for a record | `arrow` |

What writes is in `_kernel_write`, what walks batches in `_kernel_scan`.

`cython.longlong` and its like are C types when compiled and `int` when interpreted.  Where the two forms
must differ (pointers, arithmetic that wraps at 64 bits) the code asks `cython.compiled`, which is a constant
to the compiler.  Arrow's buffers are little-endian, as are the machines this runs on.

Input is hostile.  The compiled form checks no index by itself, so every read and write here stands behind
its own comparison with the end of what may be touched, and nothing is allocated by a count that the bytes
could not back: a record takes at least 7 bytes, a header at least 2.  Both forms raise the same errors.
"""

from typing import TYPE_CHECKING, Any

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import InvalidRecordError
from distributedlog.records._kernel_write import varint_bytes
from distributedlog.records.layout import RECORD_BYTES_MIN, BatchHeader, Header, Record, RecordSpan

if TYPE_CHECKING:
    from distributedlog.records import _shim as cython
    from distributedlog.records._shim import PyObject_GC_UnTrack, PyType_GenericAlloc, memcpy, set_item
else:
    try:
        import cython
    except ImportError:
        from distributedlog.records import _shim as cython
    if cython.compiled:
        from cython.cimports.distributedlog.records._tuples import (
            PyObject_GC_UnTrack,
            PyType_GenericAlloc,
            set_item,
        )
        from cython.cimports.libc.string import memcpy

COMPILED: bool = cython.compiled

# Constants as C numbers: to the compiled form an imported name is a Python object.
_RECORD_BYTES_MIN = cython.declare(cython.Py_ssize_t, RECORD_BYTES_MIN)
_NO_TIMESTAMP = cython.declare(cython.longlong, -1)  # layout.NO_TIMESTAMP
_RECORD_TYPE = cython.declare(type, Record)
_NO_HEADERS: tuple[Header, ...] = ()


# --- reading records ---------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _add64(left: cython.longlong, right: cython.longlong) -> cython.longlong:
    """The sum as 64 bits keep it: timestamps wrap around in Kafka's arithmetic, and so here."""
    first: cython.ulonglong = left
    second: cython.ulonglong = right
    total: cython.ulonglong = first + second
    if not cython.compiled:
        total &= 0xFFFFFFFFFFFFFFFF
        total -= (total >> 63) << 64
    return total


@cython.final
@cython.cclass
class Cursor:
    """Walks the records of a decompressed section.  Reads nothing at or behind `limit`."""

    view = cython.declare("const unsigned char[::1]")
    data = cython.declare("const unsigned char *")
    position: cython.Py_ssize_t
    limit: cython.Py_ssize_t
    end: cython.Py_ssize_t
    headers_max: cython.longlong
    last_offset_delta: cython.longlong

    record_start: cython.Py_ssize_t
    timestamp_delta: cython.longlong
    timestamp_end: cython.Py_ssize_t
    offset_delta: cython.longlong
    key_start: cython.Py_ssize_t
    key_length: cython.Py_ssize_t
    value_start: cython.Py_ssize_t
    value_length: cython.Py_ssize_t
    header_count: cython.longlong

    def __init__(self, section: Buffer, header: BatchHeader, headers_max: int) -> None:
        self.view = section
        if cython.compiled:
            self.data = cython.address(self.view[0])
            self.end = self.view.shape[0]
        else:
            self.data = section
            self.end = len(section)
        self.position = 0
        self.limit = self.end
        self.headers_max = headers_max
        self.last_offset_delta = header.last_offset_delta
        self.offset_delta = -1
        if header.record_count > self.end // _RECORD_BYTES_MIN:
            raise InvalidRecordError(
                f"{self.end} bytes cannot hold the {header.record_count} records claimed"
            )

    @cython.cfunc
    @cython.exceptval(-2147483649, check=True)
    def long_varint(self, last_shift: cython.Py_ssize_t) -> cython.longlong:
        """A varint of several bytes; the one at `last_shift` holds only the bits that the type has left."""
        value: cython.ulonglong = 0
        shift: cython.Py_ssize_t = 0
        byte: cython.ulonglong
        while True:
            if self.position >= self.limit:
                raise InvalidRecordError("a number runs past the end of its record")
            byte = self.data[self.position]
            self.position += 1
            if shift == last_shift and byte > (0x0F if last_shift == 28 else 0x01):
                raise InvalidRecordError("a number has more bits than its type")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2147483649, check=True)
    def varint(self, last_shift: cython.Py_ssize_t) -> cython.longlong:
        """A zigzag number of 32 bits (`last_shift` 28) or of 64 (63).  Most are one byte."""
        byte: cython.longlong
        if self.position < self.limit:
            byte = self.data[self.position]
            if byte < 0x80:
                self.position += 1
                return (byte >> 1) ^ -(byte & 1)
        return self.long_varint(last_shift)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2)
    def skip_bytes(self) -> cython.Py_ssize_t:
        """The length of the bytes at hand, -1 for null, with the position moved behind them."""
        length: cython.longlong = self.varint(28)
        if length < 0:
            if length != -1:
                raise InvalidRecordError(f"a length of {length} in a record")
            return -1
        if length > self.limit - self.position:
            raise InvalidRecordError(f"a field of {length} bytes runs past the end of its record")
        self.position += length
        return length

    @cython.cfunc
    @cython.exceptval(-1)
    def next_record(self) -> cython.bint:
        """Reads up to the headers, which the caller takes or skips; then `end_record`."""
        length: cython.longlong
        previous: cython.longlong = self.offset_delta
        self.record_start = self.position
        self.limit = self.end
        length = self.varint(28)
        if length < _RECORD_BYTES_MIN - 1 or length > self.end - self.position:
            raise InvalidRecordError(
                f"a record claims {length} bytes where {self.end - self.position} follow"
            )
        self.limit = self.position + length
        self.position += 1
        self.timestamp_delta = self.varint(63)
        self.timestamp_end = self.position
        self.offset_delta = self.varint(28)
        if self.offset_delta <= previous or self.offset_delta > self.last_offset_delta:
            raise InvalidRecordError(
                f"offset delta {self.offset_delta} after {previous}, with {self.last_offset_delta} the last"
            )
        self.key_length = self.skip_bytes()
        self.key_start = self.position - (self.key_length if self.key_length > 0 else 0)
        self.value_length = self.skip_bytes()
        self.value_start = self.position - (self.value_length if self.value_length > 0 else 0)
        self.header_count = self.varint(28)
        if self.header_count != 0:
            self.check_header_count()
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def check_header_count(self) -> cython.bint:
        room: cython.Py_ssize_t = (self.limit - self.position) // 2
        if self.header_count < 0 or self.header_count > room or self.header_count > self.headers_max:
            raise InvalidRecordError(f"a record claims {self.header_count} headers")
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def next_header(self) -> cython.bint:
        """Reads a header into the fields that a record's key and value have."""
        self.key_length = self.skip_bytes()
        if self.key_length < 0:
            raise InvalidRecordError("a record header has no key")
        self.key_start = self.position - self.key_length
        self.value_length = self.skip_bytes()
        self.value_start = self.position - (self.value_length if self.value_length > 0 else 0)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def end_record(self) -> cython.bint:
        if self.position != self.limit:
            raise InvalidRecordError(f"a record has {self.limit - self.position} bytes more than its fields")
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def skip_headers(self) -> cython.bint:
        while self.header_count > 0:
            self.next_header()
            self.header_count -= 1
        return self.end_record()

    @cython.cfunc
    @cython.exceptval(-1)
    def end_section(self) -> cython.bint:
        if self.position != self.end:
            raise InvalidRecordError(f"{self.end - self.position} bytes follow the last record of a batch")
        return True

    @cython.cfunc
    @cython.inline
    def taken(self, start: cython.Py_ssize_t, length: cython.Py_ssize_t) -> Any:
        """Returns those bytes as an object, or None for a length of -1."""
        if length < 0:
            return None
        if cython.compiled:
            return self.data[start : start + length]
        return bytes(self.data[start : start + length])

    @cython.cfunc
    def taken_headers(self) -> Any:
        headers: list[Header] = []
        while self.header_count > 0:
            self.next_header()
            key = self.taken(self.key_start, self.key_length).decode("utf-8", "replace")
            header = tuple.__new__(Header, (key, self.taken(self.value_start, self.value_length)))
            if cython.compiled:
                PyObject_GC_UnTrack(header)
            headers.append(header)
            self.header_count -= 1
        return tuple(headers)


@cython.cfunc
@cython.inline
def _new_record(value: Any, key: Any, headers: Any, timestamp_ms: Any, offset: Any) -> Any:
    """`Record(...)` without a Python call: a named tuple is a tuple with a type of its own.

    The garbage collector need not look at it, since nothing in it refers to other objects.
    """
    if not cython.compiled:
        return tuple.__new__(Record, (value, key, headers, timestamp_ms, offset))
    record = PyType_GenericAlloc(_RECORD_TYPE, 5)
    set_item(record, 0, value)
    set_item(record, 1, key)
    set_item(record, 2, headers)
    set_item(record, 3, timestamp_ms)
    set_item(record, 4, offset)
    PyObject_GC_UnTrack(record)
    return record


@cython.cfunc
@cython.inline
def _new_placed(place: Any, offset: Any, time: Any, key: Any, value: Any, headers: Any) -> Any:
    kind, topic, partition = place
    if not cython.compiled:
        return tuple.__new__(kind, (topic, partition, offset, time, key, value, headers))
    record = PyType_GenericAlloc(kind, 7)
    set_item(record, 0, topic)
    set_item(record, 1, partition)
    set_item(record, 2, offset)
    set_item(record, 3, time)
    set_item(record, 4, key)
    set_item(record, 5, value)
    set_item(record, 6, headers)
    PyObject_GC_UnTrack(record)
    return record


def decode_records(
    section: Buffer, header: BatchHeader, headers_max: int, place: tuple[type, str, int] | None = None
) -> list[Any]:
    """Makes `Record`s, or named tuples of a place's type: its topic and partition are in front."""
    cursor: Cursor = Cursor(section, header, headers_max)
    records: list[Any] = []
    base_offset: cython.longlong = header.base_offset
    append_time: cython.bint = header.is_log_append_time
    base: cython.longlong = header.max_timestamp if append_time else header.base_timestamp
    timestamp: cython.longlong = base
    left: cython.longlong = header.record_count
    while left > 0:
        cursor.next_record()
        key = cursor.taken(cursor.key_start, cursor.key_length)
        value = cursor.taken(cursor.value_start, cursor.value_length)
        if not append_time:
            timestamp = _add64(base, cursor.timestamp_delta)
        headers = cursor.taken_headers() if cursor.header_count else _NO_HEADERS
        cursor.end_record()
        offset = base_offset + cursor.offset_delta
        if place is None:
            records.append(_new_record(value, key, headers, timestamp, offset))
        else:
            records.append(_new_placed(place, offset, timestamp, key, value, headers))
        left -= 1
    cursor.end_section()
    return records


def find_spans(section: Buffer, header: BatchHeader, headers_max: int) -> list[RecordSpan]:
    cursor: Cursor = Cursor(section, header, headers_max)
    spans: list[RecordSpan] = []
    append_time: cython.bint = header.is_log_append_time
    base: cython.longlong = header.max_timestamp if append_time else header.base_timestamp
    timestamp: cython.longlong = base
    left: cython.longlong = header.record_count
    has_value: cython.bint
    while left > 0:
        cursor.next_record()
        key = cursor.taken(cursor.key_start, cursor.key_length)
        has_value = cursor.value_length >= 0
        if not append_time:
            timestamp = _add64(base, cursor.timestamp_delta)
        cursor.skip_headers()
        fields = (cursor.offset_delta, timestamp, key, has_value, cursor.record_start, cursor.position)
        spans.append(tuple.__new__(RecordSpan, fields))
        left -= 1
    cursor.end_section()
    return spans


def find_keyless(
    section: Buffer, header: BatchHeader, headers_max: int, named_max: int
) -> tuple[int, list[int]]:
    """How many records have no key, and which are the first of them.  Makes nothing of the others."""
    cursor: Cursor = Cursor(section, header, headers_max)
    named: list[int] = []
    at: cython.longlong = 0
    keyless: cython.longlong = 0
    count: cython.longlong = header.record_count
    room: cython.longlong = named_max
    while at < count:
        cursor.next_record()
        if cursor.key_length < 0:
            keyless += 1
            if keyless <= room:
                named.append(at)
        cursor.skip_headers()
        at += 1
    cursor.end_section()
    return keyless, named


def rebase_timestamps(
    section: Buffer, header: BatchHeader, base_timestamp: int, headers_max: int
) -> bytearray:
    """The same records with their timestamp deltas counted from another base."""
    cursor: Cursor = Cursor(section, header, headers_max)
    view = memoryview(section)
    output = bytearray()
    shift: cython.longlong = (header.base_timestamp - base_timestamp + (1 << 63)) % (1 << 64) - (1 << 63)
    left: cython.longlong = header.record_count
    while left > 0:
        cursor.next_record()
        cursor.skip_headers()
        delta = varint_bytes(_add64(cursor.timestamp_delta, shift))
        output += varint_bytes(1 + len(delta) + cursor.limit - cursor.timestamp_end)
        output += b"\0"
        output += delta
        output += view[cursor.timestamp_end : cursor.limit]
        left -= 1
    cursor.end_section()
    return output


# --- records to columns ------------------------------------------------------------------------


@cython.cfunc
def _mended_key(cursor: Cursor) -> Any:
    """The header key at hand as UTF-8 if it has bytes that are not ASCII, else None: it is fine as it is."""
    index: cython.Py_ssize_t
    for index in range(cursor.key_start, cursor.key_start + cursor.key_length):
        if cursor.data[index] >= 0x80:
            return cursor.taken(cursor.key_start, cursor.key_length).decode("utf-8", "replace").encode()
    return None


def measure_columns(
    section: Buffer,
    header: BatchHeader,
    headers_max: int,
    from_offset: int,
    to_offset: int,
    with_headers: bool,
) -> tuple[int, int, int, int, int, int]:
    """Rows, bytes of keys, bytes of values, headers, bytes of their keys and of their values."""
    cursor: Cursor = Cursor(section, header, headers_max)
    from_delta: cython.longlong = from_offset - header.base_offset
    to_delta: cython.longlong = to_offset - header.base_offset
    take_headers: cython.bint = with_headers
    left: cython.longlong = header.record_count
    rows: cython.longlong = 0
    key_bytes: cython.longlong = 0
    value_bytes: cython.longlong = 0
    header_rows: cython.longlong = 0
    header_key_bytes: cython.longlong = 0
    header_value_bytes: cython.longlong = 0
    while left > 0:
        left -= 1
        cursor.next_record()
        if from_delta <= cursor.offset_delta < to_delta:
            rows += 1
            key_bytes += cursor.key_length if cursor.key_length > 0 else 0
            value_bytes += cursor.value_length if cursor.value_length > 0 else 0
            while take_headers and cursor.header_count > 0:
                cursor.header_count -= 1
                cursor.next_header()
                mended = _mended_key(cursor)
                header_rows += 1
                header_key_bytes += cursor.key_length if mended is None else len(mended)
                header_value_bytes += cursor.value_length if cursor.value_length > 0 else 0
        cursor.skip_headers()
    cursor.end_section()
    return rows, key_bytes, value_bytes, header_rows, header_key_bytes, header_value_bytes


@cython.final
@cython.cclass
class BinarySink:
    """A column of bytes in Arrow's form: offsets, data, and a bitmap (all ones at first) for nulls."""

    offsets = cython.declare("int[::1]")
    data = cython.declare("unsigned char[::1]")
    validity = cython.declare("unsigned char[::1]")
    rows: cython.Py_ssize_t
    rows_max: cython.Py_ssize_t
    used: cython.Py_ssize_t
    data_bytes: cython.Py_ssize_t
    nulls: cython.Py_ssize_t

    def __init__(self, offsets: memoryview, data: memoryview, validity: memoryview) -> None:
        self.offsets = offsets
        self.data = data
        self.validity = validity
        self.rows = self.used = self.nulls = 0
        self.rows_max = len(offsets) - 1
        self.data_bytes = len(data)
        if self.rows_max < 0 or len(validity) < (self.rows_max + 7) // 8:
            raise ValueError("the buffers of a column do not fit each other")
        self.offsets[0] = 0

    def row_count(self) -> int:
        return self.rows

    def null_count(self) -> int:
        return self.nulls

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def add(self, cursor: Cursor, start: cython.Py_ssize_t, length: cython.Py_ssize_t) -> cython.bint:
        """Adds bytes of the cursor's section, or null for a length of -1."""
        row: cython.Py_ssize_t = self.rows
        if row >= self.rows_max or length > self.data_bytes - self.used:
            raise InvalidRecordError("a batch changed while it was read")
        if length > 0:
            if cython.compiled:
                memcpy(cython.address(self.data[self.used]), cursor.data + start, length)
            else:
                self.data[self.used : self.used + length] = cursor.data[start : start + length]
            self.used += length
        elif length < 0:
            self.validity[row >> 3] &= 0xFF ^ (1 << (row & 7))
            self.nulls += 1
        self.rows = row + 1
        self.offsets[row + 1] = self.used
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def add_object(self, value: bytes) -> cython.bint:
        size: cython.Py_ssize_t = len(value)
        if self.rows >= self.rows_max or size > self.data_bytes - self.used:
            raise InvalidRecordError("a batch changed while it was read")
        index: cython.Py_ssize_t
        for index in range(size):
            self.data[self.used + index] = value[index]
        self.used += size
        self.rows += 1
        self.offsets[self.rows] = self.used
        return True


@cython.final
@cython.cclass
class ColumnWriter:
    """Fills the columns of an Arrow record batch from sections, one after the other.

    `header_lists` has the number of headers before each row; it is empty if headers are not wanted.
    """

    keys: BinarySink
    values: BinarySink
    header_keys: BinarySink
    header_values: BinarySink
    header_lists = cython.declare("int[::1]")
    timestamps = cython.declare("long long[::1]")
    offsets = cython.declare("long long[::1]")
    with_headers: cython.bint
    rows_max: cython.Py_ssize_t
    without_time: cython.Py_ssize_t

    def __init__(
        self,
        keys: BinarySink,
        values: BinarySink,
        header_keys: BinarySink,
        header_values: BinarySink,
        header_lists: memoryview,
        timestamps: memoryview,
        offsets: memoryview,
    ) -> None:
        self.keys, self.values = keys, values
        self.header_keys, self.header_values = header_keys, header_values
        self.header_lists = header_lists
        self.timestamps = timestamps
        self.offsets = offsets
        self.with_headers = len(header_lists) > 0
        self.rows_max = len(offsets)
        self.without_time = 0
        if len(timestamps) != self.rows_max or (self.with_headers and len(header_lists) != self.rows_max + 1):
            raise ValueError("the columns have different lengths")
        if self.with_headers:
            self.header_lists[0] = 0

    def without_time_count(self) -> int:
        """How many rows have no timestamp."""
        return self.without_time

    def add(
        self, section: Buffer, header: BatchHeader, headers_max: int, from_offset: int, to_offset: int
    ) -> None:
        cursor: Cursor = Cursor(section, header, headers_max)
        from_delta: cython.longlong = from_offset - header.base_offset
        to_delta: cython.longlong = to_offset - header.base_offset
        base_offset: cython.longlong = header.base_offset
        append_time: cython.bint = header.is_log_append_time
        base: cython.longlong = header.max_timestamp if append_time else header.base_timestamp
        timestamp: cython.longlong = base
        left: cython.longlong = header.record_count
        row: cython.Py_ssize_t = self.keys.rows
        while left > 0:
            left -= 1
            cursor.next_record()
            if from_delta <= cursor.offset_delta < to_delta:
                if row >= self.rows_max:
                    raise InvalidRecordError("a batch changed while it was read")
                self.keys.add(cursor, cursor.key_start, cursor.key_length)
                self.values.add(cursor, cursor.value_start, cursor.value_length)
                if not append_time:
                    timestamp = _add64(base, cursor.timestamp_delta)
                self.timestamps[row] = timestamp
                self.without_time += timestamp == _NO_TIMESTAMP
                self.offsets[row] = base_offset + cursor.offset_delta
                row += 1
                if self.with_headers:
                    if cursor.header_count > 0:
                        self.add_headers(cursor)
                    self.header_lists[row] = self.header_keys.rows
            cursor.skip_headers()
        cursor.end_section()

    @cython.cfunc
    @cython.exceptval(-1)
    def add_headers(self, cursor: Cursor) -> cython.bint:
        while cursor.header_count > 0:
            cursor.header_count -= 1
            cursor.next_header()
            mended = _mended_key(cursor)
            if mended is None:
                self.header_keys.add(cursor, cursor.key_start, cursor.key_length)
            else:
                self.header_keys.add_object(mended)
            self.header_values.add(cursor, cursor.value_start, cursor.value_length)
        return True
