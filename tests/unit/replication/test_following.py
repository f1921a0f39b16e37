"""A partition that follows: it copies its leader, and truncates by epochs, never by the high watermark."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.errors import (
    CorruptBatchError,
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    UnexpectedOffsetError,
    UnknownLeaderEpochError,
)
from distributedlog.replication.partition import Partition
from distributedlog.storage.epochs import NO_EPOCH, UNKNOWN_END, EpochEnd
from tests.unit.replication.support import ME, OTHER, Stage, follower_batch, produce
from tests.unit.storage.support import NOW_MS, batches_in, value_of, values_in


def take(partition: Partition, data: bytes | bytearray, *, mark: int = 0, epoch: int = 0) -> None:
    partition.append_as_follower(data, leader_epoch=epoch, leader_high_watermark=mark, now_ms=NOW_MS)


def test_a_follower_copies_offsets_and_epochs_and_learns_what_is_committed() -> None:
    stage = Stage()
    partition = stage.follow(3)
    take(partition, follower_batch(0, 1, 2, leader_epoch=2), epoch=3)
    take(partition, follower_batch(2, 3, leader_epoch=3), mark=2, epoch=3)
    assert partition.log.epochs.entries == [(2, 0), (3, 2)]
    assert (partition.log_end_offset, partition.high_watermark) == (3, 2)
    take(partition, b"", mark=99, epoch=3)
    assert partition.high_watermark == 3, "what a follower does not have is not committed on it"


def test_a_followers_position_is_what_it_has_synced() -> None:
    stage = Stage()
    partition = stage.follow()
    take(partition, follower_batch(0, 1))
    assert partition.committable_end_offset == 0
    stage.executor.run_all()
    assert partition.committable_end_offset == 1


def test_a_follower_fetches_on_when_all_is_stored() -> None:
    stage = Stage()
    stored: list[int] = []
    stage.signals.end_stored.append(lambda partition: stored.append(partition.log_end_offset))
    partition = stage.follow(3)
    assert partition.fetch_position == (3, 0, NO_EPOCH, 0, 0)
    take(partition, follower_batch(0, 1, 2, leader_epoch=2), epoch=3)
    assert stored == []
    positions = [partition.fetch_position]
    stage.executor.run_all()
    positions.append(partition.fetch_position)
    assert positions == [None, (3, 2, 2, 0, 0)]
    assert stored == [2]


def test_a_leader_that_appended_nothing_follows_from_the_last_epoch_with_records() -> None:
    stage = Stage()
    partition = stage.follow(2)
    take(partition, follower_batch(0, 1, leader_epoch=2), epoch=2)
    stage.lead(7)
    stage.follow(8)
    stage.executor.run_all()
    assert partition.fetch_position == (8, 1, 2, 0, 0)
    # An epoch between the two is noted when its records come.
    take(partition, follower_batch(1, 2, leader_epoch=5), epoch=8)
    assert partition.log.epochs.entries == [(2, 0), (5, 1)]


def test_a_batch_of_a_later_epoch_than_the_leaders_is_not_taken() -> None:
    """The leader was replaced while the fetch was under way: what its successor wrote is its successor's."""
    stage = Stage()
    partition = stage.follow(3)
    data = follower_batch(0, 1, leader_epoch=3) + follower_batch(1, 2, leader_epoch=4)
    take(partition, data, epoch=3)
    assert values_in(partition.log) == [value_of(1)]
    with pytest.raises(CorruptBatchError):
        take(partition, follower_batch(1, 2, leader_epoch=4), epoch=3)
    assert partition.log_end_offset == 1


def test_what_the_leader_deleted_is_deleted_as_far_as_it_is_committed() -> None:
    stage = Stage()
    partition = stage.follow()
    take(partition, follower_batch(0, 1, 2, 3), mark=2)
    partition.follow_watermarks(2, 1, NOW_MS)
    assert partition.log_start_offset == 1
    partition.follow_watermarks(2, 3, NOW_MS)
    assert partition.log_start_offset == 2


