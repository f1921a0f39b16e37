"""What a log accepts, when it rolls, and what it says of itself.  The rest is in the other files here."""

import pytest

from distributedlog.model.config import LogConfig
from distributedlog.model.errors import (
    BatchListTooLargeError,
    CorruptBatchError,
    DlogError,
    InvalidRecordError,
    InvalidTimestampError,
    LogClosedError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    UnexpectedOffsetError,
)
from distributedlog.storage.append import Origin
from distributedlog.storage.log import PartitionLog
from tests.simulation.disk import SimDisk
from tests.unit.storage.support import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    append,
    append_data,
    append_numbers,
    bare,
    batch_of,
    commit_all,
    marker_of,
    open_on,
    read_batches,
    read_records,
    value_of,
    values_in,
    with_small_segments,
)


def a_log(config: LogConfig = SMALL) -> PartitionLog:
    return open_on(SimDisk(1), config)[0]


# --- what is accepted --------------------------------------------------------------------------


def test_batches_get_offsets_and_the_leaders_epoch() -> None:
    log = a_log()
    data = batch_of([b"a", b"b"], base_offset=77, leader_epoch=99) + batch_of([b"c"])
    result = append_data(log, data, leader_epoch=4)
    assert (result.base_offset, result.last_offset, result.is_duplicate) == (0, 2, False)
    headers = [header for header, _ in read_batches(log, 0)]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 4), (2, 4)]
    assert log.epochs.latest_epoch == 4


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (bytearray(), CorruptBatchError),
        (bytearray(10), CorruptBatchError),
        (batch_of([b"x"])[:-1], CorruptBatchError),
        (batch_of([b"x"]) + b"rest", CorruptBatchError),
        (batch_of([b"x" * 600]), RecordTooLargeError),
        (batch_of([b"x" * 450]) * 2 + batch_of([b"x" * 200]), BatchListTooLargeError),
        (batch_of([b"x"], timestamp_ms=NOW_MS + 10_000_000), InvalidTimestampError),
        (batch_of([b"x"], timestamp_ms=NOW_MS - 2_000_000), InvalidTimestampError),
        (marker_of(1, commit=True), InvalidRecordError),
    ],
)
def test_what_must_not_be_appended_is_refused_and_leaves_nothing(
    data: bytearray, error: type[DlogError]
) -> None:
    log = a_log(with_small_segments(max_message_bytes=600, message_timestamp_before_max_ms=1_000_000))
    append(log, b"first")
    with pytest.raises(error):
        append_data(log, bytearray(data))
    assert values_in(log) == [b"first"]
    assert log.segments.active.size == len(batch_of([b"first"]))


def test_a_flipped_bit_anywhere_under_the_checksum_is_refused() -> None:
    log = a_log()
    good = batch_of([b"value"])
    for position in range(16, len(good)):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        with pytest.raises(DlogError):
            append_data(log, bad)
    assert log.end_offset == 0


def test_batches_of_producers_come_one_by_one() -> None:
    """Otherwise one that is there already could hide one that is not."""
    log = a_log()
    first = batch_of([b"x"], producer_id=1, producer_epoch=0, base_sequence=0)
    append_data(log, bytearray(first))
    second = batch_of([b"y"], producer_id=2, producer_epoch=0, base_sequence=0)
    with pytest.raises(DlogError):
        append_data(log, first + second)
    assert values_in(log) == [b"x"]


def test_a_gap_in_a_producers_sequence_is_refused() -> None:
    log = a_log()
    append_data(log, batch_of([b"x"], producer_id=1, producer_epoch=0, base_sequence=0))
    with pytest.raises(OutOfOrderSequenceError):
        append_data(log, batch_of([b"z"], producer_id=1, producer_epoch=0, base_sequence=2))
    assert log.end_offset == 1


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    log = a_log(with_small_segments(cleanup_policy=("compact",)))
    with pytest.raises(InvalidRecordError, match="without a key"):
        append_data(log, batch_of([b"x", b"y"], keys=[b"k", None]))  # type: ignore[list-item]
    append_data(log, batch_of([b"x"], keys=[b"k"]))
    append_data(log, marker_of(1, commit=True), origin=Origin.COORDINATOR)


def test_append_time_is_stamped_where_the_topic_wants_it() -> None:
    log = a_log(with_small_segments(message_timestamp_type="LogAppendTime"))
    result = append_data(log, batch_of([b"x"], timestamp_ms=5))
    assert result.log_append_time_ms == NOW_MS
    assert [record.timestamp_ms for record in read_records(log)] == [NOW_MS]
    assert log.find_max_timestamp() == (NOW_MS, 0)


