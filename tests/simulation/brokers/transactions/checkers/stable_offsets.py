"""Every last stable offset moves on within the transaction timeout, once everything has healed."""

from typing import TYPE_CHECKING, Final

from distributedlog.replication.partition import Partition
from tests.simulation.brokers.checkers import BrokersChecker, PartitionKey, key_of

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster
    from tests.simulation.brokers.host import BrokerHost

GRACE_US: Final = 10_000_000
"""The transaction timeout by a slow clock, after those who died have been missed and replaced."""


class StableOffsets(BrokersChecker):
    name = "hanging LSO"

    def __init__(self, cluster: "BrokersCluster") -> None:
        super().__init__(cluster)
        self._healed_us: int | None = None
        self._stood_since_us: dict[PartitionKey, tuple[int, int]] = {}

    def on_healed(self) -> None:
        self._healed_us = self.cluster.now_us

    def on_look(self, host: "BrokerHost", partition: Partition) -> None:
        if self._healed_us is None or not partition.is_leader:
            return
        key, stable = key_of(partition), partition.last_stable_offset
        offset, since_us = self._stood_since_us.get(key, (-1, 0))
        if stable == partition.high_watermark or offset != stable:
            self._stood_since_us[key] = stable, self.cluster.now_us
        elif self.cluster.now_us - since_us > GRACE_US:
            stood_s = (self.cluster.now_us - since_us) / 1e6
            self.fail(
                f"{partition.key} has on node {host.node_id} the last stable offset {stable} for {stood_s}s; "
                f"the high watermark is {partition.high_watermark}"
            )

    def finish(self) -> None:
        for host in self.cluster.hosts.values():
            for each in host.partitions():
                if each.last_stable_offset != each.high_watermark:
                    self.fail(
                        f"{each.key} has on node {host.node_id} the last stable offset "
                        f"{each.last_stable_offset}, and the high watermark {each.high_watermark}"
                    )
