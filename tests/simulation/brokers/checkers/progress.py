"""Every partition has a leader and all living replicas in sync some seconds after everything has healed;
producers are acknowledged and all is replicated.

No replica starts before its leader.  One may start behind it: a deletion of records that was not acknowledged
may have reached a follower before its leader was replaced by another that knows nothing of it.  How far is
for `log_starts` to say.

A partition whose last leader told that its log is damaged or missing, when nobody else was in sync or
eligible, waits for an operator who asks for an unclean election (decision 23): nobody here does.  So does one
whose last replica in sync got another disk, its own or by a twin that was registered in its place: the broker
comes back as one that never held it.
"""

from typing import TYPE_CHECKING

from distributedlog.controller.image import Partition
from distributedlog.controller.records import NO_LEADER
from distributedlog.controller.replica_faults import Fault, ReplicaFault
from tests.reliability.history import Place
from tests.simulation.brokers.checkers import BrokersChecker, PartitionKey, key_of

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster


class Progress(BrokersChecker):
    name = "progress"

    def __init__(self, cluster: "BrokersCluster") -> None:
        super().__init__(cluster)
        self.healed_us = 0
        self._lost: set[PartitionKey] = set()

    def note_fault(self, fault: ReplicaFault) -> None:
        """A broker tells what it found of a log."""
        if fault.fault in (Fault.DAMAGED, Fault.MISSING):
            self._lost.add(PartitionKey(fault.topic_id, fault.partition_id))

    def note_disk_replaced(self, broker_id: int) -> None:
        """Nothing that this broker held is left."""
        for topic in self.cluster.steps[-1].after.topics.values() if self.cluster.steps else ():
            for number, partition in topic.partitions.items():
                if broker_id in partition.replicas:
                    self._lost.add(PartitionKey(topic.topic_id, number))

    def _waits_for_operator(self, key: PartitionKey, partition: Partition) -> bool:
        left = (*partition.isr, *partition.elr, *partition.last_known_elr)
        return partition.leader == NO_LEADER and not left and key in self._lost

    @property
    def waiting_for_operator(self) -> set[Place]:
        """Where nobody leads by right."""
        return {
            Place(topic.name, number)
            for topic in self.cluster.steps[-1].after.topics.values()
            for number, partition in topic.partitions.items()
            if self._waits_for_operator(PartitionKey(topic.topic_id, number), partition)
        }

    def on_healed(self) -> None:
        self.healed_us = self.cluster.now_us

    def finish(self) -> None:
        image = self.cluster.steps[-1].after
        living = {host.broker_id for host in self.cluster.hosts.values() if host.is_up}
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                if self._waits_for_operator(PartitionKey(topic.topic_id, number), partition):
                    continue
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
        leaders_starts: dict[object, int] = {}
        for host in self.cluster.hosts.values():
            for each in host.partitions():
                bounds = (each.log_start_offset, each.log_end_offset, each.high_watermark)
                ends.setdefault(key_of(each), set()).add(bounds)
                if each.is_leader:
                    leaders_starts[key_of(each)] = each.log_start_offset
        for key, found in ends.items():
            if key not in leaders_starts:
                continue  # whether somebody has to lead, `finish` has said
            are_equal = len({(end, high_watermark) for _, end, high_watermark in found}) == 1
            is_committed = all(end == high_watermark for _, end, high_watermark in found)
            if not are_equal or not is_committed or min(found)[0] < leaders_starts[key]:
                self.fail(
                    f"the replicas of {key} have the starts, ends and high watermarks {sorted(found)}, the "
                    f"leader starts at {leaders_starts[key]}"
                )

    def _check_acknowledged(self) -> None:
        acknowledged = self.cluster.history.acknowledged_since(self.healed_us)
        wanted = set(self.cluster.clients_side.places) - self.waiting_for_operator
        missing = sorted(str(place) for place in wanted if place not in acknowledged)
        if missing:
            self.fail(f"nothing was acknowledged in {', '.join(missing)} since everything healed")