def test_a_follower_takes_what_continues_its_log_and_nothing_else() -> None:
    log = a_log()
    log.append_as_follower(bytes(batch_of([b"a", b"b"], base_offset=5, leader_epoch=2)), now_ms=NOW_MS)
    assert (log.start_offset, log.end_offset) == (0, 7)
    for base_offset in (0, 5, 6):
        with pytest.raises(UnexpectedOffsetError):
            log.append_as_follower(bytes(batch_of([b"x"], base_offset=base_offset)), now_ms=NOW_MS)
    two = batch_of([b"x"], base_offset=7, leader_epoch=3) + batch_of([b"y"], base_offset=7)
    with pytest.raises(UnexpectedOffsetError):
        log.append_as_follower(bytes(two), now_ms=NOW_MS)
    with pytest.raises(CorruptBatchError):
        log.append_as_follower(bytes(batch_of([b"x"], base_offset=7)[:-1]), now_ms=NOW_MS)
    assert bare(read_records(log)) == [(5, b"a"), (6, b"b")]
    assert [tuple(entry) for entry in log.epochs.entries] == [(2, 5)]


def test_a_follower_leaves_out_a_batch_that_a_limit_of_bytes_cut() -> None:
    log = a_log()
    whole, cut = batch_of([b"a"], base_offset=0), batch_of([b"b"], base_offset=1)
    for length in (1, len(cut) // 2, len(cut) - 1):
        log.append_as_follower(bytes(whole + cut[:length]), now_ms=NOW_MS)
        assert (log.end_offset, log.segments.active.size) == (1, len(whole))
        log.restart_at(0, NOW_MS)


def test_a_follower_that_begins_inside_a_batch_of_its_leader_takes_the_whole_batch() -> None:
    """Records may be deleted up to any offset, and what begins anew begins where the leader's log starts."""
    log = a_log()
    append_numbers(log, range(3))
    log.restart_at(12, NOW_MS)
    with pytest.raises(UnexpectedOffsetError):  # it ends before the start
        log.append_as_follower(bytes(batch_of([b"w"], base_offset=11)), now_ms=NOW_MS)
    log.append_as_follower(bytes(batch_of([b"x", b"y", b"z"], base_offset=10)), now_ms=NOW_MS)
    assert (log.start_offset, log.high_watermark, log.end_offset) == (12, 12, 13)
    assert [batch[0].base_offset for batch in read_batches(log, 12, 1)] == [10]
    log.append_as_follower(bytes(batch_of([b"v"], base_offset=13)), now_ms=NOW_MS)
    assert (log.start_offset, log.end_offset) == (12, 14)


# --- rolling -----------------------------------------------------------------------------------


def test_a_segment_is_sealed_when_the_next_batch_would_not_fit() -> None:
    log = a_log()
    append_numbers(log, range(30))
    assert [segment.base_offset for segment in log.segments] == [0, 11, 22]
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)


def test_a_segment_is_sealed_when_it_is_old_by_its_records_or_else_by_the_clock() -> None:
    log = a_log(with_small_segments(segment_ms=1000))
    append(log, b"a", timestamp_ms=NOW_MS - 5000)
    append(log, b"b", timestamp_ms=NOW_MS - 4000)
    append(log, b"c", timestamp_ms=NOW_MS - 3999)
    assert len(log.segments) == 2
    log = a_log(with_small_segments(segment_ms=1000))
    append(log, b"a", timestamp_ms=-1)
    later = batch_of([b"b"], timestamp_ms=-1)
    log.append_as_leader(later, leader_epoch=0, now_ms=NOW_MS + 1001)
    assert len(log.segments) == 2


def test_a_segment_is_sealed_when_its_index_is_full() -> None:
    log = a_log(with_small_segments(index_interval_bytes=0, segment_index_bytes=36))
    append_numbers(log, range(30))
    assert all(segment.time_index.bytes_used <= 36 for segment in log.segments)
    assert len(log.segments) > 5
    assert bare(read_records(log)) == [(number, value_of(number)) for number in range(30)]


@pytest.mark.parametrize("count", [0, 3])
def test_a_gap_that_no_index_can_span_begins_a_segment(count: int) -> None:
    """A new replica meets it in a compacted topic that is old."""
    disk = SimDisk(1)
    config = with_small_segments(cleanup_policy=("compact",))
    log, _ = open_on(disk, config)
    for number in range(count):
        append_data(log, batch_of([value_of(number)], keys=[b"k"]))
    far = 3 * 2**31
    for number in range(far, far + 30):
        data = batch_of([value_of(number)], keys=[b"k"], base_offset=number)
        log.append_as_follower(bytes(data), now_ms=NOW_MS)
    expected = [(number, value_of(number)) for number in (*range(count), *range(far, far + 30))]
    assert bare(read_records(log)) == expected
    log.sync()
    twin = disk.fork(0)
    twin.crash("drop")
    log.close()
    for each, is_clean in ((disk, True), (twin, False)):
        again, report = open_on(each, config, is_clean=is_clean)
        assert report.is_sound
        assert bare(read_records(again)) == expected
        assert [batch[0].base_offset for batch in read_batches(again, far + 7, 1)] == [far + 7]


