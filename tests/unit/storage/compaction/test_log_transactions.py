"""Compaction and transactions: what was aborted goes, markers outlive what they mark, nothing hangs."""

from distributedlog.storage.compaction.log import (
    CompactionResult,
    commit_compaction,
    plan_compaction,
    run_compaction,
)
from tests.unit.storage.compaction.keyed_log import DIRECTORY, KeyedLog, settings

A, B, C, D = b"a", b"b", b"c", b"d"


def compact_after(keyed: KeyedLog, duration_ms: int, key: bytes) -> CompactionResult:
    """Something must be dirty for a run to be planned."""
    keyed.advance(duration_ms)
    keyed.put((key, b"filler"))
    return keyed.roll_and_compact()


def forget_producers(keyed: KeyedLog) -> None:
    keyed.log.producers.expire(keyed.now_ms, 1)
    keyed.log.producers.expire(keyed.now_ms + 1, 1)


def bases(keyed: KeyedLog) -> list[int]:
    return [header.base_offset for header in keyed.batches()]


def test_aborted_records_go_and_do_not_replace_what_was_committed() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"committed"))
    keyed.put_as(7, (A, b"aborted"), (B, b"aborted"))
    keyed.abort(7)
    assert keyed.log.find_aborted_transactions(0, 4) != []
    keyed.roll_and_compact()
    assert keyed.table() == {A: b"committed"}
    assert all(header.record_count == 0 or header.is_control for header in keyed.batches()[1:])


def test_committed_records_replace_and_are_replaced_like_any_other() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"))
    keyed.put_as(7, (A, b"2"), (B, b"2"))
    keyed.commit(7)
    keyed.put((B, b"3"))
    keyed.roll_and_compact()
    assert [(record.offset, record.key) for record in keyed.records()] == [(1, A), (4, B)]


def test_an_open_transaction_is_not_touched_nor_is_anything_behind_it() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"))
    keyed.put((A, b"2"))
    keyed.roll()
    keyed.put((B, b"1"))
    keyed.put_as(7, (B, b"2"))
    keyed.put((B, b"3"))
    result = keyed.roll_and_compact()
    assert result.first_dirty_offset == 2
    assert bases(keyed) == [1, 2, 3, 4]
    keyed.commit(7)
    keyed.roll_and_compact()
    assert keyed.table() == {A: b"2", B: b"3"}


def test_a_transaction_whose_marker_is_not_committed_counts_as_open() -> None:
    keyed = KeyedLog()
    keyed.put_as(7, (A, b"1"))
    keyed.roll()
    keyed.is_replicated = False
    keyed.commit(7)
    keyed.roll()
    assert plan_compaction(keyed.log, 0, keyed.now_ms) is None
    keyed.log.advance_high_watermark(2)
    assert plan_compaction(keyed.log, 0, keyed.now_ms) is not None


def test_a_commit_marker_stays_while_its_records_do() -> None:
    keyed = KeyedLog()
    keyed.put_as(7, (A, b"1"))
    marker = keyed.commit(7)
    keyed.roll_and_compact()
    forget_producers(keyed)
    for key in (B, C, D):
        compact_after(keyed, 5000, key)
    assert marker in bases(keyed)


def test_a_marker_without_records_goes_a_horizon_after_they_were_first_missed() -> None:
    keyed = KeyedLog()
    keyed.put_as(7, (A, b"1"))
    marker = keyed.commit(7)
    keyed.put((A, b"2"))
    forget_producers(keyed)
    keyed.roll_and_compact()
    assert bases(keyed) == [marker, 2]
    compact_after(keyed, 5000, B)
    marked = keyed.batches()[0]
    assert (marked.base_offset, marked.delete_horizon_ms) == (marker, keyed.now_ms + 1000)
    compact_after(keyed, 999, C)
    assert marker in bases(keyed)
    result = compact_after(keyed, 1, D)
    assert marker not in bases(keyed)
    assert result.counts.markers_dropped == 1
    keyed.reopen()
    assert keyed.log.last_stable_offset == keyed.log.end_offset
    assert keyed.table() == {A: b"2", B: b"filler", C: b"filler", D: b"filler"}


