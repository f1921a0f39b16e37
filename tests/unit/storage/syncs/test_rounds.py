"""Group syncs: who waits for what, who shares, and who is told when it fails."""

import errno
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from distributedlog.model.errors import (
    DiskFullError,
    LogClosedError,
    LogDirectoryFailedError,
    StorageError,
)
from distributedlog.ports.executor import Outcome
from distributedlog.ports.round_executor import Piece, PieceDone, SingleRounds
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import open_log
from distributedlog.storage.syncs.rounds import LogSync, SmallFile, SyncRounds
from tests.simulation.disk import SimDisk
from tests.simulation.executor import StepExecutor
from tests.unit.storage.support import (
    NOW_MS,
    append,
    append_numbers,
    open_on,
    value_of,
    values_in,
    with_small_segments,
)


class Waiters:
    """Remembers what each was told."""

    def __init__(self, sync: LogSync) -> None:
        self._sync = sync
        self.told: dict[int, BaseException | None] = {}

    def wait_for(self, offset: int) -> None:
        def waiter(error: BaseException | None) -> None:
            assert offset not in self.told, "told twice"
            self.told[offset] = error

        self._sync.wait_for(offset, waiter)


def a_group() -> tuple[SimDisk, PartitionLog, StepExecutor, LogSync, Waiters]:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    executor = StepExecutor()
    sync = LogSync(log, SyncRounds(SingleRounds(executor)))
    return disk, log, executor, sync, Waiters(sync)


def syncs_of_logs(disk: SimDisk) -> list[str]:
    seen: list[str] = []
    disk.on_operation = lambda operation, path: seen.append(path) if operation == "sync" else None
    return seen


def test_many_waiters_share_one_sync() -> None:
    disk, log, executor, _, waiters = a_group()
    append_numbers(log, [0])
    waiters.wait_for(1)  # begins a sync at once
    for number in range(1, 30):
        append_numbers(log, [number])
        waiters.wait_for(number + 1)
    assert executor.waiting == 1
    seen = syncs_of_logs(disk)
    executor.run_one()
    assert waiters.told == {1: None}
    executor.run_one()
    assert waiters.told == dict.fromkeys(range(1, 31))
    assert not executor.waiting
    assert [path for path in seen if path.endswith("00.log")] == ["/data/t-0/00000000000000000000.log"] * 2


def test_what_is_appended_while_a_sync_runs_waits_for_the_next() -> None:
    disk, log, executor, _, waiters = a_group()
    append_numbers(log, [0])
    waiters.wait_for(1)
    append_numbers(log, [1])
    waiters.wait_for(2)
    executor.run_one()
    assert waiters.told == {1: None}
    assert log.flushed_end_offset == 1
    disk.crash("drop")
    again, _ = open_on(disk)
    assert values_in(again)[:1] == [value_of(0)]


def test_who_is_told_finds_his_record_after_a_power_cut() -> None:
    disk, log, executor, _, waiters = a_group()
    for number in range(40):
        append_numbers(log, [number])
        waiters.wait_for(number + 1)
        if number % 3 == 0:
            executor.run_one()
        twin = disk.fork(number)
        twin.crash("drop")
        again, _ = open_on(twin)
        assert again.end_offset >= max(waiters.told, default=0)


def test_an_offset_that_is_synced_already_is_told_at_once() -> None:
    _, log, executor, _, waiters = a_group()
    append_numbers(log, range(3))
    log.sync()
    waiters.wait_for(3)
    assert waiters.told == {3: None}
    assert executor.waiting == 0


def test_a_request_without_waiters_syncs_too_and_without_data_does_nothing() -> None:
    _, log, executor, sync, _ = a_group()
    sync.request()
    assert executor.waiting == 0
    append_numbers(log, range(3))
    sync.request()
    sync.request()
    append_numbers(log, [3])
    assert executor.run_all() == 2
    assert log.flushed_end_offset == 4


