"""A follower over its throttle leaves out what it is not in sync with, and nothing else."""

from distributedlog.broker.quotas.replication_quotas import BURST_MS, QUANTUM_MS
from tests.unit.broker.partition_stage import ME, OTHER, topic_id
from tests.unit.broker.replicas.test_replica_fetcher import NUMBER, Follower, data, play
from tests.unit.replication.support import follower_batch

NOT_YET = 1_000
"""The leader has so much that is committed."""


def batch(offset: int) -> bytearray:
    return follower_batch(offset, offset, leader_epoch=2)


def throttle(follower: Follower, *, is_in_sync: bool = False) -> int:
    """The one partition is throttled to a batch in ten seconds; how long it takes until one has drained."""
    if not is_in_sync:
        follower.stage.metadata.change(NUMBER, isr=[OTHER])
        follower.stage.apply()
    follower.quota.set_limit(max(1, len(batch(0)) // 10))
    follower.quota.set_throttled("t", frozenset({0}))
    follower.fetchers.throttles_changed()
    return 10_000 - BURST_MS + QUANTUM_MS


def test_who_is_over_its_throttle_fetches_on_when_enough_has_drained() -> None:
    async def story(follower: Follower) -> None:
        wait_ms = throttle(follower)
        await follower.answer(data(batch(0), mark=NOT_YET))
        asked = len(follower.leader.asked)
        assert follower.partition.log_end_offset == 1
        await follower.advance(wait_ms - 500)
        assert len(follower.leader.asked) == asked, "nothing is fetched meanwhile"
        await follower.advance(1_500)
        assert len(follower.leader.asked) == asked + 1
        assert follower.last() == (3, 1, 2)
        assert follower.quota.total_bytes == len(batch(0))

    play(story)


def test_a_replica_in_the_isr_is_neither_throttled_nor_counted() -> None:
    async def story(follower: Follower) -> None:
        throttle(follower, is_in_sync=True)
        for offset in range(3):
            await follower.answer(data(batch(offset), mark=NOT_YET))
            assert follower.last() == (3, offset + 1, 2)
        assert follower.quota.total_bytes == 0

    play(story)


def test_who_joins_the_isr_while_it_is_throttled_fetches_at_once() -> None:
    async def story(follower: Follower) -> None:
        throttle(follower)
        await follower.answer(data(batch(0), mark=NOT_YET))
        asked = len(follower.leader.asked)
        follower.stage.metadata.change(NUMBER, isr=[ME, OTHER])
        follower.stage.apply()
        await follower.turn()
        assert len(follower.leader.asked) == asked + 1
        assert follower.last() == (3, 1, 2)

    play(story)


def test_who_has_all_that_is_committed_may_join_and_is_not_throttled() -> None:
    async def story(follower: Follower) -> None:
        throttle(follower)
        await follower.answer(data(batch(0), mark=1))
        assert follower.last() == (3, 1, 2)

    play(story)


def test_another_limit_ends_the_wait() -> None:
    async def story(follower: Follower) -> None:
        throttle(follower)
        await follower.answer(data(batch(0), mark=NOT_YET))
        asked = len(follower.leader.asked)
        follower.quota.set_limit(1_000_000)
        follower.fetchers.throttles_changed()
        await follower.turn()
        assert len(follower.leader.asked) == asked + 1

    play(story)


def test_other_partitions_of_the_leader_are_fetched_meanwhile() -> None:
    async def story(follower: Follower) -> None:
        follower.stage.metadata.create("u", NUMBER + 1, replicas=(ME, OTHER), leader=OTHER, epoch=3)
        follower.stage.apply()
        await follower.turn()
        throttle(follower)
        await follower.answer()
        await follower.answer(data(batch(0), mark=NOT_YET))
        later = [request for request, _ in follower.leader.asked[2:]]
        assert later, "the other one is in the session, and fetched"
        named = [each.topic_id for request in later for each in request.topics]
        forgotten = [each.topic_id for request in later for each in request.forgotten_topics_data]
        assert (named, forgotten) == ([], [topic_id(NUMBER)])

    play(story)