def test_an_empty_segment_is_not_rolled() -> None:
    log = a_log()
    assert log.roll(NOW_MS) is log.roll(NOW_MS)
    append_numbers(log, range(2))
    fresh = log.roll(NOW_MS)
    assert log.roll(NOW_MS) is fresh
    assert [segment.base_offset for segment in log.segments] == [0, 2]


# --- marks -------------------------------------------------------------------------------------


def test_marks_stay_in_order() -> None:
    log = a_log()
    append_numbers(log, range(5))
    assert (log.flushed_end_offset, log.high_watermark) == (0, 0)
    log.advance_high_watermark(3)
    log.advance_high_watermark(2)
    assert log.high_watermark == 3
    log.advance_high_watermark(99)
    assert log.high_watermark == 5
    log.truncate_to(4, NOW_MS)
    assert (log.high_watermark, log.flushed_end_offset, log.end_offset) == (4, 4, 4)
    with pytest.raises(OffsetOutOfRangeError, match="only 4"):
        log.advance_start_offset(5, NOW_MS)
    log.advance_start_offset(4, NOW_MS)
    log.advance_start_offset(2, NOW_MS)
    assert log.start_offset == 4


def test_the_last_stable_offset_waits_for_the_marker_to_be_committed() -> None:
    log = a_log()
    data = batch_of([b"x"], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append_data(log, data)
    commit_all(log)
    assert log.last_stable_offset == 0
    append_data(log, marker_of(1, commit=True), origin=Origin.COORDINATOR)
    assert log.last_stable_offset == 0
    commit_all(log)
    assert log.last_stable_offset == 2


def test_what_is_truncated_is_forgotten_by_transactions_epochs_and_producers() -> None:
    log = a_log()
    append(log, b"before", leader_epoch=1)
    data = batch_of([b"x"], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append_data(log, data, leader_epoch=2)
    append_data(log, marker_of(1, commit=False), leader_epoch=3, origin=Origin.COORDINATOR)
    append_numbers(log, range(20))
    commit_all(log)
    assert [entry[:3] for entry in log.find_aborted_transactions(0, log.end_offset)] == [(1, 1, 2)]
    log.truncate_to(2, NOW_MS)
    assert log.find_aborted_transactions(0, 2) == []
    assert log.producers.first_undecided_offset == 1
    assert log.last_stable_offset == 1
    assert log.epochs.latest_epoch == 2
    append_data(log, marker_of(1, commit=True), leader_epoch=4, origin=Origin.COORDINATOR)
    commit_all(log)
    assert log.find_aborted_transactions(0, 3) == []
    assert log.last_stable_offset == 3
    log.truncate_to(1, NOW_MS)
    assert log.producers.get(1) is None
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0)]


def test_truncating_to_the_end_or_behind_it_does_nothing() -> None:
    log = a_log()
    append_numbers(log, range(5))
    log.truncate_to(5, NOW_MS)
    log.truncate_to(50, NOW_MS)
    assert log.end_offset == 5
    assert log.truncations == 0


def test_a_truncation_into_the_log_start_leaves_an_empty_log() -> None:
    log = a_log()
    append(log, b"a", b"b", b"c")
    commit_all(log)
    log.advance_start_offset(2, NOW_MS)
    log.truncate_to(0, NOW_MS)
    assert (log.start_offset, log.high_watermark, log.end_offset) == (0, 0, 0)
    assert append(log, b"x").base_offset == 0


def test_a_restart_forgets_everything() -> None:
    log = a_log()
    append_data(log, batch_of([b"x"], producer_id=1, producer_epoch=0, base_sequence=0), leader_epoch=3)
    append_numbers(log, range(1, 40))
    commit_all(log)
    log.restart_at(22, NOW_MS)
    assert (log.start_offset, log.high_watermark, log.end_offset) == (22, 22, 22)
    assert len(log.producers) == 0
    assert log.epochs.entries == []
    append_numbers(log, range(22, 25))
    assert bare(read_records(log)) == [(number, value_of(number)) for number in range(22, 25)]


