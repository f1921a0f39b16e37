"""Rows of Arrow and records are the same thing, in both directions."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.errors import CorruptBatchError, InvalidRecordError, RecordTooLargeError
from distributedlog.records.arrow import SCHEMA, decode_to_arrow
from distributedlog.records.arrow_write import encode_from_arrow
from distributedlog.records.batch import check_batch, read_header
from distributedlog.records.compression import Codec
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Header, Record, decode_batch, encode_batch
from tests.unit.records.strategies import LIMITS, codecs, numbered, record_lists, some_records, thorough

HEADERS = SCHEMA.field("headers").type
NO_KEY = {"key": None, "value": b""}


def records_of(rows: pa.RecordBatch) -> list[Record]:
    """Rows as records, through pyarrow's own eyes."""
    rows.validate(full=True)
    times = rows.column("timestamp").cast(pa.int64()).to_pylist()
    return [
        Record(
            row["value"],
            row["key"],
            tuple(Header(header["key"], header["value"]) for header in row["headers"]),
            -1 if time is None else time,
            row["offset"],
        )
        for row, time in zip(rows.drop_columns(["timestamp"]).to_pylist(), times, strict=True)
    ]


def records_in(batches: list[bytearray]) -> list[Record]:
    return [record for batch in batches for record in decode_batch(batch, limits=LIMITS)]


@thorough
@given(st.lists(record_lists, max_size=4), codecs)
def test_rows_are_the_records_of_all_batches(lists: list[list[Record]], codec: Codec) -> None:
    batches, offset = [], 100
    for these in lists:
        batches.append(encode_batch(these, codec=codec, base_offset=offset))
        offset += max(1, len(these))
    expected = records_in(batches)
    assert records_of(decode_to_arrow(batches, limits=LIMITS)) == expected
    joined = decode_to_arrow(b"".join(batches), limits=LIMITS)
    assert joined.schema == SCHEMA
    assert records_of(joined) == expected


@thorough
@given(record_lists, codecs, st.integers(0, 3), st.integers(0, 3))
def test_rows_become_the_same_records_again(these: list[Record], codec: Codec, cut: int, drop: int) -> None:
    rows = decode_to_arrow(encode_batch(these, base_offset=9), limits=LIMITS)
    part = rows.slice(cut, max(0, len(these) - cut - drop))
    batches = encode_from_arrow(part, codec=codec, batch_bytes_max=4000, base_offset=50)
    assert records_in(batches) == numbered(these[cut : cut + part.num_rows], 50)


@thorough
@given(record_lists, st.integers(0, 12), st.integers(0, 12))
def test_rows_outside_the_asked_offsets_are_left_out(these: list[Record], first: int, end: int) -> None:
    batches = [encode_batch(these, base_offset=2), encode_batch(these, base_offset=12)]
    rows = decode_to_arrow(batches, limits=LIMITS, from_offset=first, to_offset=end)
    assert records_of(rows) == [record for record in records_in(batches) if first <= record.offset < end]
    plain = decode_to_arrow(batches, limits=LIMITS, from_offset=first, to_offset=end, include_headers=False)
    plain.validate(full=True)
    assert plain == rows.drop_columns(["headers"])


def test_rows_encode_to_the_very_bytes_that_records_do() -> None:
    these = some_records(40)
    rows = decode_to_arrow(encode_batch(these), limits=LIMITS)
    assert encode_from_arrow(rows) == [encode_batch(these)]


def test_markers_and_skipped_batches_give_no_rows() -> None:
    abort = EndMarker(ControlType.ABORT, 1)
    aborted = encode_batch(some_records(2), base_offset=0, producer_id=5, is_transactional=True)
    marker = encode_end_marker_batch(abort, producer_id=6, producer_epoch=0, timestamp_ms=1, base_offset=2)
    sound = encode_batch(some_records(3), base_offset=3, producer_id=6, is_transactional=True)
    log = aborted + marker + sound
    rows = decode_to_arrow(log, limits=LIMITS, skip=lambda header: header.producer_id == 5)
    assert rows.column("offset").to_pylist() == [3, 4, 5]


def test_headers_are_left_out_if_they_are_not_wanted() -> None:
    rows = decode_to_arrow(encode_batch(some_records(9)), limits=LIMITS, include_headers=False)
    rows.validate(full=True)
    assert rows.schema.names == ["key", "value", "timestamp", "offset"]
    assert rows.column("value").to_pylist() == [record.value for record in some_records(9)]


def test_nothing_gives_no_rows_of_the_same_schema() -> None:
    rows = decode_to_arrow([], limits=LIMITS)
    assert (rows.num_rows, rows.schema) == (0, SCHEMA)
    assert decode_to_arrow(b"", limits=LIMITS) == rows
    assert decode_to_arrow(encode_batch([]), limits=LIMITS) == rows
    assert encode_from_arrow(rows) == []


def test_a_record_without_a_timestamp_has_none_and_one_of_1970_has() -> None:
    these = [Record(b"", timestamp_ms=-1), Record(b"", timestamp_ms=0), Record(b"", timestamp_ms=-2)]
    times = decode_to_arrow(encode_batch(these), limits=LIMITS).column("timestamp").to_pylist()
    assert times[:2] == [None, datetime(1970, 1, 1, tzinfo=UTC)]
    assert times[2] is not None