def test_a_failed_sync_is_told_to_all_and_never_tried_again() -> None:
    disk, log, executor, sync, waiters = a_group()
    append_numbers(log, [0])
    waiters.wait_for(1)
    append_numbers(log, [1])
    waiters.wait_for(2)
    disk.inject("sync", "*.log", errno.EIO)
    executor.run_one()
    assert {offset: type(error) for offset, error in waiters.told.items()} == {
        1: LogDirectoryFailedError,
        2: LogDirectoryFailedError,
    }
    assert executor.waiting == 0
    operations = disk.operations
    waiters.wait_for(3)
    sync.request()
    assert isinstance(waiters.told[3], LogDirectoryFailedError)
    assert log.flushed_end_offset == 0
    assert disk.operations == operations


def test_no_room_for_a_name_is_told_and_the_next_request_syncs_all() -> None:
    disk, log, executor, _, waiters = a_group()
    append(log, value_of(0), leader_epoch=4)
    log.roll(NOW_MS)
    append(log, value_of(1), leader_epoch=4)
    waiters.wait_for(2)
    disk.inject("dirsync", "*t-0", errno.ENOSPC)
    executor.run_one()
    assert isinstance(waiters.told.pop(2), DiskFullError)
    assert log.flushed_end_offset == 0
    waiters.wait_for(2)
    executor.run_all()
    assert waiters.told == {2: None}
    disk.crash("drop")
    again, _ = open_on(disk)
    assert values_in(again) == [value_of(0), value_of(1)]
    assert again.epochs.latest_epoch == 4


def test_a_truncation_while_a_sync_runs_is_not_undone_by_it() -> None:
    disk, log, executor, _, waiters = a_group()
    append_numbers(log, range(30))
    waiters.wait_for(30)
    log.truncate_to(5, NOW_MS)
    assert log.flushed_end_offset == 5
    for number in range(5, 10):
        append(log, b"other-%d" % number, leader_epoch=1)
    executor.run_one()
    assert log.flushed_end_offset == 5
    disk.crash("drop")
    again, _ = open_on(disk)
    kept = [value_of(number) for number in range(5)]
    assert values_in(again)[:5] == kept
    assert set(values_in(again)[5:]) <= {b"other-%d" % number for number in range(5, 10)}


def test_who_waits_for_what_was_truncated_is_not_told_that_it_is_safe() -> None:
    _, log, executor, _, waiters = a_group()
    append_numbers(log, range(30))
    waiters.wait_for(4)
    waiters.wait_for(30)
    log.truncate_to(5, NOW_MS)
    for number in range(5, 40):
        append(log, b"other-%d" % number, leader_epoch=1)
    executor.run_all()
    assert waiters.told[4] is None
    assert isinstance(waiters.told[30], StorageError)
    assert "truncated" in str(waiters.told[30])


def test_who_waits_when_the_log_starts_over_is_not_told_that_it_is_safe() -> None:
    _, log, executor, _, waiters = a_group()
    append_numbers(log, range(3))
    waiters.wait_for(3)
    log.restart_at(500, NOW_MS)
    executor.run_all()
    assert isinstance(waiters.told[3], StorageError)


def test_a_blocking_sync_covers_what_a_running_one_has_not_done_yet() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append(log, value_of(0), leader_epoch=2)
    running = log.begin_sync()
    assert running is not None
    append(log, value_of(1), leader_epoch=2)
    log.sync()
    assert log.flushed_end_offset == 2
    disk.crash("drop")
    again, _ = open_on(disk)
    assert values_in(again) == [value_of(0), value_of(1)]
    assert [tuple(entry) for entry in again.epochs.entries] == [(2, 0)]


def test_a_sync_takes_over_the_open_file_and_gives_it_back_at_its_end() -> None:
    log, _ = open_on(SimDisk(1))
    file = log.segments.active.log
    append_numbers(log, [0])
    job = log.begin_sync()
    assert job is not None
    assert file.pins == 1
    append_numbers(log, [1])
    assert file.pins == 2
    job.run()
    log.end_sync(job, succeeded=True)
    assert file.pins == 1
    log.sync()
    assert file.pins == 0


