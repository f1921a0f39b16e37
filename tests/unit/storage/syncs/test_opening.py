"""The syncs of an opening: all are done before the logs are used, some hundred at a time."""

import errno
import threading
from collections.abc import Sequence
from functools import partial

import pytest

from distributedlog.model.errors import LogDirectoryFailedError
from distributedlog.ports.executor import run_side_by_side
from distributedlog.storage.files import Files
from distributedlog.storage.store import LogStore
from distributedlog.storage.syncs.opening import GATHERED_MAX, OpeningSyncs, Work, run_in_turn
from tests.simulation.clock import ManualClock, SeededRandomness
from tests.simulation.disk import SimDisk
from tests.unit.storage.support import SMALL, append, open_store, read_records, value_of

LOGS = GATHERED_MAX  # each has a file and a directory


def a_killed_store(count: int) -> SimDisk:
    """Logs whose process was killed: nothing is synced, all is in the kernel's memory."""
    disk = SimDisk(3)
    store = open_store(disk)
    for number in range(count):
        append(store.create_log("a", number), value_of(number))
    return disk


def test_what_a_killed_process_left_survives_a_power_cut_after_the_opening() -> None:
    disk = a_killed_store(LOGS)
    disk.crash("keep")  # the process alone
    rounds: list[int] = []

    def run_all(works: Sequence[Work]) -> None:
        rounds.append(len(works))
        run_in_turn(works)

    LogStore.open(
        disk, "/data", clock=ManualClock(), randomness=SeededRandomness(1), config=SMALL, run_all=run_all
    )
    assert max(rounds) == GATHERED_MAX
    assert sum(rounds) == 2 * LOGS
    disk.crash("drop")
    again = open_store(disk)
    assert [read_records(log)[0].value for log in again.logs.values()] == [
        value_of(key.partition) for key in again.logs
    ]
    again.abandon()


def test_a_sync_that_fails_fails_the_opening_and_holds_no_file() -> None:
    disk = SimDisk(3)
    files = Files(disk)
    files.make_directory("/data")
    managed = files.create("/data/x")
    disk.inject("sync", "/data/x", errno.EIO)
    syncs = OpeningSyncs(files)
    syncs.add(managed)
    syncs.add_directory("/data")
    with pytest.raises(LogDirectoryFailedError):
        syncs.finish()
    assert managed.pins == 0


def test_an_opening_that_fails_syncs_nothing_more() -> None:
    files = Files(SimDisk(3))
    files.make_directory("/data")
    managed = files.create("/data/x")
    works: list[Work] = []

    def open_and_fail() -> None:
        with OpeningSyncs(files, works.extend) as syncs:
            syncs.add(managed)
            raise KeyError

    with pytest.raises(KeyError):
        open_and_fail()
    assert (works, managed.pins) == ([], 0)


def test_side_by_side_means_at_the_same_time_and_the_first_error_is_raised() -> None:
    meet = threading.Barrier(3, timeout=60)
    done: list[int] = []

    def work(number: int) -> None:
        meet.wait()
        done.append(number)
        if number:
            raise ValueError(str(number))

    with pytest.raises(ValueError, match="1"):
        run_side_by_side([partial(work, number) for number in range(3)], threads=3)
    assert sorted(done) == [0, 1, 2]