def test_an_append_time_is_the_time_of_every_row() -> None:
    rows = decode_to_arrow(encode_batch(some_records(3), log_append_time_ms=5000), limits=LIMITS)
    assert set(rows.column("timestamp").to_pylist()) == {datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)}


def test_a_header_key_that_is_not_utf8_is_mended() -> None:
    batch = encode_batch([Record(b"", headers=(Header("ab", b"v"), Header("ü", None)))])
    batch[batch.index(b"\x04ab") + 1] = 0xFF
    rows = decode_to_arrow(batch, limits=LIMITS, check_crc=False)
    (row,) = records_of(rows)
    assert row.headers == (Header("\ufffdb", b"v"), Header("ü", None))


def test_a_damaged_batch_is_refused_with_all_the_rest() -> None:
    batch = encode_batch(some_records(3))
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    for buffers in ([batch, damaged], [batch[:-1]], [batch + b"x"]):
        with pytest.raises(CorruptBatchError):
            decode_to_arrow(buffers, limits=LIMITS)


# --- encoding ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        pa.array([b"a", None, b""], pa.binary()),
        pa.array([b"a", None, b""], pa.large_binary()),
        pa.array(["a", None, ""], pa.string()),
        pa.array(["a", None, ""], pa.large_string()),
        pa.array(["a", None, ""], pa.string_view()),
        pa.array(["skipped", "a", None, ""], pa.string()).slice(1),
    ],
    ids=lambda values: str(values.type),
)
def test_a_column_may_be_binary_or_text_of_any_kind(values: Any) -> None:
    for name in ("key", "value"):
        batches = encode_from_arrow(pa.record_batch({name: values}))
        assert [getattr(record, name) for record in records_in(batches)] == [b"a", None, b""]


def test_absent_columns_are_null_and_times_take_the_default() -> None:
    times = pa.array([1_000, None], pa.timestamp("ms"))
    rows = pa.record_batch({"value": pa.array([b"a", b"b"]), "timestamp": times})
    assert records_in(encode_from_arrow(rows, default_timestamp_ms=7)) == [
        Record(b"a", timestamp_ms=1000, offset=0),
        Record(b"b", timestamp_ms=7, offset=1),
    ]
    assert read_header(encode_from_arrow(rows, default_timestamp_ms=5_000)[0]).max_timestamp == 5_000


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit_become_milliseconds(unit: str) -> None:
    times = pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp(unit, tz="Europe/Berlin"))
    rows = pa.record_batch({"value": pa.array([b""]), "timestamp": times})
    assert records_in(encode_from_arrow(rows))[0].timestamp_ms == 1_704_067_200_000


def test_headers_may_be_null_or_empty_and_their_values_too() -> None:
    lists = [None, [], [{"key": "a", "value": None}, {"key": "", "value": b"v"}]]
    rows = pa.record_batch({"value": pa.array([b"x"] * 3), "headers": pa.array(lists, HEADERS)})
    assert [record.headers for record in records_in(encode_from_arrow(rows))] == [
        (),
        (),
        (Header("a", None), Header("", b"v")),
    ]


def test_rows_are_split_where_a_batch_is_full() -> None:
    rows = pa.record_batch({"value": pa.array([b"v" * 100] * 1000)})
    batches = encode_from_arrow(
        rows, batch_bytes_max=2048, base_offset=10, producer_id=3, producer_epoch=1, base_sequence=2**31 - 5
    )
    headers = [check_batch(batch, limits=LIMITS) for batch in batches]
    assert max(map(len, batches)) <= 2048
    assert min(map(len, batches[:-1])) > 2048 - 110
    assert records_in(batches) == [Record(b"v" * 100, offset=10 + index) for index in range(1000)]
    for before, after in pairwise(headers):
        assert after.base_offset == before.next_offset
        assert after.base_sequence == (before.last_sequence + 1) % 2**31


def test_a_row_that_no_batch_could_hold_is_named() -> None:
    rows = pa.record_batch({"value": pa.array([b"small", b"v" * 5000])})
    with pytest.raises(RecordTooLargeError, match="row 1"):
        encode_from_arrow(rows, batch_bytes_max=1000)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": pa.array([1])}, "value is int64"),
        ({"offset": pa.array([1])}, "key or value must be there"),
        ({"value": pa.array([b""]), "colour": pa.array(["red"])}, "colour"),
        ({"value": pa.array([b""]), "timestamp": pa.array(["noon"])}, "timestamp is string"),
        ({"value": pa.array([b""]), "headers": pa.array([[None]], HEADERS)}, "without a key"),
        ({"value": pa.array([b""]), "headers": pa.array([[NO_KEY]], HEADERS)}, "without a key"),
    ],
)
def test_columns_that_make_no_records_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        encode_from_arrow(pa.record_batch(columns))


def test_a_column_that_points_outside_its_data_is_refused() -> None:
    first_is_null = pa.py_buffer(b"\x02")
    for validity, offsets in ((None, [0, 99, 4]), (None, [0, 3, 1]), (first_is_null, [0, -5, 4])):
        buffers = [validity, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(b"data")]
        lying = pa.Array.from_buffers(pa.binary(), 2, buffers)
        with pytest.raises(InvalidRecordError, match="outside its data"):
            encode_from_arrow(pa.record_batch({"value": lying}))
