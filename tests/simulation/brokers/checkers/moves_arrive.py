"""Every move has reached its target some seconds after all has healed, and who was removed holds nothing.

Nobody asks for more than REPLICAS_MAX replicas; a partition that has more keeps some that were to be removed.
"""

from tests.simulation.brokers.checkers import BrokersChecker
from tests.simulation.brokers.movers import REPLICAS_MAX


class MovesArrive(BrokersChecker):
    name = "moves arrive"

    def finish(self) -> None:
        image = self.cluster.steps[-1].after
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                if partition.is_moving or len(partition.replicas) > REPLICAS_MAX:
                    self.fail(f"{topic.name}-{number} is not where it was moved to: {partition}")
        for host in self.cluster.hosts.values():
            for replica in host.partitions():
                held = image.partition(replica.topic_id, replica.partition_id)
                if held is None or host.broker_id not in held.replicas:
                    self.fail(f"node {host.node_id} still holds {replica.key}: {held}")
