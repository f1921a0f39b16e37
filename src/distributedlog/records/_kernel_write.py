# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""The inner loops that write: records and rows of columns to bytes.  Compiled by Cython or run as it stands.

| part | used by |
|---|---|
| `new_record`, which makes a `Record` | producers |
| `RecordEncoder` | `record` |
| `Ranges`, `RowEncoder`: Arrow buffers to records with no object for a record | `arrow` |

Both measure first and write then, into a buffer that is made once and at its size.  What is measured
cannot change in between: records are immutable, and the measure of rows is held against the buffer again
when they are written.  The rules for both forms stand in `_kernel`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distributedlog.model.errors import InvalidRecordError, RecordTooLargeError
from distributedlog.records.layout import HEADER_BYTES, INT32_MAX, INT64_MAX, Record

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

_HEADER_BYTES = cython.declare(cython.Py_ssize_t, HEADER_BYTES)
_INT32_MAX = cython.declare(cython.longlong, INT32_MAX)
_RECORD_TYPE = cython.declare(type, Record)
_NO_OFFSET = -1


# --- numbers -----------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(value: cython.longlong) -> cython.Py_ssize_t:
    sign: cython.longlong = value >> 63
    rest: cython.ulonglong = value
    size: cython.Py_ssize_t = 1
    rest = (rest << 1) ^ sign
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_varint(
    out: cython.p_uchar, position: cython.Py_ssize_t, value: cython.longlong
) -> cython.Py_ssize_t:
    """The position behind it."""
    sign: cython.longlong = value >> 63
    rest: cython.ulonglong = value
    rest = (rest << 1) ^ sign
    while rest >= 0x80:
        out[position] = (rest & 0x7F) | 0x80
        rest >>= 7
        position += 1
    out[position] = rest
    return position + 1


