"""Lines into records."""

import asyncio
import base64
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.cli.output import json_bytes
from distributedlog.cli.records.lines import CHUNK_BYTES, InputError, read_lines
from distributedlog.cli.records.parsing import Addressed, parse_json, parse_plain
from distributedlog.model.errors import InvalidRecordError
from distributedlog.records.record import Header, Record


async def lines_of(descriptor: int, line_bytes_max: int = 10**6) -> list[bytes]:
    return [line async for lines in read_lines(descriptor, line_bytes_max) for line in lines]


def lines_in(path: Path, line_bytes_max: int = 10**6) -> list[bytes]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return asyncio.run(lines_of(descriptor, line_bytes_max))
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"\n", [b""]),
        (b"x" * 3 * CHUNK_BYTES + b"\ny", [b"x" * 3 * CHUNK_BYTES, b"y"]),
        (b"ab\n" * CHUNK_BYTES, [b"ab"] * CHUNK_BYTES),
    ],
    ids=["empty", "two", "last open", "one empty", "long", "many"],
)
def test_a_file_is_read_line_by_line(tmp_path: Path, text: bytes, lines: list[bytes]) -> None:
    path = tmp_path / "lines"
    path.write_bytes(text)
    assert lines_in(path) == lines


def test_a_pipe_is_read_as_it_is_written() -> None:
    async def story() -> None:
        source, sink = os.pipe()
        reading = read_lines(source)
        os.write(sink, b"first\nsec")
        assert await anext(reading) == [b"first"]
        waiting = asyncio.ensure_future(anext(reading))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.write(sink, b"ond\n")
        assert await waiting == [b"second"]
        os.close(sink)
        assert [lines async for lines in reading] == []
        os.close(source)

    asyncio.run(story())


def test_a_line_without_end_is_refused_before_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"ok\n" + b"x" * 10 * CHUNK_BYTES)
    with pytest.raises(InputError, match="line 2 has more than 1000 bytes"):
        lines_in(path, 1000)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (b"a:b:c", b"a", b"b:c"),
        (b":v", b"", b"v"),
        (b"k:", b"k", b""),
        (b"no separator", None, b"no separator"),
        (b"", None, b""),
    ],
)
def test_a_key_stands_before_the_first_separator(line: bytes, key: bytes | None, value: bytes) -> None:
    assert parse_plain(line, b":") == Addressed(Record(value, key))


def test_an_empty_value_may_be_a_tombstone() -> None:
    assert parse_plain(b"k:", b":", empty_is_null=True) == Addressed(Record(None, b"k"))
    assert parse_plain(b":v", b":", empty_is_null=True) == Addressed(Record(b"v", None))


BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.lists(
    st.builds(Header, st.text(st.characters(exclude_categories=["Cs"]), max_size=5), BYTES), max_size=3
)


@given(BYTES, BYTES, HEADERS, st.integers(0, 2**60), st.integers(0, 9))
def test_what_consume_prints_is_what_produce_reads(
    key: bytes | None, value: bytes | None, headers: list[Header], timestamp_ms: int, partition: int
) -> None:
    printed = {
        "type": "record",
        "topic": "t",
        "partition": partition,
        "offset": 5,
        "timestamp_ms": timestamp_ms,
        **json_bytes("key", key),
        **json_bytes("value", value),
        "headers": [{"key": each.key, **json_bytes("value", each.value)} for each in headers],
    }
    expected = Addressed(Record(value, key, tuple(headers), timestamp_ms), partition)
    assert parse_json(json.dumps(printed).encode()) == expected


def test_json_may_be_written_by_hand() -> None:
    line = b'{"value": {"item": 7}, "key": 5, "headers": {"trace": "x", "none": null}}'
    headers = (Header("trace", b"x"), Header("none", None), Header("all", b"y"))
    assert parse_json(line, (Header("all", b"y"),)) == Addressed(Record(b'{"item":7}', b"5", headers))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"valeu": 1}', "unknown fields: valeu"),
        (b'{"value": "?", "value_encoding": "base64"}', "value is not base64"),
        (b'{"value": 5, "value_encoding": "base64"}', "value is not base64"),
        (b'{"value": "x", "value_encoding": "hex"}', "unknown encoding 'hex'"),
        (b'{"value": "\\ud800"}', "not Unicode"),
        (b'{"timestamp_ms": "now"}', "timestamp_ms is 'now'"),
        (b'{"timestamp_ms": 1e400}', "timestamp_ms"),
        (b'{"partition": true}', "partition is True"),
        (b'{"timestamp_ms": 99999999999999999999}', "64 bits"),
        (b'{"headers": 5}', "neither a list nor an object"),
        (b'{"headers": [{"value": "x"}]}', "has no key"),
    ],
)
def test_json_that_is_no_record_is_refused_with_the_reason(line: bytes, says: str) -> None:
    with pytest.raises(InvalidRecordError, match=says):
        parse_json(line)


def test_base64_is_bytes() -> None:
    line = json.dumps({"value": base64.b64encode(b"\xff\x00").decode(), "value_encoding": "base64"})
    assert parse_json(line.encode()) == Addressed(Record(b"\xff\x00"))
