"""What a careless program does to `Log` and `Store`: it is told, and nothing is lost or left behind."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import distributedlog
from distributedlog import Header, Log, LogConfig, Record, Store
from distributedlog.model.errors import (
    DiskFullError,
    DlogError,
    InvalidNameError,
    InvalidRecordError,
    InvalidTimestampError,
    LogClosedError,
    RecordTooLargeError,
    StorageError,
)
from distributedlog.model.limits import RecordLimits
from distributedlog.records import record as record_codec
from tests.simulation.clock import ManualClock
from tests.simulation.disk import SimDisk
from tests.simulation.executor import InlineExecutor
from tests.unit.storage.support import NOW_MS, batch_of, value_of

COMPACTED = LogConfig(cleanup_policy=("compact",))
HEADERS_MAX = RecordLimits().headers_per_record_max


def simulated(disk: SimDisk, config: LogConfig | None = None, **options: Any) -> Log:
    ports = {"disk": disk, "clock": ManualClock(NOW_MS), "executor": InlineExecutor(), **options}
    return Log.open("/data", config=config, background=False, **ports)


# --- names -------------------------------------------------------------------------------------


def test_errors_are_found_beside_the_log() -> None:
    for name in distributedlog.__all__:
        assert getattr(distributedlog, name) is not None
    assert distributedlog.DlogError is DlogError
    assert distributedlog.DiskFullError is DiskFullError


def test_a_directory_may_be_named_by_a_path(tmp_path: Path) -> None:
    with Log.open(tmp_path / "data", background=False) as log:
        log.append(b"x")
    with Store.open(tmp_path / "data", background=False) as store:
        assert [str(name) for name in store.logs()] == ["log-0"]


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_directory_without_a_name_is_refused(path: str) -> None:
    with pytest.raises(InvalidNameError, match="is not the name of a directory"):
        Log.open(path)


@pytest.mark.parametrize("partition", [-1, 2**31, 1.5, "0", True, None])
def test_what_is_no_partition_is_refused_before_it_is_written(partition: Any) -> None:
    disk = SimDisk(1)
    with pytest.raises(InvalidNameError, match="a partition is a whole number"):
        simulated(disk, partition=partition)
    assert not [name for name in disk.list_directory("/data") if disk.is_directory(f"/data/{name}")]


# --- records -----------------------------------------------------------------------------------


def test_a_record_with_more_headers_than_can_be_read_is_not_written() -> None:
    log = simulated(SimDisk(1))
    headers = (Header("", None),) * HEADERS_MAX
    assert log.append(b"x", headers=headers) == 0
    with pytest.raises(InvalidRecordError, match=f"{HEADERS_MAX + 1} headers"):
        log.append(b"x", headers=(*headers, Header("", None)))
    with pytest.raises(InvalidRecordError, match=f"{HEADERS_MAX + 1} headers"):
        log.append_arrow(_row_with_headers(HEADERS_MAX + 1))
    assert log.append_arrow(_row_with_headers(HEADERS_MAX)) == range(1, 2)
    assert [len(record.headers) for record in log] == [HEADERS_MAX, HEADERS_MAX]


def _row_with_headers(count: int) -> pyarrow.RecordBatch:
    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    return pyarrow.record_batch(
        {
            "value": pyarrow.array([b"x"]),
            "headers": pyarrow.array([[{"key": "", "value": None}] * count], pyarrow.list_(header)),
        }
    )


def test_what_could_not_be_decompressed_again_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_codec, "DEFAULT_LIMITS", RecordLimits(decompressed_bytes_max=10_000))
    log = simulated(SimDisk(1))
    assert log.append_many([bytes(9_000)], codec="zstd") == range(1)
    with pytest.raises(RecordTooLargeError, match="before compression"):
        log.append_many([bytes(10_000)], codec="zstd")
    assert log.end_offset == 1


def test_bytes_are_not_taken_for_many_records() -> None:
    log = simulated(SimDisk(1))
    with pytest.raises(InvalidRecordError, match="not int"):
        log.append_many(b"abc")  # type: ignore[arg-type]
    assert log.end_offset == 0


# --- all or nothing ----------------------------------------------------------------------------


@pytest.mark.parametrize("flush_on_commit", [True, False])
def test_of_many_records_all_are_appended_or_none(flush_on_commit: bool) -> None:
    disk = SimDisk(1)
    config = LogConfig(segment_bytes=1024, flush_on_commit=flush_on_commit)
    log = simulated(disk, config)
    log.append(b"before")
    wrong = [Record(value_of(number) * 20) for number in range(30)] + [Record(b"x", timestamp_ms=2**60)]
    with pytest.raises(InvalidTimestampError):
        log.append_many(wrong)
    log.flush()
    assert log.end_offset == 1
    assert log.append(b"after") == 1
    assert [record.value for record in log] == [b"before", b"after"]
    disk.crash("drop")
    if flush_on_commit:
        assert [record.value for record in simulated(disk, config)] == [b"before", b"after"]


def test_many_records_for_which_the_disk_has_no_room_are_not_half_there() -> None:
    disk = SimDisk(1)
    disk.now_ms = NOW_MS
    log = simulated(disk, LogConfig(segment_bytes=1024, retention_ms=-1))
    log.append(b"before")
    disk.capacity_bytes = disk.used_bytes + 3000
    with pytest.raises(DiskFullError):
        log.append_many([value_of(number) * 20 for number in range(100)])
    disk.capacity_bytes = None
    assert log.append(b"after") == 1
    assert [record.value for record in log] == [b"before", b"after"]


def test_what_another_thread_waits_for_is_there_although_many_records_were_taken_back() -> None:
    log = simulated(SimDisk(1), LogConfig(segment_bytes=1024))
    store = log._store
    log._log.append_as_leader(batch_of([b"other"]), leader_epoch=0, now_ms=NOW_MS)  # not synced yet
    with pytest.raises(InvalidTimestampError):
        log.append_many([bytes(900), Record(b"x", timestamp_ms=2**60)])
    store.make_durable(log._log, 1)
    assert [record.value for record in log] == [b"other"]


# --- reading -----------------------------------------------------------------------------------


def test_only_the_end_of_a_log_reads_as_nothing() -> None:
    """Compaction left a batch whose last records are gone: nothing of it is at or after the offset."""
    log = simulated(SimDisk(1), COMPACTED)
    log.append_many([Record(b"old", b"key-%d" % number) for number in range(10)])
    log.append_many([Record(b"new", b"key-%d" % number) for number in range(5, 10)])
    log.roll()
    log.compact()
    assert [record.offset for record in log] == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    for offset in range(5, 11):
        assert [record.offset for record in log.read(offset, max_bytes=1)] == [10, 11, 12, 13, 14]
        assert log.read_arrow(offset, max_bytes=1).column("offset").to_pylist() == [10, 11, 12, 13, 14]
    assert log.read(15) == []
    assert log.read_arrow(15).num_rows == 0


# --- maintenance ------------------------------------------------------------------------------------


def test_a_damaged_log_does_not_keep_the_others_from_being_compacted() -> None:
    disk = SimDisk(1)
    disk.now_ms = NOW_MS
    config = LogConfig(segment_bytes=1024, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.1)
    log = simulated(disk, config, topic="a")
    store = log._store
    for each in (log, store.log("b")):
        for number in range(100):
            each.append(value_of(number), key=b"key-%d" % (number % 5))
    before = store.log("b").size_bytes
    disk.remove(f"{log.directory}/{0:020d}.log")
    with pytest.raises(StorageError):
        store.maintain()
    assert store.log("b").size_bytes < before


def test_the_age_of_a_segment_that_vanished_is_a_storage_error() -> None:
    """An OSError would end the thread that keeps the store up."""
    disk = SimDisk(1)
    log = simulated(disk, LogConfig(segment_bytes=1024))
    log.append_many([value_of(number) for number in range(100)])
    disk.remove(f"{log.directory}/{0:020d}.log")
    with pytest.raises(StorageError, match="cannot see the age"):
        log.maintain()


def test_a_trim_finds_room_for_its_own_note_on_a_full_disk() -> None:
    disk = SimDisk(1)
    disk.now_ms = NOW_MS
    log = simulated(disk, LogConfig(segment_bytes=1024))
    log.append_many([value_of(number) for number in range(200)])
    disk.capacity_bytes = disk.used_bytes
    log.trim(150)
    disk.crash("drop")
    disk.capacity_bytes = None
    assert simulated(disk).start_offset == 150


def test_a_closed_log_is_not_compacted() -> None:
    log = simulated(SimDisk(1), COMPACTED)
    log.append(b"x", key=b"k")
    log.close()
    with pytest.raises(LogClosedError):
        log.compact()


class ClosedMeanwhile(InlineExecutor):
    """An executor like `SystemExecutor` when another thread closes the store between planning and
    starting."""

    store: Store

    def run_cpu(self, *_: Any) -> None:
        self.store.close()
        raise RuntimeError("cannot schedule new futures after shutdown")


def test_a_compaction_that_a_close_overtakes_says_that_the_log_is_closed() -> None:
    executor = ClosedMeanwhile()
    log = simulated(SimDisk(1), COMPACTED, executor=executor)
    executor.store = log._store
    for _ in range(2):
        log.append(b"x", key=b"k")
        log.roll()
    with pytest.raises(LogClosedError):
        log.compact()


# --- forking -----------------------------------------------------------------------------------

FORKS = """
import os, sys
from distributedlog import Log, StorageError

def refused(use):
    try:
        use()
    except StorageError as error:
        return "forked" in str(error)
    return False

log = Log.open(sys.argv[1], background=False)
log.append(b"before")
child = os.fork()
if child == 0:
    uses = (lambda: log.append(b"child"), lambda: log.read(0), lambda: log.flush(), lambda: log.maintain())
    told = all(refused(use) for use in uses)
    log.close()
    os._exit(0 if told else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert not os.path.exists(sys.argv[1] + "/.kafka_cleanshutdown")
assert log.append(b"after") == 1
assert [record.value for record in log] == [b"before", b"after"]
log.close()
"""


def test_a_forked_process_cannot_use_its_parents_log(tmp_path: Path) -> None:
    """It would write over the parent's records, and its close would call the parent's stop clean."""
    subprocess.run([sys.executable, "-c", FORKS, str(tmp_path / "data")], check=True, timeout=60)
