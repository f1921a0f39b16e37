"""The power goes at every operation that changes the disk, in one run that does a bit of everything.

The run takes note of what was promised (synced, deleted on purpose) as it goes.  At each operation the disk
is forked, crashed and opened again: everything promised must be there, in order, with nothing torn, and the
log must take appends again.
"""

import os
from dataclasses import dataclass, field

import pytest

from distributedlog.storage.log import PartitionLog
from distributedlog.storage.store import LogStore
from tests.simulation.disk import SimDisk
from tests.simulation.inodes import CrashMode
from tests.unit.storage.support import (
    NOW_MS,
    append,
    append_data,
    bare,
    batch_of,
    commit_all,
    marker_of,
    open_store,
    read_records,
    value_of,
)

SOAK = os.environ.get("DLOG_SOAK") == "1"
RANDOM_SEEDS = range(25) if SOAK else range(3)
CRASHES: list[tuple[CrashMode, int]] = [
    ("drop", 0),
    ("keep", 0),
    *[("random", seed) for seed in RANDOM_SEEDS],
]


@dataclass
class Promise:
    """What a crash at this moment must leave of one log."""

    written: list[tuple[int, bytes]] = field(default_factory=list)
    """What was appended, in order; the end of it may be lost."""
    synced_end: int = 0
    start_offsets: tuple[int, ...] = (0,)
    """Where the log may start: two while it is being trimmed."""
    may_be_cut_at: int | None = None
    """The offset at which the log may end already while a truncation is under way."""

    def copy(self) -> "Promise":
        return Promise(list(self.written), self.synced_end, self.start_offsets, self.may_be_cut_at)


@dataclass
class Moment:
    operation: str
    disk: SimDisk
    promises: dict[str, Promise]
    in_doubt: str | None
    """A log that is being created or deleted: there or not, both are right."""


class Script:
    """Does the work, and at each operation keeps the disk as it is with what is promised by then."""

    def __init__(self) -> None:
        self.disk = SimDisk(7)
        self.disk.now_ms = NOW_MS
        self.moments: list[Moment] = []
        self.promises: dict[str, Promise] = {}
        self.in_doubt: str | None = None
        self.numbers = 0
        self.store: LogStore

    def run(self) -> None:
        self.disk.on_operation = self._note
        self.open()
        self.create("a")
        self.append("a", 12)
        self.sync("a")
        self.append("a", 14)  # rolls
        self.store.checkpoint()
        self.sync("a")
        self.transactions("a")
        self.truncate("a", 18)
        self.append("a", 9, leader_epoch=1)
        self.sync("a")
        self.create("b")
        self.append("b", 25)
        self.sync("b")
        self.store.checkpoint()
        self.trim("b", 13)
        self.truncate("a", 20)
        self.append("a", 15, leader_epoch=2)
        self.close()
        self.open()
        self.append("b", 5)
        self.trim("b", 20)
        self.delete("a")
        self.create("a")
        self.append("a", 3)
        self.sync("a")
        self.close()
        self._note("end", "")

    def _note(self, operation: str, path: str) -> None:
        promises = {name: promise.copy() for name, promise in self.promises.items()}
        self.moments.append(Moment(f"{operation} {path}", self.disk.fork(0), promises, self.in_doubt))

    def _log(self, name: str) -> PartitionLog:
        log = self.store.log(name)
        assert log is not None
        return log

    def open(self) -> None:
        self.store = open_store(self.disk)
        for log in self.store.logs.values():
            log.advance_high_watermark(log.end_offset)

    def close(self) -> None:
        self.store.close()
        for promise in self.promises.values():
            promise.synced_end = _end(promise)

    def create(self, name: str) -> None:
        self.in_doubt = name
        self.promises[name] = Promise()
        self.store.create_log(name)
        self.in_doubt = None

    def delete(self, name: str) -> None:
        self.in_doubt = name
        self.store.delete_log(name)
        self.in_doubt = None
        del self.promises[name]

    def append(self, name: str, count: int, *, leader_epoch: int = 0) -> None:
        for _ in range(count):
            value = value_of(self.numbers)
            self.numbers += 1
            log, promise = self._log(name), self.promises[name]
            promise.written.append((log.end_offset, value))  # before it happens: it may survive
            append(log, value, leader_epoch=leader_epoch)

    def transactions(self, name: str) -> None:
        log, promise = self._log(name), self.promises[name]
        for producer_id, commit in ((5, True), (6, False)):
            promise.written.append((log.end_offset, value_of(producer_id)))
            append_data(
                log,
                batch_of(
                    [value_of(producer_id)],
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=0,
                    is_transactional=True,
                ),
            )
            log.append_as_follower(
                bytes(marker_of(producer_id, commit=commit, base_offset=log.end_offset)), now_ms=NOW_MS
            )
        self.sync(name)

    def sync(self, name: str) -> None:
        commit_all(self._log(name))
        self.promises[name].synced_end = self._log(name).end_offset

    def truncate(self, name: str, offset: int) -> None:
        promise = self.promises[name]
        promise.may_be_cut_at = offset
        self._log(name).truncate_to(offset, NOW_MS)
        promise.written = [each for each in promise.written if each[0] < offset]
        promise.synced_end, promise.may_be_cut_at = self._log(name).end_offset, None

    def trim(self, name: str, offset: int) -> None:
        promise = self.promises[name]
        commit_all(self._log(name))
        promise.synced_end = self._log(name).end_offset
        promise.start_offsets = (*promise.start_offsets[-1:], offset)
        self._log(name).advance_start_offset(offset, NOW_MS)
        self.store.checkpoint_starts()
        promise.start_offsets = (offset,)


