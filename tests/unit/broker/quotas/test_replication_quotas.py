"""The throttles of replication: how much passes in which time, and whose settings count; without a clock."""

from hypothesis import given
from hypothesis import strategies as st

from distributedlog.broker.quotas.replication_quotas import (
    BURST_MS,
    QUANTUM_MS,
    RATE_WINDOW_SECONDS,
    UNLIMITED,
    ByteRate,
    ReplicationQuota,
    ReplicationQuotas,
)
from distributedlog.controller.image import CLUSTER_DEFAULT, MetadataImage, ResourceType
from distributedlog.settings.node_settings import NodeSettings
from tests.unit.broker.partition_stage import Metadata

LIMIT = 10_000
LEADERS, FOLLOWERS = (f"{role}.replication.throttled.replicas" for role in ("leader", "follower"))
LEADER_RATE, FOLLOWER_RATE = (f"{role}.replication.throttled.rate" for role in ("leader", "follower"))


def limited(limit: int = LIMIT) -> ReplicationQuota:
    quota = ReplicationQuota()
    quota.set_limit(limit)
    quota.set_throttled("t", None)
    return quota


def test_a_burst_passes_and_then_what_the_limit_allows() -> None:
    quota = limited()
    assert quota.find_allowance(0) == quota.find_allowance(10**9) == LIMIT * BURST_MS // 1000
    quota.record(LIMIT * BURST_MS // 1000, 0)
    assert (quota.find_allowance(0), quota.wait_ms(0)) == (0, QUANTUM_MS)
    assert quota.find_allowance(QUANTUM_MS - 1) == 0, "less than a quantum is not worth a request"
    assert quota.find_allowance(QUANTUM_MS) == LIMIT * QUANTUM_MS // 1000


def test_what_was_too_much_is_waited_for() -> None:
    quota = limited()
    quota.record(LIMIT * 10, 0)
    assert quota.wait_ms(0) == 10_000 - BURST_MS + QUANTUM_MS


def test_another_limit_counts_at_once_and_none_means_none() -> None:
    quota = limited()
    quota.record(LIMIT * 10, 0)
    assert quota.set_limit(LIMIT * 100)
    assert not quota.set_limit(LIMIT * 100)
    assert quota.wait_ms(0) == 0
    quota.set_limit(UNLIMITED)
    assert (quota.wait_ms(0), quota.find_allowance(0)) == (0, UNLIMITED)
    assert not quota.is_throttled("t", 0)
    quota.set_limit(0)
    assert quota.is_throttled("t", 0)
    assert (quota.wait_ms(9), quota.find_allowance(9)) == (BURST_MS, 0)


@given(
    steps=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3 * LIMIT)), max_size=80),
    limit=st.integers(1, LIMIT),
)
def test_in_the_long_run_the_limit_passes_and_one_piece_more_at_most(
    steps: list[tuple[int, int]], limit: int
) -> None:
    """Whoever asks first and takes what there is, or a batch that is larger."""
    quota, now_ms, passed, largest = limited(limit), 0, 0, 0
    for elapsed_ms, batch in steps:
        now_ms += elapsed_ms
        allowance = quota.find_allowance(now_ms)
        assert (allowance == 0) == (quota.wait_ms(now_ms) > 0)
        if allowance:
            size = max(allowance, batch)
            quota.record(size, now_ms)
            passed, largest = passed + size, max(largest, size)
        assert passed <= limit * (now_ms + BURST_MS) / 1000 + largest + 1
    waited_ms = quota.wait_ms(now_ms)
    assert waited_ms <= largest * 1000 / limit + QUANTUM_MS + 1, "nobody waits longer than it takes to drain"


def test_who_always_takes_what_there_is_gets_all_of_the_limit() -> None:
    quota, passed = limited(), 0
    for now_ms in range(0, 60_000, 7):
        size = quota.find_allowance(now_ms)
        if size:
            quota.record(size, now_ms)
            passed += size
    assert 0.98 * 60 * LIMIT <= passed <= 61 * LIMIT


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = ByteRate()
    assert rate.per_second(5) == 0
    for second in range(100):
        rate.add(300, second * 1000)
        rate.add(700, second * 1000 + 500)
    assert 999 < rate.per_second(99_999) < 1_001
    assert rate.per_second(99_000 + RATE_WINDOW_SECONDS * 500) < 600
    assert rate.per_second(200_000) == 0