def test_a_sealed_segment_that_a_truncation_makes_active_again_is_synced_once() -> None:
    log, _ = open_on(SimDisk(1))
    append_numbers(log, range(2))
    log.roll(NOW_MS)
    log.truncate_to(1, NOW_MS, sync=False)
    job = log.begin_sync()
    assert job is not None
    assert [each.path for each in job.pinned].count(log.segments.active.log.path) == 1
    job.run()
    log.end_sync(job, succeeded=True)
    assert log.segments.active.log.pins == 0


def test_a_late_writing_does_not_bring_an_old_epoch_history_back() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append(log, value_of(0), leader_epoch=2)
    late = log.begin_epoch_write()
    assert late is not None
    append(log, value_of(1), leader_epoch=3)
    log.write_epochs()
    late.run()
    log.end_epoch_write(late, succeeded=True)
    assert disk.files()["/data/t-0/leader-epoch-checkpoint"] == b"0\n2\n2 0\n3 1\n"


def test_of_two_versions_of_a_small_file_the_newer_stays() -> None:
    disk = SimDisk(1)
    disk.make_directory("/d")
    small = SmallFile(Files(disk), "/d/file")
    first, second = small.next_version(), small.next_version()
    small.write(second, b"new")
    small.write(first, b"old")
    assert disk.files() == {"/d/file": b"new"}


def test_flush_messages_and_flush_ms_say_when_a_sync_is_due() -> None:
    log, _ = open_on(SimDisk(1), with_small_segments(flush_messages=3, flush_ms=1000))
    assert not log.is_sync_due(NOW_MS + 10**9)
    append_numbers(log, range(2))
    assert not log.is_sync_due(NOW_MS + 999)
    assert log.is_sync_due(NOW_MS + 1000)
    append_numbers(log, [2])
    assert log.is_sync_due(NOW_MS)
    log.sync()
    assert not log.is_sync_due(NOW_MS + 10**9)


@pytest.mark.parametrize("seed", range(5))
def test_syncs_of_many_logs_in_any_order_keep_their_promises(seed: int) -> None:
    disk = SimDisk(seed)
    executor = StepExecutor(seed)
    logs = []
    for number in range(4):
        files = Files(disk)
        log, _ = open_on(disk, files=files) if number == 0 else _open_beside(disk, files, number)
        logs.append((log, Waiters(LogSync(log, SyncRounds(SingleRounds(executor))))))
    for turn in range(60):
        log, waiters = logs[turn * 7 % 4]
        append_numbers(log, [turn])
        waiters.wait_for(log.end_offset)
        if disk.chance.random() < 0.4:
            executor.run_one()
    executor.run_all()
    for log, waiters in logs:
        assert waiters.told == dict.fromkeys(range(1, 16))
        assert log.flushed_end_offset == log.end_offset == 15


def _open_beside(disk: SimDisk, files: Files, number: int) -> tuple[PartitionLog, object]:
    return open_log(files, f"/data/t-{number}", with_small_segments(), now_ms=NOW_MS)


# --- rests -------------------------------------------------------------------------------------


