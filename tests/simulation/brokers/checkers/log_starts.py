"""Log starts only rise, and only as far as somebody had records deleted."""

from typing import TYPE_CHECKING

from distributedlog.replication.partition import Partition
from tests.reliability.history import Place
from tests.simulation.brokers.checkers import BrokersChecker

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster
    from tests.simulation.brokers.host import BrokerHost


class LogStarts(BrokersChecker):
    name = "log starts"

    def __init__(self, cluster: "BrokersCluster") -> None:
        super().__init__(cluster)
        self._asked: dict[Place, int] = {}
        """The highest offset below which somebody wanted records deleted."""

    def asked(self, place: Place, offset: int) -> None:
        self._asked[place] = max(offset, self._asked.get(place, 0))

    def on_look(self, host: "BrokerHost", partition: Partition) -> None:
        start = partition.log_start_offset
        asked = self._asked.get(Place(partition.topic, partition.partition_id), 0)
        if start > asked:
            self.fail(
                f"{partition.key} begins on node {host.node_id} at {start}; nobody had records deleted above "
                f"{asked}"
            )
