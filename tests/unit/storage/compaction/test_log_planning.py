"""When a log is compacted, and which part of it."""

import pickle

from distributedlog.storage.compaction.cleaning import group_segments
from distributedlog.storage.compaction.log import CompactionPlan, plan_compaction
from distributedlog.storage.compaction.plan import SegmentExtent
from tests.unit.storage.compaction.keyed_log import START_MS, KeyedLog, settings

A, B = b"a", b"b"
HOUR_MS = 3_600_000


def ends_at(plan: CompactionPlan | None) -> int | None:
    return None if plan is None else plan.end_offset


def two_segments(keyed: KeyedLog) -> None:
    for number in range(2):
        keyed.put((A, b"%d" % number))
        keyed.put((B, b"%d" % number))
        keyed.roll()


def test_a_log_that_only_deletes_is_not_compacted() -> None:
    keyed = KeyedLog(settings(cleanup_policy=("delete",)))
    two_segments(keyed)
    assert plan_compaction(keyed.log, 0, keyed.now_ms) is None


def test_both_policies_at_once_do_compact() -> None:
    keyed = KeyedLog(settings(cleanup_policy=("compact", "delete")))
    two_segments(keyed)
    assert ends_at(plan_compaction(keyed.log, 0, keyed.now_ms)) == 4


def test_nothing_is_planned_for_a_log_with_only_an_active_segment() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"))
    assert plan_compaction(keyed.log, 0, keyed.now_ms) is None


def test_nothing_is_planned_when_all_is_clean() -> None:
    keyed = KeyedLog()
    two_segments(keyed)
    assert plan_compaction(keyed.log, 4, keyed.now_ms) is None


def test_too_little_dirt_is_left_lying() -> None:
    keyed = KeyedLog(settings(min_cleanable_dirty_ratio=0.5))
    two_segments(keyed)
    assert plan_compaction(keyed.log, 2, keyed.now_ms) is None  # one half is not more than one half
    keyed.put((A, b"3" * 50))
    keyed.roll()
    assert ends_at(plan_compaction(keyed.log, 2, keyed.now_ms)) == 5


def test_dirt_that_lies_too_long_is_swept_up_however_little() -> None:
    keyed = KeyedLog(settings(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR_MS))
    two_segments(keyed)
    keyed.advance(HOUR_MS)
    assert plan_compaction(keyed.log, 2, keyed.now_ms) is None
    keyed.advance(1)
    assert ends_at(plan_compaction(keyed.log, 2, keyed.now_ms)) == 4
    assert plan_compaction(keyed.log, 4, keyed.now_ms) is None


def test_the_active_segment_is_sealed_in_time_for_the_longest_lag() -> None:
    keyed = KeyedLog(settings(max_compaction_lag_ms=HOUR_MS))
    keyed.put((A, b"1"))
    keyed.advance(HOUR_MS + 1)
    keyed.put((A, b"2"))
    assert [segment.base_offset for segment in keyed.log.segments] == [0, 1]


def test_records_younger_than_the_shortest_lag_are_left_alone() -> None:
    keyed = KeyedLog(settings(min_compaction_lag_ms=HOUR_MS))
    two_segments(keyed)
    keyed.advance(HOUR_MS)
    keyed.put((A, b"3"))
    keyed.roll()
    assert ends_at(plan_compaction(keyed.log, 0, keyed.now_ms)) == 4
    assert plan_compaction(keyed.log, 0, keyed.now_ms - 1) is None


def test_a_timestamp_in_the_future_does_not_hold_compaction_up() -> None:
    keyed = KeyedLog(settings(min_compaction_lag_ms=HOUR_MS, message_timestamp_after_max_ms=2**62))
    keyed.put((A, b"1"), timestamp_ms=START_MS + 1000 * HOUR_MS)
    keyed.roll()
    keyed.advance(HOUR_MS)
    assert ends_at(plan_compaction(keyed.log, 0, keyed.now_ms)) == 1


def test_what_is_not_committed_is_left_alone() -> None:
    keyed = KeyedLog()
    two_segments(keyed)
    keyed.log.high_watermark = 3
    assert ends_at(plan_compaction(keyed.log, 0, keyed.now_ms)) == 2


def test_what_is_not_synced_is_left_alone() -> None:
    keyed = KeyedLog()
    two_segments(keyed)
    keyed.log.flushed_end_offset = 3
    assert ends_at(plan_compaction(keyed.log, 0, keyed.now_ms)) == 2


def test_a_first_dirty_offset_that_is_not_in_the_log_means_all_is_dirty() -> None:
    keyed = KeyedLog()
    two_segments(keyed)
    plan = plan_compaction(keyed.log, 99, keyed.now_ms)
    assert plan is not None
    assert plan.first_dirty_offset == 0


def test_a_plan_can_be_sent_to_another_process() -> None:
    keyed = KeyedLog()
    keyed.put_as(7, (A, b"1"))
    keyed.abort(7)
    keyed.roll()
    plan = plan_compaction(keyed.log, 0, keyed.now_ms)
    assert plan is not None
    assert plan.aborted
    assert plan.producers[7].last_offsets == {0}
    assert pickle.loads(pickle.dumps(plan)) == plan


# --- groups ------------------------------------------------------------------------------------


def planned(
    *extents: tuple[int, int, int], segment_bytes: int = 1000, index_bytes: int = 10_000
) -> CompactionPlan:
    return CompactionPlan(
        directory="d",
        segments=tuple(SegmentExtent(*extent) for extent in extents),
        first_dirty_offset=0,
        end_offset=extents[-1][1],
        now_ms=0,
        truncations=0,
        delete_retention_ms=0,
        segment_bytes=segment_bytes,
        segment_index_bytes=index_bytes,
        index_interval_bytes=0,
    )


def group_bases(plan: CompactionPlan, boundary: int) -> list[list[int]]:
    return [[extent.base_offset for extent in group] for group in group_segments(plan, boundary)]


def test_segments_are_grouped_up_to_the_size_of_one() -> None:
    plan = planned((0, 10, 500), (10, 20, 500), (20, 30, 1), (30, 40, 2000), (40, 50, 5))
    assert group_bases(plan, 50) == [[0, 10], [20], [30], [40]]


def test_segments_behind_the_boundary_are_in_no_group() -> None:
    plan = planned((0, 10, 5), (10, 20, 5), (20, 30, 5))
    assert group_bases(plan, 15) == [[0, 10]]


def test_a_group_never_needs_more_index_than_allowed() -> None:
    plan = planned((0, 10, 610), (10, 20, 610), segment_bytes=10_000, index_bytes=12 * 20)
    assert group_bases(plan, 20) == [[0], [10]]
    plan = planned((0, 10, 610), (10, 20, 610), segment_bytes=10_000, index_bytes=12 * 21)
    assert group_bases(plan, 20) == [[0, 10]]


def test_a_group_never_spans_more_offsets_than_an_index_can_tell() -> None:
    assert group_bases(planned((0, 10, 5), (10, 2**31 - 1, 5)), 20) == [[0, 10]]
    assert group_bases(planned((0, 10, 5), (10, 2**31, 5)), 20) == [[0], [10]]
