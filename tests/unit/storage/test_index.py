"""The sparse indexes: their bytes, their searches, and that they are bounded."""

import errno
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.errors import CorruptLogError, StorageError
from distributedlog.ports.disk import SystemDisk
from distributedlog.storage import index as index_module
from distributedlog.storage.files import Files
from distributedlog.storage.index import BLOCK_ENTRIES, RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from tests.simulation.disk import SimDisk

BASE = 1000


def offset_index() -> tuple[SimDisk, OffsetIndex]:
    disk = SimDisk(1)
    disk.make_directory("/d")
    index = OffsetIndex(Files(disk), "/d/i.index", BASE)
    index.start_empty()
    return disk, index


def time_index() -> tuple[SimDisk, TimeIndex]:
    disk = SimDisk(1)
    disk.make_directory("/d")
    index = TimeIndex(Files(disk), "/d/i.timeindex", BASE)
    index.start_empty()
    return disk, index


def test_an_offset_index_has_kafkas_bytes() -> None:
    disk, index = offset_index()
    index.append(BASE + 5, 4096)
    index.append(BASE + 258, 8200)
    index.write_out()
    assert disk.files()["/d/i.index"].hex() == "0000000500001000" + "0000010200002008"


def test_a_time_index_has_kafkas_bytes() -> None:
    disk, index = time_index()
    index.append_if_newer(256, BASE + 7)
    index.write_out()
    assert disk.files()["/d/i.timeindex"].hex() == "0000000000000100" + "00000007"


def test_both_columns_of_a_time_index_rise() -> None:
    _, index = time_index()
    for timestamp, offset in ((50, 5), (50, 6), (40, 7), (60, 5), (60, 8)):
        index.append_if_newer(timestamp, BASE + offset)
    assert index.entries() == [(50, BASE + 5), (60, BASE + 8)]
    assert index.last() == (60, BASE + 8)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 5000), unique=True, max_size=150).map(sorted),
    st.lists(st.integers(-10, 5100), max_size=20),
    st.sampled_from([0, 2, 3, 7, 64, 512]),
)
def test_a_search_finds_the_entry_at_or_before(offsets: list[int], asked: list[int], block: int) -> None:
    """Searches in memory, and in a file that is read in blocks of so many entries."""
    _, index = offset_index()
    for at, offset in enumerate(offsets):
        index.append(BASE + offset, (at + 1) * 100)
    if block:
        index.seal()
    with patch.object(index_module, "BLOCK_ENTRIES", block):
        check_lookups(index, offsets, asked)


def check_lookups(index: OffsetIndex, offsets: list[int], asked: list[int]) -> None:
    for offset in asked:
        found = index.lookup(BASE + offset)
        before = [at for at, each in enumerate(offsets) if each <= offset]
        assert found.position == (0 if not before else (before[-1] + 1) * 100)
        after = [at for at, each in enumerate(offsets) if each > offset]
        assert found.next_position == (-1 if not after else (after[0] + 1) * 100)
        if before:
            assert found.highest == BASE + offsets[before[-1]]
            assert found.lowest == BASE + (offsets[before[-1] - 1] + 1 if before[-1] else 0)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000)), max_size=60),
    st.lists(st.integers(-5, 3005), max_size=20),
)
def test_a_search_by_time_finds_the_last_entry_that_is_older(
    entries: list[tuple[int, int]], asked: list[int]
) -> None:
    _, index = time_index()
    for timestamp, offset in entries:
        index.append_if_newer(timestamp, BASE + offset)
    kept = index.entries()
    assert kept == sorted(kept)
    for timestamp in asked:
        older = [entry for entry in kept if entry[0] < timestamp]
        assert index.lookup(timestamp) == (older[-1] if older else None)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["append", "write_out", "truncate", "release", "reopen"]), max_size=30))
