"""Rows as Spark wants them, to the letter."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from distributedlog.model.ids import TopicPartition
from distributedlog.records.batch import stamp
from distributedlog.records.record import Header, Record, encode_batch
from distributedlog.spark.source.columns import (
    ALL,
    PLAIN,
    ROWS_MAX,
    RowMaker,
    Run,
    arrow_schema,
    spark_schema,
)

HERE = TopicPartition("orders", 3)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = st.lists(st.sampled_from(ALL), min_size=1, unique=True)
HEADERS = st.builds(Header, st.text(max_size=5), st.none() | st.binary(max_size=5))
RECORDS = st.builds(
    Record,
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
    st.lists(HEADERS, max_size=3).map(tuple),
    st.integers(-1, 2**40),
)


def run_of(records: list[Record], base_offset: int = 0) -> Run:
    batch = bytearray(encode_batch(records))
    stamp(batch, 0, base_offset, 0)
    return Run(batch, False, len(records))


@given(COLUMNS)
def test_the_arrow_schema_is_the_one_spark_makes_of_its_own(columns: list[str]) -> None:
    theirs = to_arrow_schema(spark_schema(columns), timezone="UTC")
    assert theirs.equals(arrow_schema(columns))
    assert all(field.nullable for field in theirs)


@given(st.lists(RECORDS, min_size=1, max_size=8), COLUMNS, st.integers(0, 8), st.integers(0, 8))
def test_every_record_is_a_row_with_the_columns_asked_for(
    records: list[Record], columns: list[str], first: int, end: int
) -> None:
    maker = RowMaker(HERE, columns)
    batches = list(maker.rows([run_of(records, 100)], 100 + first, 100 + end))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(columns))
        assert batch.num_rows > 0
    found = [row for batch in batches for row in batch.to_pylist()]
    expected = [
        {
            "key": each.key,
            "value": each.value,
            "topic": "orders",
            "partition": 3,
            "offset": 100 + index,
            "timestamp": EPOCH + timedelta(milliseconds=each.timestamp_ms),
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in each.headers] or None,
        }
        for index, each in enumerate(records)
        if first <= index < end
    ]
    assert found == [{name: row[name] for name in columns} for row in expected]


def test_batches_with_the_producers_time_and_with_the_logs_are_told_apart() -> None:
    ours = run_of([Record(b"a", timestamp_ms=5)])
    theirs = ours._replace(is_log_append_time=True)
    rows = pa.Table.from_batches(list(RowMaker(HERE, ALL).rows([ours, theirs, theirs, ours], 0, 1)))
    assert rows.column("timestampType").to_pylist() == [0, 1, 1, 0]


def test_columns_that_are_the_same_in_every_row_fit_longer_and_shorter_batches() -> None:
    maker = RowMaker(HERE, ("topic", "partition", "timestampType", "offset"))
    for count in (3, 1, 7, 7, 2):
        for kind in (0, 1):
            run = run_of([Record(b"x")] * count)._replace(is_log_append_time=bool(kind))
            (batch,) = maker.rows([run], 0, count)
            batch.validate(full=True)
            same = {"topic": "orders", "partition": 3, "timestampType": kind}
            assert batch.to_pylist() == [{**same, "offset": offset} for offset in range(count)]


@pytest.mark.parametrize("columns", [PLAIN, ALL])
def test_many_rows_come_in_batches_that_suit_spark(columns: tuple[str, ...]) -> None:
    records = [Record(b"x", headers=(Header("h", b"%d" % number),)) for number in range(1000)]
    runs = [run_of(records, 1000 * number) for number in range(70)]
    batches = list(RowMaker(HERE, columns).rows(runs, 0, 70_000))
    assert [batch.num_rows for batch in batches] == [ROWS_MAX, 70_000 - ROWS_MAX]
    whole = pa.Table.from_batches(batches)
    whole.validate(full=True)
    assert whole.column("offset").to_pylist() == list(range(70_000))
    if "headers" in columns:
        assert whole.column("headers")[69_999].as_py() == [{"key": "h", "value": b"999"}]


def test_no_rows_are_no_batch() -> None:
    assert list(RowMaker(HERE, PLAIN).rows([], 0, 10)) == []
    assert list(RowMaker(HERE, PLAIN).rows([run_of([Record(b"x")])], 5, 10)) == []