def _end(promise: Promise) -> int:
    return promise.written[-1][0] + 1 if promise.written else promise.synced_end


def check(moment: Moment, mode: CrashMode, seed: int) -> None:
    disk = moment.disk.fork(seed)
    disk.crash(mode)
    store = open_store(disk)
    for name, promise in moment.promises.items():
        log = store.log(name)
        if log is None:
            assert moment.in_doubt == name
            continue
        if moment.in_doubt == name and log.end_offset == 0:
            continue
        found = bare(read_records(log))
        lowest_start, highest_start = min(promise.start_offsets), max(promise.start_offsets)
        assert lowest_start <= log.start_offset <= highest_start
        needed_end = promise.synced_end
        if promise.may_be_cut_at is not None:
            needed_end = min(needed_end, promise.may_be_cut_at)
        assert log.end_offset >= needed_end
        if mode == "keep" and promise.may_be_cut_at is None:
            assert log.end_offset >= _end(promise) - 1  # the last one was perhaps not written yet
        assert found == [
            (offset, value)
            for offset, value in promise.written
            if log.start_offset <= offset < log.end_offset
        ]
        report = store.reports[next(key for key in store.logs if key.topic == name)]
        assert report.lost_synced_offsets == 0
        assert all(damage.offset >= needed_end for damage in report.damage)
        if mode != "random":
            assert report.is_sound
    _goes_on(store, disk)


def _goes_on(store: LogStore, disk: SimDisk) -> None:
    """Appends, and finds them after a clean stop."""
    ends = {}
    for key, log in store.logs.items():
        append(log, b"after", leader_epoch=9)
        ends[key] = log.end_offset
    store.close()
    again = open_store(disk)
    assert again.was_clean
    for key, log in again.logs.items():
        assert log.end_offset == ends[key]
        assert read_records(log, log.end_offset - 1)[0].value == b"after"
        assert not again.reports[key].damage
        assert again.reports[key].lost_synced_offsets == 0
    again.abandon()


@pytest.mark.parametrize("mode", ["drop", "keep"])
def test_a_power_cut_while_a_log_starts_over_leaves_the_old_or_an_empty_one(mode: CrashMode) -> None:
    disk = SimDisk(7)
    store = open_store(disk)
    log = store.create_log("a")
    for number in range(30):
        append(log, value_of(number))
    commit_all(log)
    log.advance_start_offset(13, NOW_MS)
    store.checkpoint()
    old = bare(read_records(log))
    forks: list[SimDisk] = []
    disk.on_operation = lambda _operation, _path: forks.append(disk.fork(0))
    log.restart_at(500, NOW_MS)
    forks.append(disk.fork(0))
    ends = set()
    for fork in forks:
        fork.crash(mode)
        again = open_store(fork)
        found = again.log("a")
        assert found is not None
        assert again.reports[next(iter(again.logs))].is_sound
        left = bare(read_records(found))
        expected = [record for record in old if record[0] < found.end_offset <= 30]
        assert [record for record in left if record[0] >= 13] == expected
        ends.add(found.end_offset)
        _goes_on(again, fork)
    assert {30, 500} <= ends


@pytest.mark.parametrize("mode", ["drop", "keep"])
def test_a_power_cut_while_a_log_starts_over_brings_no_older_state_of_producers_back(mode: CrashMode) -> None:
    """A snapshot of the old log would call the producer's next batch out of order."""
    disk = SimDisk(7)
    store = open_store(disk)
    log = store.create_log("a")
    for number in range(30):
        append_data(log, batch_of([value_of(number)], producer_id=7, producer_epoch=0, base_sequence=number))
    commit_all(log)
    store.checkpoint()
    assert log.snapshots.offsets
    forks: list[SimDisk] = []
    disk.on_operation = lambda _operation, _path: forks.append(disk.fork(0))
    log.restart_at(500, NOW_MS)
    forks.append(disk.fork(0))
    for fork in forks:
        fork.crash(mode)
        again = open_store(fork)
        found = again.log("a")
        assert found is not None
        sequence = min(30, found.end_offset)
        append_data(found, batch_of([b"next"], producer_id=7, producer_epoch=0, base_sequence=sequence))
        again.abandon()


