"""Throttles of replication (KIP-73): how fast replicas that are not in sync are brought up to date.  Pure.

    leader.replication.throttled.rate        bytes in a second, of a broker: all that it sends as a leader
    follower.replication.throttled.rate      all that it fetches as a follower
    leader.replication.throttled.replicas    of a topic: for which leaders that counts, `partition:broker` or
    follower.replication.throttled.replicas  `*`; and for which followers

Both are settings of brokers and topics that change while they run (`follow`).  Only a replica out of sync is
throttled, and only its bytes are counted: whoever is in the ISR, or is about to join it, would hold back what
is committed.

What was used drains at the rate of the limit (`Bucket`).  Nothing more is fetched or sent from when more than
BURST_MS' worth was used until QUANTUM_MS' worth of it has drained again: so a limit is spent in pieces that
are worth a request, and in the long run it is what passes, to a byte or a batch.

| asked by                         | when                  | then                                            |
|----------------------------------|-----------------------|-------------------------------------------------|
| the leader, at a replica fetch   | `find_allowance` is 0 | the partition is left out of the response       |
| the follower, before it fetches  | `wait_ms` is not 0    | the partition is left out of its fetches        |
| both, with what was sent or came | always                | `record`                                        |
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from distributedlog.broker.observability.metrics import Family, FamilyKind, Sample
from distributedlog.broker.quotas.client_quotas import Bucket
from distributedlog.controller.configs import DynamicConfigs
from distributedlog.controller.image import MetadataImage, ResourceType
from distributedlog.controller.persistent_map import changes
from distributedlog.model.config import INT64_MAX
from distributedlog.model.errors import ConfigError
from distributedlog.model.kept_settings import KEPT_SETTINGS, throttled_partitions
from distributedlog.settings.node_settings import SETTINGS, NodeSettings

UNLIMITED: Final = INT64_MAX
BURST_MS: Final = 1_000
QUANTUM_MS: Final = 100
RATE_WINDOW_SECONDS: Final = 10
LEADER: Final = "leader"
FOLLOWER: Final = "follower"

Partitions = frozenset[int] | None
"""Partitions of one topic; None: all."""


class ByteRate:
    """Bytes in a second, over the last few."""

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        self._sums: deque[tuple[int, int]] = deque()

    def add(self, size: int, now_ms: int) -> None:
        second = now_ms // 1000
        if self._sums and self._sums[-1][0] == second:
            size += self._sums.pop()[1]
        self._sums.append((second, size))
        self._forget(second)

    def _forget(self, second: int) -> None:
        while self._sums and self._sums[0][0] <= second - RATE_WINDOW_SECONDS:
            self._sums.popleft()

    def per_second(self, now_ms: int) -> float:
        self._forget(now_ms // 1000)
        if not self._sums:
            return 0.0
        seconds = max(1.0, now_ms / 1000 - self._sums[0][0])
        return sum(size for _, size in self._sums) / seconds


class ReplicationQuota:
    """The throttle of one role."""

    __slots__ = ("_rate", "_resumes_ms", "_throttled", "_used", "limit", "total_bytes")

    def __init__(self) -> None:
        self.limit = UNLIMITED
        """Bytes in a second."""
        self.total_bytes = 0
        """What was throttled, that is: counted, so far."""
        self._throttled: dict[str, Partitions] = {}
        self._used = Bucket(BURST_MS)
        self._resumes_ms = 0
        self._rate = ByteRate()

    def set_limit(self, limit: int) -> bool:
        """Returns whether it is another one.  What was used counts on."""
        if limit == self.limit:
            return False
        self.limit = limit
        self._resumes_ms = 0
        return True

    def set_throttled(self, topic: str, partitions: Partitions) -> bool:
        """Sets which partitions of a topic are throttled, of those that have a replica here; returns whether
        they are others."""
        if self._throttled.get(topic, frozenset()) == partitions:
            return False
        if partitions is None or partitions:
            self._throttled[topic] = partitions
        else:
            self._throttled.pop(topic, None)
        return True

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Returns whether the partition is, as long as its replica is not in sync."""
        if self.limit == UNLIMITED or topic not in self._throttled:
            return False
        partitions = self._throttled[topic]
        return partitions is None or partition in partitions

    def record(self, size: int, now_ms: int) -> None:
        """Counts bytes of throttled replicas."""
        self.total_bytes += size
        self._rate.add(size, now_ms)
        if self.limit <= 0:
            return
        self._used.add(size, self.limit, now_ms)
        excess_ms = self._used.excess_ms(self.limit, now_ms)
        if excess_ms >= 0:
            self._resumes_ms = now_ms + excess_ms + QUANTUM_MS

    def wait_ms(self, now_ms: int) -> int:
        """Returns how long nothing more may pass; 0: something may."""
        return BURST_MS if self.limit <= 0 else max(0, self._resumes_ms - now_ms)

    def find_allowance(self, now_ms: int) -> int:
        """Returns how many bytes may pass now."""
        if self.limit == UNLIMITED:
            return UNLIMITED
        if self.wait_ms(now_ms):
            return 0
        left_ms = min(BURST_MS, -self._used.excess_ms(self.limit, now_ms))
        return max(1, int(left_ms * self.limit / 1000))

    def per_second(self, now_ms: int) -> float:
        """Returns the rate at which throttled replicas are brought up to date."""
        return self._rate.per_second(now_ms)


