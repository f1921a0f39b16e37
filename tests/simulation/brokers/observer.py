"""Tells the checkers what happens inside the brokers: it listens to the signals of their partitions."""

from functools import partial
from typing import TYPE_CHECKING

from distributedlog.broker.data_plane import DataPlane
from distributedlog.replication.partition import Partition
from tests.reliability.history import Place
from tests.simulation.brokers.checkers import BrokersChecker, PartitionKey, key_of
from tests.simulation.brokers.checkers.committed_by_isr import CommittedByIsr
from tests.simulation.brokers.checkers.identical_replicas import IdenticalReplicas
from tests.simulation.brokers.checkers.isr_has_committed import IsrHasCommitted
from tests.simulation.brokers.checkers.log_starts import LogStarts
from tests.simulation.brokers.checkers.min_isr import MinIsr
from tests.simulation.brokers.checkers.moves_arrive import MovesArrive
from tests.simulation.brokers.checkers.no_committed_truncation import NoCommittedTruncation
from tests.simulation.brokers.checkers.one_leader import OneLeader
from tests.simulation.brokers.checkers.progress import Progress
from tests.simulation.brokers.checkers.rising_leader_epochs import RisingLeaderEpochs
from tests.simulation.brokers.checkers.same_producers import SameProducers

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster
    from tests.simulation.brokers.host import BrokerHost


class Observer:
    def __init__(self, cluster: "BrokersCluster") -> None:
        self._cluster = cluster
        self.identical = IdenticalReplicas(cluster)
        self.progress = Progress(cluster)
        self.log_starts = LogStarts(cluster)
        self.checkers: list[BrokersChecker] = [
            OneLeader(cluster),
            self.identical,
            CommittedByIsr(cluster),
            IsrHasCommitted(cluster),
            MinIsr(cluster),
            NoCommittedTruncation(cluster),
            RisingLeaderEpochs(cluster),
            self.log_starts,
            SameProducers(cluster),
            self.progress,
            MovesArrive(cluster),
        ]
        self._leaderships: dict[tuple[int, int, PartitionKey, int], None] = {}
        self._high_watermarks: dict[tuple[int, int, PartitionKey], int] = {}

    @property
    def committed_batches(self) -> int:
        return self.identical.batches

    def opened(self, host: "BrokerHost", plane: DataPlane) -> None:
        signals = plane.partitions.signals
        signals.state_changed.append(partial(self._role, host))
        signals.commit_advanced.append(partial(self._commit, host, host.life))
        signals.log_changed.append(partial(self._log_change, host))
        plane.partitions.faults.on_fault(self.progress.note_fault)
        for checker in self.checkers:
            checker.on_opened(host)

    def _role(self, host: "BrokerHost", partition: Partition) -> None:
        began = (host.node_id, host.life, key_of(partition), partition.leader_epoch)
        if partition.is_leader and began not in self._leaderships:
            self._leaderships[began] = None
            place = Place(partition.topic, partition.partition_id)
            self._cluster.clients_side.elected(host, place, partition.leader_epoch)
            self._cluster.faults.leader_began(host, partition)
        for checker in self.checkers:
            checker.on_role(host, partition)

    def _log_change(self, host: "BrokerHost", partition: Partition) -> None:
        for checker in self.checkers:
            checker.on_log_change(host, partition)

    def _commit(self, host: "BrokerHost", life: int, partition: Partition) -> None:
        place = (host.node_id, life, key_of(partition))
        before, after = self._high_watermarks.get(place, partition.log_start_offset), partition.high_watermark
        self._high_watermarks[place] = after
        for checker in self.checkers:
            checker.on_commit(host, partition, before, after)
        self._cluster.faults.committed(host, partition)

    def before_crash(self, host: "BrokerHost") -> None:
        if host.data is not None:
            for checker in self.checkers:
                checker.on_crash(host)

    def look(self) -> None:
        for host in self._cluster.hosts.values():
            for partition in host.partitions():
                if partition.failure is None and not partition.is_stopped and host.data_disk.is_powered:
                    for checker in self.checkers:
                        checker.on_look(host, partition)

    def healed(self) -> None:
        for checker in self.checkers:
            checker.on_healed()

    def finish(self) -> None:
        self.look()
        for checker in self.checkers:
            checker.finish()