class Rests:
    """Those that were begun, and are over when the test says so."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def __call__(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def end(self) -> None:
        self.callbacks.pop(0)()


def a_resting_group() -> tuple[PartitionLog, StepExecutor, LogSync, Rests]:
    """One sync is done, appends came while it ran, and nobody waits for them."""
    log, _ = open_on(SimDisk(1))
    executor, rests = StepExecutor(), Rests()
    sync = LogSync(log, SyncRounds(SingleRounds(executor), pause=rests))
    append_numbers(log, [0])
    sync.request(urgent=False)
    assert executor.waiting == 1, "the first does not rest"
    append_numbers(log, [1])
    sync.request(urgent=False)
    executor.run_one()
    assert (log.flushed_end_offset, executor.waiting, len(rests.callbacks)) == (1, 0, 1)
    return log, executor, sync, rests


def test_what_nobody_waits_for_is_synced_after_a_rest() -> None:
    log, executor, sync, rests = a_resting_group()
    for number in range(2, 20):
        append_numbers(log, [number])
        sync.request(urgent=False)
    assert executor.waiting == 0
    rests.end()
    executor.run_all()
    assert log.flushed_end_offset == 20
    assert rests.callbacks == [], "nothing came while it ran"


def test_an_urgent_request_ends_the_rest_and_the_rest_s_end_then_does_nothing() -> None:
    log, executor, sync, rests = a_resting_group()
    sync.request()
    assert executor.waiting == 1
    rests.end()
    assert executor.run_all() == 1
    assert log.flushed_end_offset == 2


def test_a_waiter_that_comes_while_a_sync_runs_is_not_kept_waiting_by_a_rest() -> None:
    log, executor, sync, rests = a_resting_group()
    rests.end()
    append_numbers(log, [2])
    told: list[BaseException | None] = []
    sync.wait_for(3, told.append)
    executor.run_all()
    assert told == [None]
    assert rests.callbacks == []


def test_a_waiter_that_is_not_in_a_hurry_rests_too() -> None:
    log, executor, sync, rests = a_resting_group()
    append_numbers(log, [2])
    told: list[BaseException | None] = []
    sync.wait_for(3, told.append, urgent=False)
    assert executor.waiting == 0
    rests.end()
    executor.run_all()
    assert told == [None]


# --- rounds ------------------------------------------------------------------------------------


class Turns:
    """The turns of a loop, made by hand."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []

    def run(self) -> None:
        posted, self.posted = self.posted, []
        for callback in posted:
            callback()


class Lanes:
    """Notes what a round hands over, by the ends that its jobs sync up to; runs it when told."""

    def __init__(self) -> None:
        self.rounds: list[tuple[int, int]] = []
        self.hurried: list[Piece] = []
        self.waiting: list[tuple[Piece, PieceDone]] = []

    def run_round(self, urgent: Sequence[Piece], others: Sequence[Piece], done: PieceDone) -> None:
        self.rounds.append((len(urgent), len(others)))
        self.waiting += [(piece, done) for piece in (*urgent, *others)]

    def hurry(self, piece: Piece) -> None:
        self.hurried.append(piece)

    def run_all(self) -> None:
        waiting, self.waiting = self.waiting, []
        for piece, done in waiting:
            done(piece, Outcome.of(piece.run))


def logs_in_rounds(count: int) -> tuple[list[tuple[PartitionLog, LogSync]], Turns, Lanes, SyncRounds]:
    disk, turns, lanes = SimDisk(1), Turns(), Lanes()
    files = Files(disk)
    rounds = SyncRounds(lanes, post=lambda callback: turns.posted.append(callback))
    logs = [_open_beside(disk, files, number)[0] for number in range(count)]
    return [(log, LogSync(log, rounds)) for log in logs], turns, lanes, rounds


def test_all_that_ask_in_one_turn_are_one_round() -> None:
    logs, turns, lanes, rounds = logs_in_rounds(20)
    for turn in range(3):
        for number, (log, sync) in enumerate(logs):
            append_numbers(log, [turn])
            sync.request(urgent=number % 4 == 0)
            sync.request(urgent=False)
    assert len(turns.posted) == 1
    turns.run()
    assert lanes.rounds == [(5, 15)]
    lanes.run_all()
    assert all(log.flushed_end_offset == 3 for log, _ in logs)
    assert (rounds.round_count, rounds.log_count) == (1, 20)
    assert turns.posted == []


def test_what_was_appended_before_the_round_began_is_in_it() -> None:
    logs, turns, lanes, _ = logs_in_rounds(1)
    log, sync = logs[0]
    told: list[BaseException | None] = []
    append_numbers(log, [0])
    sync.wait_for(1, told.append, urgent=False)
    append_numbers(log, [1])
    sync.wait_for(2, told.append)
    turns.run()
    assert lanes.rounds == [(1, 0)], "one of two was urgent"
    lanes.run_all()
    assert told == [None, None]


