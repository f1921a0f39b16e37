"""`dlog log repair`: records that nobody can read go, and all else stays."""

from pathlib import Path

import pytest

from distributedlog.groups.records import OffsetRecord, StoredOffset, encode_records
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record, encode_batch
from distributedlog.storage.append import Origin
from distributedlog.storage.store import LogStore
from tests.unit.cli.conftest import Dlog, contents
from tests.unit.storage.repair.test_unreadable import unwalkable
from tests.unit.storage.support import NOW_MS
from tests.unit.storage.test_links import open_at

OFFSETS = "__consumer_offsets"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Committed offsets with three bad records among them, and a topic with a batch that cannot be walked."""
    store = open_at(tmp_path / "data")
    for offset in (7, 8):
        put(store, OFFSETS, commit(offset))
    put(
        store,
        OFFSETS,
        Record(b"\x00\x63", commit(0).key, timestamp_ms=NOW_MS),
        Record(b"", b"\0", timestamp_ms=NOW_MS),
    )
    put(store, OFFSETS, Record(b"of a kind to come", b"\x00\x63rest", timestamp_ms=NOW_MS), commit(9))
    put(store, "orders", Record(b"a", timestamp_ms=NOW_MS))
    for topic in (OFFSETS, "orders"):
        log = store.log(topic)
        assert log is not None
        log.append_as_leader(
            unwalkable(), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR, is_validated=True
        )
    put(store, "orders", Record(b"b", timestamp_ms=NOW_MS))
    store.close()
    return tmp_path / "data"


def commit(offset: int) -> Record:
    ((key, value),) = encode_records(
        [OffsetRecord("g", TopicPartition("orders", 0), StoredOffset(offset, -1, "", 1, -1))]
    )
    return Record(value, key, timestamp_ms=NOW_MS)


def put(store: LogStore, topic: str, *records: Record) -> None:
    log = store.create_log(topic)
    log.append_as_leader(encode_batch(records), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)


def test_a_check_lists_offset_key_and_reason_and_changes_nothing(dlog: Dlog, data: Path) -> None:
    before = contents(data)
    outcome = dlog("log", "repair", data, "--check")
    assert outcome.code == 1
    assert "offset 2, key 0001" in outcome.out
    assert "offset 3, key 00:" in outcome.out
    assert "3 records from offset 6 on" in outcome.out
    assert "8 records to drop in 2 partitions" in outcome.out
    assert contents(data) == before


def test_what_is_dropped_is_told_and_kept_and_nothing_else_goes(dlog: Dlog, data: Path) -> None:
    rows = dlog("log", "repair", data, "-o", "json").rows
    dropped = [
        (row["path"], row["offset"], row["record_count"]) for row in rows if row["type"] == "unreadable"
    ]
    log = f"{0:020d}.log"
    assert dropped == [
        (f"{OFFSETS}-0/{log}", 2, 1),
        (f"{OFFSETS}-0/{log}", 3, 1),
        (f"{OFFSETS}-0/{log}", 6, 3),
        (f"orders-0/{log}", 1, 3),
    ]
    kept = [row["path"] for row in rows if row["type"] == "kept"]
    assert len(kept) == 3
    assert all((data / path).stat().st_size > 0 for path in kept)
    assert dlog("log", "repair", data).out == "0 records dropped in 2 partitions\n"
    assert dlog("log", "verify", data).code == 0
    assert offsets_in(dlog, data, OFFSETS) == [0, 1, 4, 5]
    assert offsets_in(dlog, data, "orders") == [0, 4]


def offsets_in(dlog: Dlog, data: Path, topic: str) -> list[int]:
    rows = dlog("log", "dump", data, "--topic", topic, "--records", "-o", "json").rows
    return [row["offset"] for row in rows if row["type"] == "record"]


def test_one_topic_is_repaired_and_the_other_left_alone(dlog: Dlog, data: Path) -> None:
    orders = contents(data / "orders-0")
    assert dlog("log", "repair", data, "--topic", OFFSETS).code == 0
    assert contents(data / "orders-0") == orders


def test_a_directory_that_is_in_use_is_refused_unless_it_is_only_looked_at(dlog: Dlog, data: Path) -> None:
    store = open_at(data)
    before = contents(data)
    outcome = dlog("log", "repair", data)
    assert outcome.code != 0
    assert "in use" in outcome.err
    assert dlog("log", "repair", data, "--check").code == 1
    assert contents(data) == before
    store.close()