def test_what_the_leader_deleted_is_deleted_before_it_counts_as_committed() -> None:
    """The leader cannot say whether its records there were these."""
    stage = Stage()
    partition = stage.follow()
    take(partition, follower_batch(0, 0, 1, 2, 3), mark=1)
    seen: list[tuple[int, int]] = []
    stage.signals.commit_advanced.append(
        lambda each: seen.append((each.log_start_offset, each.high_watermark))
    )
    partition.follow_watermarks(4, 3, NOW_MS)
    assert seen == [(3, 4)]


def test_a_stored_log_start_is_not_taken_back_by_an_earlier_checkpoint_that_is_told_late() -> None:
    stage = Stage()
    partition = stage.follow(4)
    take(partition, follower_batch(0, 1) + follower_batch(1, 2) + follower_batch(2, 3), epoch=4, mark=3)
    for start in (1, 2):
        partition.follow_watermarks(3, start, NOW_MS)
    partition.note_start_stored(2)
    partition.note_start_stored(1)
    assert partition.stored_start_offset == 2
    partition.restart_at(0, leader_epoch=4, now_ms=NOW_MS)
    take(partition, follower_batch(0, 1) + follower_batch(1, 2), epoch=4, mark=2)
    partition.note_start_stored(2)
    partition.follow_watermarks(2, 1, NOW_MS)
    assert partition.stored_start_offset == 0, "it was told of the log before it"


def test_what_is_behind_the_leaders_end_is_truncated() -> None:
    stage = Stage()
    partition = stage.follow(4)
    take(partition, follower_batch(0, 1), epoch=4)
    take(partition, follower_batch(1, 2), epoch=4)
    partition.truncate_to(1, leader_epoch=4, now_ms=NOW_MS)
    assert values_in(partition.log) == [value_of(1)]
    with pytest.raises(FencedLeaderEpochError):
        partition.truncate_to(0, leader_epoch=3, now_ms=NOW_MS)


def test_a_follower_fetches_on_when_what_it_cut_is_gone_for_good() -> None:
    stage = Stage()
    stored: list[int] = []
    partition = stage.follow(4)
    take(partition, follower_batch(0, 1) + follower_batch(1, 2), epoch=4)
    stage.executor.run_all()
    stage.signals.end_stored.append(lambda partition: stored.append(partition.log_end_offset))
    partition.truncate_to(1, leader_epoch=4, now_ms=NOW_MS)
    positions = [partition.fetch_position]
    stage.executor.run_all()
    positions.append(partition.fetch_position)
    assert positions == [None, (4, 1, 0, 0, 0)]
    assert stored == [1]


def test_who_leads_before_what_it_cut_is_gone_appends_behind_it_only_then() -> None:
    stage = Stage()
    partition = stage.follow(4)
    take(partition, follower_batch(0, 1) + follower_batch(1, 2), epoch=4)
    stage.executor.run_all()
    partition.truncate_to(1, leader_epoch=4, now_ms=NOW_MS)
    seen = [partition.log.has_unsynced_cut]
    stage.lead(5)
    produce(partition, 3)
    seen.append(partition.log.has_unsynced_cut)
    assert seen == [True, False]
    stage.executor.run_all()
    assert (partition.high_watermark, values_in(partition.log)) == (2, [value_of(1), value_of(3)])


def test_batches_of_a_stale_or_unknown_leader_and_out_of_order_ones_are_refused() -> None:
    stage = Stage()
    partition = stage.follow(3)
    take(partition, follower_batch(0, 1), epoch=3)
    with pytest.raises(FencedLeaderEpochError):
        take(partition, follower_batch(1, 2), epoch=2)
    with pytest.raises(UnknownLeaderEpochError):
        take(partition, follower_batch(1, 2), epoch=4)
    with pytest.raises(UnexpectedOffsetError):
        take(partition, follower_batch(0, 2), epoch=3)
    stage.lead(4)
    with pytest.raises(NotLeaderOrFollowerError):
        take(partition, follower_batch(1, 2), epoch=4)


