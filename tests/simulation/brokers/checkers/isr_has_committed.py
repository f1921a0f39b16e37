"""Whoever is in the ISR, or eligible to lead, has all that was ever committed.

Any of them may be elected at any moment, so a log that is shorter for a moment is a loss that needs only a
crash at the wrong time.  A process counts in the epoch in which it is registered: of one that has just
restarted the controller does not know yet.
"""

from typing import TYPE_CHECKING

from distributedlog.replication.partition import Partition
from tests.simulation.brokers.checkers import BrokersChecker, key_of

if TYPE_CHECKING:
    from tests.simulation.brokers.host import BrokerHost


class IsrHasCommitted(BrokersChecker):
    name = "the ISR has what is committed"

    def on_look(self, host: "BrokerHost", partition: Partition) -> None:
        self._check(host, partition)

    def on_log_change(self, host: "BrokerHost", partition: Partition) -> None:
        self._check(host, partition)

    def _check(self, host: "BrokerHost", partition: Partition) -> None:
        image = self.cluster.steps[-1].after
        topic, broker = image.topics.get(partition.topic_id), image.brokers.get(host.broker_id)
        state = None if topic is None else topic.partitions.get(partition.partition_id)
        if state is None or broker is None or broker.epoch != host.lifecycle.epoch:
            return
        if self.cluster.twin.is_up or host.broker_id not in (*state.isr, *state.elr):
            return
        committed = self.cluster.observer.identical.committed_end_of(key_of(partition))
        if partition.log_end_offset < committed:
            self.fail(
                f"{partition.key} on node {host.node_id} ends at {partition.log_end_offset}, and {committed} "
                f"is committed; the ISR is {state.isr}, eligible are {state.elr}"
            )