def test_sizes_and_deleted_files_are_counted() -> None:
    log = a_log(with_small_segments(file_delete_delay_ms=100))
    append_numbers(log, range(30))
    commit_all(log)
    before = log.size_bytes
    log.advance_start_offset(25, NOW_MS)
    assert log.size_bytes == before - 2 * 11 * 88
    assert log.remove_deleted_files(NOW_MS + 99) == 0
    assert log.remove_deleted_files(NOW_MS + 100) == 2 * 11 * 88
    assert log.remove_deleted_files(NOW_MS + 100) == 0


def test_a_closed_log_refuses_everything() -> None:
    log = a_log()
    append_numbers(log, range(3))
    log.close()
    log.close()
    for refused in (
        lambda: append_numbers(log, [3]),
        lambda: log.append_as_follower(bytes(batch_of([b"x"], base_offset=3)), now_ms=NOW_MS),
        lambda: log.read(0, 10),
        lambda: log.find_timestamp(0),
        lambda: log.find_max_timestamp(),
        lambda: log.find_aborted_transactions(0, 3),
        lambda: log.truncate_to(0, NOW_MS),
        lambda: log.restart_at(0, NOW_MS),
        lambda: log.advance_start_offset(1, NOW_MS),
        lambda: log.roll(NOW_MS),
        lambda: log.begin_sync(),
        lambda: log.sync(),
        lambda: log.checkpoint(),
    ):
        with pytest.raises(LogClosedError):
            refused()


# --- times -------------------------------------------------------------------------------------


def test_the_newest_record_is_found_also_if_the_newest_of_its_segment_is_trimmed() -> None:
    log = a_log()
    append(log, b"a", timestamp_ms=NOW_MS)
    append(log, b"b", timestamp_ms=NOW_MS - 50)
    append(log, b"c", timestamp_ms=NOW_MS - 20)
    append(log, b"d", timestamp_ms=NOW_MS - 20)
    commit_all(log)
    assert log.find_max_timestamp() == (NOW_MS, 0)
    log.advance_start_offset(1, NOW_MS)
    assert log.find_max_timestamp() == (NOW_MS - 20, 2)
    log.advance_start_offset(4, NOW_MS)
    assert log.find_max_timestamp() is None


def test_a_time_is_found_inside_of_a_batch_and_below_a_bound() -> None:
    log = a_log()
    append(log, b"a", timestamp_ms=NOW_MS - 100)
    append(log, b"b", timestamp_ms=NOW_MS - 50)
    assert log.find_timestamp(NOW_MS - 99) == (NOW_MS - 50, 1)
    assert log.find_timestamp(NOW_MS - 99, up_to=1) is None
    assert log.find_timestamp(NOW_MS - 49) is None


# --- setting a corrupt segment aside -------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_segment_that_is_set_aside_ends_the_log_before_it_whatever_is_wrong_with_it(number: int) -> None:
    disk = SimDisk()
    log, _ = open_on(disk)
    append_numbers(log, range(30))
    commit_all(log)
    segment = log.segments.all()[number]
    base = segment.base_offset
    disk.flip_bit(segment.log.path, 9, 4)  # its first batch claims another length: nothing can be walked
    content = disk.open(segment.log.path).read_at(0, segment.size)
    lowered: list[int] = []
    log.before_truncation = lowered.append
    kept = log.set_aside_from(base, NOW_MS)
    assert kept == f"{DIRECTORY}/quarantine/{base:020d}.log"
    assert disk.open(kept).read_at(0, len(content)) == content
    assert lowered == [base]
    assert (log.end_offset, log.flushed_end_offset, log.high_watermark) == (base, base, base)
    assert values_in(log) == [value_of(each) for each in range(base)]
    append_numbers(log, range(base, 40))
    log.sync()
    disk.crash("drop")
    again, report = open_on(disk)
    assert report.is_sound
    assert values_in(again) == [value_of(each) for each in range(40)]


def test_what_was_deleted_stays_deleted_when_the_first_segment_is_set_aside() -> None:
    log, _ = open_on(SimDisk())
    append_numbers(log, range(30))
    commit_all(log)
    log.advance_start_offset(3, NOW_MS)
    assert log.segments.first.base_offset == 0
    log.set_aside_from(0, NOW_MS)
    assert (log.start_offset, log.end_offset) == (3, 3)
    assert log.epochs.entries == []


def test_a_second_file_of_one_name_does_not_replace_the_first_in_the_quarantine() -> None:
    log, _ = open_on(SimDisk())
    kept = []
    for _ in range(2):
        append_numbers(log, range(log.end_offset, 30))
        kept.append(log.set_aside_from(log.segments.all()[1].base_offset, NOW_MS))
    assert kept[1] == f"{kept[0]}.1"
