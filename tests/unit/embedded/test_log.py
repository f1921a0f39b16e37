"""`Log` on a simulated disk and on a real one: the same things happen on both."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from distributedlog import Header, Log, LogConfig, Record
from distributedlog.model.errors import (
    DirectoryLockedError,
    DiskFullError,
    LogClosedError,
    LogDirectoryFailedError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from distributedlog.storage.append import Origin
from tests.simulation.clock import ManualClock
from tests.simulation.disk import SimDisk
from tests.simulation.executor import InlineExecutor
from tests.unit.storage.support import NOW_MS, batch_of, marker_of, value_of

OpenLog = Callable[..., Log]
SMALL = LogConfig(segment_bytes=1024, index_interval_bytes=100)


@pytest.fixture(params=["simulated", "real"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenLog]:
    """Opens the same directory each time."""
    opened: list[Log] = []
    ports: dict[str, Any] = {}
    path = str(tmp_path / "some" / "where")
    if request.param == "simulated":
        ports = {"disk": SimDisk(1), "clock": ManualClock(NOW_MS), "executor": InlineExecutor()}
        path = "/some/where"

    def open_it(**options: Any) -> Log:
        log = Log.open(path, background=False, **{"config": SMALL, **ports, **options})
        opened.append(log)
        return log

    yield open_it
    for log in opened:
        log.close()


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


# --- appending and reading ---------------------------------------------------------------------


def test_what_is_appended_is_read(open_log: OpenLog) -> None:
    log = open_log()
    headers = [("trace", b"1"), ("empty", None)]
    assert log.append(b"hello", key=b"k", headers=headers, timestamp_ms=NOW_MS) == 0
    assert log.append(None) == 1
    assert log.append(b"") == 2
    first, tombstone, empty = list(log)
    assert first == Record(b"hello", b"k", (Header("trace", b"1"), Header("empty", None)), NOW_MS, 0)
    assert (tombstone.value, tombstone.key, empty.value) == (None, None, b"")
    assert tombstone.timestamp_ms > 0
    assert (log.start_offset, log.end_offset, len(log)) == (0, 3, 3)
    assert log.read(3) == []


def test_many_records_become_as_many_batches_as_they_need(open_log: OpenLog) -> None:
    log = open_log()
    assert log.append_many([]) == range(0)
    assert log.append_many(value_of(number) for number in range(500)) == range(500)
    assert log.append_many([Record(b"x", timestamp_ms=NOW_MS), b"y"]) == range(500, 502)
    assert values(list(log)) == [value_of(number) for number in range(500)] + [b"x", b"y"]
    assert values(log.read(250, max_records=3)) == [value_of(number) for number in range(250, 253)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_can_be_used(open_log: OpenLog, codec: str) -> None:
    log = open_log(config=LogConfig())
    assert log.append_many([b"a" * 1000] * 50, codec=codec) == range(50)
    assert values(log.read(0)) == [b"a" * 1000] * 50
    assert (log.size_bytes < 10_000) == (codec != "none")


def test_an_unknown_codec_is_refused_by_name(open_log: OpenLog) -> None:
    with pytest.raises(ValueError, match="unknown codec 'zip'; known are none, gzip"):
        open_log().append_many([b"x"], codec="zip")


def test_a_record_that_is_too_large_appends_nothing(open_log: OpenLog) -> None:
    log = open_log()
    with pytest.raises(RecordTooLargeError, match="allow 1024"):
        log.append_many([b"small", b"x" * 5000])
    assert len(log) == 0


def test_arrow_goes_in_and_comes_out(open_log: OpenLog) -> None:
    log = open_log(config=LogConfig())
    table = pyarrow.table(
        {"key": pyarrow.array([b"a", None, b"c"]), "value": pyarrow.array([b"1", b"2", None])}
    )
    assert log.append_arrow(table) == range(3)
    assert log.append_arrow(table.to_batches()[0]) == range(3, 6)
    rows = [(b"a", b"1"), (None, b"2"), (b"c", None)]
    assert [(record.key, record.value) for record in log.read(0)] == rows * 2
    read = log.read_arrow(1)
    assert read.column("value").to_pylist() == [b"2", None, b"1", b"2", None]
    assert read.column("offset").to_pylist() == [1, 2, 3, 4, 5]


def test_much_arrow_is_cut_into_batches_that_fit(open_log: OpenLog) -> None:
    log = open_log()
    table = pyarrow.table({"value": [value_of(number) for number in range(300)]})
    assert log.append_arrow(table) == range(300)
    assert values(list(log)) == [value_of(number) for number in range(300)]


def test_reading_outside_of_the_log_is_refused(open_log: OpenLog) -> None:
    log = open_log()
    log.append(b"x")
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset)


def test_committed_only_leaves_out_what_is_aborted_or_undecided(open_log: OpenLog) -> None:
    log = open_log()
    inner = log._log

    def write(producer_id: int, value: bytes) -> None:
        batch = batch_of(
            [value], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        inner.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
        log.flush()

    def end(producer_id: int, *, commit: bool) -> None:
        marker = marker_of(producer_id, commit=commit)
        inner.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
        log.flush()

    write(1, b"committed")
    write(2, b"aborted")
    end(1, commit=True)
    end(2, commit=False)
    log.append(b"plain")
    write(3, b"undecided")
    log.append(b"behind")
    assert values(list(log.iterate(committed_only=True))) == [b"committed", b"plain"]
    assert values(log.read(0, committed_only=True))[:1] == [b"committed"]
    assert log.read_arrow(0, committed_only=True).column("value").to_pylist()[:1] == [b"committed"]
    assert log.read(log.end_offset, committed_only=True) == []
    assert values(list(log)) == [b"committed", b"aborted", b"plain", b"undecided", b"behind"]


def test_times_are_found(open_log: OpenLog) -> None:
    log = open_log()
    for number in range(50):
        log.append(value_of(number), timestamp_ms=NOW_MS - 10_000 + number * 100)
    assert log.offset_at(0) == 0
    assert log.offset_at(NOW_MS - 10_000 + 1_950) == 20
    assert log.offset_at(NOW_MS) is None


# --- maintenance ------------------------------------------------------------------------------------


def test_a_trimmed_log_starts_later_also_when_it_is_opened_again(open_log: OpenLog) -> None:
    log = open_log()
    log.append_many([value_of(number) for number in range(100)])
    log.trim(60)
    assert log.start_offset == 60
    assert next(iter(log)).offset == 60
    with pytest.raises(OffsetOutOfRangeError):
        log.read(59)
    with pytest.raises(OffsetOutOfRangeError):
        log.trim(101)
    log.close()
    log = open_log()
    assert (log.start_offset, log.end_offset) == (60, 100)
    assert values(list(log)) == [value_of(number) for number in range(60, 100)]


def test_an_iteration_passes_over_what_is_trimmed_meanwhile(open_log: OpenLog) -> None:
    log = open_log(config=LogConfig(segment_bytes=1024))
    log.append_many([value_of(number) for number in range(3000)])
    seen = []
    for record in log:
        seen.append(record.offset)
        if record.offset == 5:
            log.trim(2000)
    assert seen[:6] == list(range(6))
    assert seen[-1000:] == list(range(2000, 3000))
    with pytest.raises(OffsetOutOfRangeError):
        next(log.iterate(5))


def test_compaction_keeps_the_last_value_of_each_key(open_log: OpenLog) -> None:
    config = LogConfig(segment_bytes=1024, cleanup_policy=("compact",))
    log = open_log(config=config)
    for number in range(60):
        log.append(value_of(number), key=b"key-%d" % (number % 5))
    log.roll()
    assert log.compact() is not None
    assert [record.offset for record in log] == [55, 56, 57, 58, 59]
    assert log.append(b"more", key=b"key-0") == 60
    log.close()
    log = open_log(config=config)
    assert [record.offset for record in log] == [55, 56, 57, 58, 59, 60]


def test_a_log_that_is_not_compacted_has_nothing_to_compact(open_log: OpenLog) -> None:
    log = open_log()
    log.append(b"x", key=b"k")
    log.roll()
    assert log.compact() is None


def test_a_log_is_closed_and_opened_again(open_log: OpenLog) -> None:
    log = open_log()
    for turn in range(4):
        assert log.append_many([value_of(turn * 30 + number) for number in range(30)])[0] == turn * 30
        log.close()
        log = open_log()
        assert log.recovery.was_clean
        assert log.recovery.is_sound
        assert values(list(log)) == [value_of(number) for number in range((turn + 1) * 30)]


def test_a_closed_log_refuses_everything(open_log: OpenLog) -> None:
    log = open_log()
    log.append(b"x")
    log.close()
    log.close()
    for refused in (
        lambda: log.append(b"y"),
        lambda: log.append_many([b"y"]),
        lambda: log.read(0),
        lambda: list(log),
        lambda: log.offset_at(0),
        lambda: log.trim(1),
        lambda: log.roll(),
    ):
        with pytest.raises(LogClosedError):
            refused()


def test_two_cannot_have_one_directory(open_log: OpenLog) -> None:
    log = open_log()
    with pytest.raises(DirectoryLockedError):
        open_log()
    log.append(b"still works")
    log.close()
    assert values(list(open_log())) == [b"still works"]


# --- faults ------------------------------------------------------------------------------------


def simulated(disk: SimDisk, config: LogConfig = SMALL) -> Log:
    return Log.open(
        "/data",
        config=config,
        background=False,
        disk=disk,
        clock=ManualClock(NOW_MS),
        executor=InlineExecutor(),
    )


@pytest.mark.parametrize("mode", ["drop", "keep", "random"])
def test_what_append_returned_for_survives_a_crash(mode: Any) -> None:
    disk = SimDisk(3)
    for turn in range(5):
        log = simulated(disk)
        assert values(list(log)) == [value_of(number) for number in range(turn * 20)]
        for number in range(20):
            assert log.append(value_of(turn * 20 + number)) == turn * 20 + number
        disk.crash(mode)


def test_a_full_disk_refuses_and_takes_appends_again_when_there_is_room() -> None:
    disk = SimDisk(3)
    disk.now_ms = NOW_MS
    log = simulated(disk)
    log.append_many([value_of(number) for number in range(40)])
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(DiskFullError):
        log.append(b"x" * 500)
    assert values(list(log)) == [value_of(number) for number in range(40)]
    disk.capacity_bytes = None
    assert log.append(b"x" * 500) == 40


def test_retention_makes_room_on_a_full_disk() -> None:
    disk = SimDisk(3)
    disk.now_ms = NOW_MS
    config = LogConfig(segment_bytes=1024, retention_bytes=3000, retention_ms=-1)
    log = simulated(disk, config)
    log.append_many([value_of(number) for number in range(300)])
    disk.capacity_bytes = disk.used_bytes
    for number in range(300, 400):
        assert log.append(value_of(number)) == number
    assert log.start_offset > 0
    kept = values(list(log))
    assert kept == [value_of(number) for number in range(log.start_offset, 400)]
    assert sum(len(value or b"") for value in kept) > 1000


def test_a_failed_sync_is_told_and_the_log_is_read_on() -> None:
    disk = SimDisk(3)
    log = simulated(disk)
    log.append(b"safe")
    disk.inject("sync", "*.log", errno.EIO)
    with pytest.raises(LogDirectoryFailedError):
        log.append(b"lost")
    with pytest.raises(LogDirectoryFailedError):
        log.append(b"refused")
    assert values(list(log)) == [b"safe"]
    assert log.end_offset == 1
    log.close()
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_without_flush_on_commit_an_append_does_not_sync() -> None:
    disk = SimDisk(3)
    log = simulated(disk, LogConfig(flush_on_commit=False))
    log.append(b"x")
    syncs: list[str] = []
    disk.on_operation = lambda operation, path: syncs.append(path) if operation == "sync" else None
    log.append(b"y")
    assert not syncs
    assert log.end_offset == 2
    log.flush()
    assert syncs
    disk.crash("drop")
    assert values(list(simulated(disk))) == [b"x", b"y"]
