"""`dlog log dump`: what it shows of our logs, of damaged ones, and of Apache Kafka's."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from distributedlog import Log, Record, Store
from distributedlog.records.record import Header
from tests.unit.cli.conftest import GOLDEN, TIME_MS, Dlog, contents, first_log, flip, last_log

DEFAULTS = json.loads((GOLDEN / "defaults.json").read_text())
PARTITIONS = sorted(
    (path.parent.parent.name, path.stem)
    for kind in ("clean", "crashed")
    for path in (GOLDEN / kind / "expected").glob("*.json")
)
BATCH_NAMES = {
    "position": "position",
    "base_offset": "baseOffset",
    "last_offset": "lastOffset",
    "record_count": "count",
    "size_bytes": "size",
    "leader_epoch": "partitionLeaderEpoch",
    "max_timestamp_ms": "maxTimestamp",
    "timestamp_type": "timestampType",
    "codec": "compresscodec",
    "producer_id": "producerId",
    "producer_epoch": "producerEpoch",
    "base_sequence": "baseSequence",
    "last_sequence": "lastSequence",
    "is_transactional": "isTransactional",
    "is_control": "isControl",
    "delete_horizon_ms": "deleteHorizonMs",
    "crc": "crc",
}

Row = dict[str, Any]


def plain_bytes(row: Row, name: str) -> bytes | None:
    value = row[name]
    if value is None:
        return None
    encoded: str = value
    return base64.b64decode(encoded) if row.get(f"{name}_encoding") == "base64" else encoded.encode()


def by_file(rows: list[Row], kind: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["type"] == kind:
            found.setdefault(row["file"], []).append(row)
    return found


def as_kafka_has_it(value: bytes | None) -> list[Any]:
    """Spells bytes in hexadecimal; a long value as its length and digest.  Either may stand in the facts."""
    if value is None:
        return [None]
    return [value.hex(), {"length": len(value), "sha256": hashlib.sha256(value).hexdigest()}]


def is_same_record(row: Row, record: Row) -> bool:
    """Compares records; of internal topics the tool prints what it decoded in the place of key and value."""
    record = {**DEFAULTS["record"], **record}
    is_same = (row["offset"], row["timestamp_ms"]) == (record["offset"], record["timestamp"])
    if "decodedKey" in record:
        return is_same
    headers = [(header["key"], as_kafka_has_it(plain_bytes(header, "value"))) for header in row["headers"]]
    return (
        is_same
        and record["key"] in as_kafka_has_it(plain_bytes(row, "key"))
        and record["value"] in as_kafka_has_it(plain_bytes(row, "value"))
        and [name for name, _ in record["headers"]] == [name for name, _ in headers]
        and all(value in ours for (_, value), (_, ours) in zip(record["headers"], headers, strict=True))
    )


@pytest.mark.parametrize(("kind", "partition"), PARTITIONS)
def test_kafkas_directories_are_dumped_as_kafkas_own_tool_dumps_them(
    dlog: Dlog, kind: str, partition: str
) -> None:
    known = json.loads((GOLDEN / kind / "expected" / f"{partition}.json").read_text())["files"]
    path = GOLDEN / kind / "data" / partition
    dumped = dlog("log", "dump", path, "--all", "-o", "json")
    assert dumped.code == 0
    with_records = dlog("log", "dump", path, "--records", "-o", "json")
    assert with_records.code == 0
    batches, records = by_file(dumped.rows, "batch"), by_file(with_records.rows, "record")
    for name, facts in known.items():
        if name.endswith(".log"):
            expected = [{**DEFAULTS["batch"], **batch} for batch in facts["batches"]]
            shown = batches.get(name, [])
            assert [[row[ours] for ours in BATCH_NAMES] for row in shown] == [
                [batch[theirs] for theirs in BATCH_NAMES.values()] for batch in expected
            ]
            by_offset = {row["offset"]: row for row in records.get(name, [])}
            assert len(by_offset) == sum(batch["count"] for batch in expected)
            printed = [record for batch in expected for record in batch.get("records", [])]
            assert all(is_same_record(by_offset[record["offset"]], record) for record in printed)


@pytest.mark.parametrize(("kind", "partition"), PARTITIONS)
def test_kafkas_indexes_and_snapshots_are_dumped_as_kafkas_own_tool_dumps_them(
    dlog: Dlog, kind: str, partition: str
) -> None:
    known = json.loads((GOLDEN / kind / "expected" / f"{partition}.json").read_text())["files"]
    rows = dlog("log", "dump", GOLDEN / kind / "data" / partition, "--all", "-o", "json").rows
    offsets, times = by_file(rows, "index_entry"), by_file(rows, "time_index_entry")
    aborted, producers = by_file(rows, "aborted_transaction"), by_file(rows, "producer")
    for name, facts in known.items():
        if name.endswith(".index"):
            assert [[row["offset"], row["position"]] for row in offsets.get(name, [])] == used(facts, name, 0)
        elif name.endswith(".timeindex"):
            assert [[row["timestamp_ms"], row["offset"]] for row in times.get(name, [])] == used(
                facts, name, 1
            )
        elif name.endswith(".txnindex"):
            columns = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
            assert [[row[column] for column in columns] for row in aborted.get(name, [])] == [
                [entry[k] for k in ("producerId", "firstOffset", "lastOffset", "lastStableOffset")]
                for entry in facts
            ]
        elif name.endswith(".snapshot"):
            assert [kafka_producer(entry) for entry in facts] == [
                (
                    row["producer_id"],
                    row["producer_epoch"],
                    row["coordinator_epoch"],
                    row["transaction_first_offset"],
                    row["last_timestamp_ms"],
                    row["last_sequence"],
                    row["last_offset"],
                )
                for row in producers.get(name, [])
            ]


def used(entries: list[list[int]], name: str, offset_column: int) -> list[list[int]]:
    """Returns the entries that are used: of an index that was allocated and never used the tool prints the
    first, empty entry; we do not."""
    empty = [0, 0]
    empty[offset_column] = int(name.partition(".")[0])
    return [] if entries == [empty] else entries


def kafka_producer(entry: Row) -> tuple[Any, ...]:
    """Kafka writes -1 where there is no batch; we say null."""
    last = (entry.get("lastSequence"), entry.get("lastOffset"))
    if last[1] in (None, -1):
        last = (None, None)
    return (
        entry["producerId"],
        entry["producerEpoch"],
        entry["coordinatorEpoch"],
        entry["currentTxnFirstOffset"],
        entry["lastTimestamp"],
        *last,
    )


def test_a_snapshot_of_kafkas_metadata_log_can_be_dumped(dlog: Dlog) -> None:
    known = json.loads((GOLDEN / "clean/expected/__cluster_metadata-0.json").read_text())["files"]
    names = [name for name in known if name.endswith(".checkpoint")]
    assert names
    for name in names:
        rows = dlog("log", "dump", GOLDEN / "clean/data/__cluster_metadata-0" / name, "-o", "json").rows
        assert [row["crc"] for row in rows] == [batch["crc"] for batch in known[name]["batches"]]


def test_control_records_say_how_the_transaction_ended(dlog: Dlog) -> None:
    rows = dlog("log", "dump", GOLDEN / "clean/data/transactions-0", "--records", "-o", "json").rows
    ends = {row["offset"]: row["control"] for row in rows if "control" in row}
    assert ends[5] == "commit"
    assert ends[6] == "abort"
    table = dlog("log", "dump", GOLDEN / "clean/data/transactions-0", "--records").out
    assert "<commit>" in table
    assert "<abort>" in table


def test_leader_epochs_are_shown(dlog: Dlog) -> None:
    rows = dlog("log", "dump", GOLDEN / "clean/data/epochs-0/leader-epoch-checkpoint", "-o", "json").rows
    assert rows[0] == {"type": "epoch", "file": "leader-epoch-checkpoint", "epoch": 0, "start_offset": 0}
    assert len(rows) > 1
    assert [row["epoch"] for row in rows] == sorted({row["epoch"] for row in rows})


def test_a_dump_changes_nothing(dlog: Dlog, data: Path) -> None:
    before = contents(data)
    for options in ([], ["--records"], ["--all"], ["--all", "-o", "json"]):
        assert dlog("log", "dump", data, *options).code == 0
    assert contents(data) == before


def test_a_data_directory_is_dumped_whole_or_in_part(dlog: Dlog, data: Path) -> None:
    def shown(*options: object) -> list[str]:
        return sorted({row["partition"] for row in dlog("log", "dump", data, "-o", "json", *options).rows})

    assert shown() == ["events-0", "events-1", "users-0"]
    assert shown("--topic", "events") == ["events-0", "events-1"]
    assert shown("--topic", "events", "--partition", 1) == ["events-1"]
    assert shown("--partition", 0) == ["events-0", "users-0"]


def test_a_partition_cannot_be_selected_in_a_partition(dlog: Dlog, data: Path) -> None:
    outcome = dlog("log", "dump", data / "users-0", "--topic", "users")
    assert outcome.code == 2
    assert "is one partition" in outcome.err


def test_records_begin_at_the_offset_and_stop_at_the_limit(dlog: Dlog, data: Path) -> None:
    rows = dlog(
        "log", "dump", data / "users-0", "--records", "--offset", 103, "--limit", 60, "-o", "json"
    ).rows
    assert [row["offset"] for row in rows] == list(range(103, 163))
    batches = dlog("log", "dump", data / "users-0", "--offset", 103, "--limit", 2, "-o", "json").rows
    assert [(row["base_offset"], row["last_offset"]) for row in batches] == [(100, 119), (120, 139)]


def test_records_begin_with_the_first_of_a_time_in_every_partition(dlog: Dlog, data: Path) -> None:
    rows = dlog(
        "log", "dump", data, "--records", "--from-time", TIME_MS + 11_000 + 7, "-o", "json"
    ).rows  # fmt: skip
    assert [row["offset"] for row in rows] == list(range(227, 240))
    assert {row["partition"] for row in rows} == {"users-0"}


def test_after_the_first_of_a_time_older_records_are_shown_again(dlog: Dlog, tmp_path: Path) -> None:
    with Log.open(str(tmp_path / "log"), background=False) as log:
        log.append_many([Record(b"v", timestamp_ms=time_ms) for time_ms in (10, 30, 20)])
    rows = dlog("log", "dump", tmp_path / "log", "--records", "--from-time", 25, "-o", "json").rows
    assert [row["timestamp_ms"] for row in rows] == [30, 20]


def test_keys_only_leaves_values_and_headers_out(dlog: Dlog, tmp_path: Path) -> None:
    with Log.open(str(tmp_path / "log"), background=False) as log:
        log.append(b"secret", key=b"\xff\xfe", headers=[Header("h", None), Header("h", b"\x80")])
    (full,) = dlog("log", "dump", tmp_path / "log", "--records", "-o", "json").rows
    assert full["key_encoding"] == "base64"
    assert full["headers"] == [
        {"key": "h", "value": None},
        {"key": "h", "value": "gA==", "value_encoding": "base64"},
    ]
    (short,) = dlog("log", "dump", tmp_path / "log", "--keys-only", "-o", "json").rows
    assert "value" not in short
    assert "headers" not in short
    table = dlog("log", "dump", tmp_path / "log", "--keys-only").out
    assert "0xfffe" in table
    assert "secret" not in table


def test_a_table_names_each_file_and_heads_its_columns(dlog: Dlog, data: Path) -> None:
    shown = dlog("log", "dump", data / "users-0").out.splitlines()
    assert shown[0].startswith("users-0/00000000000000000000.log  ")
    assert shown[1].split()[:3] == ["position", "offsets", "records"]
    assert shown[2].split()[:3] == ["0", "0..19", "20"]


def test_damage_is_pointed_at_and_the_rest_is_shown(dlog: Dlog, data: Path) -> None:
    sound = dlog("log", "dump", data / "users-0", "-o", "json").of_type("batch")
    flip(first_log(data / "users-0"), sound[1]["position"] + 80)
    outcome = dlog("log", "dump", data / "users-0", "-o", "json")
    assert outcome.code == 1
    assert [row["base_offset"] for row in outcome.of_type("batch")] == [
        row["base_offset"] for row in sound if row is not sound[1]
    ]
    (unsound,) = outcome.of_type("unsound")
    assert unsound["position"] == sound[1]["position"]
    assert unsound["resumes_at"] == sound[2]["position"]
    assert f"at position {sound[1]['position']}" in outcome.err


def test_a_torn_end_is_told_and_is_no_damage(dlog: Dlog, data: Path) -> None:
    torn = last_log(data / "users-0")
    torn.write_bytes(torn.read_bytes()[:-5])
    outcome = dlog("log", "dump", data / "users-0", "-o", "json")
    assert outcome.code == 0
    (unsound,) = outcome.of_type("unsound")
    assert unsound["resumes_at"] is None
    assert "nothing sound follows" in outcome.err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("00000000000000000000.snapshot", b"\0\1" + b"x" * 30),
        ("leader-epoch-checkpoint", b"nonsense\n"),
        ("00000000000000000000.txnindex", b"seven.."),
        ("00000000000000000000.index", b"\1" * 9),
    ],
)
def test_a_derived_file_that_makes_no_sense_is_one_line_and_not_found_sound(
    dlog: Dlog, data: Path, name: str, content: bytes
) -> None:
    (data / "events-0" / name).write_bytes(content)
    alone = dlog("log", "dump", data / "events-0" / name)
    assert alone.code == 1
    assert name in alone.err
    assert alone.err.count("\n") == 1
    among_others = dlog("log", "dump", data / "events-0", "--all", "-o", "json")
    assert among_others.code == 1
    assert name in among_others.err
    assert among_others.of_type("batch")


def test_a_directory_in_use_is_dumped_as_far_as_it_is_written(dlog: Dlog, tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "live"), background=False) as store:
        store.log("t").append(b"there")
        outcome = dlog("log", "dump", tmp_path / "live", "--records", "-o", "json")
    assert outcome.code == 0
    assert [row["value"] for row in outcome.rows] == ["there"]
    assert "is in use" in outcome.err


def test_files_set_aside_by_a_compaction_can_be_dumped(dlog: Dlog, data: Path) -> None:
    for suffix in (".deleted", ".swap", ".cleaned"):
        set_aside = data / f"00000000000000000000.log{suffix}"
        set_aside.write_bytes(first_log(data / "users-0").read_bytes())
        assert dlog("log", "dump", set_aside, "-o", "json").of_type("batch")
