"""What goes wrong with whole brokers, and what hits the coordinators of transactions most.

The flavour `coordinators` keeps hitting those who lead a partition of `__transaction_state` or of
`__consumer_offsets`; the others are those of `brokers.faults`.
"""

from collections.abc import Mapping

from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.simulation.brokers import faults
from tests.simulation.brokers.cluster import BrokersCluster
from tests.simulation.brokers.faults import BrokersFaults
from tests.simulation.brokers.host import BrokerHost

FLAVOURS = {**faults.FLAVOURS, "coordinators": 6}


class TransactionFaults(BrokersFaults):
    periods_us: Mapping[str, tuple[int, int]] = {
        **BrokersFaults.periods_us,
        "coordinators": (300_000, 2_500_000),
    }

    def __init__(self, cluster: BrokersCluster) -> None:
        super().__init__(cluster)
        self._by_flavour["coordinators"] = [
            (4, self.crash_coordinator),
            (4, self.isolate_coordinator),
            (4, self.pause_coordinator),
            (2, self.crash_partition_leader),
            (2, self.break_streams),
            (1, self.leave_and_return),
            (1, self.cut_power),
            (1, self.cut_off_clients),
            (1, self.nothing),
        ]

    def _coordinator(self) -> BrokerHost | None:
        steps = self.cluster.steps
        if not steps:
            return None
        topics = [steps[-1].after.topic_named(name) for name in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC)]
        leaders = {each.leader for topic in topics if topic is not None for each in topic.partitions.values()}
        known = [host for host in self.cluster.hosts.values() if host.broker_id in leaders and host.is_up]
        return self.chance.choice(known) if known else None

    def crash_coordinator(self) -> None:
        host = self._coordinator()
        if host is not None:
            self.say("coordinator crashes", host.node_id)
            self.crash(host)

    def isolate_coordinator(self) -> None:
        host = self._coordinator()
        if host is not None:
            self.isolate(host)

    def pause_coordinator(self) -> None:
        host = self._coordinator()
        if host is not None and not host.paused:
            host.pause()
            self.after(self.duration_us(), lambda: host.resume() if host.paused else None)
