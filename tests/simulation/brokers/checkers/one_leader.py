"""No two processes lead a partition in the same leader epoch."""

from typing import TYPE_CHECKING

from distributedlog.replication.partition import Partition
from tests.simulation.brokers.checkers import BrokersChecker, PartitionKey, key_of

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster
    from tests.simulation.brokers.host import BrokerHost


class OneLeader(BrokersChecker):
    name = "one leader"

    def __init__(self, cluster: "BrokersCluster") -> None:
        super().__init__(cluster)
        self._leaders: dict[tuple[PartitionKey, int], tuple[int, int]] = {}

    def on_role(self, host: "BrokerHost", partition: Partition) -> None:
        if not partition.is_leader:
            return
        process = (host.node_id, host.life)
        first = self._leaders.setdefault((key_of(partition), partition.leader_epoch), process)
        if first != process:
            self.fail(
                f"{partition.key} has in epoch {partition.leader_epoch} the leaders {first} and {process} "
                "(node, life)"
            )
