"""`Store`: many logs, many threads, one directory."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from distributedlog import LogConfig, Record, Store
from distributedlog.model.errors import LogClosedError, LogDirectoryFailedError, StorageError
from distributedlog.ports.disk import SystemDisk, SystemFile
from tests.simulation.clock import ManualClock
from tests.simulation.disk import SimDisk
from tests.simulation.executor import InlineExecutor
from tests.unit.storage.support import NOW_MS, value_of

THREADS = 8
APPENDS = 25


class CountingFile(SystemFile):
    """A real file that counts its syncs, and holds the first one back until it is let go."""

    disk: "CountingDisk"

    def sync(self) -> None:
        if self.disk.is_counting and self.path.endswith(".log"):
            self.disk.log_syncs += 1
            self.disk.first_sync.set()
            assert self.disk.let_go.wait(30)
        super().sync()


class CountingDisk(SystemDisk):
    def __init__(self) -> None:
        self.is_counting = False
        self.log_syncs = 0
        self.first_sync = threading.Event()
        self.let_go = threading.Event()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> SystemFile:
        opened = super().open(path, write=write, create=create)
        file = CountingFile.__new__(CountingFile)
        SystemFile.__init__(file, path, opened.fileno())
        opened._descriptor = -1
        file.disk = self
        return file


def run_threads(count: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def simulated(disk: SimDisk, config: LogConfig | None = None) -> Store:
    return Store.open(
        "/data",
        config=config,
        background=False,
        disk=disk,
        clock=ManualClock(NOW_MS),
        executor=InlineExecutor(),
    )


# --- threads -----------------------------------------------------------------------------------


def test_appends_made_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    disk = CountingDisk()
    with Store.open(str(tmp_path / "data"), background=False, disk=disk) as store:
        log = store.log("t")
        disk.is_counting = True
        started = threading.Semaphore(0)
        offsets: list[int] = []

        def append(number: int) -> None:
            if number > 0:
                assert disk.first_sync.wait(30)
            started.release()
            offsets.append(log.append(value_of(number)))

        def let_go_when_all_have_come(_: int) -> None:
            for _ in range(THREADS):
                assert started.acquire(timeout=30)
            while log._log.end_offset < THREADS:
                assert not disk.let_go.wait(0.001)
            disk.let_go.set()

        run_threads(
            THREADS + 1,
            lambda number: append(number) if number < THREADS else let_go_when_all_have_come(number),
        )
        assert sorted(offsets) == list(range(THREADS))
        assert disk.log_syncs == 2  # the first append's, and one for all others


def test_threads_that_append_and_read_see_one_order(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2048)
    with Store.open(str(tmp_path / "data"), config=config, open_files_max=4) as store:
        log = store.log("t")
        offsets: dict[int, bytes] = {}

        def work(number: int) -> None:
            for turn in range(APPENDS):
                value = value_of(number * APPENDS + turn)
                offset = log.append(value)
                assert offset not in offsets
                offsets[offset] = value
                assert log.read(offset)[0].value == value
                assert sum(1 for _ in log) >= turn

        run_threads(THREADS, work)
        assert {record.offset: record.value for record in log} == offsets
    with Store.open(str(tmp_path / "data"), background=False) as store:
        assert {record.offset: record.value for record in store.log("t")} == offsets
        assert store.log("t").recovery.was_clean


def test_many_logs_are_appended_to_by_many_threads(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "data"), background=False, open_files_max=3) as store:

        def work(number: int) -> None:
            log = store.log("t", number % 4)
            for turn in range(APPENDS):
                log.append(value_of(number * APPENDS + turn))

        run_threads(THREADS, work)
        store.flush()
        for partition in range(4):
            found = sorted(record.value or b"" for record in store.log("t", partition))
            assert found == sorted(
                value_of(number * APPENDS + turn)
                for number in range(partition, THREADS, 4)
                for turn in range(APPENDS)
            )


def test_a_failed_sync_is_told_to_every_thread_that_waits() -> None:
    disk = SimDisk(1)
    store = simulated(disk)
    log = store.log("t")
    log.append(b"safe")
    disk.inject("sync", "*.log", count=1)
    refused = []

    def work(_: int) -> None:
        try:
            log.append(b"x")
        except LogDirectoryFailedError as error:
            refused.append(error)

    run_threads(THREADS, work)
    assert len(refused) == THREADS
    assert [record.value for record in log] == [b"safe"]


# --- logs --------------------------------------------------------------------------------------


def test_logs_are_made_listed_deleted_and_made_again() -> None:
    disk = SimDisk(1)
    store = simulated(disk)
    first = store.log("a")
    first.append(b"1")
    store.log("b", 2).append(b"2")
    assert [str(key) for key in store.logs()] == ["a-0", "b-2"]
    store.delete("a")
    assert [str(key) for key in store.logs()] == ["b-2"]
    with pytest.raises(LogClosedError):
        first.append(b"x")
    with pytest.raises(StorageError):
        store.delete("a")
    again = store.log("a")
    assert len(again) == 0
    assert again.append(b"new") == 0
    disk.crash("drop")
    store = simulated(disk)
    assert [record.value for record in store.log("a")] == [b"new"]
    assert [record.value for record in store.log("b", 2)] == [b"2"]


def test_a_log_of_a_store_is_closed_with_the_store() -> None:
    store = simulated(SimDisk(1))
    log = store.log("t")
    log.close()
    log.append(b"still open")
    store.close()
    store.close()
    with pytest.raises(LogClosedError):
        log.append(b"x")
    with pytest.raises(LogClosedError):
        store.log("t")


def test_compacting_a_log_that_was_deleted_does_nothing() -> None:
    store = simulated(SimDisk(1), LogConfig(cleanup_policy=("compact",)))
    log = store.log("t")
    log.append(b"x", key=b"k")
    store.delete("t")
    assert log.compact() is None
    store.maintain()


def test_maintenance_compacts_and_deletes() -> None:
    disk = SimDisk(1)
    disk.now_ms = NOW_MS
    config = LogConfig(segment_bytes=1024, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.1)
    store = simulated(disk, config)
    log = store.log("t")
    for number in range(100):
        log.append(value_of(number), key=b"key-%d" % (number % 5))
    before = log.size_bytes
    store.maintain()
    assert log.size_bytes < before
    assert {record.key for record in log} == {b"key-%d" % number for number in range(5)}
    assert list(log)[-1].value == value_of(99)


def test_compaction_in_a_child_process_while_others_append(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=4096, cleanup_policy=("compact",))
    with Store.open(str(tmp_path / "data"), config=config, background=False) as store:
        log = store.log("t")
        log.append_many([_keyed(number) for number in range(400)])
        log.roll()

        def work(number: int) -> None:
            if number == 0:
                assert log.compact() is not None
            else:
                for turn in range(APPENDS):
                    log.append(b"new", key=b"key-%d-%d" % (number, turn))

        run_threads(3, work)
        table = {record.key: record.value for record in log}
        assert len(table) == 7 + 2 * APPENDS
        assert table[b"key-0"] == value_of(399 - 399 % 7)
    with Store.open(str(tmp_path / "data"), background=False) as store:
        assert {record.key: record.value for record in store.log("t")} == table


def _keyed(number: int) -> Record:
    return Record(value_of(number), b"key-%d" % (number % 7))


def test_damage_found_at_opening_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store.open(str(tmp_path), background=False) as store:
        for number in range(5):
            store.log().append(b"%d" % number)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    log_file = tmp_path / "log-0" / "00000000000000000000.log"
    content = bytearray(log_file.read_bytes())
    content[60] ^= 1
    log_file.write_bytes(content)
    with caplog.at_level("ERROR", logger="distributedlog"):
        Store.open(str(tmp_path), background=False).close()
    assert "is damaged at position 0" in caplog.text


def test_maintenance_that_fails_is_logged_once_for_each_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reasons = ["no room", "no room", "", "no room", "a bad log"]

    def checkpoint() -> None:
        reason = reasons.pop(0)
        if reason:
            raise StorageError(reason)

    with (
        Store.open(str(tmp_path), background=False) as store,
        caplog.at_level("WARNING", logger="distributedlog"),
    ):
        while reasons:
            store._attempt(checkpoint)
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "no room",
        "no room",
        "a bad log",
    ]
