"""Indexes made again from the log, also when the power goes while that is done."""

import pytest

from distributedlog.model.errors import CorruptLogError
from distributedlog.storage.files import Files
from distributedlog.storage.repair.reindexing import IndexChange, reindex
from distributedlog.storage.verification.directory import PartitionVerification
from distributedlog.storage.verification.findings import Circumstances, Severity
from tests.simulation.disk import PowerCut, SimDisk
from tests.unit.storage.support import DIRECTORY, SMALL, append_numbers, open_store
from tests.unit.storage.verification.test_directory import closed_store, content, paths, rewrite

INDEXES = (".index", ".timeindex", ".txnindex")


def run(disk: SimDisk, *, is_every: bool = False, is_dry: bool = False) -> list[IndexChange]:
    return list(
        reindex(
            Files(disk),
            DIRECTORY,
            Circumstances(),
            index_interval_bytes=SMALL.index_interval_bytes,
            is_every=is_every,
            is_dry=is_dry,
        )
    )


def indexes(disk: SimDisk) -> dict[str, bytes]:
    return {path: content(disk, path) for path in paths(disk) if path.endswith(INDEXES)}


def severities(disk: SimDisk) -> set[Severity]:
    return {finding.severity for finding in PartitionVerification(Files(disk), DIRECTORY).run()}


def without_indexes() -> tuple[SimDisk, dict[str, bytes]]:
    disk = closed_store()
    known = indexes(disk)
    for path in known:
        disk.remove(path)
    disk.sync_directory(DIRECTORY)
    return disk, known


def test_every_index_comes_back_byte_for_byte() -> None:
    disk, known = without_indexes()
    changes = run(disk)
    assert {change.path for change in changes} == set(known)
    assert all(change.bytes_before is None for change in changes)
    assert indexes(disk) == known
    assert run(disk) == []
    assert run(disk, is_every=True) == []


def test_a_dry_run_names_the_same_and_writes_nothing() -> None:
    disk, _ = without_indexes()
    operations = disk.operations
    said = run(disk, is_dry=True)
    assert disk.operations == operations
    assert said == run(disk)


def test_a_transaction_index_for_which_there_is_no_transaction_is_removed() -> None:
    disk = closed_store()
    known = indexes(disk)
    stray = f"{DIRECTORY}/{13:020d}.txnindex"
    assert stray not in known
    rewrite(disk, stray, content(disk, f"{DIRECTORY}/{24:020d}.txnindex"))
    (change,) = run(disk)
    assert (change.path, change.bytes_after) == (stray, None)
    assert indexes(disk) == known


def test_the_torn_end_of_the_last_segment_is_left_out() -> None:
    disk = closed_store()
    last = f"{DIRECTORY}/{24:020d}.log"
    rewrite(disk, last, content(disk, last) + b"\7" * 50)
    disk.remove(f"{DIRECTORY}/{24:020d}.index")
    log_before = content(disk, last)
    assert len(run(disk)) == 1
    assert content(disk, last) == log_before
    assert severities(disk) == {Severity.REPAIRABLE}


def test_a_damaged_log_is_refused_and_nothing_is_written() -> None:
    disk, _ = without_indexes()
    disk.flip_bit(f"{DIRECTORY}/{13:020d}.log", 158, 0)
    operations = disk.operations
    with pytest.raises(CorruptLogError, match="is damaged at position 88"):
        run(disk)
    assert disk.operations == operations


def test_whenever_the_power_goes_each_index_is_old_or_new_and_the_work_can_be_done_again() -> None:
    disk, known = without_indexes()
    rewrite(disk, f"{DIRECTORY}/{0:020d}.index", b"\1" * 16)
    step = 0
    while True:
        trial = disk.fork(seed=step)
        trial.fail_after(step)
        try:
            run(trial)
            break
        except PowerCut:
            trial.crash("random")
        for path, raw in indexes(trial).items():
            assert raw in (known[path], b"\1" * 16)
        assert Severity.DAMAGE not in severities(trial)
        run(trial)
        assert indexes(trial) == known
        step += 1
    assert step > 10
    assert indexes(trial) == known


def test_an_empty_log_needs_nothing() -> None:
    disk = SimDisk()
    store = open_store(disk)
    append_numbers(store.create_log("t", 0), [])
    store.close()
    assert run(disk, is_every=True) == []