def test_who_comes_to_wait_while_a_sync_is_queued_makes_it_urgent_and_the_next_one_too() -> None:
    logs, turns, lanes, _ = logs_in_rounds(1)
    log, sync = logs[0]
    append_numbers(log, [0])
    sync.request(urgent=False)
    turns.run()
    append_numbers(log, [1])
    sync.request(urgent=False)
    assert lanes.hurried == []
    sync.request()
    sync.request()
    assert [piece for piece, _ in lanes.waiting] == lanes.hurried
    lanes.run_all()
    turns.run()
    assert lanes.rounds == [(0, 1), (1, 0)]
    lanes.run_all()
    assert log.flushed_end_offset == 2


def test_a_log_that_is_closed_before_its_round_begins_tells_its_waiters() -> None:
    logs, turns, lanes, _ = logs_in_rounds(2)
    told: list[BaseException | None] = []
    for log, sync in logs:
        append_numbers(log, [0])
        sync.wait_for(1, told.append)
    logs[0][0].abandon()
    turns.run()
    assert lanes.rounds == [(1, 0)]
    lanes.run_all()
    assert [type(error) for error in told] == [LogClosedError, type(None)]


class RoundsModel(RuleBasedStateMachine):
    """Logs that are appended to, asked for and cut in any order: each is synced by one job at a time, whoever
    waited is told once and only of what a power cut leaves, and nothing is left undone."""

    @initialize(seed=st.integers(0, 2**16), paused=st.booleans())
    def begin(self, seed: int, paused: bool) -> None:
        self.disk, self.turns, self.executor = SimDisk(seed), Turns(), StepExecutor(seed)
        self.pauses: list[Callable[[], None]] = []
        rounds = SyncRounds(
            SingleRounds(self.executor),
            post=lambda callback: self.turns.posted.append(callback),
            pause=self.pauses.append if paused else None,
        )
        files = Files(self.disk)
        self.logs = [_open_beside(self.disk, files, number)[0] for number in range(3)]
        self.syncs = [LogSync(log, rounds) for log in self.logs]
        self.open_waits = 0

    @rule(number=st.integers(0, 2), urgent=st.booleans(), waits=st.booleans())
    def append(self, number: int, urgent: bool, waits: bool) -> None:
        log = self.logs[number]
        append_numbers(log, [log.end_offset])
        if waits:
            self.open_waits += 1
            self.syncs[number].wait_for(
                log.end_offset, partial(self._told, log, log.end_offset), urgent=urgent
            )
        else:
            self.syncs[number].request(urgent=urgent)

    def _told(self, log: PartitionLog, offset: int, error: BaseException | None) -> None:
        self.open_waits -= 1
        assert self.open_waits >= 0, "told twice"
        if error is None:
            assert log.flushed_end_offset >= offset

    @rule(number=st.integers(0, 2), back=st.integers(1, 3))
    def truncate(self, number: int, back: int) -> None:
        log = self.logs[number]
        log.truncate_to(max(0, log.end_offset - back), NOW_MS)

    @rule()
    def turn(self) -> None:
        self.turns.run()

    @rule()
    def sync_one(self) -> None:
        self.executor.run_one()

    @rule()
    def end_a_pause(self) -> None:
        if self.pauses:
            self.pauses.pop(0)()

    @invariant()
    def one_job_a_log(self) -> None:
        if hasattr(self, "logs"):
            assert self.executor.waiting <= len(self.logs)
            for number, log in enumerate(self.logs):
                twin = self.disk.fork(1)
                twin.crash("drop")
                again, _ = _open_beside(twin, Files(twin), number)
                assert again.end_offset >= log.flushed_end_offset

    def teardown(self) -> None:
        if hasattr(self, "logs"):
            while self.turns.posted or self.executor.waiting or self.pauses:
                self.turns.run()
                self.executor.run_all()
                self.end_a_pause()
            assert self.open_waits == 0
            assert all(log.flushed_end_offset == log.end_offset for log in self.logs)


TestRounds = RoundsModel.TestCase
TestRounds.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
