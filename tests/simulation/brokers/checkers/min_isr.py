"""Nothing is committed while fewer replicas are in sync than the topic wants."""

from typing import TYPE_CHECKING

from distributedlog.controller.cluster_settings import min_insync_replicas
from distributedlog.replication.partition import Partition
from tests.simulation.brokers.checkers import BrokersChecker

if TYPE_CHECKING:
    from tests.simulation.brokers.host import BrokerHost


class MinIsr(BrokersChecker):
    name = "min ISR"

    def on_commit(self, host: "BrokerHost", partition: Partition, before: int, after: int) -> None:
        view = partition.view
        if view is None:
            return
        wanted = min(min_insync_replicas(host.replica.image, partition.topic), len(view.replicas))
        if len(view.isr) < wanted:
            self.fail(
                f"node {host.node_id} has committed {partition.key} up to {after} with the ISR {view.isr}; "
                f"{wanted} replicas have to be in sync"
            )