class ReplicationQuotas:
    """Both throttles of one broker, as its image has them.  On the data loop."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self.by_role: Mapping[str, ReplicationQuota] = {
            LEADER: ReplicationQuota(),
            FOLLOWER: ReplicationQuota(),
        }
        self.leader = self.by_role[LEADER]
        self.follower = self.by_role[FOLLOWER]
        self._follow_rates(MetadataImage())

    def follow(self, old: MetadataImage, image: MetadataImage) -> bool:
        """Puts the settings of an image in force; returns whether any is another one."""
        if old.configs is image.configs:
            return False
        has_changed = self._follow_rates(image)
        for change in changes(old.configs, image.configs):
            kind, topic = change.key
            if kind == ResourceType.TOPIC:
                has_changed = self._follow_topic(image, topic) or has_changed
        return has_changed

    def _follow_rates(self, image: MetadataImage) -> bool:
        dynamic = DynamicConfigs(image, self._settings.node_id)
        has_changed = False
        for role, quota in self.by_role.items():
            name = f"{role}.replication.throttled.rate"
            given = [value for value, _ in dynamic.values(name)]
            limit = _read_first(name, [*given, self._settings.spelled(name) or ""])
            has_changed = quota.set_limit(limit) or has_changed
        return has_changed

    def _follow_topic(self, image: MetadataImage, topic: str) -> bool:
        has_changed = False
        own = image.settings_of(ResourceType.TOPIC, topic)
        for role, quota in self.by_role.items():
            name = f"{role}.replication.throttled.replicas"
            try:
                replicas = KEPT_SETTINGS[name].parse(own.get(name) or "")
            except ConfigError:  # of a version that did not check it
                replicas = ()
            partitions = throttled_partitions(replicas, self._settings.node_id)
            has_changed = quota.set_throttled(topic, partitions) or has_changed
        return has_changed

    def families(self, now_ms: int) -> Iterator[Family]:
        """Returns what a scrape shows."""
        roles = self.by_role.items()
        yield Family(
            FamilyKind.COUNTER,
            "dlog_replication_throttled_bytes",
            "Bytes of throttled replicas that were not in sync: sent as a leader, fetched as a follower.",
            [Sample({"role": role}, quota.total_bytes) for role, quota in roles],
        )
        yield Family(
            FamilyKind.GAUGE,
            "dlog_replication_throttled_bytes_per_second",
            "The same, in a second, over the last ten.",
            [Sample({"role": role}, quota.per_second(now_ms)) for role, quota in roles],
        )
        yield Family(
            FamilyKind.GAUGE,
            "dlog_replication_throttled_limit_bytes_per_second",
            "What may be, where there is a limit.",
            [Sample({"role": role}, quota.limit) for role, quota in roles if quota.limit != UNLIMITED],
        )


def _read_first(name: str, texts: Iterable[str]) -> int:
    """Returns the first that can be read: what brokers are given is not all checked."""
    for text in texts:
        try:
            return int(SETTINGS[name].read(text))
        except ConfigError:
            continue
    return UNLIMITED