def test_an_abort_marker_goes_in_the_same_way() -> None:
    keyed = KeyedLog()
    keyed.put_as(7, (A, b"1"))
    marker = keyed.abort(7)
    keyed.put((A, b"2"))
    forget_producers(keyed)
    keyed.roll_and_compact()
    compact_after(keyed, 5000, B)
    assert marker in bases(keyed)
    compact_after(keyed, 1000, C)
    assert marker not in bases(keyed)


def test_a_batch_kept_for_its_producer_keeps_its_marker_too() -> None:
    """Otherwise its transaction would look open for ever, and the last stable offset would stand still."""
    keyed = KeyedLog()
    keyed.put_as(7, (A, b"1"))
    marker = keyed.commit(7)
    keyed.put((A, b"2"))
    keyed.roll_and_compact()
    for key in (B, C, D):
        compact_after(keyed, 5000, key)
    assert bases(keyed)[:2] == [0, marker]
    for name in keyed.names(".snapshot"):
        keyed.disk.remove(f"{DIRECTORY}/{name}")
    keyed.reopen()
    assert keyed.log.producers.first_undecided_offset is None
    state = keyed.log.producers.get(7)
    assert state is not None
    assert state.next_sequence == 1


def test_the_marker_by_which_an_epoch_is_known_stays() -> None:
    """A coordinator fences a producer with a marker of a higher epoch and no records."""
    keyed = KeyedLog()
    keyed.put_as(7, (A, b"1"), epoch=0)
    keyed.commit(7, epoch=0)
    fence = keyed.abort(7, epoch=1)
    keyed.put((A, b"2"))
    keyed.roll_and_compact()
    for key in (B, C, D):
        compact_after(keyed, 5000, key)
    assert fence in bases(keyed)
    for name in keyed.names(".snapshot"):
        keyed.disk.remove(f"{DIRECTORY}/{name}")
    keyed.reopen()
    state = keyed.log.producers.get(7)
    assert state is not None
    assert state.epoch == 1


def test_an_aborted_transaction_that_ends_behind_the_cleaned_part_is_cleaned_in_it() -> None:
    keyed = KeyedLog()
    keyed.put((A, b"1"))
    keyed.put_as(7, (A, b"aborted"))
    keyed.roll()
    keyed.put_as(7, (B, b"aborted"))
    keyed.abort(7)
    keyed.compact()
    assert keyed.table() == {A: b"1"}
    assert [header.record_count for header in keyed.batches()] == [1, 0, 1, 1]
    assert keyed.log.find_aborted_transactions(0, 4) != []
    keyed.reopen()
    assert keyed.table() == {A: b"1"}


def test_aborted_records_behind_a_full_map_go_too() -> None:
    """Their segment is rewritten and has no transaction index any more."""
    keyed = KeyedLog()
    keyed.put((A, b"1"), (B, b"1"))
    keyed.put((C, b"1"), (D, b"1"))
    keyed.put_as(7, (A, b"aborted"))
    keyed.abort(7)
    keyed.put((A, b"2"))
    keyed.roll()
    plan = plan_compaction(keyed.log, 0, keyed.now_ms, keys_max=2)
    assert plan is not None
    result = run_compaction(plan, keyed.disk)
    assert result.first_dirty_offset == 2
    assert commit_compaction(keyed.log, result, keyed.now_ms)
    assert keyed.table() == {A: b"2", B: b"1", C: b"1", D: b"1"}


def test_the_last_batch_of_a_segment_gives_up_its_producer_but_a_marker_stays_whole() -> None:
    keyed = KeyedLog(settings(segment_bytes=1024))
    keyed.put((B, b"1" * 800))
    keyed.put_as(7, (A, b"1"))
    keyed.roll()
    keyed.put((C, b"1" * 870))
    marker = keyed.abort(7)
    keyed.roll()
    forget_producers(keyed)
    keyed.compact()
    headers = keyed.batches()
    assert [(header.base_offset, header.record_count) for header in headers] == [
        (0, 1),
        (1, 0),
        (2, 1),
        (3, 1),
    ]
    assert headers[1].producer_id == -1
    for key in (D, b"e", b"f"):
        assert compact_after(keyed, 5000, key).counts.markers_dropped == 0
    assert next(header for header in keyed.batches() if header.base_offset == marker).record_count == 1
