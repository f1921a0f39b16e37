"""What compaction keeps and what it lets go, one rule at a time."""

import pytest

from distributedlog.records.compression import Codec
from distributedlog.records.record import Record, encode_batch
from distributedlog.storage.compaction.log import commit_compaction, plan_compaction, run_compaction
from distributedlog.storage.compaction.offset_map import OffsetMap
from distributedlog.storage.segment import CLEANED_SUFFIX, LOG_SUFFIX
from tests.unit.storage.compaction.keyed_log import COMPACT, DIRECTORY, START_MS, KeyedLog, settings

A, B, C, D = b"a", b"b", b"c", b"d"
LONG = b"k" * 1000


# --- values ------------------------------------------------------------------------------------


def test_only_the_latest_record_of_each_key_stays_and_keeps_its_offset() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"), (B, b"1"))
    keyed.put((A, b"2"))
    keyed.put((C, b"1"))
    keyed.put((A, b"3"))
    result = keyed.roll_and_compact()
    assert [(record.offset, record.key, record.value) for record in keyed.records()] == [
        (1, B, b"1"),
        (3, C, b"1"),
        (4, A, b"3"),
    ]
    assert result.first_dirty_offset == 5
    assert (result.counts.records_before, result.counts.records_after) == (5, 3)
    assert result.counts.bytes_after < result.counts.bytes_before


def test_a_batch_that_keeps_all_its_records_is_kept_byte_for_byte() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"))
    keyed.put((B, b"1"), (C, b"1"), codec=Codec.GZIP)
    keyed.put((A, b"2"))
    before = {batch.header.base_offset: bytes(batch.data) for batch in keyed.log.walk(0, 4)}
    keyed.roll_and_compact()
    after = {batch.header.base_offset: bytes(batch.data) for batch in keyed.log.walk(0, 4)}
    assert after == {1: before[1], 3: before[3]}


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_loses_records_keeps_codec_timestamps_and_headers(codec: Codec) -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1" * 50), (B, b"1" * 50), (C, None), codec=codec, timestamp_ms=START_MS - 5)
    keyed.put((A, b"2"))
    keyed.roll_and_compact()
    header = keyed.batches()[0]
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 2, 2)
    assert header.codec is codec
    assert [(record.key, record.timestamp_ms) for record in keyed.records()] == [
        (B, START_MS - 5),
        (C, START_MS - 5),
        (A, START_MS),
    ]


def test_a_log_without_anything_replaced_keeps_its_very_files() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"))
    keyed.put((B, b"1"))
    keyed.roll()
    segment = keyed.log.segments.first
    result = keyed.compact()
    assert result is not None
    assert result.groups == ()
    assert keyed.log.segments.first is segment
    assert keyed.names(CLEANED_SUFFIX) == []
    assert keyed.first_dirty_offset == 2


def test_long_keys_are_told_apart_and_so_are_their_digests() -> None:
    keyed = KeyedLog()
    keyed.put((LONG, b"1"), (LONG + b"x", b"1"), (LONG[:33], b"1"), (LONG[:32], b"1"))
    keyed.put((LONG, b"2"), (LONG[:32], b"2"))
    keyed.roll_and_compact()
    assert keyed.offsets() == [1, 2, 4, 5]


def test_a_record_without_a_key_does_not_stay_in_a_compacted_log() -> None:
    keyed = KeyedLog(settings(cleanup_policy=("delete",)))
    batch = encode_batch([Record(b"no key", timestamp_ms=START_MS), Record(b"1", A, timestamp_ms=START_MS)])
    keyed.log.append_as_leader(batch, leader_epoch=0, now_ms=START_MS)
    keyed.settle()
    keyed.log.reconfigure(COMPACT)
    keyed.roll_and_compact()
    assert keyed.offsets() == [1]


def test_what_is_clean_loses_to_what_came_later() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"), (B, b"1"))
    keyed.roll_and_compact()
    keyed.put((A, b"2"))
    keyed.roll_and_compact()
    assert keyed.offsets() == [1, 2]
    assert keyed.table() == {A: b"2", B: b"1"}


def test_the_active_segment_is_not_touched() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"))
    keyed.roll()
    keyed.put((A, b"2"))
    keyed.put((A, b"3"))
    keyed.compact()
    assert keyed.offsets() == [0, 1, 2]


# --- tombstones --------------------------------------------------------------------------------


