"""What is printed: bytes, times and sizes, for people and for programs."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.cli.output import (
    TextTable,
    columns,
    json_bytes,
    print_json,
    show_bytes,
    show_size,
    show_time,
)


@given(st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
@settings(max_examples=100, deadline=None)
def test_bytes_in_json_can_be_had_back_exactly(value: bytes | None) -> None:
    fields = json.loads(json.dumps(json_bytes("key", value)))
    if fields.get("key_encoding") == "base64":
        assert base64.b64decode(fields["key"], validate=True) == value
    elif value is None:
        assert fields == {"key": None}
    else:
        assert fields["key"].encode() == value


def test_text_stays_text_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"type": "record", **json_bytes("key", "Grüße".encode())})
    assert capsys.readouterr().out == '{"type": "record", "key": "Grüße"}\n'


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (b"", '""'),
        (b"plain", "plain"),
        (b"two\nlines", "two\\nlines"),
        (b"\xff\x00", "0xff00"),
        (b"y" * 100, "y" * 80 + "… (100 bytes)"),
    ],
)
def test_bytes_in_a_table_stay_on_one_line(value: bytes | None, shown: str) -> None:
    assert show_bytes(value) == shown


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_007, "2023-11-14T22:13:20.007Z"),
        (-1, "-"),
        (None, "-"),
        (2**62, f"{2**62} ms"),
    ],
)
def test_times_are_shown_in_utc_to_the_millisecond(timestamp_ms: int | None, shown: str) -> None:
    assert show_time(timestamp_ms) == shown


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_are_shown_in_the_unit_that_fits(size_bytes: int, shown: str) -> None:
    assert show_size(size_bytes) == shown


def test_a_table_is_aligned_and_headed_once(capsys: pytest.CaptureFixture[str]) -> None:
    table = TextTable(columns("name<6 open-since>10"))
    table.row("a", 1)
    table.row("b", None)
    assert capsys.readouterr().out == "name    open since\na                1\nb                -\n"
