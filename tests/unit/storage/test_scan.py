"""Walking a log file, and telling a torn tail from damage."""

import random

import pytest

from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch, read_end_marker
from distributedlog.storage.scan import (
    HEADER_WINDOW_BYTES,
    BadBatchError,
    OutOfOrderError,
    find_valid_batch_behind,
    walk,
    walk_headers,
)
from tests.unit.storage.support import batch_of, value_of


class Bytes:
    """A file that is a string of bytes, and counts what is read of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.longest_read = 0
        self.bytes_read = 0

    def read_at(self, position: int, length: int) -> bytes:
        assert position >= 0
        assert length >= 0
        self.longest_read = max(self.longest_read, length)
        self.bytes_read += length
        return self.data[position : position + length]


def batches(count: int, *, size: int = 20) -> list[bytes]:
    return [bytes(batch_of([value_of(number)[:size]], base_offset=number)) for number in range(count)]


@pytest.mark.parametrize("window_bytes", [1, 61, 100, 500, 1 << 20])
def test_a_walk_sees_every_batch_whatever_the_window(window_bytes: int) -> None:
    parts = batches(20)
    found = list(walk(Bytes(b"".join(parts)), 0, sum(map(len, parts)), window_bytes=window_bytes))
    assert [bytes(batch.data) for batch in found] == parts
    assert [batch.position for batch in found] == [sum(map(len, parts[:at])) for at in range(20)]


def test_a_walk_reads_no_more_than_windows_and_whole_batches() -> None:
    large = bytes(batch_of([b"x" * 5000], base_offset=1))
    file = Bytes(batches(1)[0] + large + bytes(batch_of([b"y"], base_offset=2)))
    assert len(list(walk(file, 0, len(file.data), window_bytes=200))) == 3
    assert file.longest_read == len(large)


@pytest.mark.parametrize("window_bytes", [100, 1 << 20])
def test_a_walk_stops_at_the_first_batch_that_is_not_whole_and_sound(window_bytes: int) -> None:
    parts = batches(5)
    whole = b"".join(parts)
    for cut in range(1, len(parts[4])):
        walked = walk(Bytes(whole[:-cut]), 0, len(whole) - cut, window_bytes=window_bytes)
        assert [next(walked).header.base_offset for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(BadBatchError) as stopped:
            next(walked)
        assert stopped.value.position == len(whole) - len(parts[4])
    flipped = bytearray(whole)
    flipped[len(parts[0]) + 70] ^= 1
    with pytest.raises(BadBatchError, match=f"position {len(parts[0])}"):
        list(walk(Bytes(bytes(flipped)), 0, len(flipped), window_bytes=window_bytes))
    assert len(list(walk(Bytes(bytes(flipped)), 0, len(flipped), check_crc=False))) == 5


def test_offsets_that_do_not_rise_are_no_log() -> None:
    first, second = batches(2)
    with pytest.raises(OutOfOrderError, match="offset 0 stands after 1"):
        list(walk(Bytes(first + second + first), 0, 3 * len(first)))
    with pytest.raises(OutOfOrderError, match="offset 1 stands after 1"):
        list(walk(Bytes(first + second + second), 0, 3 * len(first), window_bytes=90))


def test_a_length_that_asks_for_more_than_there_is_allocates_nothing() -> None:
    lying = bytearray(batches(1)[0])
    lying[8:12] = (2**31 - 20).to_bytes(4, "big")
    file = Bytes(bytes(lying))
    with pytest.raises(BadBatchError):
        list(walk(file, 0, len(lying)))
    assert file.longest_read <= len(lying)


# --- headers only ------------------------------------------------------------------------------


def marker(base_offset: int) -> bytes:
    return bytes(
        encode_end_marker_batch(
            EndMarker(ControlType.ABORT, 7),
            producer_id=1,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=base_offset,
        )
    )


@pytest.mark.parametrize("value_bytes", [1, 300, HEADER_WINDOW_BYTES - 90, HEADER_WINDOW_BYTES, 100_000])
def test_a_walk_of_headers_sees_the_batches_that_a_walk_sees_and_every_marker_whole(value_bytes: int) -> None:
    parts = [
        marker(number) if number % 5 == 4 else bytes(batch_of([b"x" * value_bytes], base_offset=number))
        for number in range(100)
    ]
    file = Bytes(b"".join(parts))
    whole, found = (list(walker(file, 0, len(file.data))) for walker in (walk, walk_headers))
    assert [(each.position, each.header) for each in found] == [
        (each.position, each.header) for each in whole
    ]
    for each in found:
        if each.header.is_control:
            assert read_end_marker(each.window, each.at, each.header).coordinator_epoch == 7


def test_a_walk_of_headers_reads_little_of_large_batches() -> None:
    large = [bytes(batch_of([bytes(200_000)], base_offset=number)) for number in range(20)]
    file = Bytes(b"".join(large))
    assert len(list(walk_headers(file, 0, len(file.data)))) == 20
    assert file.longest_read == HEADER_WINDOW_BYTES
    assert file.bytes_read <= 20 * HEADER_WINDOW_BYTES


def test_a_walk_of_headers_stops_at_what_cannot_be_a_batch() -> None:
    parts = batches(5)
    whole = b"".join(parts)
    last = len(whole) - len(parts[4])
    for cut in range(1, len(parts[4])):
        walked = walk_headers(Bytes(whole[:-cut]), 0, len(whole) - cut)
        assert [next(walked).header.base_offset for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(BadBatchError) as stopped:
            next(walked)
        assert stopped.value.position == last
    for at, wrong in [(16, b"\x07"), (16, b"\x01"), (22, b"\x07"), (8, b"\x7f\xff\xff\xff")]:
        damaged = bytearray(whole)
        damaged[last + at : last + at + len(wrong)] = wrong
        file = Bytes(bytes(damaged))
        with pytest.raises(BadBatchError, match=f"position {last}"):
            list(walk_headers(file, 0, len(damaged)))
        assert file.longest_read <= len(damaged)
    with pytest.raises(OutOfOrderError, match="offset 0 stands after 1"):
        list(walk_headers(Bytes(parts[0] + parts[1] + parts[0]), 0, 3 * len(parts[0])))


# --- torn or damaged ---------------------------------------------------------------------------


def test_behind_a_torn_write_stands_nothing_sound() -> None:
    chance = random.Random(3)
    whole = b"".join(batches(3))
    for cut in range(1, len(batches(1)[0])):
        torn = whole[:-cut]
        position = 2 * len(whole) // 3
        assert find_valid_batch_behind(Bytes(torn), position, len(torn)) is None
    noise = whole + b"\x02" * 200 + chance.randbytes(3000) + bytes(500)
    assert find_valid_batch_behind(Bytes(noise), len(whole), len(noise)) is None


@pytest.mark.parametrize("distance", [1, 17, 61, 1000, 1 << 20, (1 << 20) + 30, (1 << 20) + 61])
def test_a_sound_batch_is_found_however_far_behind(distance: int) -> None:
    chance = random.Random(distance)
    data = chance.randbytes(distance) + batches(1)[0]
    assert find_valid_batch_behind(Bytes(data), -1, len(data)) == distance
    large = chance.randbytes(distance) + bytes(batch_of([b"x" * 5000]))
    assert find_valid_batch_behind(Bytes(large), 0, len(large)) == distance


def test_bytes_made_to_look_like_batches_do_not_keep_the_search_busy_and_are_kept() -> None:
    reads = 0

    class Counted(Bytes):
        def read_at(self, position: int, length: int) -> bytes:
            nonlocal reads
            reads += 1
            return super().read_at(position, length)

    hostile = b"\x00\x02\x02\x02" * 1_000_000  # each place claims a batch of some 130 KB or 33 MB
    assert find_valid_batch_behind(Counted(hostile), 0, len(hostile), work_bytes_max=10_000_000) is not None
    assert reads < 100


@pytest.mark.parametrize("left", [0, 20, 61, 80, 100, 170])
def test_a_file_that_is_shorter_than_it_should_be_is_walked_to_its_end_and_no_further(left: int) -> None:
    """Somebody cut it after its size was seen."""
    data = b"".join(bytes(batch_of([value_of(n)], base_offset=n)) for n in range(5))
    file = Bytes(data[:left])
    size = len(data) // 5
    walked = walk(file, 0, len(data))
    for _ in range(left // size):
        next(walked)
    with pytest.raises(BadBatchError, match="ends at"):
        next(walked)
