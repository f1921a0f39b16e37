"""The leader epochs of a log rise, and so do the offsets at which they begin; no batch is of a later epoch
than its replica knows."""

from itertools import pairwise
from typing import TYPE_CHECKING

from distributedlog.replication.partition import Partition
from tests.simulation.brokers.checkers import BrokersChecker

if TYPE_CHECKING:
    from tests.simulation.brokers.host import BrokerHost


class RisingLeaderEpochs(BrokersChecker):
    name = "rising leader epochs"

    def on_look(self, host: "BrokerHost", partition: Partition) -> None:
        entries = partition.log.epochs.entries
        for one, next_one in pairwise(entries):
            if next_one.epoch <= one.epoch or next_one.start_offset < one.start_offset:
                self.fail(f"{partition.key} on node {host.node_id} has the epochs {list(entries)}")
        if entries and entries[-1].epoch > partition.leader_epoch >= 0:
            self.fail(
                f"{partition.key} on node {host.node_id} has records of epoch {entries[-1].epoch}, and the "
                f"leader's epoch is {partition.leader_epoch}"
            )
