"""The power goes at every operation, and the epoch history must be that of the batches that are left.

The epoch file is not written with a sync.  What it lacks is taken from the batches behind the recovery point,
so the recovery point must not pass what the file lacks; a file that says more than the batches must not win.
"""

from typing import NamedTuple

import pytest

from distributedlog.storage.epochs import NOWHERE, EpochEntry, EpochHistory
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.store import LogStore
from tests.simulation.disk import SimDisk
from tests.simulation.inodes import CrashMode
from tests.unit.storage.compaction.keyed_log import KeyedLog
from tests.unit.storage.support import NOW_MS, append, commit_all, open_store, value_of

CRASHES: list[tuple[CrashMode, int]] = [("drop", 0), ("keep", 0), ("random", 1), ("random", 2)]


class Moment(NamedTuple):
    operation: str
    disk: SimDisk
    entries: tuple[EpochEntry, ...]
    """The history by what was appended; what is lost of the log's end is lost of it, too."""
    flushed_end: int


class Story:
    """A log with many leaders, of whom some wrote nothing."""

    def __init__(self) -> None:
        self.disk = SimDisk(3)
        self.truth = EpochHistory()
        self.moments: list[Moment] = []
        self.cut_at = NOWHERE
        self.store = open_store(self.disk)
        self.log = self.store.create_log("t")
        self.disk.on_operation = self._note

    def _note(self, operation: str, path: str) -> None:
        flushed = min(self.log.flushed_end_offset, self.cut_at)
        self.moments.append(
            Moment(f"{operation} {path}", self.disk.fork(0), tuple(self.truth.entries), flushed)
        )

    def lead(self, epoch: int) -> None:
        """A leader's epoch begins before it has written anything."""
        self.log.epochs.assign(epoch, self.log.end_offset)

    def follow(self) -> None:
        self.log.epochs.truncate_from_end(self.log.end_offset)

    def append(self, count: int, epoch: int) -> None:
        for _ in range(count):
            if epoch > self.truth.latest_epoch:
                self.truth.assign(epoch, self.log.end_offset)
            append(self.log, value_of(self.log.end_offset), leader_epoch=epoch)

    def truncate(self, offset: int) -> None:
        """What is behind is gone or not while it lasts; before it the history stays as it is."""
        self.cut_at = offset
        self.log.truncate_to(offset, NOW_MS)
        self.cut_at = NOWHERE
        self.truth.truncate_from_end(offset)

    def trim(self, offset: int) -> None:
        commit_all(self.log)
        self.log.advance_start_offset(offset, NOW_MS)
        self.store.checkpoint_starts()

    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.disk)
        log = self.store.log("t")
        assert log is not None
        self.log = log

    def run(self) -> None:
        self.append(5, 0)
        self.log.sync()
        self.store.checkpoint()
        self.append(14, 2)
        self.log.sync()
        self.append(14, 3)  # sealed by now: 2, and a part of 3
        self.log.sync()
        self.store.checkpoint()
        self.lead(4)
        self.store.checkpoint()  # the file says 4, of which there is no batch
        self.follow()
        self.append(6, 3)
        self.log.sync()
        self.append(13, 5)
        self.log.sync()
        self.truncate(36)
        self.append(13, 6)
        self.log.sync()
        self.store.checkpoint()
        self.append(13, 7)
        self.trim(20)
        self.reopen()
        self.append(13, 8)
        self.log.sync()
        self.store.checkpoint()
        self.append(20, 9)
        self.log.sync()
        self._note("end", "")


def check(moment: Moment, mode: CrashMode, seed: int) -> None:
    disk = moment.disk.fork(seed)
    disk.crash(mode)
    store = open_store(disk)
    log = store.log("t")
    assert log is not None
    assert log.end_offset >= moment.flushed_end
    _assert_history(log, moment.entries)
    _goes_on(store, log, disk)


def _assert_history(log: PartitionLog, entries: tuple[EpochEntry, ...]) -> None:
    expected = EpochHistory(entries)
    expected.truncate_from_end(log.end_offset)
    expected.truncate_from_start(log.start_offset)
    assert log.epochs.entries == expected.entries


