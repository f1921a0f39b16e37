"""What a scrape shows of replication: who is in sync, what was fetched, and what went wrong."""

from collections.abc import Iterator

from distributedlog.broker.observability.metrics import Family, FamilyKind, one
from distributedlog.broker.replicas.isr_changes import IsrChanges
from distributedlog.broker.replicas.partitions import PartitionSet
from distributedlog.broker.replicas.replica_fetcher_manager import ReplicaFetcherManager


class ReplicationMetrics:
    """Counts when it is asked."""

    def __init__(
        self, partitions: PartitionSet, fetchers: ReplicaFetcherManager, isr_changes: IsrChanges
    ) -> None:
        self._partitions = partitions
        self._fetchers = fetchers
        self._isr_changes = isr_changes

    def families(self) -> Iterator[Family]:
        under_replicated = under_min_isr = 0
        lag_max = 0
        for partition in self._partitions:
            view = partition.view
            if view is None:
                continue
            under_replicated += len(partition.isr) < len(partition.replicas)
            under_min_isr += view.is_under_min_isr
            for follower in view.followers.values():
                if follower.log_end_offset >= 0:
                    lag_max = max(lag_max, partition.log_end_offset - follower.log_end_offset)
        gauge, counter = FamilyKind.GAUGE, FamilyKind.COUNTER
        yield one(
            gauge,
            "dlog_under_replicated_partitions",
            "Partitions led by this broker of which not all replicas are in sync.",
            under_replicated,
        )
        yield one(
            gauge,
            "dlog_under_min_isr_partitions",
            "Partitions led by this broker with fewer replicas in sync than min.insync.replicas.",
            under_min_isr,
        )
        yield one(
            gauge,
            "dlog_replica_lag_records_max",
            "How many records the furthest follower of a partition led by this broker is behind.",
            lag_max,
        )
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
