"""Replicas that have the same log remember the same of its producers.

A retry after a failover is recognized by what the new leader remembers.  Compared is what the records that
both still have tell: who began with an empty disk does not know of those that were deleted before.
"""

from typing import TYPE_CHECKING

from distributedlog.replication.partition import Partition
from distributedlog.storage.producers import BatchMetadata
from tests.simulation.brokers.checkers import BrokersChecker, PartitionKey, key_of

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster
    from tests.simulation.brokers.host import BrokerHost

Remembered = dict[int, tuple[int, tuple[BatchMetadata, ...]]]


class SameProducers(BrokersChecker):
    name = "same producers"

    def __init__(self, cluster: "BrokersCluster") -> None:
        super().__init__(cluster)
        self._seen: dict[PartitionKey, tuple[int, int, Remembered]] = {}
        """The end and the start of the replica that was looked at last, and what it remembers."""

    def on_look(self, host: "BrokerHost", partition: Partition) -> None:
        key, end = key_of(partition), partition.log_end_offset
        if not end == partition.high_watermark == self.cluster.observer.identical.committed_end_of(key):
            return  # of the same length, it may yet have records of its own that nobody else has
        start, found = partition.log_start_offset, _remembered(partition)
        before = self._seen.get(key)
        if before is not None and before[0] == end:
            floor = max(start, before[1])
            one, other = _since(found, floor), _since(before[2], floor)
            if one != other:
                self.fail(
                    f"{partition.key} on node {host.node_id} remembers {one} of the producers at {end}, "
                    f"another replica {other}"
                )
        self._seen[key] = end, start, found


def _remembered(partition: Partition) -> Remembered:
    return {state.producer_id: (state.epoch, tuple(state.batches)) for state in partition.log.producers}


def _since(remembered: Remembered, offset: int) -> Remembered:
    found = {
        producer_id: (epoch, tuple(each for each in batches if each.first_offset >= offset))
        for producer_id, (epoch, batches) in remembered.items()
    }
    return {producer_id: each for producer_id, each in found.items() if each[1]}