def test_a_tombstone_deletes_at_once_and_goes_when_its_horizon_has_passed() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"))
    keyed.put((A, None), (B, b"1"))
    keyed.roll_and_compact()
    assert [(record.offset, record.value) for record in keyed.records()] == [(1, None), (2, b"1")]
    assert keyed.batches()[0].delete_horizon_ms == keyed.now_ms + 1000
    keyed.advance(999)
    keyed.put((C, b"1"))
    keyed.roll_and_compact()
    assert keyed.offsets() == [1, 2, 3]
    keyed.advance(1)
    keyed.put((D, b"1"))
    result = keyed.roll_and_compact()
    assert keyed.offsets() == [2, 3, 4]
    assert result.counts.tombstones_dropped == 1
    assert keyed.records()[0].timestamp_ms == START_MS


def test_the_horizon_is_set_once_and_does_not_move() -> None:
    keyed = KeyedLog()
    keyed.put((A, None))
    keyed.roll_and_compact()
    horizon_ms = keyed.batches()[0].delete_horizon_ms
    keyed.advance(500)
    keyed.put((B, b"1"))
    keyed.roll_and_compact()
    assert keyed.batches()[0].delete_horizon_ms == horizon_ms == START_MS + 1000


def test_a_key_may_come_back_after_its_tombstone() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"))
    keyed.put((A, None))
    keyed.put((A, b"2"))
    keyed.roll_and_compact()
    assert keyed.offsets() == [2]


def test_a_tombstone_behind_a_full_map_has_not_deleted_yet_and_gets_no_horizon() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"), (B, b"1"))
    keyed.put((C, None))
    keyed.roll()
    result = keyed.compact(keys_max=2)
    assert result is not None
    assert result.first_dirty_offset == 2
    assert keyed.batches()[1].delete_horizon_ms is None
    keyed.compact()
    assert keyed.batches()[1].delete_horizon_ms == keyed.now_ms + 1000


def test_a_tombstone_stays_in_the_run_in_which_it_deletes_although_its_horizon_has_passed() -> None:
    """A replica may get it so from a leader that compacted long ago."""
    leader = KeyedLog()
    leader.put((A, b"1"))
    leader.put((A, None), (B, b"1"))
    first = b"".join(bytes(batch.data) for batch in leader.log.walk(0, 1))
    leader.roll_and_compact()
    rest = b"".join(bytes(batch.data) for batch in leader.log.walk(1, 3))
    follower = KeyedLog()
    follower.log.append_as_follower(first + rest, now_ms=follower.now_ms)
    follower.settle()
    follower.advance(5000)
    follower.roll_and_compact()
    assert follower.offsets() == [1, 2]
    follower.put((C, b"1"))
    follower.roll_and_compact()
    assert follower.offsets() == [2, 3]


def test_a_horizon_that_would_make_the_segment_too_large_is_not_set() -> None:
    """A horizon makes each record some bytes longer; a full segment must not outgrow its indexes."""
    keyed = KeyedLog(settings(segment_bytes=1024, delete_retention_ms=1_000_000_000))
    keyed.put(*[(b"%d" % number, None) for number in range(90)])
    assert keyed.log.segments.first.size < 1024
    keyed.roll_and_compact()
    assert keyed.batches()[0].delete_horizon_ms is None
    assert keyed.log.segments.first.size <= 1024


# --- producers ---------------------------------------------------------------------------------


def test_an_active_producers_latest_batches_stay_without_records() -> None:
    keyed = KeyedLog()
    for _ in range(7):
        keyed.put_as(9, (A, b"1"), is_transactional=False)
    keyed.put((A, b"2"))
    keyed.roll_and_compact()
    kept = [(header.base_offset, header.record_count, header.last_sequence) for header in keyed.batches()]
    assert kept == [(2, 0, 2), (3, 0, 3), (4, 0, 4), (5, 0, 5), (6, 0, 6), (7, 1, -1)]


def test_after_compaction_and_a_crash_a_retry_is_still_recognised() -> None:
    keyed = KeyedLog()
    keyed.put_as(9, (A, b"1"), is_transactional=False)
    keyed.put((A, b"2"))
    keyed.roll_and_compact()
    for name in keyed.names(".snapshot"):
        keyed.disk.remove(f"{DIRECTORY}/{name}")
    keyed.reopen()
    again = encode_batch(
        [Record(b"1", A, timestamp_ms=START_MS)], producer_id=9, producer_epoch=0, base_sequence=0
    )
    written = keyed.log.append_as_leader(again, leader_epoch=0, now_ms=keyed.now_ms)
    assert (written.is_duplicate, written.base_offset) == (True, 0)


def test_an_expired_producers_batches_go() -> None:
    keyed = KeyedLog()
    keyed.put_as(9, (A, b"1"), is_transactional=False)
    keyed.put((A, b"2"))
    keyed.log.producers.expire(keyed.now_ms, 1)
    keyed.log.producers.expire(keyed.now_ms + 1, 1)
    keyed.roll_and_compact()
    assert [header.base_offset for header in keyed.batches()] == [1]


