"""Rows as Spark wants them: the columns of its Kafka source, and fetched batches turned into them.  Pure.

| column          | Spark                                     | Arrow                         |
|-----------------|-------------------------------------------|-------------------------------|
| `key`           | binary                                    | binary                        |
| `value`         | binary                                    | binary                        |
| `topic`         | string                                    | string                        |
| `partition`     | int                                       | int32                         |
| `offset`        | bigint                                    | int64                         |
| `timestamp`     | timestamp                                 | timestamp("us", "UTC")        |
| `timestampType` | int: 0 the producer's time, 1 the log's   | int32                         |
| `headers`       | array<struct<key: string, value: binary>> | list<struct<string, binary>>  |

`headers` is there when `includeHeaders` or `columns` asks for it, and null where a record has none.  A record
without a time has the one millisecond before 1970 that Kafka's clients give it.

Spark takes an Arrow batch only if its schema is equal to what it makes of its own, to the letter: the order,
every field nullable, no large or dictionary types, microseconds in UTC.  Both are written out here, side by
side, because Spark's own way from one to the other does not work in every process that needs it.

What comes from a broker is decoded in the kernel: there is no Python object for a record.  A batch says
whether its times are the producer's or the log's; runs of batches that say the same are decoded together.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import ConfigError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.arrow import decode_to_arrow
from distributedlog.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

HEADERS: Final = "headers"
PLAIN: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
ALL: Final = (*PLAIN, HEADERS)
INCLUDE_HEADERS: Final = "includeHeaders"
COLUMNS_OPTION: Final = "columns"
ROWS_MAX: Final = 65_536
"""The rows of one Arrow batch."""
_US_OF_MS: Final = 1_000


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns which columns the options ask for.  Their names may be written in any case."""
    given = {name.lower(): value for name, value in options.items()}
    text = given.get(INCLUDE_HEADERS.lower(), "false").strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{INCLUDE_HEADERS} is {text!r}: write true or false")
    with_headers = text == "true"
    if COLUMNS_OPTION not in given:
        return ALL if with_headers else PLAIN
    spelled = {name.lower(): name for name in ALL}
    chosen = [each.strip() for each in given[COLUMNS_OPTION].split(",") if each.strip()]
    for each in chosen:
        if each.lower() not in spelled:
            raise ConfigError(f"{COLUMNS_OPTION} names {each!r}: the columns are {', '.join(ALL)}")
    columns = tuple(spelled[each.lower()] for each in chosen)
    if not columns or len(set(columns)) != len(columns):
        raise ConfigError(f"{COLUMNS_OPTION} must name some of {', '.join(ALL)}, each once")
    if with_headers and HEADERS not in columns:
        raise ConfigError(f"{INCLUDE_HEADERS} is true, and {COLUMNS_OPTION} leaves {HEADERS} out")
    return columns


def spark_schema(columns: Sequence[str]) -> "StructType":
    from pyspark.sql import types

    header = types.StructType(
        [
            types.StructField("key", types.StringType()),
            types.StructField("value", types.BinaryType()),
        ]
    )
    kinds: dict[str, types.DataType] = {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestampType": types.IntegerType(),
        HEADERS: types.ArrayType(header),
    }
    return types.StructType([types.StructField(each, kinds[each]) for each in columns])


def arrow_schema(columns: Sequence[str]) -> "pyarrow.Schema":
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        HEADERS: pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(each, kinds[each]) for each in columns])


# --- rows --------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Whole batches, one behind the other, whose times are of one kind."""

    batches: Buffer
    is_log_append_time: bool
    offsets: int
    """The number of offsets, at least as many as it has records."""


class RowMaker:
    """Turns batches of one partition into rows of the columns asked for."""

    def __init__(self, partition: TopicPartition, columns: Sequence[str]) -> None:
        self._partition = partition
        self._columns = tuple(columns)
        self._schema = arrow_schema(columns)
        self._repeated: dict[tuple[str, str | int], Any] = {}
        """Columns in which all rows are the same, as long as the longest that was wanted."""

    def rows(self, runs: Sequence[Run], from_offset: int, to_offset: int) -> Iterator["pyarrow.RecordBatch"]:
        """The records from one offset up to another, in batches that suit Spark; none that is empty."""
        for together in _grouped(runs):
            decoded = decode_to_arrow(
                [each.batches for each in together],
                from_offset=from_offset,
                to_offset=to_offset,
                include_headers=HEADERS in self._columns,
            )
            made = self._row_batch(decoded, int(together[0].is_log_append_time))
            for at in range(0, made.num_rows, ROWS_MAX):
                yield made.slice(at, ROWS_MAX)

    def _row_batch(self, decoded: "pyarrow.RecordBatch", timestamp_type: int) -> "pyarrow.RecordBatch":
        import pyarrow as pa

        columns = [self._column(each, decoded, timestamp_type) for each in self._columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, name: str, decoded: "pyarrow.RecordBatch", timestamp_type: int) -> Any:
        match name:
            case "topic":
                return self._same(name, self._partition.topic, decoded.num_rows)
            case "partition":
                return self._same(name, self._partition.partition, decoded.num_rows)
            case "timestampType":
                return self._same(name, timestamp_type, decoded.num_rows)
            case "timestamp":
                return _microseconds(decoded.column("timestamp"))
            case "headers":
                return _null_where_empty(decoded.column("headers"), self._schema.field("headers").type)
            case _:
                return decoded.column(name)

    def _same(self, name: str, value: str | int, count: int) -> Any:
        """A column that has one value; made once, for all batches that are not longer."""
        import pyarrow as pa

        made = self._repeated.get((name, value))
        if made is None or len(made) < count:
            made = pa.repeat(pa.scalar(value, self._schema.field(name).type), count)
            self._repeated[name, value] = made
        return made.slice(0, count)


def _grouped(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Neighbours whose times are of one kind."""
    together: list[Run] = []
    for run in runs:
        is_same = bool(together) and together[0].is_log_append_time == run.is_log_append_time
        if together and not is_same:
            yield together
            together = []
        together.append(run)
    if together:
        yield together


def _microseconds(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = column.view(pa.int64())
    if numbers.null_count:
        numbers = numbers.fill_null(NO_TIMESTAMP)
    return pc.multiply_checked(numbers, _US_OF_MS).view(pa.timestamp("us", tz="UTC"))


def _null_where_empty(column: Any, kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    is_empty = pc.equal(column.value_lengths(), 0)
    return pa.ListArray.from_arrays(column.offsets, column.values, type=kind, mask=is_empty)