def test_a_log_is_cut_where_the_common_epoch_ends() -> None:
    stage = Stage()
    partition = stage.follow(5)
    take(partition, follower_batch(0, 1, leader_epoch=1), epoch=5)
    take(partition, follower_batch(1, 2, leader_epoch=1), epoch=5)
    take(partition, follower_batch(2, 3, leader_epoch=2), epoch=5)
    assert partition.truncate_by_epoch(EpochEnd(1, 1), leader_epoch=5, now_ms=NOW_MS)
    assert values_in(partition.log) == [value_of(1)]
    assert partition.log.epochs.entries == [(1, 0)]


def test_a_longer_epoch_at_the_leader_costs_the_follower_nothing_of_it() -> None:
    stage = Stage()
    partition = stage.follow(5)
    take(partition, follower_batch(0, 1, leader_epoch=1), epoch=5)
    take(partition, follower_batch(1, 2, leader_epoch=2), epoch=5)
    assert partition.truncate_by_epoch(EpochEnd(1, 40), leader_epoch=5, now_ms=NOW_MS)
    assert values_in(partition.log) == [value_of(1)]


def test_an_epoch_that_the_follower_never_had_is_asked_about_again() -> None:
    stage = Stage()
    partition = stage.follow(9)
    take(partition, follower_batch(0, 1, leader_epoch=1), epoch=9)
    take(partition, follower_batch(1, 2, leader_epoch=5), epoch=9)
    assert not partition.truncate_by_epoch(EpochEnd(3, 8), leader_epoch=9, now_ms=NOW_MS)
    assert partition.log.epochs.latest_epoch == 1
    assert partition.truncate_by_epoch(EpochEnd(1, 1), leader_epoch=9, now_ms=NOW_MS)
    assert values_in(partition.log) == [value_of(1)]


def test_committed_records_above_a_lagging_high_watermark_survive_a_change_of_leader() -> None:
    """Cutting at the high watermark, as early designs did, would lose the second record."""
    stage = Stage()
    partition = stage.follow(1)
    take(partition, follower_batch(0, 1, leader_epoch=1), mark=0, epoch=1)
    take(partition, follower_batch(1, 2, leader_epoch=1), mark=1, epoch=1)
    stage.follow(2)
    assert partition.truncate_by_epoch(EpochEnd(1, 2), leader_epoch=2, now_ms=NOW_MS)
    assert values_in(partition.log) == [value_of(1), value_of(2)]


def test_a_leader_that_knows_no_epoch_at_all_has_what_is_committed() -> None:
    stage = Stage()
    partition = stage.follow(1)
    take(partition, follower_batch(0, 1, leader_epoch=1), mark=0, epoch=1)
    take(partition, follower_batch(1, 2, leader_epoch=1), mark=1, epoch=1)
    assert partition.truncate_by_epoch(UNKNOWN_END, leader_epoch=1, now_ms=NOW_MS)
    assert values_in(partition.log) == [value_of(1)]


def test_a_follower_too_far_behind_goes_on_at_the_leaders_start() -> None:
    stage = Stage()
    partition = stage.follow()
    take(partition, follower_batch(0, 1))
    partition.restart_at(100, leader_epoch=0, now_ms=NOW_MS)
    assert (partition.log_start_offset, partition.log_end_offset) == (100, 100)
    take(partition, follower_batch(100, 7))
    assert values_in(partition.log) == [value_of(7)]


def test_a_truncation_takes_back_the_bytes_that_were_not_committed() -> None:
    stage = Stage()
    partition = stage.follow(1)
    take(partition, follower_batch(0, 1, leader_epoch=1), epoch=1)
    take(partition, follower_batch(1, 2, leader_epoch=1), epoch=1)
    partition.truncate_by_epoch(EpochEnd(1, 1), leader_epoch=1, now_ms=NOW_MS)
    take(partition, follower_batch(1, 3, leader_epoch=1), epoch=1, mark=2)
    assert partition.committed_bytes == partition.appended_bytes


