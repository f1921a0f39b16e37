"""Directories written by Apache Kafka, opened by us: the same records, offsets, times and transactions.

`golden/README.md` says what they hold.  What Kafka's own tools print of them is the oracle; later versions of
this project must still open them.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from distributedlog.model.config import LogConfig
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.disk import SystemDisk
from distributedlog.records.record import Record, decode_batch
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.segment import Segment
from distributedlog.storage.store import LogStore
from distributedlog.storage.txn_index import AbortedTransaction
from tests.simulation.clock import ManualClock, SeededRandomness

GOLDEN = Path(__file__).parent / "golden"
DEFAULTS = json.loads((GOLDEN / "defaults.json").read_text())
CLEAN = sorted(path.stem for path in (GOLDEN / "clean/expected").glob("*.json"))
CRASHED = sorted(path.stem for path in (GOLDEN / "crashed/recovered").glob("*.json"))
INTERVALS = {
    "append-time-0": 0,
    "index-full-0": 0,
    "index-full-same-time-0": 0,
    "segments-0": 256,
    "segments-1": 256,
    "start-advanced-0": 128,
    "time-roll-0": 0,
}
"""Topics with an `index.interval.bytes` of their own."""
INDEXED_OTHERWISE = {"__cluster_metadata-0", "epochs-0"}
"""One index entry for each append of several batches; time entries added by each of five closes."""

Facts = dict[str, Any]


def facts(kind: str, partition: str) -> Facts:
    loaded: Facts = json.loads((GOLDEN / f"{kind}/{partition}.json").read_text())
    return loaded


def open_copy(kind: str, tmp_path: Path) -> LogStore:
    """Golden files are never touched: opening a directory writes to it."""
    shutil.copytree(GOLDEN / kind / "data", tmp_path / "data")
    return LogStore.open(
        SystemDisk(),
        str(tmp_path / "data"),
        clock=ManualClock(),
        randomness=SeededRandomness(1),
        config=LogConfig(retention_ms=-1),
    )


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = open_copy("clean", tmp_path_factory.mktemp("clean"))
    yield store
    store.abandon()


def log_of(store: LogStore, partition: str) -> PartitionLog:
    return store.logs[TopicPartition.from_directory_name(partition)]


def batches_expected(known: Facts) -> list[Facts]:
    return [
        {**DEFAULTS["batch"], **batch}
        for name, content in known["files"].items()
        if name.endswith(".log")
        for batch in content["batches"]
    ]


def same_bytes(ours: bytes | None, theirs: str | Facts | None) -> bool:
    if ours is None or theirs is None:
        return ours is None and theirs is None
    if isinstance(theirs, str):
        return ours.hex() == theirs
    return (len(ours), hashlib.sha256(ours).hexdigest()) == (theirs["length"], theirs["sha256"])


def assert_same_record(ours: Record, theirs: Facts) -> None:
    theirs = {**DEFAULTS["record"], **theirs}
    assert ours.offset == theirs["offset"]
    if "decodedKey" in theirs:
        return  # an internal topic's: the tool printed them decoded
    assert same_bytes(ours.key, theirs["key"])
    assert same_bytes(ours.value, theirs["value"])
    assert [header.key for header in ours.headers] == [key for key, _ in theirs["headers"]]
    for our_header, (_, their_value) in zip(ours.headers, theirs["headers"], strict=True):
        assert same_bytes(our_header.value, their_value)


def visible(log: PartitionLog, *, committed_only: bool) -> list[int]:
    up_to = log.last_stable_offset if committed_only else log.high_watermark
    aborted = log.find_aborted_transactions(log.start_offset, up_to) if committed_only else []

    def is_aborted(producer_id: int, offset: int) -> bool:
        return any(
            e.producer_id == producer_id and e.first_offset <= offset <= e.last_offset for e in aborted
        )

    return [
        record.offset
        for batch in log.walk(log.start_offset, up_to)
        if not batch.header.is_control
        and not (
            batch.header.is_transactional and is_aborted(batch.header.producer_id, batch.header.base_offset)
        )
        for record in decode_batch(batch.window, batch.at)
        if log.start_offset <= record.offset < up_to
    ]


@pytest.mark.parametrize("partition", CLEAN)
def test_every_batch_and_record_is_read_as_kafka_reads_it(clean: LogStore, partition: str) -> None:
    log = log_of(clean, partition)
    expected = batches_expected(facts("clean/expected", partition))
    ours = list(log.walk(log.segments.first.base_offset, log.end_offset))
    assert len(ours) == len(expected)
    for batch, known in zip(ours, expected, strict=True):
        header = batch.header
        assert (header.base_offset, header.last_offset) == (known["baseOffset"], known["lastOffset"])
        assert (header.crc, header.size, batch.position) == (known["crc"], known["size"], known["position"])
        assert (header.producer_id, header.producer_epoch) == (known["producerId"], known["producerEpoch"])
        assert (header.is_transactional, header.is_control) == (known["isTransactional"], known["isControl"])
        assert header.codec.name.lower() == known["compresscodec"]
        assert header.max_timestamp == known["maxTimestamp"]
        if "records" in known and not header.is_control:
            records = decode_batch(batch.window, batch.at)
            assert len(records) == known["count"]
            for record, known_record in zip(records, known["records"], strict=True):
                assert_same_record(record, known_record)


@pytest.mark.parametrize("partition", [name for name in CLEAN if "served" in facts("clean/expected", name)])
def test_offsets_isolation_and_times_are_what_the_broker_served(clean: LogStore, partition: str) -> None:
    log = log_of(clean, partition)
    served = facts("clean/expected", partition)["served"]
    assert log.start_offset == served["earliest_offset"]
    assert log.end_offset == served["latest_offset"]
    assert log.last_stable_offset == served["last_stable_offset"]
    assert visible(log, committed_only=False) == served["offsets_read_uncommitted"]
    assert visible(log, committed_only=True) == served["offsets_read_committed"]
    for asked, offset, timestamp in served["first_at_or_after"]:
        found = log.find_timestamp(asked)
        assert (None if found is None else (found.offset, found.timestamp_ms)) == (
            None if offset == -1 else (offset, timestamp)
        )


@pytest.mark.parametrize("partition", CLEAN)
def test_every_offset_is_found_through_kafkas_own_index(clean: LogStore, partition: str) -> None:
    log = log_of(clean, partition)
    for batch in log.walk(log.start_offset, log.end_offset):
        for offset in {max(batch.header.base_offset, log.start_offset), batch.header.last_offset}:
            result = log.read(offset, 1)
            assert result.region is not None
            with result.region as region:
                assert region.read() == bytes(batch.data)


@pytest.mark.parametrize(
    "partition", [name for name in CLEAN if "compacted" not in name and name not in INDEXED_OTHERWISE]
)
def test_a_rebuilt_index_is_kafkas_byte_for_byte(partition: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "clean/data" / partition, tmp_path / partition)
    files = Files(SystemDisk())
    for log_file in sorted((tmp_path / partition).glob("*.log")):
        before = [log_file.with_suffix(suffix).read_bytes() for suffix in (".index", ".timeindex")]
        interval = INTERVALS.get(partition, 4096)
        segment = Segment.open(files, str(tmp_path / partition), int(log_file.stem), interval)
        segment.rebuild_indexes()
        assert [log_file.with_suffix(suffix).read_bytes() for suffix in (".index", ".timeindex")] == before
        segment.close()


@pytest.mark.parametrize("partition", CLEAN)
def test_producers_and_aborted_transactions_are_kafkas(clean: LogStore, partition: str) -> None:
    log = log_of(clean, partition)
    known = facts("clean/expected", partition)["files"]
    aborted = [
        AbortedTransaction(e["producerId"], e["firstOffset"], e["lastOffset"], e["lastStableOffset"])
        for name in sorted(known)
        if name.endswith(".txnindex")
        for e in known[name]
    ]
    if "compacted" not in partition:
        assert log.find_aborted_transactions(log.start_offset, log.end_offset) == aborted
    snapshots = sorted(name for name in known if name.endswith(".snapshot"))
    if snapshots:
        theirs = {entry["producerId"]: entry for entry in known[snapshots[-1]]}
        ours = {state.producer_id: state for state in log.producers}
        assert set(ours) == set(theirs)
        for producer_id, entry in theirs.items():
            assert ours[producer_id].epoch == entry["producerEpoch"]
            assert ours[producer_id].last_offset == entry["lastOffset"]


def test_a_lost_transaction_index_hides_no_abort(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "clean/data", tmp_path / "data")
    for lost in (tmp_path / "data/transactions-0").glob("*.txnindex"):
        lost.unlink()
    store = LogStore.open(
        SystemDisk(), str(tmp_path / "data"), clock=ManualClock(), randomness=SeededRandomness(1)
    )
    served = facts("clean/expected", "transactions-0")["served"]
    assert visible(log_of(store, "transactions-0"), committed_only=True) == served["offsets_read_committed"]
    store.abandon()


@pytest.mark.parametrize("partition", CRASHED)
def test_after_a_kill_we_recover_what_kafka_recovers(partition: str, tmp_path: Path) -> None:
    store = open_copy("crashed", tmp_path)
    assert not store.was_clean
    log = log_of(store, partition)
    report = store.reports[TopicPartition.from_directory_name(partition)]
    known = facts("crashed/recovered", partition)
    assert report.is_sound
    expected = [(batch["baseOffset"], batch["crc"]) for batch in batches_expected(known)]
    assert [
        (b.header.base_offset, b.header.crc) for b in log.walk(log.start_offset, log.end_offset)
    ] == expected
    if "served" in known:
        assert log.end_offset == known["served"]["latest_offset"]
        log.advance_high_watermark(log.end_offset)
        assert visible(log, committed_only=True) == known["served"]["offsets_read_committed"]
    acked = json.loads((GOLDEN / "crashed/acked.json").read_text())
    topic = TopicPartition.from_directory_name(partition).topic
    assert log.end_offset > acked.get(topic, -1)
    store.abandon()


@pytest.mark.parametrize(
    ("partition", "damage"),
    [
        ("crashed-0", lambda data: data[:-7]),
        ("crashed-transactions-0", lambda data: data[:-30]),
        ("crashed-plain-0", lambda data: data + bytes(100)),
    ],
)
def test_a_torn_tail_is_cut_where_kafka_cuts_it(partition: str, damage: Any, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "crashed/data", tmp_path / "data")
    newest = sorted((tmp_path / "data" / partition).glob("*.log"))[-1]
    newest.write_bytes(damage(newest.read_bytes()))
    store = LogStore.open(
        SystemDisk(), str(tmp_path / "data"), clock=ManualClock(), randomness=SeededRandomness(1)
    )
    log = log_of(store, partition)
    expected = [
        (b["baseOffset"], b["crc"]) for b in batches_expected(facts("crashed/torn-recovered", partition))
    ]
    assert [
        (b.header.base_offset, b.header.crc) for b in log.walk(log.start_offset, log.end_offset)
    ] == expected
    assert store.reports[TopicPartition.from_directory_name(partition)].truncated_bytes > 0
    store.abandon()
