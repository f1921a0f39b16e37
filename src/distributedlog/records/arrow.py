"""Batches to Arrow, with no Python object for a record.  The other way is `arrow_write`.

A record is a row of `SCHEMA`.  Each Arrow buffer is made once, before it is filled.  With headers, the kernel
walks every batch twice: once to measure, once to fill.  Without, once: a batch's keys and its values have no
more bytes than the batch, and memory that is not written to is none.  Control batches carry no rows.

| record | row |
|---|---|
| null key or value | null |
| no headers | an empty list |
| no timestamp (-1) | a null timestamp |
| a header key that is not UTF-8 | the same with U+FFFD for what is wrong, as Kafka's Java client reads it |

Arrow addresses a column's bytes with 32 bits here: what may have more than 2 GiB is refused, not split.
pyarrow is imported when it is first used: it is optional, and slow to import.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import RecordTooLargeError
from distributedlog.model.limits import RecordLimits
from distributedlog.records.batch import check_batch
from distributedlog.records.kernel import BinarySink, ColumnWriter, measure_columns
from distributedlog.records.layout import (
    INT32_MAX,
    INT64_MAX,
    NO_TIMESTAMP,
    RECORD_BYTES_MIN,
    BatchHeader,
)
from distributedlog.records.record import DEFAULT_LIMITS, decompress_records

if TYPE_CHECKING:
    import pyarrow

    SCHEMA: pyarrow.Schema

NO_SIZES = (0, 0, 0, 0, 0, 0)
"""Rows, bytes of keys and of values, headers, bytes of their keys and of their values."""
COLUMNS = ("key", "value", "headers", "timestamp", "offset")


def __getattr__(name: str) -> Any:
    if name != "SCHEMA":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["SCHEMA"] = schema = row_schema()
    return schema


def row_schema() -> "pyarrow.Schema":
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("item", header))),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
            pa.field("offset", pa.int64()),
        ]
    )


# --- decoding ----------------------------------------------------------------------------------


def decode_to_arrow(
    batches: Sequence[Buffer] | Buffer,
    *,
    limits: RecordLimits = DEFAULT_LIMITS,
    from_offset: int | None = None,
    to_offset: int | None = None,
    include_headers: bool = True,
    skip: Callable[[BatchHeader], bool] | None = None,
    check_crc: bool = True,
) -> "pyarrow.RecordBatch":
    """The rows of whole batches (each buffer holds any number of them), in their order.

    Rows below `from_offset`, and from `to_offset` on, are left out.  Batches for which `skip` is true (those
    of aborted transactions, say) are not opened.
    """
    buffers = (batches,) if isinstance(batches, bytes | bytearray | memoryview) else batches
    checked = (
        each
        for each in _walk(buffers, limits, check_crc)
        if skip is None or each[2].is_control or not skip(each[2])
    )
    return decode_checked(
        checked,
        limits=limits,
        from_offset=from_offset,
        to_offset=to_offset,
        include_headers=include_headers,
    )


def decode_checked(
    batches: Iterable[tuple[Buffer, int, BatchHeader]],
    *,
    limits: RecordLimits = DEFAULT_LIMITS,
    from_offset: int | None = None,
    to_offset: int | None = None,
    include_headers: bool = True,
) -> "pyarrow.RecordBatch":
    """The same for batches that `check_batch` has let pass, each with its buffer and its place in it."""
    first = 0 if from_offset is None else from_offset
    end = INT64_MAX if to_offset is None else to_offset
    headers_max = limits.headers_per_record_max
    sections: list[tuple[Buffer, BatchHeader]] = []
    measured: list[tuple[int, int, int, int, int, int]] = []
    for buffer, position, header in batches:
        if header.is_control or header.last_offset < first or header.base_offset >= end:
            continue
        section = decompress_records(buffer, position, header, limits)
        sections.append((section, header))
        if include_headers:
            measured.append(measure_columns(section, header, headers_max, first, end, include_headers))
        else:
            measured.append(_at_most(section, header))
    columns = _Columns(list(map(sum, zip(NO_SIZES, *measured, strict=True))), include_headers)
    for section, header in sections:
        columns.writer.add(section, header, headers_max, first, end)
    return columns.finish()


def _at_most(section: Buffer, header: BatchHeader) -> tuple[int, int, int, int, int, int]:
    """Returns what a batch's rows can have without headers.  A count that the bytes cannot back is refused
    later."""
    rows = min(header.record_count, len(section) // RECORD_BYTES_MIN)
    return rows, len(section), len(section), 0, 0, 0


def _walk(
    buffers: Sequence[Buffer], limits: RecordLimits, check_crc: bool
) -> Iterator[tuple[Buffer, int, BatchHeader]]:
    for buffer in buffers:
        position = 0
        while position < len(buffer):
            header = check_batch(buffer, position, limits=limits, check_crc=check_crc)
            yield buffer, position, header
            position += header.size


class _Binary:
    """The three Arrow buffers of a column of bytes."""

    def __init__(self, rows: int, data_bytes: int) -> None:
        self.offsets = _buffer(4 * (rows + 1))
        self.data = _buffer(data_bytes)
        self.validity = _buffer((rows + 7) // 8, fill=b"\xff")
        self.sink = BinarySink(
            array_view(self.offsets, "i"), array_view(self.data, "B"), array_view(self.validity, "B")
        )

    def finish(self, kind: Any) -> Any:
        import pyarrow as pa

        rows, nulls = self.sink.row_count(), self.sink.null_count()
        data_bytes = array_view(self.offsets, "i")[rows]
        buffers = [self.validity if nulls else None, self.offsets, self.data.slice(0, data_bytes)]
        return pa.Array.from_buffers(kind, rows, buffers, nulls)


class _Columns:
    """All buffers of the rows to come, and the writer that fills them."""

    def __init__(self, sizes: Sequence[int], include_headers: bool) -> None:
        if max(sizes) > INT32_MAX:
            raise RecordTooLargeError(
                "the batches hold more than 2 GiB for one column: decode fewer at a time"
            )
        rows, key_bytes, value_bytes, headers, header_key_bytes, header_value_bytes = sizes
        self._include_headers = include_headers
        self._keys = _Binary(rows, key_bytes)
        self._values = _Binary(rows, value_bytes)
        self._header_keys = _Binary(headers, header_key_bytes)
        self._header_values = _Binary(headers, header_value_bytes)
        self._header_lists = _buffer(4 * (rows + 1) if include_headers else 0)
        self._timestamps = _buffer(8 * rows)
        self._offsets = _buffer(8 * rows)
        self.writer = ColumnWriter(
            self._keys.sink,
            self._values.sink,
            self._header_keys.sink,
            self._header_values.sink,
            array_view(self._header_lists, "i"),
            array_view(self._timestamps, "q"),
            array_view(self._offsets, "q"),
        )

    def finish(self) -> "pyarrow.RecordBatch":
        import pyarrow as pa

        schema = row_schema()
        rows = self._keys.sink.row_count()
        columns: dict[str, Any] = {
            "key": self._keys.finish(pa.binary()),
            "value": self._values.finish(pa.binary()),
            "headers": self._finish_headers(schema.field("headers").type, rows)
            if self._include_headers
            else None,
            "timestamp": self._finish_timestamps(schema.field("timestamp").type, rows),
            "offset": pa.Array.from_buffers(pa.int64(), rows, [None, self._offsets], 0),
        }
        if not self._include_headers:
            del columns["headers"]
            schema = schema.remove(COLUMNS.index("headers"))
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)

    def _finish_headers(self, kind: Any, rows: int) -> Any:
        import pyarrow as pa

        fields = [self._header_keys.finish(pa.string()), self._header_values.finish(pa.binary())]
        headers = pa.StructArray.from_arrays(fields, fields=list(kind.value_type))
        return pa.Array.from_buffers(kind, rows, [None, self._header_lists], 0, children=[headers])

    def _finish_timestamps(self, kind: Any, rows: int) -> Any:
        import pyarrow as pa

        if not self.writer.without_time_count():
            return pa.Array.from_buffers(kind, rows, [None, self._timestamps], 0)
        import pyarrow.compute as pc

        raw = pa.Array.from_buffers(pa.int64(), rows, [None, self._timestamps], 0)
        return pc.if_else(pc.equal(raw, NO_TIMESTAMP), pa.scalar(None, pa.int64()), raw).view(kind)


def _buffer(size: int, fill: bytes | None = None) -> Any:
    import pyarrow as pa

    buffer = pa.allocate_buffer(size)
    if fill is not None and size:
        memoryview(buffer).cast("B")[:] = fill * size
    return buffer


def array_view(buffer: Any, kind: Literal["B", "i", "q"]) -> memoryview:
    """A buffer as an array of C `int` (i), `long long` (q) or bytes (B)."""
    if buffer is None or buffer.size == 0:
        return memoryview(bytearray()).cast(kind)
    return memoryview(buffer).cast("B").cast(kind)
