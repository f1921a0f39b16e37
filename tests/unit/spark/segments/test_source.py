"""Segment files as rows: those a consumer would get, whoever wrote them and whatever happens meanwhile."""

import hashlib
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.config import LogConfig
from distributedlog.model.errors import (
    ConfigError,
    CorruptLogError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.disk import SystemFile
from distributedlog.records.control import ControlType
from distributedlog.spark.segments.options import SegmentOptions
from distributedlog.spark.segments.plan import Bounds, Extent, SegmentTask, bounds
from distributedlog.spark.segments.source import SegmentReader, segment_offsets
from distributedlog.storage.compaction.log import commit_compaction, plan_compaction, run_compaction
from distributedlog.storage.txn_index import ENTRY, VERSION
from tests.unit.spark.segments.directories import (
    NOW_MS,
    SMALL,
    append,
    commit,
    end_transaction,
    read,
    rows_of,
    rows_of_log,
    store,
)

GOLDEN = Path(__file__).parents[2] / "storage" / "golden"
HERE = TopicPartition("orders", 0)


def fingerprint(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


# --- whoever wrote them ------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["clean", "0.1.0"])
@pytest.mark.parametrize("task_bytes", ["1", "67108864"])
def test_a_directory_reads_as_it_does_through_the_log_engine(
    tmp_path: Path, origin: str, task_bytes: str
) -> None:
    """Kafka's own directory, and one of our first version: all codecs, transactions, compacted, trimmed."""
    source = GOLDEN / origin / "data"
    before = fingerprint(source)
    found = read(source, taskBytes=task_bytes)
    assert fingerprint(source) == before
    shutil.copytree(source, tmp_path / "data")
    with store(tmp_path / "data", LogConfig()) as engine:
        expected = {
            partition: rows
            for partition, log in engine.logs.items()
            if not partition.topic.startswith("__") and (rows := rows_of_log(log))
        }
    assert sum(map(len, expected.values())) > 50
    assert found == expected


@settings(max_examples=40, deadline=None)
@given(
    story=st.lists(st.tuples(st.sampled_from("pppabcde"), st.integers(1, 4)), max_size=60),
    task_bytes=st.sampled_from(["1", "700", "100000"]),
    unseen=st.integers(0, 6),
)
def test_any_mix_of_transactions_reads_as_through_the_log_engine(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[str, int]], task_bytes: str, unseen: int
) -> None:
    """p: a batch of nobody's; a, b: one of that producer's transaction; c, d: it commits; e: a aborts."""
    directory = tmp_path_factory.mktemp("mix")
    sequences = {"a": 0, "b": 0}
    with store(directory) as engine:
        log = engine.create_log(*HERE)
        for act, count in story:
            values = [f"{act}{log.end_offset + n}".encode() for n in range(count)]
            if act == "p":
                append(log, *values)
            elif act in sequences:
                append(log, *values, producer_id=ord(act), sequence=sequences[act])
                sequences[act] += count
            else:
                kind = ControlType.ABORT if act == "e" else ControlType.COMMIT
                end_transaction(log, ord({"c": "a", "d": "b", "e": "a"}[act]), kind)
        log.advance_high_watermark(max(log.start_offset, log.end_offset - unseen))
        engine.checkpoint()
        expected = rows_of_log(log)
        assert read(directory, taskBytes=task_bytes) == ({HERE: expected} if expected else {})
        ends = json.loads(segment_offsets(str(directory)))
        assert ends["orders"] == {"0": log.last_stable_offset}
        everything = read(directory, **{"isolation.level": "read_uncommitted"})
        expected_count = sum(
            batch.header.record_count
            for batch in log.walk(0, log.high_watermark)
            if not batch.header.is_control and batch.header.next_offset <= log.high_watermark
        )
        assert len(everything.get(HERE, [])) >= expected_count


def test_an_end_within_a_transaction_still_knows_how_it_ended(tmp_path: Path) -> None:
    with store(tmp_path) as engine:
        log = engine.create_log(*HERE)
        append(log, b"0", b"1", producer_id=7, sequence=0)
        append(log, b"2", b"3", producer_id=8, sequence=0)
        end_transaction(log, 7, ControlType.ABORT)
        end_transaction(log, 8, ControlType.COMMIT)
        commit(engine)
    rows = read(tmp_path, endingOffsets='{"orders":{"0":3}}')[HERE]
    assert [row[2] for row in rows] == [b"2"]


def test_an_open_transaction_ends_what_can_be_read(tmp_path: Path) -> None:
    with store(tmp_path) as engine:
        log = engine.create_log(*HERE)
        append(log, b"0")
        append(log, b"1", producer_id=7, sequence=0)
        append(log, b"2")
        commit(engine)
        assert [row[2] for row in read(tmp_path)[HERE]] == [b"0"]
        with pytest.raises(OffsetOutOfRangeError, match="decided up to 1: a transaction is open"):
            read(tmp_path, endingOffsets='{"orders":{"0":3}}')
        uncommitted = read(tmp_path, **{"kafka.isolation.level": "read_uncommitted"})[HERE]
        assert [row[2] for row in uncommitted] == [b"0", b"1", b"2"]


def test_a_transaction_index_that_lies_is_not_believed(tmp_path: Path) -> None:
    with store(tmp_path) as engine:
        log = engine.create_log(*HERE)
        for number in range(40):
            append(log, b"x" * 100, producer_id=7, sequence=number)
        end_transaction(log, 7, ControlType.COMMIT)
        commit(engine)
        log.roll(NOW_MS)
    first = tmp_path / "orders-0" / f"{0:020d}.txnindex"
    first.write_bytes(ENTRY.pack(VERSION, 7, 0, 5, 6))
    with pytest.raises(CorruptLogError, match=r"says that 7 aborted at 5, and the log does not"):
        read(tmp_path)


# --- how far -----------------------------------------------------------------------------------


def filled(directory: Path, batches: int = 60, config: LogConfig = SMALL) -> list[bytes]:
    """Two records a batch, several segments; all committed, and closed."""
    values = [f"{number:0100d}".encode() for number in range(2 * batches)]
    with store(directory, config) as engine:
        log = engine.create_log(*HERE)
        for number in range(0, 2 * batches, 2):
            append(log, *values[number : number + 2])
        commit(engine)
        assert len(log.segments) > 3
    return values


def test_what_is_not_committed_is_not_read(tmp_path: Path) -> None:
    with store(tmp_path) as engine:
        log = engine.create_log(*HERE)
        append(log, b"0")
        commit(engine)
        append(log, b"1")
        assert [row[2] for row in read(tmp_path)[HERE]] == [b"0"]
        with pytest.raises(OffsetOutOfRangeError, match="of which 1 is committed"):
            read(tmp_path, endingOffsets='{"orders":{"0":2}}')


def test_a_directory_that_somebody_owns_is_read_all_the_same(tmp_path: Path) -> None:
    with store(tmp_path) as engine:
        append(engine.create_log(*HERE), b"0")
        commit(engine)
        assert len(read(tmp_path)[HERE]) == 1
        append(engine.logs[HERE], b"1")
        commit(engine)
        assert len(read(tmp_path)[HERE]) == 2


def test_without_a_checkpoint_the_caller_must_say_how_far(tmp_path: Path) -> None:
    values = filled(tmp_path / "data")
    shutil.copytree(tmp_path / "data" / "orders-0", tmp_path / "elsewhere" / "orders-0")
    alone = tmp_path / "elsewhere" / "orders-0"
    with pytest.raises(ConfigError, match="how far orders-0 is committed is not known"):
        read(alone)
    rows = read(alone, endingOffsets='{"orders":{"0":50}}')[HERE]
    assert [row[2] for row in rows] == values[:50]
    with pytest.raises(CorruptLogError, match="ends too early: offset 199 should be there"):
        read(alone, endingOffsets='{"orders":{"0":200}}')


@pytest.mark.parametrize("task_bytes", ["1", "500", "67108864"])
@pytest.mark.parametrize(("start", "end"), [(0, 120), (1, 119), (33, 34), (40, 40), (7, 90)])
def test_offsets_say_exactly_what_is_read(tmp_path: Path, start: int, end: int, task_bytes: str) -> None:
    values = filled(tmp_path)
    found = read(
        tmp_path,
        startingOffsets=json.dumps({"orders": {"0": start}}),
        endingOffsets=json.dumps({"orders": {"0": end}}),
        taskBytes=task_bytes,
    )
    assert [row[2] for row in found.get(HERE, [])] == values[start:end]


def test_a_log_is_split_into_tasks_by_its_indexes(tmp_path: Path) -> None:
    filled(tmp_path)
    segments = len(list((tmp_path / "orders-0").glob("*.log")))
    few = SegmentReader({"segments": str(tmp_path)}).partitions()
    many = SegmentReader({"segments": str(tmp_path), "minPartitions": "40"}).partitions()
    assert len(few) <= segments < len(many)
    assert pickle.loads(pickle.dumps(many)) == many


LARGE = LogConfig(segment_bytes=64 * 1024 * 1024, index_interval_bytes=4096)


def filled_with_large_batches(directory: Path) -> int:
    """How long the one segment's file is."""
    with store(directory, LARGE) as engine:
        log = engine.create_log(*HERE)
        for number in range(80):
            append(log, b"%02d" % number * 25_000)
        commit(engine)
    (snapshot,) = (directory / "orders-0").glob("*.snapshot")
    snapshot.unlink()  # as after a crash: how transactions ended is known from the log only
    (file,) = (directory / "orders-0").glob("*.log")
    return file.stat().st_size


def test_the_tasks_of_a_segment_are_of_one_size(tmp_path: Path) -> None:
    size = filled_with_large_batches(tmp_path)
    for task_bytes, tasks in ((size, 1), (size - 1, 2), (size // 3 + 1, 3), (int(size / 3.1), 4)):
        planned = SegmentReader({"segments": str(tmp_path), "taskBytes": str(task_bytes)}).partitions()
        offsets = [task.end - task.start for task in planned if isinstance(task, SegmentTask)]
        assert len(offsets) == tasks
        assert sum(offsets) == 80
        assert min(offsets) >= 80 // tasks - tasks


def test_a_plan_reads_little_and_tasks_read_hardly_more_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = filled_with_large_batches(tmp_path)
    monkeypatch.setattr("distributedlog.spark.segments.files.WINDOW_BYTES", 250_000)
    lengths: list[int] = []
    read_at = SystemFile.read_at

    def counted(self: SystemFile, position: int, length: int) -> bytes:
        lengths.append(length)
        return read_at(self, position, length)

    monkeypatch.setattr(SystemFile, "read_at", counted)
    reader = SegmentReader({"segments": str(tmp_path), "taskBytes": str(size // 8), "includeHeaders": "true"})
    tasks = reader.partitions()
    assert sum(lengths) < size / 2
    lengths.clear()
    assert len(rows_of(reader, tasks)[HERE]) == 80
    assert len(tasks) == 8
    assert sum(lengths) < 2 * size


def test_what_was_there_before_the_first_task_is_not_searched_for_garbage_after_each() -> None:
    looking = (
        "import gc\n"
        "from distributedlog.spark.worker_memory import settle\n"
        "assert gc.get_freeze_count() == 0\n"
        "settle()\n"
        "kept = gc.get_freeze_count()\n"
        "assert kept > 1000\n"
        "ring = []\n"
        "ring.append(ring)\n"
        "settle()\n"
        "assert gc.get_freeze_count() <= kept\n"
        "del ring\n"
        "assert gc.collect() > 0\n"
    )
    subprocess.run([sys.executable, "-c", looking], check=True, timeout=60)


def test_a_reader_travels_to_tasks_and_reads_there(tmp_path: Path) -> None:
    values = filled(tmp_path)
    reader = SegmentReader({"segments": str(tmp_path), "includeHeaders": "true"})
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    rows = rows_of(pickle.loads(pickle.dumps(reader)), tasks)
    assert [row[2] for row in rows[HERE]] == values


def _moved(entry: bytes) -> bytes:
    """The same offset at another place in the file."""
    return entry[:4] + (int.from_bytes(entry[4:], "big") + 7).to_bytes(4, "big")


@pytest.mark.parametrize("damage", ["missing", "cut", "lying", "falling", "swapped"])
def test_an_index_that_cannot_be_used_costs_no_row(tmp_path: Path, damage: str) -> None:
    values = filled(tmp_path)
    for index in (tmp_path / "orders-0").glob("*.index"):
        data = index.read_bytes()
        if damage == "missing":
            index.unlink()
        elif damage == "cut":
            index.write_bytes(data[:-3])
        elif damage == "lying":
            index.write_bytes(b"".join(_moved(data[at : at + 8]) for at in range(0, len(data), 8)))
        else:
            entries = [data[at : at + 8] for at in range(0, len(data), 8)]
            if damage == "swapped":  # each offset stands beside its neighbour's place
                order = [number ^ 1 for number in range(len(entries) // 2 * 2)]
                entries = [entries[order[at]][:4] + entries[at][4:] for at in range(len(order))]
            else:
                entries.reverse()
            index.write_bytes(b"".join(entries))
    assert [row[2] for row in read(tmp_path, taskBytes="1")[HERE]] == values


def test_a_damaged_batch_is_an_error_that_says_where(tmp_path: Path) -> None:
    filled(tmp_path)
    (log, *_) = sorted((tmp_path / "orders-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[300] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptLogError, match="orders-0, from offset 0 on"):
        read(tmp_path)


# --- whatever happens meanwhile ----------------------------------------------------------------


def test_segments_that_retention_takes_while_they_are_open_are_read_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distributedlog.spark.segments.source.RECORDS_GATHERED", 1)
    monkeypatch.setattr("distributedlog.spark.segments.files.WINDOW_BYTES", 300)
    values = filled(tmp_path)
    reader = SegmentReader({"segments": str(tmp_path), "includeHeaders": "true"})
    task, *_ = reader.partitions()
    assert isinstance(task, SegmentTask)
    rows = reader.read(task)
    found = [row["value"] for row in next(rows).to_pylist()]
    with store(tmp_path) as engine:
        log = engine.logs[HERE]
        log.advance_start_offset(60, NOW_MS)
        log.remove_deleted_files(2**62)
    assert not (tmp_path / "orders-0" / f"{0:020d}.log").exists()
    found += [row["value"] for batch in rows for row in batch.to_pylist()]
    assert len(found) > 4
    assert found == values[: task.end]


def test_what_retention_took_before_it_was_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    values = filled(tmp_path)
    options = {"segments": str(tmp_path), "includeHeaders": "true"}
    strict = SegmentReader(options)
    lenient = SegmentReader(options | {"failOnDataLoss": "false"})
    tasks = strict.partitions()
    with store(tmp_path) as engine:
        log = engine.logs[HERE]
        log.advance_start_offset(60, NOW_MS)
        log.remove_deleted_files(2**62)
        first = log.segments.first.base_offset
    with pytest.raises(OffsetOutOfRangeError, match=r"orders-0 has no offsets 0 to \d+ any more"):
        rows_of(strict, tasks)
    assert [row[2] for row in rows_of(lenient, tasks)[HERE]] == values[first:]
    with pytest.raises(OffsetOutOfRangeError, match="startingOffsets has 3 for orders-0, which begins at 60"):
        read(tmp_path, startingOffsets='{"orders":{"0":3}}')


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("is_all_gone", [False, True])
def test_what_is_deleted_while_it_is_planned_is_an_error_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str, is_all_gone: bool
) -> None:
    filled(tmp_path)

    def bounds_late(options: SegmentOptions, found: list[Extent]) -> Bounds:
        limits = bounds(options, found)
        if is_all_gone:
            shutil.rmtree(tmp_path / "orders-0")
        else:
            for each in (tmp_path / "orders-0").glob(f"{0:020d}.*"):
                each.unlink()
        return limits

    monkeypatch.setattr("distributedlog.spark.segments.plan.bounds", bounds_late)
    options = {"segments": str(tmp_path), "isolation.level": isolation, "minPartitions": "3"}
    reader = SegmentReader(options)
    with pytest.raises(OffsetOutOfRangeError, match=r"orders-0 has no offsets 0 to \d+ any more"):
        rows_of(reader, reader.partitions())


def test_a_topic_that_is_deleted_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    filled(tmp_path)
    reader = SegmentReader({"segments": str(tmp_path)})
    tasks = reader.partitions()
    shutil.rmtree(tmp_path / "orders-0")
    with pytest.raises(OffsetOutOfRangeError, match="any more"):
        rows_of(reader, tasks)


def test_segments_that_compaction_replaced_are_read_as_they_are_now(tmp_path: Path) -> None:
    """Planned before, read after: positions are wrong by then, files are merged, and no row is wrong."""
    config = LogConfig(segment_bytes=2048, index_interval_bytes=256, cleanup_policy=("compact",))
    with store(tmp_path, config) as engine:
        log = engine.create_log(*HERE)
        for number in range(200):
            append(log, b"%d" % (number % 7), b"x" * 60)
        commit(engine)
        reader = SegmentReader({"segments": str(tmp_path), "taskBytes": "1", "includeHeaders": "true"})
        tasks = reader.partitions()
        before = rows_of_log(log)
        log.sync()
        plan = plan_compaction(log, 0, NOW_MS, force=True)
        assert plan is not None
        assert commit_compaction(log, run_compaction(plan, engine.files.disk), NOW_MS)
        log.remove_deleted_files(2**62)
        expected = rows_of_log(log)
        assert len(expected) < len(before) / 2
        assert rows_of(reader, tasks)[HERE] == expected


# --- which of them -----------------------------------------------------------------------------


def directory_of_many(directory: Path) -> None:
    with store(directory) as engine:
        for name, partition in (("orders", 0), ("orders", 1), ("payments", 0), ("__internal", 0)):
            append(engine.create_log(name, partition), f"{name}-{partition}".encode())
        commit(engine)


@pytest.mark.parametrize(
    ("path", "options", "expected"),
    [
        ("", {}, ["orders-0", "orders-1", "payments-0"]),
        ("orders", {}, ["orders-0", "orders-1"]),
        ("orders-1", {}, ["orders-1"]),
        ("__internal-0", {}, ["__internal-0"]),
        ("", {"subscribe": "payments,orders"}, ["orders-0", "orders-1", "payments-0"]),
        ("", {"subscribePattern": "pay.*"}, ["payments-0"]),
        ("", {"assign": '{"orders":[1]}'}, ["orders-1"]),
    ],
)
def test_a_path_and_a_subscription_say_what_is_meant(
    tmp_path: Path, path: str, options: dict[str, str], expected: list[str]
) -> None:
    directory_of_many(tmp_path)
    found = read(tmp_path / path, **options)
    assert sorted(map(str, found)) == expected
    assert all(rows[0][2] == str(partition).encode() for partition, rows in found.items())


@pytest.mark.parametrize(
    ("path", "options", "answer"),
    [
        ("nowhere/at/all", {}, "there is no such directory"),
        ("invoices", {}, "where there are no partitions"),
        ("", {"subscribe": "invoices"}, "has nothing of invoices"),
        ("", {"assign": '{"orders":[5]}'}, "has nothing of orders"),
        ("", {"startingOffsets": '{"orders":{"0":0}}'}, "says nothing of orders-1"),
        ("", {"startingOffsets": "latest"}, "leave nothing to read"),
        ("", {"startingOffsets": "yesterday"}, "write earliest, latest or JSON"),
        ("orders-0", {"startingOffsets": '{"orders":{"0":1}}', "endingOffsets": '{"orders":{"0":0}}'},
         "would start at 1 and end at 0"),
        ("", {"startingTimestamp": "1"}, "say where to begin and to end with offsets"),
        ("", {"isolation.level": "serializable"}, "write read_committed or read_uncommitted"),
        ("", {"failOnDataLos": "true"}, "did you mean failOnDataLoss"),
        ("", {"taskBytes": "0"}, "write a whole number"),
        ("", {"failOnDataLoss": "maybe"}, "write true or false"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_answered_with_what_to_do(
    tmp_path: Path, path: str, options: dict[str, str], answer: str
) -> None:
    directory_of_many(tmp_path)
    with pytest.raises(ConfigError, match=answer):
        read(tmp_path / path, **options)


def test_offsets_of_a_topic_that_was_made_again_are_refused(tmp_path: Path) -> None:
    directory_of_many(tmp_path)
    offsets = segment_offsets(str(tmp_path / "payments"))
    assert read(tmp_path / "payments", endingOffsets=offsets)[TopicPartition("payments", 0)]
    told: dict[str, Any] = {"payments": {"0": 1}, "payments@AAAAAAAAAAAAAAAAAAAAAQ": {}}
    with pytest.raises(UnknownTopicIdError, match="deleted and made again"):
        read(tmp_path / "payments", endingOffsets=json.dumps(told))


def test_options_that_are_for_the_stream_do_no_harm(tmp_path: Path) -> None:
    directory_of_many(tmp_path)
    told = {"kafka.bootstrap.servers": "127.0.0.1:9092", "kafka.group.id": "g", "subscribe": "payments"}
    assert list(read(tmp_path, **told)) == [TopicPartition("payments", 0)]
