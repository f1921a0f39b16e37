"""Which segments go, when, and what stands in the way."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.config import LogConfig
from distributedlog.storage.retention import enforce_retention
from distributedlog.storage.segment import DELETED_SUFFIX, LOG_SUFFIX
from tests.unit.storage.compaction.keyed_log import START_MS, KeyedLog

A = b"a"
HOUR_MS = 3_600_000
FOREVER_MS = 2**62
EXAMPLES = 1000 if os.environ.get("DLOG_SOAK") == "1" else 60


def config(**changes: object) -> LogConfig:
    values: dict[str, object] = {
        "retention_ms": HOUR_MS,
        "file_delete_delay_ms": 0,
        "message_timestamp_after_max_ms": FOREVER_MS,
        "index_interval_bytes": 64,
    }
    return LogConfig(**(values | changes))  # type: ignore[arg-type]


def hourly(keyed: KeyedLog, count: int) -> None:
    """A segment of one record for each hour; the last is active."""
    for number in range(count):
        if number:
            keyed.advance(HOUR_MS)
            keyed.roll()
        keyed.put((A, b"%d" % number))


def enforce(keyed: KeyedLog) -> list[int]:
    """The base offsets of the segments that went."""
    return [segment.base_offset for segment in enforce_retention(keyed.log, keyed.now_ms)]


def bases(keyed: KeyedLog) -> list[int]:
    return [segment.base_offset for segment in keyed.log.segments]


# --- by age ------------------------------------------------------------------------------------


def test_segments_whose_newest_record_is_too_old_go_oldest_first() -> None:
    keyed = KeyedLog(config())
    hourly(keyed, 4)
    assert enforce(keyed) == [0, 1]
    assert (keyed.log.start_offset, keyed.offsets()) == (2, [2, 3])
    assert enforce(keyed) == []


def test_a_segment_goes_when_it_is_older_than_allowed_and_not_when_it_is_as_old() -> None:
    keyed = KeyedLog(config())
    hourly(keyed, 2)
    assert enforce(keyed) == []
    keyed.advance(1)
    assert enforce(keyed) == [0]


def test_a_young_segment_keeps_the_older_ones_behind_it() -> None:
    keyed = KeyedLog(config())
    keyed.put((A, b"1"))
    keyed.roll()
    keyed.put((A, b"2"), timestamp_ms=START_MS - 100 * HOUR_MS)
    keyed.roll()
    keyed.put((A, b"3"))
    assert enforce(keyed) == []


def test_a_timestamp_in_the_future_does_not_stop_retention() -> None:
    keyed = KeyedLog(config())
    keyed.put((A, b"1"), timestamp_ms=START_MS + 1000 * HOUR_MS)
    keyed.roll()
    keyed.put((A, b"2"))
    keyed.advance(HOUR_MS)
    assert enforce(keyed) == []
    keyed.advance(1)
    assert enforce(keyed) == [0, 1]


def test_records_without_timestamps_age_with_their_file() -> None:
    keyed = KeyedLog(config())
    keyed.put((A, b"1"), timestamp_ms=-1)
    keyed.roll()
    keyed.advance(HOUR_MS)
    assert enforce(keyed) == []
    keyed.advance(1)
    assert enforce(keyed) == [0]


def test_records_of_the_past_are_as_old_as_they_say() -> None:
    keyed = KeyedLog(config())
    keyed.put((A, b"1"), timestamp_ms=START_MS - 2 * HOUR_MS)
    keyed.roll()
    assert enforce(keyed) == [0]


def test_without_a_limit_nothing_goes() -> None:
    keyed = KeyedLog(config(retention_ms=-1))
    hourly(keyed, 3)
    keyed.advance(FOREVER_MS)
    assert enforce(keyed) == []


def test_the_age_is_known_after_reopening_too() -> None:
    keyed = KeyedLog(config())
    hourly(keyed, 4)
    keyed.log.close()
    keyed.reopen("keep")
    assert enforce(keyed) == [0, 1]


# --- by size -----------------------------------------------------------------------------------


def test_the_oldest_go_while_the_log_stays_at_least_as_large_as_allowed() -> None:
    keyed = KeyedLog(config())
    hourly(keyed, 4)
    size = keyed.log.segments.first.size
    keyed.advance(-3 * HOUR_MS)  # nothing is too old
    for retention_bytes, gone in ((4 * size, []), (3 * size + 1, []), (3 * size, [0]), (size + 1, [1])):
        keyed.log.reconfigure(config(retention_bytes=retention_bytes))
        assert enforce(keyed) == gone


def test_a_limit_of_no_bytes_leaves_an_empty_log() -> None:
    keyed = KeyedLog(config(retention_bytes=0))
    hourly(keyed, 2)
    assert enforce(keyed) == [0, 1]
    assert (keyed.log.start_offset, keyed.log.end_offset, keyed.log.size_bytes) == (2, 2, 0)


# --- what stands in the way ---------------------------------------------------------------------


def test_nothing_above_the_high_watermark_goes() -> None:
    keyed = KeyedLog(config())
    hourly(keyed, 4)
    keyed.advance(100 * HOUR_MS)
    keyed.log.high_watermark = 1
    assert enforce(keyed) == [0]
    keyed.log.advance_high_watermark(4)
    assert enforce(keyed) == [1, 2, 3]


def test_an_expired_active_segment_is_rolled_and_goes() -> None:
    keyed = KeyedLog(config())
    keyed.put((A, b"1"))
    keyed.advance(HOUR_MS + 1)
    assert enforce(keyed) == [0]
    assert bases(keyed) == [1]
    assert (keyed.log.start_offset, keyed.log.end_offset) == (1, 1)
    assert keyed.put((A, b"2")) == 1
    keyed.log.remove_deleted_files(keyed.now_ms)
    keyed.reopen("drop")
    assert keyed.offsets() == [1]


def test_an_empty_log_is_left_alone() -> None:
    keyed = KeyedLog(config())
    keyed.advance(1000 * HOUR_MS)
    assert enforce(keyed) == []
    assert bases(keyed) == [0]


def test_a_compacted_log_loses_only_what_lies_below_its_start() -> None:
    keyed = KeyedLog(config(cleanup_policy=("compact",)))
    hourly(keyed, 4)
    keyed.advance(100 * HOUR_MS)
    assert enforce(keyed) == []
    keyed.log.start_offset = 2  # as a start that was read from its checkpoint
    assert enforce(keyed) == [0, 1]


def test_a_start_at_the_very_end_empties_the_log_whatever_the_policy() -> None:
    keyed = KeyedLog(config(cleanup_policy=("compact",)))
    hourly(keyed, 2)
    keyed.log.advance_start_offset(2, keyed.now_ms)
    enforce(keyed)
    assert keyed.log.size_bytes == 0


def test_on_a_full_disk_the_sealed_segments_go_although_the_active_one_cannot_be_rolled() -> None:
    keyed = KeyedLog(config())
    hourly(keyed, 3)
    keyed.advance(100 * HOUR_MS)
    keyed.disk.capacity_bytes = keyed.disk.used_bytes
    assert enforce(keyed) == [0, 1]
    assert keyed.log.remove_deleted_files(FOREVER_MS) > 0
    assert enforce(keyed) == [2]


# --- files -------------------------------------------------------------------------------------


def test_a_reader_keeps_what_it_holds_of_a_segment_that_goes() -> None:
    keyed = KeyedLog(config())
    hourly(keyed, 3)
    found = keyed.log.read(0, 1000)
    assert found.region is not None
    before = found.region.read()
    keyed.advance(100 * HOUR_MS)
    assert enforce(keyed) == [0, 1, 2]
    keyed.log.remove_deleted_files(keyed.now_ms)
    assert keyed.names(LOG_SUFFIX + DELETED_SUFFIX) == []
    assert found.region.read() == before
    found.region.close()


def test_a_segment_may_go_before_its_indexes_were_ever_synced() -> None:
    keyed = KeyedLog(config())
    keyed.put((A, b"1"))
    keyed.advance(2 * HOUR_MS)
    assert enforce(keyed) == [0]
    keyed.log.remove_deleted_files(FOREVER_MS)
    assert keyed.put((A, b"2")) == 1
    keyed.reopen("drop")
    assert keyed.offsets() == [1]


def test_a_power_cut_at_any_step_leaves_a_log_without_a_hole() -> None:
    keyed = KeyedLog(config())
    hourly(keyed, 5)
    keyed.advance(HOUR_MS)
    forks = []
    keyed.disk.on_operation = lambda _operation, _path: forks.append(keyed.disk.fork(len(forks)))
    assert enforce(keyed) == [0, 1, 2, 3]
    keyed.log.remove_deleted_files(keyed.now_ms)
    keyed.settle()
    keyed.disk.on_operation = None
    assert len(forks) > 15
    starts = set()
    for number, fork in enumerate(forks):
        fork.crash("random" if number % 2 else "drop")
        twin = KeyedLog(keyed.config, fork)
        starts.add(twin.log.start_offset)
        assert twin.report.is_sound
        assert twin.offsets() == list(range(twin.log.start_offset, 5))
    assert {0, 4} <= starts


# --- in general --------------------------------------------------------------------------------

ages = st.lists(
    st.tuples(st.integers(0, 3 * HOUR_MS), st.integers(0, 200), st.booleans()), min_size=1, max_size=8
)


@given(ages, st.integers(-1, 2 * HOUR_MS), st.integers(-1, 800), st.integers(0, 8))
@settings(max_examples=EXAMPLES, deadline=None)
def test_what_is_left_is_what_must_be_left(
    segments: list[tuple[int, int, bool]], retention_ms: int, retention_bytes: int, high_watermark: int
) -> None:
    keyed = KeyedLog(config(retention_ms=retention_ms, retention_bytes=retention_bytes))
    times = []
    for number, (pause_ms, size, is_stamped) in enumerate(segments):
        if number:
            keyed.roll()
        keyed.advance(pause_ms)
        keyed.put((A, b"x" * size), timestamp_ms=None if is_stamped else -1)
        times.append(keyed.now_ms)
    keyed.log.high_watermark = min(high_watermark, len(segments))
    sizes = [segment.size for segment in keyed.log.segments]
    left = 0
    while left < keyed.log.high_watermark:
        is_old = retention_ms >= 0 and keyed.now_ms - times[left] > retention_ms
        is_surplus = retention_bytes >= 0 and sum(sizes[left + 1 :]) >= retention_bytes
        if not is_old and not is_surplus:
            break
        left += 1
    assert enforce(keyed) == list(range(left))
    assert enforce(keyed) == []
    assert (keyed.log.start_offset, keyed.log.end_offset) == (left, len(segments))
    keyed.log.advance_high_watermark(len(segments))
    assert keyed.offsets() == list(range(left, len(segments)))
