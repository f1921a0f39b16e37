"""A follower appends many batches at once: its log becomes the leader's, in every byte and segment."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.config import LogConfig
from distributedlog.model.errors import CorruptBatchError, DiskFullError, DlogError
from distributedlog.records.batch import read_header
from distributedlog.storage.append import check_follower_append, cut_at_segments
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.scan import LIMITS
from distributedlog.storage.segment import TAIL_BATCHES
from tests.simulation.disk import SimDisk
from tests.unit.storage.support import (
    NOW_MS,
    SMALL,
    append_numbers,
    batch_of,
    batches_in,
    open_on,
    read_batches,
    value_of,
    values_in,
)

BATCHES = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from((-1, -1, 4, 5)), st.integers(0, 1)), min_size=1, max_size=40
)


def a_log(config: LogConfig = SMALL) -> tuple[SimDisk, PartitionLog]:
    disk = SimDisk(1)
    return disk, open_on(disk, config)[0]


def fill_leader(log: PartitionLog, batches: list[tuple[int, int, int]]) -> list[bytes]:
    """Appends batches of so many bytes, of these producers, with or without another epoch; each of them."""
    epoch, sequences = 0, {4: 0, 5: 0}
    for size, producer_id, epochs in batches:
        epoch += epochs
        data = batch_of([bytes(size)])
        if producer_id >= 0:
            data = batch_of(
                [bytes(size)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
            )
            sequences[producer_id] += 1
        log.append_as_leader(data, leader_epoch=epoch, now_ms=NOW_MS)
    return [bytes(batch) for segment in log.segments for _, batch in batches_in(segment.log.read_at(0, 4096))]


@settings(deadline=None, max_examples=60)
@given(BATCHES, st.lists(st.integers(1, 15), min_size=1, max_size=40))
def test_the_followers_log_is_the_leaders(batches: list[tuple[int, int, int]], runs: list[int]) -> None:
    _, leader = a_log()
    _, follower = a_log()
    stored = fill_leader(leader, batches)
    at = 0
    while at < len(stored):
        count = runs[at % len(runs)]
        result = follower.append_as_follower(b"".join(stored[at : at + count]), now_ms=NOW_MS)
        at += count
        assert result.last_offset + 1 == follower.end_offset == min(at, len(stored))
        last = read_batches(follower, follower.end_offset - 1, 1)
        assert [header.base_offset for header, _ in last] == [follower.end_offset - 1]
    assert [segment.base_offset for segment in follower.segments] == [
        segment.base_offset for segment in leader.segments
    ]
    for ours, theirs in zip(follower.segments, leader.segments, strict=True):
        assert ours.log.read_at(0, ours.size) == theirs.log.read_at(0, theirs.size)
        assert ours.offset_index.entries() == theirs.offset_index.entries()
        assert ours.time_index.entries() == theirs.time_index.entries()
    assert follower.epochs.entries == leader.epochs.entries
    states = [
        [(each.producer_id, list(each.batches)) for each in log.producers] for log in (follower, leader)
    ]
    assert states[0] == states[1]
    for offset in range(follower.end_offset):
        assert read_batches(follower, offset, 1)[0][0].base_offset == offset


def test_what_an_epoch_above_the_leaders_has_is_left_out_with_all_behind_it() -> None:
    _, log = a_log()
    run = [batch_of([b"x"], base_offset=at, leader_epoch=epoch) for at, epoch in enumerate((1, 2, 3, 2))]
    log.append_as_follower(b"".join(run), now_ms=NOW_MS, leader_epoch=2)
    assert (log.end_offset, log.epochs.latest_epoch) == (2, 2)
    with pytest.raises(CorruptBatchError, match="no batch"):
        log.append_as_follower(
            bytes(batch_of([b"x"], base_offset=2, leader_epoch=3)), now_ms=NOW_MS, leader_epoch=2
        )


def test_a_flaw_in_any_batch_leaves_the_log_as_it_was() -> None:
    whole = b"".join(bytes(batch_of([value_of(at)], base_offset=at)) for at in range(20))
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        _, log = a_log()
        try:
            run = check_follower_append(bytes(damaged), 0, 10, LIMITS)
        except DlogError:
            with pytest.raises(DlogError):
                log.append_as_follower(bytes(damaged), now_ms=NOW_MS, leader_epoch=10)
            assert log.end_offset == 0
        else:  # offset and epoch are not under the checksum
            assert len(run.headers) <= 20
            in_batch = position % (len(whole) // 20)
            assert in_batch < 16, "nor is a length above the checksum, which cuts off what is behind it"


def test_on_a_full_disk_the_log_ends_after_what_was_written() -> None:
    disk, log = a_log()
    append_numbers(log, range(5))
    run = b"".join(bytes(batch_of([value_of(at)], base_offset=at)) for at in range(5, 30))
    disk.inject("create", "*00000000000000000011.log", 28)
    result = log.append_as_follower(run, now_ms=NOW_MS)
    assert (result.base_offset, result.last_offset, log.end_offset) == (5, 10, 11)
    assert values_in(log) == [value_of(at) for at in range(11)]
    rest = b"".join(bytes(batch_of([value_of(at)], base_offset=at)) for at in range(11, 30))
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(DiskFullError):
        log.append_as_follower(rest, now_ms=NOW_MS)
    disk.capacity_bytes = None
    log.append_as_follower(rest, now_ms=NOW_MS)
    assert values_in(log) == [value_of(at) for at in range(30)]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=20), st.integers(0, 500), st.integers(100, 500))
def test_parts_fit_their_segments_and_leave_nothing_out(sizes: list[int], used: int, limit: int) -> None:
    headers = [read_header(batch_of([bytes(size)], base_offset=at)) for at, size in enumerate(sizes)]
    parts = list(cut_at_segments(headers, used, limit, 2**31 - 1))
    assert [header for part, _ in parts for header in part] == headers
    for number, (part, length) in enumerate(parts):
        assert length == sum(header.size for header in part)
        assert part
        fits_active = number == 0 and used + length <= limit
        assert fits_active or length <= limit or len(part) == 1


# --- the tail ----------------------------------------------------------------------------------


def test_the_last_batches_are_found_without_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    _, log = a_log(LogConfig())
    append_numbers(log, range(50))
    run = b"".join(bytes(batch_of([value_of(at)], base_offset=at)) for at in range(50, 50 + 3 * TAIL_BATCHES))
    log.append_as_follower(run, now_ms=NOW_MS)
    segment, end = log.segments.active, log.end_offset
    expected = [segment.locate(offset) for offset in range(end)]
    with monkeypatch.context() as patch:
        patch.setattr(segment, "_locate", None)
        for offset in range(end - TAIL_BATCHES, end):
            place = segment.locate(offset)
            assert place is not None
            assert (place.base_offset, place.next_offset) == (offset, offset + 1)
            assert read_header(segment.log.read_at(place.position, place.size)).base_offset == offset
        assert segment.locate(end) is None
    segment._tail.clear()
    assert [segment.locate(offset) for offset in range(end)] == expected


def test_what_is_truncated_is_not_found_any_more() -> None:
    _, log = a_log(LogConfig())
    append_numbers(log, range(20))
    log.truncate_to(15, NOW_MS)
    assert log.segments.active.locate(15) is None
    log.append_as_leader(batch_of([b"a", b"b", b"c"]), leader_epoch=1, now_ms=NOW_MS)
    place = log.segments.active.locate(16)
    assert place is not None
    assert (place.base_offset, place.next_offset) == (15, 18)
