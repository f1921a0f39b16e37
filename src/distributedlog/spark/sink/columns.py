"""The columns that the sink reads, and what may be wrong with them.

| column      | type                                    | it is                                          |
|-------------|---------------------------------------------|------------------------------------------------|
| `value`     | string, binary                              | must be there; null is a tombstone             |
| `key`       | string, binary                              | decides the partition, unless it is null       |
| `topic`     | string                                      | read if the option `topic` is not given        |
| `partition` | int                                         | where the row goes, if it is not null          |
| `headers`   | array<struct<key: string, value: binary>>   | null: none                                     |
| `timestamp` | timestamp                                   | null, or no such column: the time of writing   |

Names and types are those of Spark's Kafka sink, which has all but `timestamp`.  Names count as they are
spelled; columns with other names are left out, as there.

Two checks: `check_schema` on the driver, before a task is started, for what the types say; and `RowCheck` in
the tasks for what only rows can say.  A row is named by its number in the task's input, from 0, and its key.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from distributedlog.model.errors import ConfigError, InvalidNameError, InvalidRecordError, RecordTooLargeError
from distributedlog.model.ids import check_topic_name

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import DataType, StructType

VALUE: Final = "value"
KEY: Final = "key"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
HEADERS: Final = "headers"
TIMESTAMP: Final = "timestamp"
WRITTEN: Final = (KEY, VALUE, HEADERS, TIMESTAMP)
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
RECORD_OVERHEAD_BYTES: Final = 128
"""More than the batch's header and the lengths and deltas around a record's bytes take."""
PREVIEW_BYTES: Final = 40


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Which of the columns there are."""

    written: tuple[str, ...]
    has_topic: bool
    has_partition: bool


# --- types, on the driver ----------------------------------------------------------------------


def check_schema(schema: "StructType", topic: str | None) -> SinkColumns:
    """Raises `ConfigError` if rows of this schema cannot be written."""
    names = schema.fieldNames()
    for name in (VALUE, KEY, TOPIC, PARTITION, HEADERS, TIMESTAMP):
        if names.count(name) > 1:
            raise ConfigError(f"there are {names.count(name)} columns named {name}")
        if name in names and not _fits(name, schema[name].dataType):
            found = schema[name].dataType.simpleString()
            raise ConfigError(f"the column {name} is {found}; {_wanted(name)}")
    if VALUE not in names:
        raise ConfigError(
            f"there is no column {VALUE}: name one so, string or binary (to_json makes one of many); "
            f"the columns are {', '.join(names) or 'none'}"
        )
    if topic is None and TOPIC not in names:
        raise ConfigError("where to?  Give the option topic, or a column topic")
    return SinkColumns(
        tuple(name for name in WRITTEN if name in names),
        has_topic=topic is None,
        has_partition=PARTITION in names,
    )


def _fits(name: str, kind: "DataType") -> bool:
    from pyspark.sql import types

    if name in (KEY, VALUE):
        return isinstance(kind, types.StringType | types.BinaryType)
    if name == HEADERS:
        return kind.simpleString() == HEADERS_TYPE
    wanted = {TOPIC: types.StringType, PARTITION: types.IntegerType, TIMESTAMP: types.TimestampType}
    return isinstance(kind, wanted[name])


def _wanted(name: str) -> str:
    return {
        KEY: "it must be string or binary: cast it",
        VALUE: "it must be string or binary: cast it, or make one of many columns with to_json",
        TOPIC: "it must be string",
        PARTITION: "it must be int: cast it, or give it another name if it is not the topic's partition",
        HEADERS: f"it must be {HEADERS_TYPE}",
        TIMESTAMP: "it must be timestamp: cast it, or give it another name if it is not the record's time",
    }[name]


# --- rows, in a task ---------------------------------------------------------------------------


class RowCheck:
    """Looks at whole columns, and only when something is wrong for the row that is."""

    def __init__(self, record_bytes_max: int) -> None:
        self._record_bytes_max = record_bytes_max
        self.rows_seen = 0

    def topics(self, rows: "pyarrow.RecordBatch") -> list[str]:
        """The topics that the rows are for."""
        import pyarrow.compute as pc

        column = rows.column(TOPIC)
        if column.null_count:
            raise self._wrong(
                rows, pc.is_null(column), "its topic is null: fill the column, or give the option topic"
            )
        found = [str(name) for name in pc.unique(column).to_pylist()]
        for name in found:
            try:
                check_topic_name(name)
            except InvalidNameError as error:
                raise self._wrong(rows, pc.equal(column, name), str(error)) from None
        return found

    def partitions(
        self, rows: "pyarrow.RecordBatch", topic: str, partition_count: int, is_for_topic: Any = None
    ) -> None:
        """Checks the partitions of all rows, or of those that `is_for_topic` names."""
        import pyarrow.compute as pc

        column = rows.column(PARTITION)
        is_outside = pc.or_(pc.less(column, 0), pc.greater_equal(column, partition_count))
        if is_for_topic is not None:
            is_outside = pc.and_(is_outside, is_for_topic)
        if pc.any(is_outside).as_py():
            first = pc.filter(column, is_outside)[0].as_py()
            reason = f"topic {topic!r} has partitions 0 to {partition_count - 1}, not {first}"
            advice = "leave the column partition out, and keys decide"
            raise self._wrong(rows, is_outside, f"{reason}; {advice}")

    def sizes(self, rows: "pyarrow.RecordBatch") -> None:
        """Every row can be sent at all.  What the topic itself allows only its broker knows."""
        import pyarrow.compute as pc

        total = pc.fill_null(pc.binary_length(rows.column(VALUE)), 0)
        if KEY in rows.schema.names:
            total = pc.add(total, pc.fill_null(pc.binary_length(rows.column(KEY)), 0))
        bytes_max = self._record_bytes_max - RECORD_OVERHEAD_BYTES
        largest = pc.max(total).as_py() or 0
        if largest > bytes_max:
            raise self._wrong(
                rows,
                pc.greater(total, bytes_max),
                f"it has {largest} bytes, and kafka.max.request.size allows {max(0, bytes_max)}",
                RecordTooLargeError,
            )

    def headers(self, rows: "pyarrow.RecordBatch") -> None:
        """Every header has a key."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if HEADERS not in rows.schema.names:
            return
        column = rows.column(HEADERS)
        of_header = pc.list_parent_indices(column)
        flat = pc.list_flatten(column)
        is_keyless = pc.or_(pc.is_null(flat), pc.is_null(pc.struct_field(flat, [0])))
        if pc.any(is_keyless).as_py():
            row = pc.filter(of_header, is_keyless)[0].as_py()
            mask = pc.equal(pa.array(range(rows.num_rows), pa.int64()), row)
            raise self._wrong(rows, mask, "it has a header without a key")

    def _wrong(
        self,
        rows: "pyarrow.RecordBatch",
        is_wrong: Any,
        problem: str,
        kind: type[InvalidRecordError | RecordTooLargeError] = InvalidRecordError,
    ) -> InvalidRecordError | RecordTooLargeError:
        index = is_wrong.index(True).as_py()
        return kind(f"row {self.rows_seen + index} of the task{_key_of(rows, index)}: {problem}")


def _key_of(rows: "pyarrow.RecordBatch", index: int) -> str:
    if KEY not in rows.schema.names:
        return ""
    key = rows.column(KEY)[index].as_py()
    if key is None:
        return ", which has no key"
    cut = key[:PREVIEW_BYTES]
    return f", whose key is {cut!r}{'…' if len(key) > len(cut) else ''}"
