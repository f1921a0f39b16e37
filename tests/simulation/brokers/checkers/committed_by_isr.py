"""What a leader calls committed, every replica of its ISR has stored.

A member that is down counts with what it had stored when it fell; one whose disk was replaced, or that runs
twice, is not asked.  Nor is one whose place a twin has taken, also when the twin has fallen: the leader has
counted what the twin stored.
"""

from typing import TYPE_CHECKING

from distributedlog.replication.partition import Partition
from tests.simulation.brokers.checkers import BrokersChecker, PartitionKey, key_of

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster
    from tests.simulation.brokers.host import BrokerHost


class CommittedByIsr(BrokersChecker):
    name = "committed by the ISR"

    def __init__(self, cluster: "BrokersCluster") -> None:
        super().__init__(cluster)
        self._stored: dict[tuple[int, PartitionKey], tuple[object, int]] = {}
        """The end that a process had stored on a disk when it fell."""

    def on_crash(self, host: "BrokerHost") -> None:
        for partition in host.partitions():
            stored = (host.data_disk, partition.log.flushed_end_offset)
            self._stored[host.node_id, key_of(partition)] = stored

    def on_commit(self, host: "BrokerHost", partition: Partition, before: int, after: int) -> None:
        view = partition.view
        if view is None:
            return
        for broker_id in view.isr:
            member = self.cluster.hosts.get(broker_id)
            if member is None or self.cluster.twin.is_up or self._is_twin_registered(broker_id):
                continue
            end = self._find_end(member, key_of(partition))
            if end is not None and end < after:
                self.fail(
                    f"node {host.node_id} has committed {partition.key} up to {after} in epoch "
                    f"{partition.leader_epoch}; node {broker_id} of its ISR {view.isr} has stored {end}"
                )

    def _is_twin_registered(self, broker_id: int) -> bool:
        twin, broker = self.cluster.twin, self.cluster.steps[-1].after.brokers.get(broker_id)
        if twin.broker_id != broker_id or broker is None or not twin.life:
            return False
        return twin.lifecycle.epoch == broker.epoch

    def _find_end(self, member: "BrokerHost", key: PartitionKey) -> int | None:
        for partition in member.partitions():
            if key_of(partition) == key:
                return partition.log.flushed_end_offset
        held = self.cluster.steps[-1].after.partition(key.topic_id, key.partition)
        if held is None or member.broker_id not in held.replicas:
            return None  # a move has taken its replica, of which the leader has yet to hear
        disk, end = self._stored.get((member.node_id, key), (None, 0))
        return end if disk is member.data_disk else None