def varint_bytes(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    coded = bytearray()
    while rest >= 0x80:
        coded.append((rest & 0x7F) | 0x80)
        rest >>= 7
    coded.append(rest)
    return bytes(coded)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _subtract64(left: cython.longlong, right: cython.longlong) -> cython.longlong:
    first: cython.ulonglong = left
    second: cython.ulonglong = right
    total: cython.ulonglong = first - second
    if not cython.compiled:
        total &= 0xFFFFFFFFFFFFFFFF
        total -= (total >> 63) << 64
    return total


@cython.cfunc
@cython.inline
@cython.exceptval(-2147483649, check=True)
def _int64(value: Any) -> cython.longlong:
    if not cython.compiled and not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise OverflowError
    number: cython.longlong = value
    return number


# --- writing records ---------------------------------------------------------------------------


def new_record(value: Any, key: Any, headers: Any, timestamp_ms: Any) -> Any:
    """`Record(...)` without an offset, and without a Python call.

    The garbage collector need not look at it, since nothing in it refers to other objects.
    """
    if not cython.compiled:
        return tuple.__new__(Record, (value, key, headers, timestamp_ms, _NO_OFFSET))
    record = PyType_GenericAlloc(_RECORD_TYPE, 5)
    set_item(record, 0, value)
    set_item(record, 1, key)
    set_item(record, 2, headers)
    set_item(record, 3, timestamp_ms)
    set_item(record, 4, _NO_OFFSET)
    PyObject_GC_UnTrack(record)
    return record


def encode_records(
    records: Sequence[Record], base_offset: int, default_timestamp_ms: int, preserve_offsets: bool
) -> tuple[bytearray, int, int, int]:
    """Room for a header, then the records; and last offset delta, first and highest timestamp."""
    try:
        encoder: RecordEncoder = RecordEncoder(base_offset, default_timestamp_ms, preserve_offsets)
        output = encoder.encode(list(records))
    except OverflowError as error:
        raise InvalidRecordError("a timestamp or an offset has more than 64 bits") from error
    if len(output) == HEADER_BYTES:
        return output, -1, -1, -1
    return output, encoder.offset_delta, encoder.base_timestamp, encoder.highest_timestamp


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _field_size(field: Any) -> cython.Py_ssize_t:
    """The bytes that a key or value takes with its length."""
    size: cython.Py_ssize_t
    if field is None:
        return 1
    if not isinstance(field, bytes):
        raise InvalidRecordError(f"a record's key and value are bytes or None, not {type(field).__name__}")
    size = len(cython.cast(bytes, field))
    return _varint_size(size) + size


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _put_bytes(out: cython.p_uchar, position: cython.Py_ssize_t, value: bytes) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = len(value)
    if cython.compiled:
        memcpy(out + position, cython.cast(cython.p_uchar, value), size)
    else:
        out[position : position + size] = value
    return position + size


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _put_field(out: cython.p_uchar, position: cython.Py_ssize_t, field: Any) -> cython.Py_ssize_t:
    if field is None:
        return _put_varint(out, position, -1)
    position = _put_varint(out, position, len(cython.cast(bytes, field)))
    return _put_bytes(out, position, field)


def _encoded_headers(headers: Any) -> bytes:
    """The header count and the headers."""
    coded = bytearray(varint_bytes(len(headers)))
    for key, value in headers:
        if not isinstance(key, str):
            raise InvalidRecordError(f"a header's key is a str, not {type(key).__name__}")
        try:
            key_bytes = key.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecordError(f"the header key {key!r} has no UTF-8 form") from error
        coded += varint_bytes(len(key_bytes)) + key_bytes
        if value is None:
            coded += b"\x01"
        elif isinstance(value, bytes):
            coded += varint_bytes(len(value)) + value
        else:
            raise InvalidRecordError(f"a header's value is bytes or None, not {type(value).__name__}")
    return bytes(coded)


@cython.final
@cython.cclass
class RecordEncoder:
    """Measures all records, then writes them: the buffer is made once and at its size."""

    base_offset: cython.longlong
    default_timestamp: cython.longlong
    base_timestamp: cython.longlong
    highest_timestamp: cython.longlong
    preserve_offsets: cython.bint

    timestamp_delta: cython.longlong
    offset_delta: cython.longlong
    key: object
    value: object
    headers: object

    def __init__(self, base_offset: int, default_timestamp_ms: int, preserve_offsets: bool) -> None:
        self.base_offset = _int64(base_offset)
        self.default_timestamp = _int64(default_timestamp_ms)
        self.preserve_offsets = preserve_offsets

    @cython.cfunc
    @cython.exceptval(-1)
    def load(self, record: Any, index: cython.Py_ssize_t) -> cython.bint:
        previous: cython.longlong = self.offset_delta if index else -1
        timestamp: cython.longlong
        fields = cython.cast(tuple, record)
        self.value = fields[0]
        self.key = fields[1]
        self.headers = fields[2]
        timestamp = _int64(fields[3])
        if timestamp == -1:
            timestamp = self.default_timestamp
        if index == 0:
            self.base_timestamp = self.highest_timestamp = timestamp
        elif timestamp > self.highest_timestamp:
            self.highest_timestamp = timestamp
        self.timestamp_delta = _subtract64(timestamp, self.base_timestamp)
        self.offset_delta = index
        if self.preserve_offsets:
            self.offset_delta = _subtract64(_int64(fields[4]), self.base_offset)
        if self.offset_delta <= previous or self.offset_delta > _INT32_MAX:
            raise InvalidRecordError(
                f"record {index}: its offset is not after, or too far from, those before it"
            )
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def body_size(self, block: Any) -> cython.Py_ssize_t:
        size: cython.Py_ssize_t = 1 + _varint_size(self.timestamp_delta) + _varint_size(self.offset_delta)
        size += _field_size(self.key) + _field_size(self.value)
        return size + (1 if block is None else len(cython.cast(bytes, block)))

    @cython.cfunc
    @cython.exceptval(-1)
    def measure(self, records: list, blocks: list) -> cython.Py_ssize_t:  # type: ignore[type-arg]
        """The bytes of the batch.  Fills `blocks` with the coded headers of the records that have some."""
        total: cython.Py_ssize_t = _HEADER_BYTES
        size: cython.Py_ssize_t
        index: cython.Py_ssize_t
        for index in range(len(records)):
            record = records[index]
            if not isinstance(record, tuple) or len(record) != 5:
                raise InvalidRecordError(f"record {index} is a {type(record).__name__} and not a Record")
            self.load(record, index)
            block = None
            if self.headers:
                block = _encoded_headers(self.headers)
                blocks.append(block)
            size = self.body_size(block)
            total += _varint_size(size) + size
            if total > _INT32_MAX:
                raise RecordTooLargeError(f"the records make a batch of more than {INT32_MAX} bytes")
        return total

    @cython.ccall
    def encode(self, records: list) -> bytearray:  # type: ignore[type-arg]
        blocks: list = []  # type: ignore[type-arg]
        output = bytearray(self.measure(records, blocks))
        out: cython.p_uchar = output
        position: cython.Py_ssize_t = _HEADER_BYTES
        index: cython.Py_ssize_t
        blocks.reverse()
        for index in range(len(records)):
            self.load(records[index], index)
            block = blocks.pop() if self.headers else None
            position = _put_varint(out, position, self.body_size(block))
            out[position] = 0
            position = _put_varint(out, position + 1, self.timestamp_delta)
            position = _put_varint(out, position, self.offset_delta)
            position = _put_field(out, position, self.key)
            position = _put_field(out, position, self.value)
            position = _put_varint(out, position, 0) if block is None else _put_bytes(out, position, block)
        return output


# --- columns to records ------------------------------------------------------------------------


@cython.final
@cython.cclass
class Ranges:
    """A column of Arrow's variable-length kind: where each row's bytes, or each row's list, begins and ends.

    Rows behind the last are null: a column that is absent is one of no rows.
    """

    offsets = cython.declare("const int[::1]")
    data = cython.declare("const unsigned char[::1]")
    validity = cython.declare("const unsigned char[::1]")
    has_nulls: cython.bint
    first_bit: cython.Py_ssize_t
    rows: cython.Py_ssize_t
    end_max: cython.Py_ssize_t
    start: cython.Py_ssize_t

    def __init__(
        self, offsets: memoryview, data: memoryview, validity: memoryview, first_bit: int, end_max: int
    ) -> None:
        """`end_max`: how far offsets may point; for bytes, the length of `data`."""
        self.offsets = offsets
        self.data = data
        self.validity = validity
        self.has_nulls = len(validity) > 0
        self.first_bit = first_bit
        self.rows = len(offsets) - 1
        self.end_max = end_max
        self.start = 0
        if self.has_nulls and (first_bit < 0 or len(validity) * 8 < first_bit + self.rows):
            raise ValueError("the bitmap of a column is shorter than the column")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2)
    def length(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """-1 for null; else sets `start`."""
        end: cython.Py_ssize_t
        bit: cython.Py_ssize_t = row + self.first_bit
        if row >= self.rows:
            return -1
        if self.has_nulls and not (self.validity[bit >> 3] >> (bit & 7)) & 1:
            return -1
        self.start = self.offsets[row]
        end = self.offsets[row + 1]
        if self.start < 0 or end < self.start or end > self.end_max:
            raise InvalidRecordError(f"row {row} of an Arrow column points outside its data")
        return end - self.start

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def size(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The bytes that the row takes in a record, with its length."""
        length: cython.Py_ssize_t = self.length(row)
        return 1 if length < 0 else _varint_size(length) + length

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def put(
        self, out: cython.p_uchar, position: cython.Py_ssize_t, row: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        length: cython.Py_ssize_t = self.length(row)
        position = _put_varint(out, position, length)
        if length <= 0:
            return position
        if cython.compiled:
            memcpy(out + position, cython.address(self.data[self.start]), length)
        else:
            out[position : position + length] = self.data[self.start : self.start + length]
        return position + length


@cython.final
@cython.cclass
class RowEncoder:
    """Turns rows of columns into the records of batches, as many rows in each as fit."""

    keys: Ranges
    values: Ranges
    header_lists: Ranges
    header_keys: Ranges
    header_values: Ranges
    timestamps = cython.declare("const long long[::1]")
    default_timestamp: cython.longlong
    rows: cython.Py_ssize_t
    timestamp_rows: cython.Py_ssize_t
    first_row: cython.Py_ssize_t
    base_timestamp: cython.longlong
    highest_timestamp: cython.longlong

    def __init__(
        self,
        rows: int,
        keys: Ranges,
        values: Ranges,
        header_lists: Ranges,
        header_keys: Ranges,
        header_values: Ranges,
        timestamps: memoryview,
        default_timestamp_ms: int,
    ) -> None:
        """`timestamps` may be empty."""
        self.rows = rows
        self.keys, self.values = keys, values
        self.header_lists, self.header_keys, self.header_values = header_lists, header_keys, header_values
        self.timestamps = timestamps
        self.timestamp_rows = len(timestamps)
        self.default_timestamp = _int64(default_timestamp_ms)
        self.first_row = 0

    def timestamps_of_batch(self) -> tuple[int, int]:
        """The first and the highest of the batch that was encoded last."""
        return self.base_timestamp, self.highest_timestamp

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def timestamp(self, row: cython.Py_ssize_t) -> cython.longlong:
        timestamp: cython.longlong = self.timestamps[row] if row < self.timestamp_rows else -1
        return self.default_timestamp if timestamp == -1 else timestamp

    @cython.cfunc
    @cython.exceptval(-1)
    def headers_size(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        count: cython.Py_ssize_t = self.header_lists.length(row)
        size: cython.Py_ssize_t
        index: cython.Py_ssize_t
        if count <= 0:
            return 1
        size = _varint_size(count)
        for index in range(self.header_lists.start, self.header_lists.start + count):
            if self.header_keys.length(index) < 0:
                raise InvalidRecordError(f"row {row} has a header without a key")
            size += self.header_keys.size(index) + self.header_values.size(index)
        return size

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def body_size(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        size: cython.Py_ssize_t = 1 + _varint_size(_subtract64(self.timestamp(row), self.base_timestamp))
        size += _varint_size(row - self.first_row) + self.keys.size(row) + self.values.size(row)
        return size + self.headers_size(row)

    @cython.cfunc
    @cython.exceptval(-1)
    def put_row(
        self, out: cython.p_uchar, position: cython.Py_ssize_t, row: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        count: cython.Py_ssize_t
        index: cython.Py_ssize_t
        position = _put_varint(out, position, self.body_size(row))
        out[position] = 0
        position = _put_varint(out, position + 1, _subtract64(self.timestamp(row), self.base_timestamp))
        position = _put_varint(out, position, row - self.first_row)
        position = self.keys.put(out, position, row)
        position = self.values.put(out, position, row)
        count = max(0, self.header_lists.length(row))
        position = _put_varint(out, position, count)
        for index in range(self.header_lists.start, self.header_lists.start + count):
            position = self.header_keys.put(out, position, index)
            position = self.header_values.put(out, position, index)
        return position

    def encode(self, first_row: int, batch_bytes_max: int) -> tuple[bytearray, int]:
        """Room for a header, then records from `first_row` on; and the row behind the last of them."""
        row: cython.Py_ssize_t = first_row
        total: cython.Py_ssize_t = _HEADER_BYTES
        size: cython.Py_ssize_t
        bytes_max: cython.Py_ssize_t = min(batch_bytes_max, INT32_MAX)
        self.first_row = first_row
        self.base_timestamp = self.highest_timestamp = self.timestamp(row)
        while row < self.rows:
            size = self.body_size(row)
            size += _varint_size(size)
            if size > bytes_max - total:
                break
            total += size
            self.highest_timestamp = max(self.highest_timestamp, self.timestamp(row))
            row += 1
        if row == self.first_row:
            raise RecordTooLargeError(f"row {row} makes a batch of more than {bytes_max} bytes")
        return self.write(row, total), row

    @cython.cfunc
    def write(self, end_row: cython.Py_ssize_t, total: cython.Py_ssize_t) -> bytearray:
        output = bytearray(total)
        out: cython.p_uchar = output
        position: cython.Py_ssize_t = _HEADER_BYTES
        size: cython.Py_ssize_t
        row: cython.Py_ssize_t
        for row in range(self.first_row, end_row):
            size = self.body_size(row)
            if size + _varint_size(size) > total - position:
                raise InvalidRecordError("a column changed while it was read")
            position = self.put_row(out, position, row)
        return output
