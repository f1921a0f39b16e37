"""Records from a topic into a file, from a file into a topic, and from one topic into another."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributedlog.cli.records.lines import InputError
from distributedlog.cli.records.parsing import Addressed
from distributedlog.cli.records.ranges import resolve_range
from distributedlog.cli.session import BOOTSTRAP_VARIABLE
from distributedlog.cli.topic.import_ import ImportState, place
from distributedlog.cli.topic.replay import merged
from distributedlog.client.admin.admin import Admin
from distributedlog.client.offset_specs import BEGINNING, END, Isolation
from distributedlog.client.partitioner import partition_of
from distributedlog.records.record import Record
from tests.unit.cli.conftest import Dlog
from tests.unit.client.stage import mock_cluster, run

LINES: list[dict[str, object]] = [
    {"value": "a", "key": "k1", "timestamp_ms": 1000, "headers": [{"key": "h", "value": "x"}]},
    {"value": "/w==", "value_encoding": "base64", "timestamp_ms": 1005},
    {"value": None, "key": "k2", "timestamp_ms": 1010},
    {"value": "", "key": "", "timestamp_ms": 1030},
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with mock_cluster(2) as bootstrap:
        yield bootstrap


@pytest.fixture
def source(
    dlog: Dlog, cluster: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> str:
    """A topic with the records above, each partition's among its own."""
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, cluster)
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    path = tmp_path / "source.jsonl"
    path.write_text(
        "".join(json.dumps({**line, "partition": at % 2}) + "\n" for at, line in enumerate(LINES))
    )
    assert dlog("topic", "produce", name, "--json", "-l", path).code == 0
    return name


def make(dlog: Dlog, name: str, path: Path, *options: str) -> None:
    """Another topic; librdkafka's broker makes one for its first record."""
    path.write_text("first\n")
    assert dlog("topic", "produce", name, "-l", path, *options).code == 0


def rows(dlog: Dlog, topic: str) -> list[dict[str, object]]:
    """All of a topic, without what belongs to the place."""
    found = dlog("topic", "consume", topic, "-e", "-o", "json").of_type("record")
    kept = [{name: each[name] for name in each if name not in ("topic", "offset")} for each in found]
    return sorted(kept, key=lambda each: (each["partition"], each["timestamp_ms"]))


# --- export and import -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_topic_goes_into_a_file_and_comes_out_the_same(
    dlog: Dlog, source: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    exported = dlog("topic", "export", source, path)
    assert (exported.code, exported.out) == (0, "")
    assert exported.err == f"dlog: 4 records of {source} written to {path}\n"
    imported = dlog("topic", "import", source, path, "-o", "json")
    assert imported.code == 0
    assert imported.rows[0]["records"] == 4
    doubled = rows(dlog, source)
    assert doubled[::2] == doubled[1::2]
    assert len(doubled) == 8


