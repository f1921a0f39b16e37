"""Raft's storage on a real disk.  What crashes do to it is tested on the simulated one."""

from pathlib import Path

import pytest

from distributedlog.broker.cluster.raft_driver import write_persist
from distributedlog.data_directory.raft_storage import LOG_DIRECTORY, LogRaftStorage
from distributedlog.model.errors import CorruptLogError
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import SystemDisk
from distributedlog.raft import Entry, EntryKind, HardState, Membership, Persist, Snapshot, codec
from distributedlog.records.batch import scan
from distributedlog.records.record import decode_batch
from distributedlog.storage.files import Files

FOUR = Membership({1: 0, 2: 0, 3: 9}, {4: 0})
ENTRIES = (
    Entry(1, 1, EntryKind.NOOP, b""),
    Entry(2, 1, EntryKind.COMMAND, b"first"),
    Entry(3, 1, EntryKind.MEMBERSHIP, codec.encode_membership(FOUR)),
    Entry(4, 7, EntryKind.COMMAND, b""),
)


def storage_in(directory: Path) -> LogRaftStorage:
    return LogRaftStorage(Files(SystemDisk()), str(directory / "metadata"), SystemClock())


def filled(directory: Path) -> LogRaftStorage:
    storage = storage_in(directory)
    storage.format()
    assert not storage.load().lost
    write_persist(storage, Persist(HardState(7, 2, 0), None, False, None, ENTRIES, 1))
    return storage


def test_everything_is_there_again_after_a_stop(tmp_path: Path) -> None:
    filled(tmp_path).close()
    loaded = storage_in(tmp_path).load()
    assert not loaded.lost
    assert loaded.recovered.hard_state == HardState(7, 2, 0)
    assert loaded.recovered.entries == ENTRIES


def test_everything_is_there_again_without_one(tmp_path: Path) -> None:
    filled(tmp_path)
    loaded = storage_in(tmp_path).load()
    assert not loaded.lost
    assert loaded.recovered.entries == ENTRIES


def test_an_entry_is_a_batch_with_one_record_at_its_index_and_term(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (segment,) = (tmp_path / "metadata" / LOG_DIRECTORY).glob("*.log")
    content = segment.read_bytes()
    at = 0
    for entry, header in zip(ENTRIES, scan(content).headers, strict=True):
        assert (header.base_offset, header.leader_epoch, header.record_count) == (
            entry.index - 1,
            entry.term,
            1,
        )
        (record,) = decode_batch(content, at)
        assert record.value == entry.payload
        assert record.key == {EntryKind.NOOP: b"noop", EntryKind.MEMBERSHIP: b"membership"}.get(entry.kind)
        at += header.size


def test_an_installed_snapshot_takes_the_logs_place(tmp_path: Path) -> None:
    storage = filled(tmp_path)
    snapshot = Snapshot(40, 7, FOUR, b"state")
    behind = (Entry(41, 8, EntryKind.COMMAND, b"next"),)
    write_persist(storage, Persist(HardState(8), snapshot, True, None, behind, 41))
    loaded = storage_in(tmp_path).load()
    assert not loaded.lost
    assert loaded.recovered == (HardState(8), snapshot, behind)


def test_a_conflict_is_overwritten(tmp_path: Path) -> None:
    storage = filled(tmp_path)
    other = (Entry(3, 8, EntryKind.COMMAND, b"other"),)
    write_persist(storage, Persist(HardState(8), None, False, 3, other, 1))
    assert storage_in(tmp_path).load().recovered.entries == (*ENTRIES[:2], *other)


def test_a_directory_that_was_never_formatted_has_lost_everything(tmp_path: Path) -> None:
    loaded = storage_in(tmp_path).load()
    assert loaded.lost
    assert loaded.recovered == (HardState(), None, ())


@pytest.mark.parametrize("term", [2**31, 2**63 - 1])
def test_a_term_that_no_node_can_have_begun_is_said_so(tmp_path: Path, term: int) -> None:
    storage = storage_in(tmp_path)
    storage.format()
    storage.load()
    storage.save_hard_state(HardState(term, None, 0))
    storage.close()
    with pytest.raises(CorruptLogError, match=f"says that it is term {term}"):
        storage_in(tmp_path).load()