# --- segments ----------------------------------------------------------------------------------


def test_neighbours_are_merged_while_they_fit_and_leave_one_segment() -> None:
    keyed = KeyedLog()
    for number in range(5):
        keyed.put((b"%d" % number, b"1"))
        keyed.roll()
    keyed.compact()
    assert [segment.base_offset for segment in keyed.log.segments] == [0, 5]
    assert keyed.names(LOG_SUFFIX) == [f"{0:020d}.log", f"{5:020d}.log"]
    assert keyed.names(".snapshot")[0] == f"{5:020d}.snapshot"
    assert keyed.offsets() == [0, 1, 2, 3, 4]


def test_segments_that_do_not_fit_together_stay_apart() -> None:
    keyed = KeyedLog(settings(segment_bytes=1024))
    for number in range(3):
        keyed.put((A, b"x" * 600), (b"%d" % number, b"y" * 300))
        keyed.roll()
    keyed.compact()
    assert [segment.base_offset for segment in keyed.log.segments] == [0, 2, 4, 6]
    assert keyed.offsets() == [1, 3, 4, 5]
    keyed.put((A, b""))
    keyed.roll_and_compact()
    assert [segment.base_offset for segment in keyed.log.segments] == [0, 4, 6, 7]


def test_a_segment_of_which_nothing_stays_still_ends_where_the_next_begins() -> None:
    keyed = KeyedLog(settings(segment_bytes=1024))
    for _ in range(3):
        keyed.put((A, b"x" * 900))
        keyed.roll()
    keyed.compact()
    headers = keyed.batches()
    assert [(header.base_offset, header.record_count) for header in headers] == [(0, 0), (1, 0), (2, 1)]
    assert headers[0].max_timestamp == -1
    assert keyed.log.start_offset == 0
    assert keyed.offsets() == [2]


def test_such_an_end_goes_when_its_segment_is_merged_with_the_next() -> None:
    keyed = KeyedLog(settings(segment_bytes=1024))
    for key in (A, A, B):
        keyed.put((key, b"x" * 800))
        keyed.roll()
    keyed.compact()
    assert [header.base_offset for header in keyed.batches()] == [0, 1, 2]
    keyed.put((B, b""))
    keyed.roll_and_compact()
    assert [header.base_offset for header in keyed.batches()] == [1, 3]
    assert [segment.base_offset for segment in keyed.log.segments] == [0, 2, 4]


def test_a_full_map_cleans_what_it_holds_and_goes_on_from_there() -> None:
    keyed = KeyedLog()
    for number in range(4):
        keyed.put((b"%d" % number, b"1"), (A, b"%d" % number))
    keyed.roll()
    plan = plan_compaction(keyed.log, 0, keyed.now_ms, keys_max=4)
    assert plan is not None
    result = run_compaction(plan, keyed.disk)
    assert result.first_dirty_offset == 4
    assert commit_compaction(keyed.log, result, keyed.now_ms)
    assert keyed.offsets() == [0, 2, 3, 4, 5, 6, 7]
    keyed.first_dirty_offset = result.first_dirty_offset
    keyed.compact()
    assert keyed.offsets() == [0, 2, 4, 6, 7]


def test_a_map_takes_one_batch_however_large_it_is() -> None:
    newest = OffsetMap(1)
    assert newest.has_room_for(1000)
    keyed = KeyedLog()
    keyed.put((A, b"1"), (B, b"1"), (A, b"2"))
    keyed.put((B, b"2"))
    keyed.roll()
    plan = plan_compaction(keyed.log, 0, keyed.now_ms, keys_max=1)
    assert plan is not None
    assert run_compaction(plan, keyed.disk).first_dirty_offset == 3


def test_indexes_of_a_new_segment_lead_to_its_batches() -> None:
    keyed = KeyedLog()
    for number in range(60):
        keyed.advance(10)
        keyed.put((b"%d" % (number % 40), b"%d" % number))
    keyed.roll_and_compact()
    segment = keyed.log.segments.first
    assert len(segment.offset_index) > 5
    assert [record.offset for record in keyed.records()] == list(range(20, 60))
    for record in keyed.records():
        found = keyed.log.find_timestamp(record.timestamp_ms)
        assert found == (record.timestamp_ms, record.offset)
    assert segment.max_timestamp == keyed.now_ms


def test_the_epoch_history_and_the_end_stay() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"))
    keyed.put((A, b"2"))
    keyed.roll_and_compact()
    before = keyed.log.epochs.entries
    keyed.reopen()
    assert (keyed.log.start_offset, keyed.log.end_offset) == (0, 2)
    assert keyed.log.epochs.entries == before
    assert keyed.put((B, b"1")) == 2
