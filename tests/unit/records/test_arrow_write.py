"""Rows of Arrow on their way out: to their partitions, and into batches that have no producer yet."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.client.partitioner import partition_of
from distributedlog.model.errors import InvalidRecordError, RecordTooLargeError
from distributedlog.records._kernel_route import Router
from distributedlog.records.arrow import decode_to_arrow
from distributedlog.records.arrow_write import Route, cut_rows, partitions_of, route_rows
from distributedlog.records.batch import read_header
from distributedlog.records.compression import Codec
from distributedlog.records.record import decode_batch

KEYS = st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=60)


def _rows(keys: list[bytes | None]) -> pa.RecordBatch:
    values = [str(number).encode() for number in range(len(keys))]
    return pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def _numbers(route: Route) -> dict[int, list[int]]:
    return {each.partition: [int(value.as_py()) for value in each.rows["value"]] for each in route.parts}


@settings(max_examples=60, deadline=None)
@given(KEYS, st.integers(1, 12), st.integers(0, 5))
def test_a_key_goes_where_kafkas_clients_put_it(keys: list[bytes | None], count: int, skipped: int) -> None:
    rows = _rows(keys).slice(min(skipped, len(keys)))
    found = _numbers(route_rows(rows, count, keyless_first=2, keyless_rows_each=3))
    expected: dict[int, list[int]] = {}
    keyless = 0
    for number, key in list(enumerate(keys))[min(skipped, len(keys)) :]:
        if key is None:
            partition = (2 + keyless // 3) % count
            keyless += 1
        else:
            partition = partition_of(key, count)
        expected.setdefault(partition, []).append(number)
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=20)), st.integers(0, 3), st.integers(1, 9))
def test_keys_alone_are_told_their_partitions(keys: list[bytes | None], start: int, count: int) -> None:
    for kind in (pa.binary(), pa.large_binary()):
        found = partitions_of(pa.array(keys, kind).slice(start), count)
        assert found.type == pa.int32()
        assert found.to_pylist() == [
            None if key is None else partition_of(key, count) for key in keys[start:]
        ]


def test_a_string_key_goes_where_its_bytes_do() -> None:
    rows = pa.record_batch({"key": ["älter", "b"], "value": ["0", "1"]})
    route = route_rows(rows, 50)
    placed = {each.partition: each.rows["key"].to_pylist() for each in route.parts}
    assert placed == {partition_of("älter".encode(), 50): ["älter"], partition_of(b"b", 50): ["b"]}


def test_a_partition_that_is_asked_for_comes_before_the_key() -> None:
    wanted = pa.array([None, 3, 0, None], pa.int32())
    route = route_rows(_rows([b"a", b"a", None, None]), 4, partitions=wanted, keyless_first=1)
    expected = {3: [1], 0: [2], 1: [3]}
    expected.setdefault(partition_of(b"a", 4), []).insert(0, 0)
    assert _numbers(route) == expected
    assert route.keyless_count == 1


def test_a_slice_of_partitions_is_read_from_its_own_place() -> None:
    wanted = pa.array([9, 9, 1, None], pa.int32()).slice(2)
    assert _numbers(route_rows(_rows([None, None]), 2, partitions=wanted)) == {1: [0], 0: [1]}


def test_a_partition_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="row 1 is for partition 4 of 4"):
        route_rows(_rows([b"a", b"b"]), 4, partitions=pa.array([3, 4], pa.int32()))


def test_no_rows_go_nowhere() -> None:
    assert route_rows(_rows([]), 3) == Route([], 0)


def test_a_column_that_points_outside_its_data_is_refused() -> None:
    partitions = memoryview(bytearray(b"\xff" * 4)).cast("i")
    offsets = memoryview(b"\0\0\0\0\x09\0\0\0").cast("i")
    with pytest.raises(InvalidRecordError, match="outside its data"):
        Router(partitions, 2, offsets, memoryview(b"abc"), memoryview(b""), 0).place(0, 1)


def test_a_bitmap_that_is_too_short_is_refused() -> None:
    partitions = memoryview(bytearray(b"\xff" * 40)).cast("i")
    offsets = memoryview(bytes(44)).cast("i")
    with pytest.raises(ValueError, match="bitmap"):
        Router(partitions, 2, offsets, memoryview(b""), memoryview(b"\xff"), 0)
    with pytest.raises(ValueError, match="room"):
        Router(partitions, 2, offsets, memoryview(b""), memoryview(b""), 0).order(
            memoryview(bytearray(4)).cast("i")
        )


@pytest.mark.parametrize("codec", list(Codec))
def test_a_cut_batch_is_sent_under_whatever_name_it_gets(codec: Codec) -> None:
    cuts = list(cut_rows(_rows([b"k"] * 100), batch_bytes_max=300, default_timestamp_ms=7))
    assert len(cuts) > 1
    assert all(cut.size_bytes <= 300 for cut in cuts)
    sequence, read = 0, []
    for cut in cuts:
        batch = cut.finish(codec=codec, producer_id=5, producer_epoch=2, base_sequence=sequence)
        header = read_header(batch)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, sequence)
        sequence += cut.record_count
        read += [record.value for record in decode_batch(batch)]
    assert read == [str(number).encode() for number in range(100)]


def test_a_batch_that_is_too_large_for_a_broker_is_halved_without_loss() -> None:
    headers = pa.array([[("a", b"1")], None, [], [("b", None)], None], pa.list_(
        pa.struct([("key", pa.string()), ("value", pa.binary())])
    ))  # fmt: skip
    rows = pa.record_batch(
        {"key": [None, b"a", b"b", b"c", b""], "value": [b"0", None, b"2", b"", b"4"], "headers": headers}
    )
    (cut,) = cut_rows(rows, batch_bytes_max=1000, default_timestamp_ms=9)
    whole = decode_to_arrow(bytes(cut.finish(codec=Codec.GZIP)))
    parts = cut.halves()
    assert [part.record_count for part in parts] == [2, 3]
    again = pa.Table.from_batches([decode_to_arrow(part.finish()) for part in parts])
    assert again.drop_columns("offset").to_pylist() == whole.drop_columns("offset").to_pylist()
    (single,) = cut_rows(rows.slice(0, 1), batch_bytes_max=1000)
    assert single.halves() == [single]


def test_a_record_that_fits_no_batch_is_refused() -> None:
    with pytest.raises(RecordTooLargeError, match="row 0"):
        list(cut_rows(_rows([b"x" * 500]), batch_bytes_max=300))


def test_a_record_larger_than_a_batch_may_travel_alone() -> None:
    rows = _rows([b"a", b"b", b"x" * 500, b"c"])
    cuts = list(cut_rows(rows, batch_bytes_max=300, single_bytes_max=700, default_timestamp_ms=3))
    assert [cut.record_count for cut in cuts] == [2, 1, 1]
    assert [record.timestamp_ms for cut in cuts for record in decode_batch(cut.finish())] == [3] * 4
    with pytest.raises(RecordTooLargeError, match="more than 400"):
        list(cut_rows(rows, batch_bytes_max=300, single_bytes_max=400))
