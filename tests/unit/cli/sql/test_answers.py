"""Values of an answer as `dlog sql` shows them."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from distributedlog.cli.sql.answers import as_csv, as_json, show_cell

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_what_json_has_no_word_for_is_text() -> None:
    told = [timedelta(days=1), float("nan"), float("-inf"), Decimal("1.50"), date(2026, 1, 31)]
    assert as_json(told) == ["1 day, 0:00:00", "nan", "-inf", "1.50", "2026-01-31"]
    plain = [None, True, 7, 0.5, "text", {"key": [1]}]
    assert json.loads(json.dumps(as_json(plain), allow_nan=False)) == plain
    assert as_json([b"text", b"\xff"]) == ["text", "/w=="]


@given(st.integers(-1, 4_000_000_000_000), st.integers(0, 999))
def test_a_time_is_its_milliseconds_and_none_less(milliseconds: int, microseconds: int) -> None:
    """This holds also where seconds as a float are a little less: 1096189200001 is such a one."""
    moment = EPOCH + timedelta(milliseconds=milliseconds, microseconds=microseconds)
    without_zone = moment.astimezone().replace(tzinfo=None, fold=moment.astimezone().fold)
    assert as_json(without_zone) == milliseconds


def test_a_cell_of_csv_is_a_value_or_the_json_of_one() -> None:
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC).astimezone().replace(tzinfo=None)
    told = [None, True, 7, 0.5, "a,b", b"\xff", Decimal("1.50"), moment, [1, None], {"a": moment}]
    assert [as_csv(value) for value in told] == [
        None, "true", 7, 0.5, "a,b", "/w==", "1.50", "1969-12-31T23:59:59.999Z", "[1, null]", '{"a": -1}',
    ]  # fmt: skip


def test_a_cell_for_people_shows_no_python() -> None:
    headers = [Row(key="n", value=b"12"), Row(key="raw", value=b"\xff")]
    assert show_cell(headers) == '[{"key": "n", "value": "12"}, {"key": "raw", "value": "/w=="}]'
    assert show_cell(Row(a=1, b=None)) == '{"a": 1, "b": null}'
    assert [show_cell(value) for value in (True, None, b"\xff", {"a": [1.5]}, "\x1b[1m")] == [
        "true", "-", "0xff", '{"a": [1.5]}', "\\x1b[1m",
    ]  # fmt: skip
