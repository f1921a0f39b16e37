"""Rows of Arrow to batches, with no Python object for a record: cut them, and say where each goes.

Rows have the columns of `arrow.SCHEMA`, all but one of which may be absent or null, in any of Arrow's binary
and string types.

| step          | what it does                                                                               |
|---------------|--------------------------------------------------------------------------------------------|
| `route_rows`  | a partition for each row; the rows of each partition together, in their order              |
| `cut_rows`    | rows into closed batches of at most `batch_bytes_max` bytes before compression, not yet    |
|               | anybody's: they have no offsets and no producer                                            |
| `finish`      | a cut batch as bytes, with the producer and the sequences it is sent under                 |

`encode_from_arrow` does the last two for whoever knows offsets and sequences beforehand.

A row that names its partition goes there.  Otherwise its key decides, as in `client/partitioner`.  Rows with
neither stay with one partition for about a batch, then move to the next.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from distributedlog.model.errors import InvalidRecordError, RecordTooLargeError
from distributedlog.records._kernel_route import Router
from distributedlog.records.arrow import COLUMNS, array_view, decode_to_arrow, row_schema
from distributedlog.records.compression import Codec
from distributedlog.records.kernel import Ranges, RowEncoder
from distributedlog.records.layout import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    increment_sequence,
)
from distributedlog.records.record import DEFAULT_LIMITS, finish_batch

if TYPE_CHECKING:
    import pyarrow

NO_PARTITION = -1


# --- rows to batches ---------------------------------------------------------------------------


class CutBatch(NamedTuple):
    """Records of one batch behind room for its header."""

    body: bytearray
    record_count: int
    base_timestamp: int
    max_timestamp: int

    @property
    def size_bytes(self) -> int:
        """The bytes of the batch before compression."""
        return len(self.body)

    def finish(
        self,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
    ) -> bytearray:
        """The whole batch.  Where nothing is compressed its header is written into `body` itself."""
        attributes = int(codec) | (TRANSACTIONAL_BIT if is_transactional else 0)
        header = BatchHeader(
            base_offset, 0, leader_epoch, MAGIC, 0, attributes, self.record_count - 1, self.base_timestamp,
            self.max_timestamp, producer_id, producer_epoch, base_sequence, self.record_count,
        )  # fmt: skip
        return finish_batch(self.body, header, level)

    def halves(self) -> "list[CutBatch]":
        """The same records in smaller batches, for a broker that takes no batch as large as this one.
        Records are never dropped: a batch of one record is its own half."""
        if self.record_count < 2:
            return [self]
        whole = self.finish()
        rows = decode_to_arrow(whole, check_crc=False)
        half = self.record_count // 2
        parts = (rows.slice(0, half), rows.slice(half))
        return [batch for part in parts for batch in cut_rows(part, batch_bytes_max=len(self.body))]


def cut_rows(
    rows: "pyarrow.RecordBatch",
    *,
    batch_bytes_max: int,
    single_bytes_max: int | None = None,
    default_timestamp_ms: int = NO_TIMESTAMP,
) -> Iterator[CutBatch]:
    """The rows as batches, in their order.  A row that is too large for any may have one of its own, of at
    most `single_bytes_max` bytes."""
    encoder = _row_encoder(rows, default_timestamp_ms)
    row = 0
    while row < rows.num_rows:
        try:
            body, next_row = encoder.encode(row, batch_bytes_max)
        except RecordTooLargeError:
            if single_bytes_max is None:
                raise
            yield from cut_rows(
                rows.slice(row, 1),
                batch_bytes_max=single_bytes_max,
                default_timestamp_ms=default_timestamp_ms,
            )
            row += 1
            continue
        yield CutBatch(body, next_row - row, *encoder.timestamps_of_batch())
        row = next_row


def encode_from_arrow(
    rows: "pyarrow.RecordBatch",
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    batch_bytes_max: int = 1024 * 1024,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    default_timestamp_ms: int = NO_TIMESTAMP,
) -> list[bytearray]:
    """The rows as batches whose offsets, and sequences if there is one, follow each other."""
    batches: list[bytearray] = []
    for cut in cut_rows(rows, batch_bytes_max=batch_bytes_max, default_timestamp_ms=default_timestamp_ms):
        batches.append(
            cut.finish(
                codec=codec,
                level=level,
                base_offset=base_offset,
                leader_epoch=leader_epoch,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                is_transactional=is_transactional,
            )
        )
        base_offset += cut.record_count
        if base_sequence != NO_SEQUENCE:
            base_sequence = increment_sequence(base_sequence, cut.record_count)
    return batches


# --- rows to partitions ------------------------------------------------------------------------


class Routed(NamedTuple):
    """Rows of one partition."""

    partition: int
    rows: "pyarrow.RecordBatch"


class Route(NamedTuple):
    parts: list[Routed]
    keyless_count: int
    """How many rows had neither a partition nor a key."""


def route_rows(
    rows: "pyarrow.RecordBatch",
    partition_count: int,
    *,
    partitions: Any = None,
    keyless_first: int = 0,
    keyless_rows_each: int = 1,
) -> Route:
    """The rows by partition.  `partitions`: an int32 column with what rows ask for themselves, or None.

    Rows that name no partition and have no key begin at partition `keyless_first` and move on by one after
    each `keyless_rows_each` of them.
    """
    import pyarrow as pa

    count = rows.num_rows
    wanted = _wanted_partitions(count, partitions)
    key_offsets, key_data, key_validity, first_bit = _key_views(_column(rows, "key", pa.binary()))
    router = Router(wanted, partition_count, key_offsets, key_data, key_validity, first_bit)
    keyless_count = router.place(keyless_first, keyless_rows_each)
    numbers = pa.allocate_buffer(4 * count)
    found = router.order(array_view(numbers, "i"))
    if len(found) > 1:
        rows = rows.take(pa.Array.from_buffers(pa.int32(), count, [None, numbers]))
    parts, start = [], 0
    for partition, end in found:
        parts.append(Routed(partition, rows.slice(start, end - start)))
        start = end
    return Route(parts, keyless_count)


def partitions_of(keys: "pyarrow.Array[Any]", partition_count: int) -> "pyarrow.Array[Any]":
    """The partition (int32) that each key decides; null where there is no key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keyed = _column(pa.record_batch({"key": keys}), "key", pa.binary())
    found = _wanted_partitions(len(keyed), None)
    Router(found, partition_count, *_key_views(keyed)).place(0, 1)
    placed = pa.Array.from_buffers(pa.int32(), len(keyed), [None, pa.py_buffer(found)])
    return pc.if_else(pc.is_valid(keyed), placed, pa.scalar(None, pa.int32()))


