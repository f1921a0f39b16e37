"""The sparse indexes: their bytes, their searches, and that they are bounded."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.errors import CorruptLogError
from distributedlog.storage.files import Files
from distributedlog.storage.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
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
    st.booleans(),
)
def test_a_search_finds_the_entry_at_or_before(offsets: list[int], asked: list[int], sealed: bool) -> None:
    _, index = offset_index()
    for at, offset in enumerate(offsets):
        index.append(BASE + offset, (at + 1) * 100)
    if sealed:
        index.seal()
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


def test_mapped_indexes_are_bounded() -> None:
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
        assert len(files.mappings) == 4
        assert files.open_count <= 8