# --- settings ------------------------------------------------------------------------------------


class Followed:
    """The throttles of broker 1, and the images that they follow."""

    def __init__(self, settings: NodeSettings | None = None) -> None:
        self.metadata = Metadata()
        self.metadata.create("t", 1)
        self.quotas = ReplicationQuotas(settings or NodeSettings())
        self.image = MetadataImage()
        self.follow()

    def follow(self) -> bool:
        old, self.image = self.image, self.metadata.image
        return self.quotas.follow(old, self.image)

    def set(self, kind: ResourceType, resource: str, name: str, value: str | None) -> bool:
        self.metadata.configure(kind, resource, name, value)
        return self.follow()


def test_a_throttle_is_of_the_replicas_and_brokers_that_are_named() -> None:
    followed = Followed()
    leader, follower = followed.quotas.leader, followed.quotas.follower
    assert not followed.set(ResourceType.TOPIC, "t", "retention.ms", "5"), "no throttle"
    assert followed.set(ResourceType.TOPIC, "t", LEADERS, "0:1,1:2")
    assert not leader.is_throttled("t", 0), "there is no limit yet"
    assert followed.set(ResourceType.BROKER, "1", LEADER_RATE, "5000")
    assert (leader.limit, follower.limit) == (5_000, UNLIMITED)
    assert [leader.is_throttled("t", each) for each in (0, 1)] == [True, False]
    assert not leader.is_throttled("u", 0)
    followed.set(ResourceType.TOPIC, "t", LEADERS, "*")
    assert [leader.is_throttled("t", each) for each in (0, 1)] == [True, True]
    assert not followed.set(ResourceType.BROKER, "2", LEADER_RATE, "7"), "another broker's"
    assert followed.set(ResourceType.TOPIC, "t", LEADERS, None)
    assert not leader.is_throttled("t", 0)


def test_a_brokers_own_rate_comes_before_that_of_all_and_what_it_was_started_with() -> None:
    followed = Followed(NodeSettings(follower_throttled_rate=3))
    follower = followed.quotas.follower
    assert follower.limit == 3
    followed.set(ResourceType.BROKER, CLUSTER_DEFAULT, FOLLOWER_RATE, "200")
    assert follower.limit == 200
    followed.set(ResourceType.BROKER, "1", FOLLOWER_RATE, "100")
    assert follower.limit == 100
    followed.set(ResourceType.BROKER, "1", FOLLOWER_RATE, "much")
    assert follower.limit == 200, "what cannot be read is passed over"


def test_a_topic_that_is_deleted_is_forgotten() -> None:
    followed = Followed()
    followed.set(ResourceType.BROKER, "1", FOLLOWER_RATE, "100")
    followed.set(ResourceType.TOPIC, "t", FOLLOWERS, "*")
    assert followed.quotas.follower.is_throttled("t", 0)
    followed.metadata.remove(1)
    followed.follow()
    assert not followed.quotas.follower.is_throttled("t", 0)


def test_a_scrape_shows_what_passed_and_the_limit() -> None:
    followed = Followed(NodeSettings(leader_throttled_rate=1000))
    followed.quotas.leader.record(500, 10_000)
    shown = {
        (family.name, sample.labels["role"]): sample.value
        for family in followed.quotas.families(10_500)
        for sample in family.samples
    }
    assert shown == {
        ("dlog_replication_throttled_bytes", "leader"): 500,
        ("dlog_replication_throttled_bytes", "follower"): 0,
        ("dlog_replication_throttled_bytes_per_second", "leader"): 500,
        ("dlog_replication_throttled_bytes_per_second", "follower"): 0,
        ("dlog_replication_throttled_limit_bytes_per_second", "leader"): 1000,
    }
