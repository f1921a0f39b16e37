"""A crash at every step of every kind of write leaves a state that a node can go on from.

The order in which the driver persists is what makes this true; these tests stop the machine between any two
operations of the disk, in each of the disk's crash modes.
"""

from collections.abc import Callable, Iterator

import pytest

from distributedlog.broker.cluster.raft_driver import write_persist
from distributedlog.data_directory.raft_storage import LogRaftStorage
from distributedlog.model.config import LogConfig
from distributedlog.raft import Entry, EntryKind, HardState, Loaded, Membership, Persist, Snapshot
from distributedlog.storage.files import Files
from tests.simulation.clock import ManualClock
from tests.simulation.disk import PowerCut, SimDisk
from tests.simulation.inodes import CrashMode
from tests.simulation.raft_log_storage import ObservedLogStorage
from tests.simulation.raft_storage import DIRECTORY, DiskRaftStorage

THREE = Membership.of_voters(1, 2, 3)
MODES: tuple[CrashMode, ...] = ("drop", "keep", "random")


def command(index: int, term: int) -> Entry:
    return Entry(index, term, EntryKind.COMMAND, b"payload %d of %d" % (index, term))


OLD = [command(index, 1) for index in range(1, 6)]


def persist(
    *,
    hard_state: HardState | None = None,
    snapshot: Snapshot | None = None,
    installed: bool = False,
    truncate_from: int | None = None,
    entries: tuple[Entry, ...] = (),
    log_start_index: int = 1,
) -> Persist:
    return Persist(hard_state, snapshot, installed, truncate_from, entries, log_start_index)


def ignore(what: str, value: object) -> None:
    """What becomes durable is not of interest here."""


Storage = DiskRaftStorage | ObservedLogStorage
Make = Callable[[SimDisk], Storage]


def on_frames(disk: SimDisk) -> Storage:
    """The simulation's own simple storage."""
    return DiskRaftStorage(disk, ignore)


def on_the_log_engine(disk: SimDisk) -> Storage:
    return ObservedLogStorage(disk, ManualClock(), ignore)


@pytest.fixture(params=[on_frames, on_the_log_engine])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


def open_storage(make: Make, disk: SimDisk) -> tuple[Storage, Loaded]:
    storage = make(disk)
    return storage, storage.load()


def prepared(make: Make, seed: int, *, knows_its_end: bool = False) -> SimDisk:
    """A disk with term 1, and entries 1 to 5 in two writes; perhaps the state was saved after them."""
    disk = SimDisk(seed)
    make(disk).format()
    storage, loaded = open_storage(make, disk)
    assert not loaded.lost
    write_persist(storage, persist(hard_state=HardState(1, 2), entries=tuple(OLD[:3])))
    write_persist(storage, persist(entries=tuple(OLD[3:])))
    if knows_its_end:
        write_persist(storage, persist(hard_state=HardState(1, 2)))
    return disk


def crashed_everywhere(make: Make, change: Persist) -> Iterator[Loaded]:
    """What is found after a crash before each operation of writing `change`, and after the last."""
    for mode in MODES:
        for seed in range(4):
            for steps in range(80):
                disk = prepared(make, seed, knows_its_end=seed % 2 == 0)
                storage, _ = open_storage(make, disk)
                disk.fail_after(steps)
                try:
                    write_persist(storage, change)
                    finished = True
                except PowerCut:
                    finished = False
                disk.crash(mode)
                _, loaded = open_storage(make, disk)
                yield loaded
                if finished:
                    assert steps > 1, "no step was interrupted"
                    break
            else:
                pytest.fail("the write never ended")


def test_appending_never_harms_what_was_there(make: Make) -> None:
    new = (command(6, 2), command(7, 2))
    seen = set()
    for loaded in crashed_everywhere(make, persist(hard_state=HardState(2, 3), entries=new)):
        recovered = loaded.recovered
        assert not loaded.lost
        assert recovered.hard_state in (HardState(1, 2), HardState(2, 3))
        assert list(recovered.entries) in (OLD, [*OLD, *new])
        assert len(recovered.entries) == 5 or recovered.hard_state.term == 2, "entries of a term not begun"
        seen.add(len(recovered.entries))
    assert seen == {5, 7}


@pytest.mark.parametrize("cut", [2, 3, 4, 5])
def test_a_truncated_tail_never_returns_behind_new_entries(make: Make, cut: int) -> None:
    new = (command(cut, 2),)
    seen = set()
    for loaded in crashed_everywhere(make, persist(truncate_from=cut, entries=new)):
        entries = list(loaded.recovered.entries)
        assert not loaded.lost
        assert entries[: cut - 1] == OLD[: cut - 1], "what was not truncated was lost"
        tail = entries[cut - 1 :]
        assert tail == list(new) or tail == OLD[cut - 1 : cut - 1 + len(tail)]
        seen.add(tuple(tail))
    assert tuple(new) in seen