def _wanted_partitions(count: int, partitions: Any) -> memoryview:
    """A copy that may be written to, with `NO_PARTITION` for what is open."""
    if partitions is None:
        return memoryview(bytearray(b"\xff" * 4 * count)).cast("i")
    filled = partitions.fill_null(NO_PARTITION)
    start = 4 * filled.offset
    data = filled.buffers()[1]
    return memoryview(bytearray(memoryview(data).cast("B")[start : start + 4 * count])).cast("i")


def _key_views(keys: Any) -> tuple[memoryview, memoryview, memoryview, int]:
    """The offsets, the bytes and the bitmap of the keys, and which bit is the first row's."""
    if keys is None or len(keys) == 0:
        return memoryview(bytes(4)).cast("i"), memoryview(b""), memoryview(b""), 0
    validity, offsets, data = keys.buffers()
    start, rows = keys.offset, len(keys)
    offsets_view = memoryview(offsets).cast("B")[4 * start : 4 * (start + rows + 1)].cast("i")
    validity_view = array_view(validity, "B") if keys.null_count else memoryview(b"")
    return offsets_view, array_view(data, "B"), validity_view, start


# --- columns as the kernel reads them ----------------------------------------------------------


def _row_encoder(rows: "pyarrow.RecordBatch", default_timestamp_ms: int) -> RowEncoder:
    import pyarrow as pa

    unknown = set(rows.schema.names) - set(COLUMNS)
    if unknown or not {"key", "value"} & set(rows.schema.names):
        raise InvalidRecordError(
            f"the columns are {', '.join(rows.schema.names) or 'none'}; they may be {', '.join(COLUMNS)},"
            " and key or value must be there"
        )
    headers = _column(rows, "headers", row_schema().field("headers").type)
    _check_header_counts(headers)
    lists, header_keys, header_values = _header_ranges(headers)
    timestamps = _column(rows, "timestamp", pa.timestamp("ms", tz="UTC"))
    return RowEncoder(
        rows.num_rows,
        _ranges(_column(rows, "key", pa.binary())),
        _ranges(_column(rows, "value", pa.binary())),
        lists,
        header_keys,
        header_values,
        _timestamp_view(timestamps),
        default_timestamp_ms,
    )


def _check_header_counts(headers: Any) -> None:
    """Nothing is written that a reader with the default limits would refuse."""
    import pyarrow.compute as pc

    most = 0 if headers is None else pc.max(headers.value_lengths()).as_py() or 0
    if most > DEFAULT_LIMITS.headers_per_record_max:
        raise InvalidRecordError(
            f"a row has {most} headers; {DEFAULT_LIMITS.headers_per_record_max} are allowed"
        )


def _column(rows: "pyarrow.RecordBatch", name: str, kind: Any) -> Any:
    """The column as that type, or None if it is absent."""
    import pyarrow as pa

    if name not in rows.schema.names:
        return None
    column = rows.column(name)
    if column.type == kind:
        return column
    try:
        if pa.types.is_timestamp(column.type) and column.type.tz is None:
            column = column.cast(pa.timestamp(column.type.unit, tz="UTC"))
        return column.cast(kind, safe=not pa.types.is_timestamp(column.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRecordError(
            f"the column {name} is {column.type} and cannot become {kind}: {error}"
        ) from error


def _ranges(column: Any, end_max: int | None = None) -> Ranges:
    """A binary, string or list column's offsets and, if it has any, its bytes."""
    if column is None or len(column) == 0:
        return Ranges(memoryview(bytes(4)).cast("i"), memoryview(b""), memoryview(b""), 0, 0)
    validity, offsets, *data = column.buffers()[:3]
    start, rows = column.offset, len(column)
    offsets_view = memoryview(offsets).cast("B")[4 * start : 4 * (start + rows + 1)].cast("i")
    data_view = array_view(data[0], "B") if end_max is None else memoryview(b"")
    validity_view = array_view(validity, "B") if column.null_count else memoryview(b"")
    return Ranges(
        offsets_view, data_view, validity_view, start, len(data_view) if end_max is None else end_max
    )


def _header_ranges(column: Any) -> tuple[Ranges, Ranges, Ranges]:
    """The lists, and the keys and values of all headers that they point at."""
    if column is None or len(column) == 0:
        return _ranges(None), _ranges(None), _ranges(None)
    keys, values = column.values.flatten()
    return _ranges(column, end_max=len(keys)), _ranges(keys), _ranges(values)


def _timestamp_view(column: Any) -> memoryview:
    import pyarrow as pa

    if column is None or len(column) == 0:
        return memoryview(b"").cast("q")
    numbers = column.view(pa.int64()).fill_null(NO_TIMESTAMP)
    start = 8 * numbers.offset
    return memoryview(numbers.buffers()[1]).cast("B")[start : start + 8 * len(numbers)].cast("q")