def follow_until_equal(leader: Partition, follower: Partition, epoch: int) -> None:
    """What a replica driver will do: fetch, and truncate where the leader says that the logs part."""
    for _ in range(50):
        offset = follower.log_end_offset
        read = leader.read_for_replica(
            OTHER, offset, 1 << 20, 0, last_fetched_epoch=follower.log.epochs.latest_epoch
        )
        if read.diverging is not None:
            follower.truncate_by_epoch(read.diverging, leader_epoch=epoch, now_ms=NOW_MS)
        elif read.region is None:
            return
        else:
            with read.region as region:
                data = b"".join(batch for _, batch in batches_in(region.read()))
            take(follower, data, mark=read.high_watermark, epoch=epoch)
    raise AssertionError("the follower does not catch up")


HISTORY = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=6)


@settings(max_examples=60)
@given(common=HISTORY, ours=HISTORY, theirs=HISTORY)
def test_any_two_histories_that_parted_become_the_leaders(
    common: list[tuple[int, int]], ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    """Each step of a history is a new epoch, odd for the one and even for the other, with some records."""
    leader, follower = Stage(), Stage()
    epoch = 0
    for gap, count in common:
        epoch += 2 * gap
        for stage in (leader, follower):
            stage.lead(epoch, replicas=(ME, OTHER))
            for number in range(count):
                produce(stage.partition, epoch * 10 + number)
    highest = epoch
    for parity, (stage, history) in enumerate(((leader, theirs), (follower, ours))):
        own_epoch = epoch + parity
        for gap, count in history:
            own_epoch += 2 * gap
            stage.lead(own_epoch, replicas=(ME, OTHER))
            for number in range(count):
                produce(stage.partition, own_epoch * 10 + number)
        highest = max(highest, own_epoch)
    leader.lead(highest + 1, replicas=(ME, OTHER))
    follower.follow(highest + 1)
    expected = values_in(leader.partition.log)
    follow_until_equal(leader.partition, follower.partition, highest + 1)
    assert values_in(follower.partition.log) == expected
    assert follower.partition.log_end_offset == leader.partition.log_end_offset


# --- a log that is corrupt -----------------------------------------------------------------------


def test_what_is_corrupt_is_set_aside_in_a_later_epoch_and_fetched_again() -> None:
    stage = Stage()
    partition = stage.follow(3)
    for number in range(30):
        take(partition, follower_batch(number, number, leader_epoch=3), mark=number, epoch=3)
    stage.executor.run_all()
    first, second = (segment.base_offset for segment in partition.log.segments.all()[:2])
    partition.note_corruption(second, "a flipped bit")
    partition.note_corruption(first + 99, "a later one")
    assert partition.corruption is not None
    assert partition.corruption[:2] == (second, 3), "of two the first counts"
    with pytest.raises(AssertionError, match="may count for the ISR"):
        partition.set_aside_corruption(NOW_MS)
    stage.follow(4)
    stage.told.clear()
    partition.set_aside_corruption(NOW_MS)
    assert stage.told == ["state"]
    assert stage.partition.corruption is None
    assert partition.fetch_position == (4, second, 3, 0, second)
    take(partition, follower_batch(second, 7, leader_epoch=3), mark=second + 1, epoch=4)
    assert partition.high_watermark == second + 1


def test_a_leader_sets_nothing_aside() -> None:
    stage = Stage()
    partition = stage.lead(3)
    produce(partition, 1)
    partition.note_corruption(0, "a flipped bit")
    stage.lead(4)
    with pytest.raises(NotLeaderOrFollowerError):
        partition.set_aside_corruption(NOW_MS)
    assert partition.log_end_offset == 1
