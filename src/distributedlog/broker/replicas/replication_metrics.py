"""What a scrape shows of replication: who is in sync, how far followers are behind, what was fetched, and
what went wrong.

| counted over                        | what                                                           |
|-------------------------------------|----------------------------------------------------------------|
| the partitions that this broker leads | under-replicated, under and at min ISR, lag of followers, what |
|                                       | open transactions hold back                                    |
| the metadata image, of all partitions | offline ones, internal topics with too few replicas            |
| this broker's own work              | changes of ISRs, fetches, truncations                          |

The first are counted at each scrape.  The second are the same until there is another image, and are counted
once for each.
"""

from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import Final, NamedTuple

from distributedlog.broker.observability.metrics import Family, FamilyKind, Sample, one
from distributedlog.broker.replicas.isr_changes import IsrChanges
from distributedlog.broker.replicas.partitions import PartitionSet
from distributedlog.broker.replicas.replica_fetcher_manager import ReplicaFetcherManager
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.records import NO_LEADER
from distributedlog.model.cluster_settings import REPLICAS_WANTED
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import INTERNAL_TOPICS
from distributedlog.ports.clock import Clock
from distributedlog.replication.partition import Partition

HELD_BACK_MAX: Final = 50
"""The partitions that are named because open transactions hold back some of their records."""


class _OfImage(NamedTuple):
    offline: int
    """Partitions without a leader."""
    few_replicas: int
    """Internal topics that have partitions with fewer replicas than there could be."""


class _OfLeader:
    """What this broker sees of the partitions that it leads."""

    def __init__(self) -> None:
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self.lag_records_max = 0
        self.lag_ms_max = 0
        self.unstable_records: dict[TopicPartition, int] = {}
        """What open transactions hold back, where they hold back anything."""

    def add(self, partition: Partition, now_ms: int) -> None:
        view = partition.view
        if view is None:
            return
        self.under_replicated += len(view.isr) < view.replication_factor
        self.under_min_isr += view.is_under_min_isr
        self.at_min_isr += view.is_at_min_isr
        unstable = partition.high_watermark - partition.last_stable_offset
        if unstable > 0:
            self.unstable_records[partition.key] = unstable
        end_offset = partition.log_end_offset
        for follower in view.followers.values():
            if follower.log_end_offset >= 0:
                self.lag_records_max = max(self.lag_records_max, end_offset - follower.log_end_offset)
            if follower.caught_up_ms is not None and follower.log_end_offset < end_offset:
                self.lag_ms_max = max(self.lag_ms_max, now_ms - follower.caught_up_ms)


class ReplicationMetrics:
    """Counts when it is asked.  Lives on the data loop."""

    def __init__(
        self,
        partitions: PartitionSet,
        fetchers: ReplicaFetcherManager,
        isr_changes: IsrChanges,
        image: Callable[[], MetadataImage],
        clock: Clock,
    ) -> None:
        self._partitions = partitions
        self._fetchers = fetchers
        self._isr_changes = isr_changes
        self._image = image
        self._clock = clock
        self._counted: tuple[MetadataImage, _OfImage] | None = None

    def families(self) -> Iterator[Family]:
        yield from self._families_of_leader()
        yield from self._families_of_image()
        yield from self._families_of_work()

    def _families_of_leader(self) -> Iterator[Family]:
        now_ms = self._clock.monotonic_ms()
        seen = _OfLeader()
        for partition in self._partitions:
            seen.add(partition, now_ms)
        gauge = FamilyKind.GAUGE
        yield one(
            gauge,
            "dlog_under_replicated_partitions",
            "Partitions led by this broker of which not all replicas are in sync.",
            seen.under_replicated,
        )
        yield one(
            gauge,
            "dlog_under_min_isr_partitions",
            "Partitions led by this broker with fewer replicas in sync than min.insync.replicas.",
            seen.under_min_isr,
        )
        yield one(
            gauge,
            "dlog_at_min_isr_partitions",
            "Partitions led by this broker that refuse acks=all when one more replica falls out of sync.",
            seen.at_min_isr,
        )
        yield one(
            gauge,
            "dlog_replica_lag_records_max",
            "How many records the furthest follower of a partition led by this broker is behind.",
            seen.lag_records_max,
        )
        yield one(
            gauge,
            "dlog_replica_lag_seconds_max",
            "How long ago a follower that is behind had all that its leader, this broker, has.",
            seen.lag_ms_max / 1000,
        )
        yield one(
            gauge,
            "dlog_last_stable_offset_lag_records_max",
            "Committed records of a partition led by this broker that open transactions hold back, at most.",
            max(seen.unstable_records.values(), default=0),
        )
        most = nlargest(HELD_BACK_MAX, seen.unstable_records.items(), key=lambda each: each[1])
        yield Family(
            gauge,
            "dlog_last_stable_offset_lag_records",
            f"Committed records that open transactions hold back, in the {HELD_BACK_MAX} worst partitions.",
            [
                Sample({"topic": key.topic, "partition": str(key.partition)}, unstable)
                for key, unstable in most
            ],
        )

    def _families_of_image(self) -> Iterator[Family]:
        image = self._image()
        if self._counted is None or self._counted[0] is not image:
            self._counted = image, count_in_image(image)
        found = self._counted[1]
        yield one(
            FamilyKind.GAUGE,
            "dlog_offline_partitions",
            "Partitions of the whole cluster that have no leader, as far as this broker knows.",
            found.offline,
        )
        yield one(
            FamilyKind.GAUGE,
            "dlog_internal_topics_with_few_replicas",
            f"Internal topics with fewer than {REPLICAS_WANTED} replicas though there are brokers enough.",
            found.few_replicas,
        )

    def _families_of_work(self) -> Iterator[Family]:
        counter = FamilyKind.COUNTER
        counts, changes = self._fetchers.counts, self._isr_changes
        yield one(counter, "dlog_isr_shrinks", "Replicas that fell out of an ISR.", changes.shrinks)
        yield one(counter, "dlog_isr_expands", "Replicas that joined an ISR.", changes.expands)
        yield one(counter, "dlog_replica_fetches", "Fetches sent to leaders.", counts.fetches)
        yield one(
            counter,
            "dlog_replica_fetched_bytes",
            "Bytes of records taken from leaders.",
            counts.appended_bytes,
        )
        yield one(counter, "dlog_replica_truncations", "Logs truncated to a leader's.", counts.truncations)
        yield one(
            counter,
            "dlog_replica_truncations_below_high_watermark",
            "Those that removed committed records: an unclean election.",
            counts.truncations_below_hw,
        )
        yield one(
            counter,
            "dlog_replica_corrupt_batches",
            "Fetched batches whose checksum was wrong.",
            counts.corrupt_batches,
        )


def count_in_image(image: MetadataImage) -> _OfImage:
    wanted = min(REPLICAS_WANTED, len(image.brokers))
    offline = few_replicas = 0
    for topic in image.topics.values():
        offline += sum(each.leader == NO_LEADER for each in topic.partitions.values())
        few_replicas += topic.name in INTERNAL_TOPICS and any(
            len(each.replicas) < wanted for each in topic.partitions.values()
        )
    return _OfImage(offline, few_replicas)