def test_only_a_part_is_exported(dlog: Dlog, source: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    outcome = dlog("topic", "export", source, path, "-p", "1", "--from", "1", "-o", "json")
    assert outcome.rows[0]["partitions"] == [{"partition": 1, "start_offset": 1, "end_offset": 2}]
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["timestamp_ms"] == 1030


def test_an_end_beyond_the_end_is_the_end(dlog: Dlog, source: str, tmp_path: Path) -> None:
    outcome = dlog("topic", "export", source, tmp_path / "a.jsonl", "--to", "1000")
    assert "4 records" in outcome.err


def test_an_export_goes_to_stdout_for_others_to_read(dlog: Dlog, source: str) -> None:
    outcome = dlog("topic", "export", source, "-")
    assert [row["key"] for row in outcome.of_type("record")].count("k1") == 1


def test_timestamps_headers_and_partitions_need_not_be_kept(dlog: Dlog, source: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({**LINES[0], "partition": 99}) + "\n")
    refused = dlog("topic", "import", source, path)
    assert refused.code == 2
    assert "record 1 was in partition 99" in refused.err
    assert dlog("topic", "import", source, path, "--by-key", "--now", "--no-headers").code == 0
    newest = max(rows(dlog, source), key=lambda each: int(str(each["timestamp_ms"])))
    assert (newest["key"], newest["headers"]) == ("k1", [])
    assert int(str(newest["timestamp_ms"])) > 1_700_000_000_000


def test_an_import_stops_at_the_first_line_that_is_no_record_and_goes_on_behind_what_is_there(
    dlog: Dlog, source: str, tmp_path: Path
) -> None:
    path, state = tmp_path / "a.jsonl", tmp_path / "state"
    good = [json.dumps({"value": f"v{number}", "partition": number % 2}) for number in range(6)]
    path.write_text("\n".join([*good[:3], "nonsense", *good[4:]]))
    first = dlog("topic", "import", source, path, "--state", state)
    assert first.code == 2
    assert "line 4: it is not JSON" in first.err
    assert json.loads(state.read_text())["delivered"] == {"0": 2, "1": 1}
    path.write_text("\n".join(good))
    second = dlog("topic", "import", source, path, "--state", state)
    assert second.code == 0
    assert "3 records are there already" in second.err
    assert "3 records delivered" in second.err
    assert not state.exists()
    found = [str(row["value"]) for row in rows(dlog, source) if str(row["value"]).startswith("v")]
    assert sorted(found) == [f"v{number}" for number in range(6)]


def test_an_import_whose_state_cannot_be_kept_writes_nothing(dlog: Dlog, source: str, tmp_path: Path) -> None:
    before = rows(dlog, source)
    path = tmp_path / "a.jsonl"
    path.write_text('{"value": "doubled"}\n')
    (tmp_path / "state.tmp").mkdir()
    assert dlog("topic", "import", source, path, "--state", tmp_path / "state").code == 3
    assert rows(dlog, source) == before


def test_a_state_of_another_import_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    ImportState(str(path), "a.jsonl", "orders", 3, by_key=False).save()
    with pytest.raises(InputError, match=r"of another import: its partitions is 3, not 4"):
        ImportState(str(path), "a.jsonl", "orders", 4, by_key=False)
    path.write_text("[]")
    with pytest.raises(InputError, match="is no state of an import"):
        ImportState(str(path), "a.jsonl", "orders", 3, by_key=False)


def test_where_a_record_goes_depends_on_the_input_alone() -> None:
    records = [Addressed(Record(b"v", b"k%d" % each if each % 2 else None)) for each in range(10)]
    placed = [partition for _, partition in place(iter(records), 3, by_key=True)]
    assert placed == [partition for _, partition in place(iter(records), 3, by_key=True)]
    assert placed[1] == partition_of(b"k1", 3)
    assert placed[0::2] == [0, 2, 1, 0, 2]


# --- replay and analyze ------------------------------------------------------------------------


def test_a_replay_brings_every_record_as_it_was_to_where_it_was(
    dlog: Dlog, source: str, tmp_path: Path
) -> None:
    target = f"{source}-again"
    make(dlog, target, tmp_path / "first")
    outcome = dlog("topic", "replay", source, target, "--rate", "1x", "--keep-partitions", "-o", "json")
    assert outcome.code == 0
    assert outcome.rows[0]["records"] == 4
    assert [row for row in rows(dlog, target) if row["value"] != "first"] == rows(dlog, source)


def test_a_replay_goes_to_another_cluster_in_the_order_of_time(
    dlog: Dlog, source: str, tmp_path: Path
) -> None:
    with mock_cluster() as other:
        make(dlog, source, tmp_path / "first", "-b", other, "-p", "0")
        there = ("--rate", "max", "-p", "0", "--keep-partitions", "--dst-bootstrap", other)
        outcome = dlog("topic", "replay", source, source, *there)
        assert outcome.code == 0
        assert "2 records delivered" in outcome.err
        found = dlog("topic", "consume", source, "-e", "-o", "json", "-b", other).of_type("record")
        assert [row["timestamp_ms"] for row in found][1:] == [1000, 1010]


def test_partitions_are_merged_by_time(source: str, cluster: str) -> None:
    async def times() -> list[int]:
        async with Admin.connect(cluster) as admin:
            level = Isolation.READ_COMMITTED
            wanted = await resolve_range(admin, source, BEGINNING, END, (), level)
            return [record.timestamp_ms async for _, record in merged(admin, wanted)]

    assert run(times()) == [1000, 1005, 1010, 1030]


def test_a_topic_is_analyzed(dlog: Dlog, source: str) -> None:
    shown = dlog("topic", "analyze", source, "--full")
    assert shown.code == 0
    assert "records     4 (all)" in shown.out
    assert "1 records have none" in shown.out
    told = dlog("topic", "analyze", source, "-o", "json").of_type("analysis")[0]
    assert (told["records"], told["keys"], told["tombstones"], told["find_keyless_records"]) == (4, 3, 1, 1)
    assert told["is_full"] is True