def test_an_installed_snapshot_replaces_the_log_or_nothing_happened(make: Make) -> None:
    snapshot = Snapshot(20, 3, THREE, b"state" * 300)
    seen = set()
    for loaded in crashed_everywhere(
        make, persist(hard_state=HardState(3), snapshot=snapshot, installed=True)
    ):
        recovered = loaded.recovered
        assert not loaded.lost
        if recovered.snapshot is None:
            assert list(recovered.entries) == OLD
        else:
            assert recovered.snapshot == snapshot
            assert recovered.entries == ()
        seen.add(recovered.snapshot is None)
    assert seen == {True, False}


def test_an_own_snapshot_keeps_what_is_behind_it(make: Make) -> None:
    snapshot = Snapshot(3, 1, THREE, b"state")
    for loaded in crashed_everywhere(make, persist(snapshot=snapshot, log_start_index=3)):
        recovered = loaded.recovered
        assert not loaded.lost
        assert recovered.snapshot in (None, snapshot)
        assert list(recovered.entries)[-2:] == OLD[-2:]
        assert recovered.snapshot is not None or list(recovered.entries) == OLD


def log_path(disk: SimDisk) -> str:
    """The one file that holds the entries, in either storage."""
    return next(path for path in disk.files() if path.endswith(("/log", "0.log")))


def test_damage_in_the_middle_is_a_loss_and_at_the_end_a_torn_write(make: Make) -> None:
    disk = prepared(make, 0)
    path = log_path(disk)
    disk.flip_bit(path, disk.files()[path].index(b"payload 2"), 5)
    _, loaded = open_storage(make, disk)
    assert loaded.lost
    disk = prepared(make, 0)
    disk.flip_bit(path, disk.size(path) - 1, 5)
    _, loaded = open_storage(make, disk)
    assert not loaded.lost
    assert list(loaded.recovered.entries) in (OLD[:3], OLD[:4])


def test_a_hole_in_a_write_that_was_never_synced_is_no_loss(make: Make) -> None:
    """The disk may write the second half of what it was given before the first."""
    disk = prepared(make, 0)
    storage, _ = open_storage(make, disk)
    storage.append([command(index, 2) for index in range(6, 12)])
    path = log_path(disk)
    disk.flip_bit(path, disk.files()[path].index(b"payload 7"), 5)
    disk.crash("keep")
    _, loaded = open_storage(make, disk)
    assert not loaded.lost
    assert list(loaded.recovered.entries[:5]) == OLD
    assert not [path for path in disk.files() if "quarantine" in path], "nobody will want it back"


def test_a_log_that_ends_before_what_was_synced_is_a_loss_if_the_state_knows() -> None:
    disk = prepared(on_the_log_engine, 0)
    storage, _ = open_storage(on_the_log_engine, disk)
    storage.save_hard_state(HardState(3))
    path = log_path(disk)
    file = disk.open(path, write=True)
    file.truncate(disk.files()[path].index(b"payload 4") - 60)
    file.sync()
    file.close()
    _, loaded = open_storage(on_the_log_engine, disk)
    assert loaded.lost


def test_a_term_or_an_offset_that_rotted_where_no_checksum_covers_it_is_a_loss() -> None:
    for place in (7, 15):  # the last bytes of the offset and of the leader epoch
        disk = prepared(on_the_log_engine, 0)
        path = log_path(disk)
        content = disk.files()[path]
        third = _batch_starts(content)[2]
        disk.flip_bit(path, third + place, 4)
        _, loaded = open_storage(on_the_log_engine, disk)
        assert loaded.lost
        assert list(loaded.recovered.entries) == OLD[:2]


def _batch_starts(content: bytes) -> list[int]:
    starts, at = [], 0
    while at < len(content):
        starts.append(at)
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    return starts


def test_a_damaged_state_is_a_loss(make: Make) -> None:
    disk = prepared(make, 0)
    for path in disk.files():
        if path.endswith(("/hard", "/raft-state")):
            for position in range(10, disk.size(path), 16):
                disk.flip_bit(path, position, 0)
    _, loaded = open_storage(make, disk)
    assert loaded.lost


def test_segments_that_a_snapshot_holds_are_deleted() -> None:
    disk = SimDisk(0)
    config = LogConfig(segment_bytes=1024, retention_ms=-1, file_delete_delay_ms=0)
    storage = LogRaftStorage(Files(disk), DIRECTORY, ManualClock(), config)
    storage.format()
    storage.load()
    entries = tuple(command(index, 1) for index in range(1, 61))
    for entry in entries:
        write_persist(storage, persist(entries=(entry,)))
    bytes_before = disk.used_bytes
    snapshot = Snapshot(55, 1, THREE, b"state")
    write_persist(storage, persist(snapshot=snapshot, log_start_index=50))
    assert disk.used_bytes < bytes_before / 2
    recovered = LogRaftStorage(Files(disk), DIRECTORY, ManualClock(), config).load().recovered
    assert recovered.snapshot == snapshot
    assert recovered.entries[-11:] == entries[-11:]


def test_an_empty_disk_has_lost_everything(make: Make) -> None:
    _, loaded = open_storage(make, SimDisk(0))
    assert loaded.lost
    assert loaded.recovered.hard_state == HardState()
