"""Which rows can be written, by their types alone."""

import pytest
from pyspark.sql import types

from distributedlog.model.errors import ConfigError
from distributedlog.spark.sink.columns import SinkColumns, check_schema

HEADERS = types.ArrayType(
    types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
)
TEXT, BYTES, INT = types.StringType(), types.BinaryType(), types.IntegerType()


def _schema(**columns: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in columns.items()])


def test_a_value_and_somewhere_to_go_are_enough() -> None:
    assert check_schema(_schema(value=TEXT), "t") == SinkColumns(("value",), False, False)
    assert check_schema(_schema(value=BYTES, topic=TEXT), None) == SinkColumns(("value",), True, False)


def test_the_rows_of_the_source_can_be_written_as_they_are() -> None:
    source = _schema(
        key=BYTES, value=BYTES, topic=TEXT, partition=INT, offset=types.LongType(),
        timestamp=types.TimestampType(), timestampType=INT, headers=HEADERS,
    )  # fmt: skip
    written = ("key", "value", "headers", "timestamp")
    assert check_schema(source, None) == SinkColumns(written, True, True)


def test_whether_a_column_may_be_null_does_not_matter() -> None:
    strict = types.StructType([types.StructField("value", TEXT, nullable=False)])
    assert check_schema(strict, "t") == check_schema(_schema(value=TEXT), "t")


@pytest.mark.parametrize(
    ("columns", "topic", "answer"),
    [
        ({"key": TEXT, "id": INT}, "t", "there is no column value.*the columns are key, id"),
        ({"Value": TEXT}, "t", "there is no column value"),
        ({"value": TEXT}, None, "where to"),
        ({"value": INT}, "t", "the column value is int; it must be string or binary"),
        ({"value": TEXT, "key": types.LongType()}, "t", "the column key is bigint"),
        ({"value": TEXT, "topic": INT}, None, "the column topic is int"),
        (
            {"value": TEXT, "partition": types.LongType()},
            "t",
            "the column partition is bigint; it must be int",
        ),
        ({"value": TEXT, "headers": types.MapType(TEXT, BYTES)}, "t", "the column headers is map<"),
        ({"value": TEXT, "timestamp": TEXT}, "t", "the column timestamp is string; it must be timestamp"),
    ],
)
def test_a_schema_that_cannot_be_written_is_refused_before_any_task(
    columns: dict[str, types.DataType], topic: str | None, answer: str
) -> None:
    with pytest.raises(ConfigError, match=answer):
        check_schema(_schema(**columns), topic)


def test_a_name_that_stands_twice_is_refused() -> None:
    twice = types.StructType([types.StructField("value", TEXT), types.StructField("value", TEXT)])
    with pytest.raises(ConfigError, match="2 columns named value"):
        check_schema(twice, "t")
