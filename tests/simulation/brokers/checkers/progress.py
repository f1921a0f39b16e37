"""Every partition has a leader and all living replicas in sync some seconds after everything has healed;
producers are acknowledged and all is replicated."""

from typing import TYPE_CHECKING

from tests.simulation.brokers.checkers import BrokersChecker, key_of

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster


class Progress(BrokersChecker):
    name = "progress"

    def __init__(self, cluster: "BrokersCluster") -> None:
        super().__init__(cluster)
        self.healed_us = 0

    def on_healed(self) -> None:
        self.healed_us = self.cluster.now_us

    def finish(self) -> None:
        image = self.cluster.steps[-1].after
        living = {host.broker_id for host in self.cluster.hosts.values() if host.is_up}
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                where = f"{topic.name}-{number}"
                wanted = living.intersection(partition.replicas)
                if partition.leader not in living:
                    self.fail(f"{where} has no leader: {partition}")
                if not wanted <= set(partition.isr):
                    self.fail(f"{where} has the ISR {partition.isr}, and {sorted(wanted)} live")
        self._check_ends()
        self._check_acknowledged()

    def _check_ends(self) -> None:
        ends: dict[object, set[tuple[int, int, int]]] = {}
        for host in self.cluster.hosts.values():
            for each in host.partitions():
                bounds = (each.log_start_offset, each.log_end_offset, each.high_watermark)
                ends.setdefault(key_of(each), set()).add(bounds)
        for key, found in ends.items():
            if len(found) > 1 or any(end != high_watermark for _, end, high_watermark in found):
                self.fail(f"the replicas of {key} have the starts, ends and high watermarks {sorted(found)}")

    def _check_acknowledged(self) -> None:
        acknowledged = self.cluster.history.acknowledged_since(self.healed_us)
        missing = [str(place) for place in self.cluster.clients_side.places if place not in acknowledged]
        if missing:
            self.fail(f"nothing was acknowledged in {', '.join(missing)} since everything healed")
