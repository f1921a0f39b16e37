import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.pipelines.progress import parse_positions, parse_progress, short_name

POSITIONS = st.dictionaries(
    st.text("abc.-", min_size=1, max_size=6),
    st.dictionaries(st.integers(0, 9), st.integers(0, 2**62), min_size=1, max_size=3),
    max_size=3,
)


def told(**fields: object) -> str:
    usual = {"name": "spark_catalog.default.orders", "batchId": 3, "numInputRows": 12}
    return json.dumps({**usual, "durationMs": {"triggerExecution": 420}, **fields})


def test_a_batch_is_told_in_our_words() -> None:
    sources = [
        {"endOffset": {"orders": {"0": 7, "1": 9}}},
        {"endOffset": {"orders": {"2": 1}, "x": {"0": 5}}},
    ]
    late = [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 3}]
    batch = parse_progress(told(sources=sources, stateOperators=late))
    assert batch is not None
    assert (batch.flow, batch.batch, batch.rows, batch.milliseconds) == ("orders", 3, 12, 420)
    assert batch.positions == {"orders": {0: 7, 1: 9, 2: 1}, "x": {0: 5}}
    assert batch.rows_too_late == 5


@pytest.mark.parametrize(
    ("sink", "rows_out"),
    [({"numOutputRows": 7}, 7), ({"numOutputRows": 0}, 0), ({"numOutputRows": -1}, 3), (None, 3)],
)
def test_rows_written_are_the_sinks_or_else_the_stages(sink: object, rows_out: int) -> None:
    batch = parse_progress(told(sink=sink), 3)
    assert batch is not None
    assert (batch.rows, batch.rows_out) == (12, rows_out)


def test_a_stream_without_a_name_is_none_of_ours() -> None:
    assert parse_progress(told(name=None)) is None


def test_a_flow_is_known_by_the_last_part_of_its_name() -> None:
    assert short_name("spark_catalog.default.orders") == "orders"
    assert short_name("`a`.`b`.`per_10s`") == "per_10s"
    assert short_name("'spark_catalog.default.orders'") == "orders"
    assert short_name("alone") == "alone"


def test_the_offset_of_files_is_no_position_in_a_topic() -> None:
    assert parse_positions({"logOffset": 3}) == {}
    assert parse_positions('{"logOffset": 3}') == {}
    assert parse_positions("no JSON") == {}
    assert parse_positions(None) == {}
    assert parse_positions({"orders": {"zero": 1}}) == {}
    assert parse_positions({"orders": {"0": "1"}}) == {}


@given(POSITIONS)
@settings(max_examples=50, deadline=None)
def test_positions_are_read_as_they_were_written(positions: dict[str, dict[int, int]]) -> None:
    assert parse_positions(json.dumps(positions)) == positions
    assert parse_positions(json.loads(json.dumps(positions))) == positions