def test_an_index_is_the_same_in_memory_and_in_its_file(steps: list[str]) -> None:
    disk, index = offset_index()
    index.write_out()
    model: list[tuple[int, int]] = []
    for step in steps:
        if step == "append":
            model.append((BASE + len(model) * 3, len(model) * 50))
            index.append(*model[-1])
        elif step == "write_out":
            index.write_out()
        elif step == "truncate":
            model = model[: len(model) // 2]
            index.truncate_to_position(len(model) * 50)
        elif step == "release":
            index.seal()
        else:
            index.write_out()
            index.close()
        assert index.entries() == model
    index.write_out()
    assert len(disk.files()["/d/i.index"]) == len(model) * 8


def test_entries_are_dropped_by_position_and_by_offset() -> None:
    _, offsets = offset_index()
    _, times = time_index()
    for number in range(10):
        offsets.append(BASE + number * 10, number * 100)
        times.append_if_newer(number, BASE + number * 10)
    offsets.truncate_to_position(500)
    times.truncate_to_offset(BASE + 50)
    assert offsets.entries()[-1] == (BASE + 40, 400)
    assert times.last() == (4, BASE + 40)
    offsets.truncate_to_position(0)
    times.truncate_to_offset(BASE)
    assert len(offsets) == len(times) == 0
    assert times.last() == (-1, BASE)


@pytest.mark.parametrize("offset", [BASE - 1, BASE + RELATIVE_OFFSET_MAX + 1])
def test_an_offset_that_does_not_fit_is_refused(offset: int) -> None:
    with pytest.raises(CorruptLogError, match="does not fit"):
        offset_index()[1].append(offset, 0)
    with pytest.raises(CorruptLogError, match="does not fit"):
        time_index()[1].append_if_newer(5, offset)


def test_a_file_of_odd_length_or_none_at_all_is_not_believed() -> None:
    disk, index = offset_index()
    index.append(BASE, 0)
    index.seal()
    disk.open("/d/i.index", write=True).truncate(7)
    with pytest.raises(CorruptLogError, match="whole number"):
        index.entries()
    index.close()
    disk.remove("/d/i.index")
    with pytest.raises(CorruptLogError, match="missing"):
        index.entries()


def test_indexes_with_a_block_in_memory_are_bounded() -> None:
    disk = SimDisk(1)
    disk.make_directory("/d")
    files = Files(disk, open_files_max=8)
    indexes = []
    for number in range(20):
        index = OffsetIndex(files, f"/d/{number}.index", 0)
        index.start_empty()
        index.append(number, number)
        index.seal()
        indexes.append(index)
    for _ in range(2):
        assert [index.entries() for index in indexes] == [[(number, number)] for number in range(20)]
        assert len(files.index_blocks) == 4
        assert files.open_count <= 8


LARGE = 10 * BLOCK_ENTRIES


@pytest.mark.parametrize("left", [0, 1, BLOCK_ENTRIES, LARGE - 1])
def test_a_file_that_is_cut_short_under_its_reader_is_noticed(left: int) -> None:
    disk, index = offset_index()
    for at in range(LARGE):
        index.append(BASE + at, at)
    index.seal()
    assert index.lookup(BASE + LARGE // 3).position == LARGE // 3
    disk.open("/d/i.index", write=True).truncate(left * 8)
    assert index.lookup(BASE + LARGE // 3 + 1).position == LARGE // 3 + 1  # its block is in memory
    with pytest.raises(CorruptLogError, match="inside its entries"):
        index.lookup(BASE + LARGE - 1)
    with pytest.raises(CorruptLogError, match="inside its entries"):
        index.entries()


def test_a_file_whose_entries_change_under_its_reader_does_not_hold_it() -> None:
    disk, index = offset_index()
    for at in range(LARGE):
        index.append(BASE + at, at)
    index.seal()
    index.lookup(BASE)
    disk.open("/d/i.index", write=True).write_at(0, b"\x7f" * 8 * LARGE)
    with pytest.raises(CorruptLogError, match="do not rise"):
        index.lookup(BASE + LARGE // 2)


def test_a_search_reads_little_of_a_large_file() -> None:
    disk, index = offset_index()
    for at in range(100 * BLOCK_ENTRIES):
        index.append(BASE + at * 3, at)
    index.seal()
    index.lookup(BASE)
    reads = disk.inject("read", count=10**6, after=10**6)
    for at in range(0, 100 * BLOCK_ENTRIES, BLOCK_ENTRIES):
        assert index.lookup(BASE + at * 3).position == at
    assert 10**6 - reads.after <= 101


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ELOOP])
def test_a_file_that_cannot_be_read_is_taken_for_damaged(number: int) -> None:
    disk, index = offset_index()
    index.append(BASE, 0)
    index.seal()
    disk.inject("open", "*", number)
    with pytest.raises(CorruptLogError):
        index.lookup(BASE)


def test_a_file_that_cannot_be_opened_for_want_of_descriptors_is_not() -> None:
    disk, index = offset_index()
    index.append(BASE, 0)
    index.seal()
    disk.inject("open", "*", errno.EMFILE)
    with pytest.raises(StorageError) as caught:
        index.lookup(BASE)
    assert not isinstance(caught.value, CorruptLogError)
    assert index.lookup(BASE).highest == BASE


def test_an_index_that_is_made_anew_replaces_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    outside, path = tmp_path / "outside", tmp_path / "i.index"
    outside.write_bytes(b"another's")
    path.symlink_to(outside)
    index = OffsetIndex(Files(SystemDisk()), str(path), BASE)
    index.start_empty()
    index.append(BASE, 0)
    index.write_out()
    assert outside.read_bytes() == b"another's"
    assert path.read_bytes() == bytes(8)
    assert not path.is_symlink()
