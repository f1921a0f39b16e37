"""The power goes at every operation, and the epoch history must be that of the batches that are left.

The epoch file is not written with a sync.  What it lacks is taken from the batches behind the recovery point,
so the recovery point must not pass what the file lacks; a file that says more than the batches must not win.
"""

import errno
from typing import NamedTuple

import pytest

from distributedlog.model.errors import DiskFullError
from distributedlog.storage.checkpoints import LEADER_EPOCH_FILE, decode_epochs
from distributedlog.storage.epochs import NOWHERE, EpochEntry, EpochHistory
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.store import LogStore
from tests.simulation.disk import SimDisk
from tests.simulation.inodes import CrashMode
from tests.unit.storage.compaction.keyed_log import KeyedLog
from tests.unit.storage.support import NOW_MS, append, batch_of, commit_all, open_store, value_of

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


class FollowerStory(Story):
    """A follower that truncates and does not wait for it: it appends when the next sync has ended.  Where an
    epoch began that was truncated there is another one's batch afterwards, or nothing: a leader has
    compacted."""

    def replicate(self, epoch: int, *base_offsets: int, records: int = 5) -> None:
        for base_offset in base_offsets:
            if epoch > self.truth.latest_epoch:
                self.truth.assign(epoch, base_offset)
            values = [value_of(base_offset + at) for at in range(records)]
            data = batch_of(values, base_offset=base_offset, leader_epoch=epoch)
            self.log.append_as_follower(data, now_ms=NOW_MS)

    def cut(self, offset: int) -> None:
        self.cut_at = offset
        self.log.truncate_to(offset, NOW_MS, sync=False)
        self.sync()
        self.cut_at = NOWHERE
        self.truth.truncate_from_end(offset)

    def sync(self) -> None:
        job = self.log.begin_sync()
        assert job is not None
        job.run()
        self.log.end_sync(job, succeeded=True)

    def run(self) -> None:
        self.replicate(0, 0)
        self.replicate(2, 5, 10, 15)
        self.replicate(3, 20, 25)
        self.sync()
        self.store.checkpoint()
        self.cut(15)
        self.replicate(2, 15)
        self.replicate(2, 20, records=7)
        self.sync()
        self.store.checkpoint()
        self.replicate(2, 27)
        self.replicate(4, 32)
        self.sync()
        self.store.checkpoint()
        self.cut(27)
        self.replicate(2, 27, records=2)
        self.replicate(5, 35, 40)
        self.sync()
        self.store.checkpoint()
        self._note("end", "")


def epochs_in_file(disk: SimDisk, directory: str) -> list[EpochEntry]:
    data = Files(disk).read_small(f"{directory}/{LEADER_EPOCH_FILE}")
    assert data is not None
    return decode_epochs(data)


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


@pytest.fixture(scope="module")
def followers_moments() -> list[Moment]:
    story = FollowerStory()
    story.run()
    assert [tuple(entry) for entry in story.truth.entries] == [(0, 0), (2, 5), (5, 35)]
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


@pytest.mark.parametrize(("mode", "seed"), CRASHES)
def test_an_old_epoch_file_says_nothing_of_what_a_follower_appended_after_a_truncation(
    followers_moments: list[Moment], mode: CrashMode, seed: int
) -> None:
    for number, moment in enumerate(followers_moments):
        try:
            check(moment, mode, seed * 1000 + number)
        except BaseException as error:
            error.add_note(f"power cut number {number}, before {moment.operation}")
            raise


def test_a_follower_truncates_without_a_sync() -> None:
    story = FollowerStory()
    story.replicate(0, 0)
    story.replicate(1, 5)
    story.log.write_epochs()
    story.sync()
    seen: list[str] = []
    story.disk.on_operation = lambda operation, _path: seen.append(operation)
    story.log.truncate_to(3, NOW_MS, sync=False)
    assert "truncate" in seen
    assert not {"sync", "dirsync"} & set(seen)
    job = story.log.begin_sync()
    assert job is not None
    seen.clear()
    job.run()
    story.log.end_sync(job, succeeded=True)
    assert {"sync", "rename"} <= set(seen)
    assert not story.log.has_unsynced_cut
    assert not story.log.epochs.changed


def test_a_truncation_is_not_stored_before_the_epoch_file_is() -> None:
    """A writing that is under way elsewhere may come too late, and one that finds no room is made up for."""
    story = FollowerStory()
    story.replicate(0, 0)
    story.replicate(1, 5)
    story.sync()
    story.store.checkpoint()
    story.log.truncate_to(5, NOW_MS, sync=False)
    assert story.log.begin_epoch_write() is not None
    job = story.log.begin_sync()
    assert job is not None
    story.disk.inject("write", "*leader-epoch*", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        job.run()
    story.log.end_sync(job, succeeded=False)
    seen = [story.log.has_unsynced_cut]
    story.sync()
    seen.append(story.log.has_unsynced_cut)
    assert seen == [True, False]
    story.disk.crash("drop")
    assert epochs_in_file(story.disk, story.log.directory) == [(0, 0)]


def test_the_recovery_point_does_not_pass_what_the_file_says_of_a_leader_that_wrote_nothing() -> None:
    story = Story()
    story.append(3, 0)
    story.lead(1)
    story.store.checkpoint()
    story.follow()
    story.append(3, 0)
    story.log.sync()
    assert story.log.recovery_point == 3
    write = story.log.begin_epoch_write()
    assert write is not None
    story.log.end_epoch_write(write, succeeded=False)
    assert story.log.recovery_point == 3
    story.store.checkpoint()
    assert story.log.recovery_point == 6


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
