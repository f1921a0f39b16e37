"""One segment: what its indexes lead to, and what they do not."""

import subprocess
import sys
from pathlib import Path

import pytest

from distributedlog.model.errors import CorruptLogError
from distributedlog.records.batch import read_header
from distributedlog.storage.files import Files
from distributedlog.storage.segment import LOOKUP_WINDOW_BYTES, Segment
from tests.simulation.disk import SimDisk
from tests.unit.storage.support import batch_of, batches_in, value_of

DIRECTORY = "/d"
LOG = "/d/00000000000000000100.log"
BASE = 100


def a_segment(
    sizes: list[int], *, gap: int = 0, interval: int = 200, timestamps: list[int] | None = None
) -> tuple[SimDisk, Segment]:
    """One record a batch, of the given sizes; offsets rise by one and the gap."""
    disk = SimDisk(1)
    disk.make_directory(DIRECTORY)
    segment = Segment.create(Files(disk), DIRECTORY, BASE, interval)
    for number, size in enumerate(sizes):
        time = 1000 + number if timestamps is None else timestamps[number]
        data = batch_of([bytes(size)], base_offset=BASE + number * (1 + gap), timestamp_ms=time)
        segment.append(data, [read_header(data)])
    return disk, segment


SHAPES = [
    [10] * 50,
    [LOOKUP_WINDOW_BYTES] * 5,
    [10, 20_000, 10, 10, 9000, 9000, 10],
    [1],
    [LOOKUP_WINDOW_BYTES - 61 - 10 - 88 * 3] + [10] * 10,
]


@pytest.mark.parametrize("sizes", SHAPES, ids=["small", "large", "mixed", "one", "edge"])
@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("interval", [0, 200, 1 << 20])
def test_every_offset_leads_to_the_batch_that_holds_it_or_the_next(
    sizes: list[int], gap: int, sealed: bool, interval: int
) -> None:
    disk, segment = a_segment(sizes, gap=gap, interval=interval)
    if sealed:
        segment.seal()
    headers = [header for header, _ in batches_in(disk.files()[LOG])]
    for offset in range(BASE, headers[-1].next_offset):
        place = segment.locate(offset)
        assert place is not None
        expected = next(header for header in headers if header.last_offset >= offset)
        assert (place.base_offset, place.size) == (expected.base_offset, expected.size)
    assert segment.locate(headers[-1].next_offset) is None


def test_an_empty_segment_has_nothing() -> None:
    _, segment = a_segment([])
    assert segment.locate(BASE) is None
    assert segment.locate(BASE + 1000) is None


@pytest.mark.parametrize("wrong", [b"\xff" * 8, bytes(8), b"\x00\x00\x00\x05\x00\x00\x00\x07"])
def test_an_index_that_leads_astray_is_made_again(wrong: bytes) -> None:
    disk, segment = a_segment([10] * 30)
    segment.seal()
    right = disk.files()["/d/00000000000000000100.index"]
    for slot in range(0, len(right), 8):
        disk.open("/d/00000000000000000100.index", write=True).write_at(slot, wrong)
        segment.offset_index.close()
        for offset in range(BASE, BASE + 30):
            place = segment.locate(offset)
            assert place is not None
            assert place.base_offset == offset
    segment.rebuild_indexes()
    assert disk.files()["/d/00000000000000000100.index"] == right


def test_an_entry_that_leads_exactly_to_the_end_hides_nothing() -> None:
    disk, segment = a_segment([10] * 30)
    segment.seal()
    path = "/d/00000000000000000100.index"
    last = len(disk.files()[path]) - 4
    disk.open(path, write=True).write_at(last, segment.size.to_bytes(4, "big"))
    segment.offset_index.close()
    place = segment.locate(BASE + 29)
    assert place is not None
    assert place.base_offset == BASE + 29


def test_a_log_that_cannot_be_walked_keeps_its_index_and_says_where_it_is_damaged() -> None:
    disk, segment = a_segment([10] * 30, interval=0)
    segment.seal()
    index = disk.files()["/d/00000000000000000100.index"]
    place = segment.locate(BASE + 10)
    assert place is not None
    disk.flip_bit(LOG, place.position + 10, 5)  # its length
    with pytest.raises(CorruptLogError, match=f"position {place.position}"):
        segment.locate(BASE + 10)
    with pytest.raises(CorruptLogError):
        segment.rebuild_indexes()
    assert disk.files()["/d/00000000000000000100.index"] == index
    for offset in (*range(BASE, BASE + 9), *range(BASE + 11, BASE + 30)):
        found = segment.locate(offset)
        assert found is not None
        assert found.base_offset == offset


