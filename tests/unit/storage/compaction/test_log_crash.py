"""The power goes at every single step of a compaction; afterwards the log is the old one or the new one.

`SimDisk.on_operation` is called before each operation that changes the disk, and a fork taken there is the
disk as a power cut at that moment would find it.  So one run shows every boundary.
"""

from collections.abc import Callable

import pytest

from distributedlog.records.record import Record
from distributedlog.storage.files import Files
from distributedlog.storage.recovery import open_log
from distributedlog.storage.segment import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from tests.simulation.disk import PowerCut, SimDisk
from tests.simulation.inodes import CrashMode
from tests.unit.storage.compaction.keyed_log import DIRECTORY, KeyedLog, settings

SEEDS_PER_BOUNDARY: dict[CrashMode, int] = {"drop": 1, "keep": 1, "random": 3}
SMALL = settings(segment_bytes=1024)
HALF_DONE = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)


def a_history(keyed: KeyedLog) -> None:
    """Replaced, deleted and aborted records, over segments of which some are merged and one loses all."""
    keyed.put((b"a", b"1" * 300), (b"b", b"1" * 300))
    keyed.put((b"gone", b"1"))
    keyed.roll()
    keyed.put((b"a", b"2" * 800))
    keyed.roll()
    keyed.put_as(7, (b"c", b"committed"))
    keyed.put((b"gone", None))
    keyed.commit(7)
    keyed.put_as(8, (b"b", b"aborted"))
    keyed.roll()
    keyed.put((b"a", b"3"))
    keyed.abort(8)
    keyed.roll()
    keyed.put((b"a", b"4" * 700), (b"d", b"1"))
    keyed.roll()


def old_tombstones(keyed: KeyedLog) -> None:
    """The same, compacted once, so that a tombstone and markers are about to go for good."""
    a_history(keyed)
    keyed.compact()
    keyed.advance(5000)
    keyed.put((b"a", b"5"))
    keyed.roll()
    keyed.compact()
    keyed.advance(5000)
    keyed.put((b"d", b"2"))
    keyed.roll()


def forks_at_every_boundary(keyed: KeyedLog, work: Callable[[], None], seeds: int) -> list[SimDisk]:
    forks: list[SimDisk] = []
    disk = keyed.disk
    disk.on_operation = lambda _operation, _path: forks.extend(
        disk.fork(len(forks) + seed) for seed in range(seeds)
    )
    work()
    disk.on_operation = None
    forks.append(disk.fork(0))
    return forks


def reopened(disk: SimDisk, original: KeyedLog) -> KeyedLog:
    """Opens again as a broker would after the crash: it knows neither where the log was nor how far it was
    clean."""
    twin = KeyedLog(original.config, disk)
    twin.advance(original.now_ms - twin.now_ms)
    twin.log.advance_high_watermark(twin.log.end_offset)
    return twin


def compact(keyed: KeyedLog) -> None:
    assert keyed.compact() is not None


def is_old_then_new(found: list[Record], old: list[Record], new: list[Record]) -> bool:
    """Every record of the new log is there, and from some offset on all those of the old."""
    cut = next((record.offset for record in found if record not in new), None)
    expected = set(new) if cut is None else set(new) | {record for record in old if record.offset >= cut}
    return set(found) == expected


@pytest.mark.parametrize("mode", ["drop", "keep", "random"])
@pytest.mark.parametrize("history", [a_history, old_tombstones])
def test_a_power_cut_at_any_step_leaves_old_or_new_and_compaction_can_be_done_again(
    history: Callable[[KeyedLog], None], mode: CrashMode
) -> None:
    keyed = KeyedLog(SMALL)
    history(keyed)
    table, old = keyed.table(), keyed.records()
    forks = forks_at_every_boundary(keyed, lambda: compact(keyed), SEEDS_PER_BOUNDARY[mode])
    new = keyed.records()
    assert len(new) < len(old)
    assert len(forks) > 20 * SEEDS_PER_BOUNDARY[mode]
    outcomes = set()
    for fork in forks:
        fork.crash(mode)
        twin = reopened(fork, keyed)
        assert twin.report.is_sound
        assert twin.table() == table
        assert twin.log.end_offset == keyed.log.end_offset
        assert is_old_then_new(twin.records(), old, new)
        assert not [name for suffix in HALF_DONE for name in twin.names(suffix)]
        outcomes.add(len(twin.records()))
        twin.compact()
        assert twin.table() == table
        assert len(twin.records()) <= len(new)
    assert {len(old), len(new)} <= outcomes


@pytest.mark.parametrize("mode", ["drop", "keep", "random"])
def test_a_second_power_cut_while_the_first_is_mended_changes_nothing(mode: CrashMode) -> None:
    keyed = KeyedLog(SMALL)
    a_history(keyed)
    table = keyed.table()
    swaps: list[SimDisk] = []

    def fork_at_swap(_operation: str, path: str) -> None:
        if keyed.names(SWAP_SUFFIX):
            swaps.append(keyed.disk.fork(len(swaps)))

    keyed.disk.on_operation = fork_at_swap
    compact(keyed)
    keyed.disk.on_operation = None
    assert len(swaps) > 10
    for half_done in swaps[:: max(1, len(swaps) // 6)]:
        half_done.crash(mode)
        mending = half_done.fork(1)
        operations = _operations_of_opening(mending)
        for operation in range(operations):
            disk = half_done.fork(operation)
            _open_until(disk, operation)
            disk.crash(mode)
            assert reopened(disk, keyed).table() == table


def _operations_of_opening(disk: SimDisk) -> int:
    before = disk.operations
    open_log(Files(disk), DIRECTORY, SMALL, now_ms=0)
    return disk.operations - before


def _open_until(disk: SimDisk, operation: int) -> None:
    disk.fail_after(operation)
    with pytest.raises(PowerCut):
        open_log(Files(disk), DIRECTORY, SMALL, now_ms=0)


def test_a_committed_compaction_is_durable() -> None:
    keyed = KeyedLog(SMALL)
    a_history(keyed)
    compact(keyed)
    new = keyed.records()
    keyed.reopen("drop")
    assert keyed.records() == new
    assert keyed.report.is_sound
    assert keyed.report.notes == []  # nothing was left to be finished


def test_old_files_go_only_once_the_new_ones_names_are_durable() -> None:
    """Not every file system keeps the order in which names were changed."""
    keyed = KeyedLog(SMALL)
    a_history(keyed)
    done: list[str] = []
    keyed.disk.on_operation = lambda operation, path: done.append(
        f"{operation} {path.rpartition('.')[2] if '.' in path else ''}"
    )
    compact(keyed)
    keyed.disk.on_operation = None
    to_swap = [at for at, what in enumerate(done) if what == "rename cleaned"][:3]
    first_deleted = done.index("rename log")
    assert "dirsync " in done[to_swap[-1] : first_deleted]
    assert "sync cleaned" not in done[to_swap[0] :]
    assert done[-1] == "dirsync "