@pytest.mark.parametrize("mode", ["drop", "keep"])
def test_a_power_cut_while_a_segment_is_set_aside_leaves_no_hole(mode: CrashMode) -> None:
    disk = SimDisk(7)
    store = open_store(disk)
    log = store.create_log("a")
    for number in range(40):
        append(log, value_of(number))
    commit_all(log)
    store.checkpoint()
    old = bare(read_records(log))
    base = log.segments.all()[1].base_offset
    forks: list[SimDisk] = []
    disk.on_operation = lambda _operation, _path: forks.append(disk.fork(0))
    log.set_aside_from(base, NOW_MS)
    forks.append(disk.fork(0))
    ends = set()
    for fork in forks:
        fork.crash(mode)
        again = open_store(fork)
        found = again.log("a")
        assert found is not None
        report = again.reports[next(iter(again.logs))]
        assert not report.damage
        assert report.lost_synced_offsets == 0
        assert base <= found.end_offset
        assert bare(read_records(found)) == old[: found.end_offset]
        ends.add(found.end_offset)
    assert {base, 40} <= ends


def cut_unsynced() -> tuple[SimDisk, LogStore, PartitionLog]:
    """A log of twelve synced batches whose last four are cut off, which is not synced."""
    disk = SimDisk(7)
    store = open_store(disk)
    log = store.create_log("a")
    for number in range(12):
        append(log, value_of(number))
    commit_all(log)
    store.checkpoint()
    log.truncate_to(8, NOW_MS, sync=False)
    assert log.has_unsynced_cut
    return disk, store, log


@pytest.mark.parametrize(("mode", "seed"), CRASHES)
@pytest.mark.parametrize("rolls", [False, True])
def test_what_was_cut_and_not_synced_never_stands_behind_what_came_after(
    rolls: bool, mode: CrashMode, seed: int
) -> None:
    disk, _, log = cut_unsynced()
    old = [(number, value_of(number)) for number in range(12)]
    new = [*old[:8], *((number, b"x" * 9) for number in range(8, 11))]
    forks: list[SimDisk] = []
    disk.on_operation = lambda _operation, _path: forks.append(disk.fork(seed))
    if rolls:
        log.roll(NOW_MS)
    for _, value in new[8:]:
        append(log, value, leader_epoch=1)
    assert not log.has_unsynced_cut
    forks.append(disk.fork(seed))
    for fork in forks:
        fork.crash(mode)
        again = open_store(fork)
        found = again.log("a")
        assert found is not None
        damage = again.reports[next(iter(again.logs))].damage
        assert all(each.offset >= 8 for each in damage), "the new ones may be torn"
        left = bare(read_records(found))
        assert len(left) >= 8
        assert left in (old[: len(left)], new[: len(left)])
        again.abandon()


def test_a_cut_is_synced_by_the_next_sync_alone() -> None:
    disk, _, log = cut_unsynced()
    job = log.begin_sync()
    assert job is not None
    job.run()
    seen = [log.has_unsynced_cut]
    log.end_sync(job, succeeded=True)
    seen.append(log.has_unsynced_cut)
    assert seen == [True, False]
    disk.crash("drop")
    found = open_store(disk).log("a")
    assert found is not None
    assert found.end_offset == 8


def test_a_sync_that_began_before_a_cut_does_not_count_for_it() -> None:
    disk = SimDisk(7)
    log = open_store(disk).create_log("a")
    for number in range(3):
        append(log, value_of(number))
    before = log.begin_sync()
    assert before is not None
    log.truncate_to(1, NOW_MS, sync=False)
    before.run()
    log.end_sync(before, succeeded=True)
    seen = [log.has_unsynced_cut]
    log.sync()
    seen.append(log.has_unsynced_cut)
    assert seen == [True, False]
    assert log.flushed_end_offset == 1


@pytest.fixture(scope="module")
def moments() -> list[Moment]:
    script = Script()
    script.run()
    assert len(script.moments) > 300
    return script.moments


@pytest.mark.parametrize(("mode", "seed"), CRASHES)
def test_a_power_cut_at_any_operation_loses_nothing_that_was_promised(
    moments: list[Moment], mode: CrashMode, seed: int
) -> None:
    for number, moment in enumerate(moments):
        try:
            check(moment, mode, seed * 1000 + number)
        except BaseException as error:
            error.add_note(f"power cut number {number}, before {moment.operation}")
            raise


def test_a_second_power_cut_while_the_first_is_mended_changes_nothing(moments: list[Moment]) -> None:
    """A crash comes at every tenth moment, and in the recovery from it another, at each of its operations."""
    for number, moment in enumerate(moments[:: 3 if SOAK else 25]):
        for seed in range(2):
            first = moment.disk.fork(seed)
            first.crash("random")
            seen: list[Moment] = []
            recovering = first.fork(seed)

            def note(
                operation: str,
                path: str,
                seen: list[Moment] = seen,
                disk: SimDisk = recovering,
                promised: Moment = moment,
            ) -> None:
                fork = disk.fork(0)
                seen.append(Moment(f"{operation} {path}", fork, promised.promises, promised.in_doubt))

            recovering.on_operation = note
            open_store(recovering).abandon()
            for again in seen:
                check(again, "random", number)
