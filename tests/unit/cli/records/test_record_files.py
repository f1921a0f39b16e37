"""Records in files: whatever they are, they are read again as they were; and half a file is no file."""

import gzip
import json
import sys
from pathlib import Path

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.cli.exit_codes import AlreadyExistsError
from distributedlog.cli.records.lines import InputError
from distributedlog.cli.records.parsing import parse_json, record_fields
from distributedlog.cli.records.record_files import (
    FORMATS,
    ROWS_PER_GROUP,
    format_of,
    reading,
    writing,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Header, Record

PLACE = TopicPartition("orders", 3)
BYTES = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
RECORDS = st.builds(
    Record,
    BYTES,
    BYTES,
    st.lists(st.builds(Header, st.text(max_size=8), BYTES), max_size=3).map(tuple),
    st.integers(-1, 2**53),
    st.just(-1),
)
"""Without offsets: those belong to where a record was."""


def written(path: Path, kind: str, records: list[Record], *, replace: bool = False) -> Path:
    with writing(str(path), kind, replace=replace) as to:
        to.write(PLACE, records)
    return path


def read(path: Path, kind: str) -> list[tuple[Record, int | None]]:
    return [(each.record, each.partition) for each in reading(str(path), kind)]


@settings(max_examples=60, deadline=None)
@given(RECORDS)
def test_a_record_in_json_is_the_same_record_again(record: Record) -> None:
    line = json.dumps(record_fields(PLACE, record), ensure_ascii=False)
    assert "\n" not in line
    assert parse_json(line.encode()) == (record, PLACE.partition)


@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_is_lost_in_a_file(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("files")

    @settings(max_examples=20, deadline=None)
    @given(st.lists(RECORDS, max_size=8))
    def check(records: list[Record]) -> None:
        path = written(directory / "a", kind, records, replace=True)
        assert read(path, kind) == [(record, PLACE.partition) for record in records]

    check()


def test_more_rows_than_one_group_of_parquet_holds(tmp_path: Path) -> None:
    records = [Record(b"%d" % number) for number in range(ROWS_PER_GROUP + 5)]
    found = read(written(tmp_path / "a.parquet", "parquet", records), "parquet")
    assert [each.value for each, _ in found] == [each.value for each in records]


def test_parquet_of_others_needs_only_keys_and_values(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = str(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"key": ["k", None], "value": ["v", "w"]}), path)
    assert [tuple(each) for each in reading(path, "parquet")] == [
        (Record(b"v", b"k"), None),
        (Record(b"w"), None),
    ]
    pyarrow.parquet.write_table(pyarrow.table({"key": ["k"]}), path)
    with pytest.raises(InputError, match="has no column value"):
        list(reading(path, "parquet"))
    pyarrow.parquet.write_table(pyarrow.table({"key": [1], "value": [2]}), path)
    with pytest.raises(InputError, match="a row that is no record: 2 is neither bytes nor text"):
        list(reading(path, "parquet"))


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"timestamp_ms": ["noon"]}, "'noon' is no whole number"),
        ({"timestamp_ms": [1.5]}, "1.5 is no whole number"),
        ({"partition": ["x"]}, "'x' is no whole number"),
        ({"headers": [[{"key": None, "value": b"v"}]]}, "None is no header's key"),
    ],
)
def test_a_column_of_another_type_is_told_and_not_sent(
    tmp_path: Path, columns: dict[str, list[object]], told: str
) -> None:
    import pyarrow
    import pyarrow.parquet

    path = str(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"key": ["k"], "value": ["v"], **columns}), path)
    with pytest.raises(InputError, match=f"a row that is no record: {told}"):
        list(reading(path, "parquet"))


def test_equal_records_make_equal_files(tmp_path: Path) -> None:
    for kind in ("jsonl", "jsonl.gz"):
        one = written(tmp_path / f"one.{kind}", kind, [Record(b"a")])
        two = written(tmp_path / f"two.{kind}", kind, [Record(b"a")])
        assert one.read_bytes() == two.read_bytes()


# --- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.jsonl", "jsonl"),
        ("a.JSON", "jsonl"),
        ("a.jsonl.gz", "jsonl.gz"),
        ("a.parquet", "parquet"),
        ("-", "jsonl"),
    ],
)
def test_the_name_says_what_is_in_a_file(path: str, kind: str) -> None:
    assert format_of(path, None) == kind
    assert format_of(path, "parquet") == "parquet"


def test_a_name_that_says_nothing_is_asked_about() -> None:
    with pytest.raises(click.UsageError, match=r"name it \.jsonl"):
        format_of("orders.txt", None)


# --- whole or not at all -----------------------------------------------------------------------


def test_a_file_that_is_there_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", "jsonl", [Record(b"old")])
    with pytest.raises(AlreadyExistsError, match="add --force"):
        written(path, "jsonl", [Record(b"new")])
    assert read(path, "jsonl")[0][0].value == b"old"
    written(path, "jsonl", [Record(b"new")], replace=True)
    assert read(path, "jsonl")[0][0].value == b"new"


def test_a_directory_is_no_file_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(click.UsageError, match="is a directory"):
        written(tmp_path / "there", "jsonl", [Record(b"new")], replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_what_was_cut_short_does_not_have_the_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def cut_short() -> None:
        with writing(str(path), "jsonl") as to:
            to.write(PLACE, [Record(b"a")])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_short()
    assert not path.exists()
    assert (tmp_path / "a.jsonl.part").exists()


@pytest.mark.parametrize(
    ("content", "kind", "says"),
    [
        (b'{"value": "a"}\nnonsense\n', "jsonl", "line 2: it is not JSON"),
        (b'{"colour": 1}\n', "jsonl", "line 1: it has unknown fields: colour"),
        (b"x" * 20, "jsonl.gz", "is not whole behind line 0"),
        (gzip.compress(b'{"value": "a"}\n' * 1000, mtime=0)[:-20], "jsonl.gz", "is not whole behind line"),
        (b"PAR1", "parquet", "is no Parquet file"),
    ],
)
def test_what_is_no_such_file_is_said_with_where(
    content: bytes, kind: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        list(reading(str(path), kind))


def test_a_line_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributedlog.cli.records.record_files.LINE_BYTES_MAX", 20)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"value": "a"}\n{"value": "' + b"a" * 50)
    with pytest.raises(InputError, match="line 2 has more than 20 bytes"):
        list(reading(str(path), "jsonl"))


def test_without_pyarrow_parquet_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(click.UsageError, match=r"distributedlog\[arrow\]"):
        list(reading(str(tmp_path / "a.parquet"), "parquet"))