def _goes_on(store: LogStore, log: PartitionLog, disk: SimDisk) -> None:
    """The history is on the disk after a clean stop, which is believed."""
    append(log, b"after", leader_epoch=99)
    entries = log.epochs.entries
    store.close()
    again = open_store(disk)
    found = again.log("t")
    assert again.was_clean
    assert found is not None
    assert found.epochs.entries == entries
    again.abandon()


@pytest.fixture(scope="module")
def moments() -> list[Moment]:
    story = Story()
    story.run()
    assert [tuple(entry) for entry in story.truth.entries] == [
        (0, 0), (2, 5), (3, 19), (6, 36), (7, 49), (8, 62), (9, 75),
    ]  # fmt: skip
    return story.moments


@pytest.mark.parametrize(("mode", "seed"), CRASHES)
def test_the_history_is_that_of_the_batches_whenever_the_power_goes(
    moments: list[Moment], mode: CrashMode, seed: int
) -> None:
    for number, moment in enumerate(moments):
        try:
            check(moment, mode, seed * 1000 + number)
        except BaseException as error:
            error.add_note(f"power cut number {number}, before {moment.operation}")
            raise


def test_a_sync_writes_no_epoch_file() -> None:
    story = Story()
    story.append(3, 0)
    story.log.sync()
    story.append(3, 1)
    story.log.sync()
    assert story.log.flushed_end_offset == 6
    assert not any("leader-epoch" in moment.operation for moment in story.moments)
    assert story.log.recovery_point == 0, "the file does not know the first epoch yet"
    story.store.checkpoint()
    assert story.log.recovery_point == 6


def test_the_recovery_point_waits_for_a_writing_that_is_under_way_and_for_one_that_failed() -> None:
    story = Story()
    story.append(3, 0)
    story.store.checkpoint()
    story.append(3, 1)
    story.log.sync()
    write = story.log.begin_epoch_write()
    assert write is not None
    assert story.log.begin_epoch_write() is None
    assert story.log.recovery_point == 3
    story.append(3, 2)
    story.log.sync()
    later = story.log.begin_epoch_write()
    assert later is not None
    story.log.end_epoch_write(write, succeeded=False)
    assert story.log.recovery_point == 3
    later.run()
    story.log.end_epoch_write(later, succeeded=True)
    assert story.log.recovery_point == 3, "the one that failed is to be made up for"
    story.log.write_epochs()
    assert story.log.recovery_point == 9


def test_an_earlier_writing_that_fails_after_a_later_one_succeeded_changes_nothing() -> None:
    story = Story()
    story.append(3, 1)
    story.log.sync()
    write = story.log.begin_epoch_write()
    story.append(3, 2)
    story.log.sync()
    later = story.log.begin_epoch_write()
    assert write is not None
    assert later is not None
    later.run()
    story.log.end_epoch_write(later, succeeded=True)
    story.log.end_epoch_write(write, succeeded=False)
    assert story.log.recovery_point == 6
    assert not story.log.epochs.changed


def test_a_stop_does_not_count_on_a_writing_that_is_still_under_way() -> None:
    story = Story()
    story.append(3, 1)
    assert story.log.begin_epoch_write() is not None
    story.reopen()
    assert [tuple(entry) for entry in story.log.epochs.entries] == [(1, 0)]


def test_compaction_takes_no_epoch_away_whose_batches_it_removes() -> None:
    """The batches alone say which epochs there were behind the recovery point, unless the file is written."""
    keyed = KeyedLog()
    for epoch in range(3):
        keyed.leader_epoch = epoch
        keyed.put((b"a", b"%d" % epoch))
        keyed.roll()
    keyed.leader_epoch = 3
    keyed.put((b"b", b"x"))
    keyed.compact()
    assert {batch.leader_epoch for batch in keyed.batches()} == {2, 3}
    keyed.reopen()
    assert [tuple(entry) for entry in keyed.log.epochs.entries] == [(0, 0), (1, 1), (2, 2), (3, 3)]