def test_a_log_that_cannot_be_walked_is_not_walked_for_every_reader() -> None:
    disk, segment = a_segment([1000] * 300, interval=0)
    segment.seal()
    whole = disk.files()[LOG]
    disk.open(LOG, write=True).truncate(len(whole) // 2)
    reads = disk.inject("read", LOG, count=10**6, after=10**6)
    costs = []
    for _ in range(3):
        before = reads.after
        with pytest.raises(CorruptLogError, match=LOG):
            segment.locate(BASE + 299)
        costs.append(before - reads.after)
    assert costs[0] > costs[1] == costs[2]
    assert costs[1] <= 2
    disk.open(LOG, write=True).write_at(0, whole)
    place = segment.locate(BASE + 299)
    assert place is not None
    assert place.base_offset == BASE + 299


@pytest.mark.parametrize("bit", range(5))
def test_a_batch_whose_offset_was_moved_is_not_taken_for_another(bit: int) -> None:
    for number in range(1, 29):
        disk, segment = a_segment([10] * 30)
        segment.seal()
        place = segment.locate(BASE + number)
        assert place is not None
        disk.flip_bit(LOG, place.position + 7, bit)
        for offset in range(BASE, BASE + 30):
            try:
                found = segment.locate(offset)
            except CorruptLogError:
                continue
            assert found is not None
            assert found.position == (offset - BASE) * place.size


def test_the_newest_timestamp_is_known_when_the_segment_is_opened_again() -> None:
    disk, segment = a_segment([10] * 6, timestamps=[5, 90, 20, 90, 7, 8])
    segment.seal()
    segment.close()
    again = Segment.open(Files(disk), DIRECTORY, BASE, 200)
    again.load_max_timestamp()
    assert (again.max_timestamp, again.max_timestamp_offset) == (90, BASE + 1)


def test_a_segment_without_timestamps_has_none() -> None:
    disk, segment = a_segment([10] * 6, timestamps=[-1] * 6)
    segment.seal()
    assert disk.files()["/d/00000000000000000100.timeindex"] == b""
    again = Segment.open(Files(disk), DIRECTORY, BASE, 200)
    again.load_max_timestamp()
    assert again.max_timestamp == -1


@pytest.mark.parametrize("number", [0, 1, 7, 15, 29])
def test_a_truncated_segment_is_as_if_the_rest_had_never_been_there(number: int) -> None:
    timestamps = [1000 + at * 7 % 50 for at in range(30)]
    disk, segment = a_segment([10] * 30, timestamps=timestamps)
    assert segment.find_end_before(BASE + number) == BASE + number
    assert segment.truncate_to(BASE + number) == BASE + number
    segment.finish_indexes()
    other_disk, other = a_segment([10] * number, timestamps=timestamps)
    other.finish_indexes()
    assert segment.size == other.size
    assert segment.max_timestamp == other.max_timestamp
    assert segment.offset_index.entries() == other.offset_index.entries()
    assert disk.files()[LOG] == other_disk.files()[LOG]
    for each in (segment, other):
        data = batch_of([value_of(1)], base_offset=BASE + number, timestamp_ms=5000)
        each.append(data, [read_header(data)])
    assert segment.offset_index.entries() == other.offset_index.entries()
    assert segment.max_timestamp == 5000


def test_rebuilt_indexes_are_those_that_were_written_while_it_grew() -> None:
    disk, segment = a_segment([10] * 40, timestamps=[1000 + at * 13 % 29 for at in range(40)])
    segment.seal()
    before = disk.files()
    for ending in ("index", "timeindex"):
        disk.open(f"/d/00000000000000000100.{ending}", write=True).truncate(0)
    segment.rebuild_indexes()
    assert disk.files() == before


CUT_UNDER_ITS_READER = """
import os, sys
from distributedlog.ports.disk import SystemDisk
from distributedlog.records.batch import read_header
from distributedlog.storage.files import Files
from distributedlog.storage.segment import Segment
from tests.unit.storage.support import batch_of

directory, suffix, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
segment = Segment.create(Files(SystemDisk()), directory, 0, 0)
for number in range(2000):
    data = batch_of([b"v"], base_offset=number, timestamp_ms=1000 + number)
    segment.append(data, [read_header(data)])
segment.seal()
assert segment.locate(1000).base_offset == 1000 and segment.find_offset_hint(1500) <= 500
path = f"{directory}/{0:020d}{suffix}"
whole = open(path, "rb").read()
os.truncate(path, left)
assert [segment.locate(offset).base_offset for offset in (0, 700, 1999)] == [0, 700, 1999]
assert [segment.find_offset_hint(1000 + offset) <= offset for offset in (0, 700, 1999)] == [True] * 3
assert open(path, "rb").read() == whole, "it was not made again"
"""


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("left", [0, 7, 4800])
def test_an_index_that_is_cut_short_under_its_reader_is_made_again(
    tmp_path: Path, suffix: str, left: int
) -> None:
    """It is done in a process of its own: reading what a mapping has no file for would end it."""
    command = [sys.executable, "-c", CUT_UNDER_ITS_READER, str(tmp_path), suffix, str(left)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
