"""What goes wrong with whole brokers, drawn from the seed of a run.

A *flavour* decides the kind of run: `mixed` draws from everything; `leaders` keeps hitting the leaders of
partitions, just when they have something that others lack; `disks` draws power cuts, failing, slow and full
disks; `network` cuts and breaks; `calm` loses messages now and then.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from distributedlog.controller.image import MetadataImage
from distributedlog.replication.partition import Partition
from tests.reliability.history import Place
from tests.simulation.brokers.cluster import BrokersCluster
from tests.simulation.brokers.host import BrokerHost
from tests.simulation.common_faults import CRASH_MODES, NEVER
from tests.simulation.control_faults import ControlFaults
from tests.simulation.disk import Operation

FLAVOURS = {"mixed": 6, "leaders": 5, "disks": 3, "network": 3, "calm": 1}
_PERIOD_US = {
    "mixed": (500_000, 3_000_000),
    "leaders": (300_000, 2_500_000),
    "disks": (500_000, 3_000_000),
    "network": (300_000, 2_500_000),
    "calm": (2_000_000, 6_000_000),
}


class BrokersFaults(ControlFaults):
    cluster: BrokersCluster
    periods_us: Mapping[str, tuple[int, int]] = _PERIOD_US

    def __init__(self, cluster: BrokersCluster) -> None:
        super().__init__(cluster)
        self._alone_until_us = 0
        self._epochs_without_disk: set[int] = set()
        """The epochs of brokers whose disk is gone; they are registered until they come back with another."""
        """Until then, and until all replicas are in sync again, nothing else strikes."""
        self._by_flavour: dict[str, list[tuple[int, Callable[[], None]]]] = {
            "mixed": [
                (5, self.nothing),
                (3, self.crash_one),
                (1, self.crash_many),
                (1, self.cut_all_power),
                (2, self.cut_power),
                (2, self.isolate_one),
                (2, self.split_minority),
                (2, self.one_way),
                (1, self.bridge),
                (1, self.flap),
                (2, self.lose_messages),
                (2, self.slow_network),
                (2, self.break_streams),
                (2, self.cut_off_clients),
                (2, self.pause),
                (1, self.fail_disk),
                (1, self.slow_disk),
                (1, self.fill_disk),
                (1, self.stick_data_loop),
                (2, self.leave_and_return),
                (1, self.jump_wall_clock),
                (2, self.start_twin),
                (1, self.replace_broker_disk),
            ],
            "leaders": [
                (3, self.crash_partition_leader),
                (3, self.isolate_partition_leader),
                (3, self.pause_partition_leader),
                (2, self.leave_and_return),
                (1, self.break_streams),
                (1, self.crash_leader),
                (1, self.slow_disk),
                (1, self.start_twin),
                (1, self.nothing),
            ],
            "disks": [
                (3, self.cut_power),
                (2, self.cut_all_power),
                (2, self.fail_disk),
                (3, self.slow_disk),
                (2, self.fill_disk),
                (2, self.crash_one),
                (2, self.replace_broker_disk),
                (1, self.nothing),
            ],
            "network": [
                (2, self.isolate_one),
                (2, self.isolate_partition_leader),
                (2, self.split_minority),
                (3, self.one_way),
                (2, self.bridge),
                (2, self.flap),
                (2, self.lose_messages),
                (2, self.slow_network),
                (3, self.break_streams),
                (2, self.cut_off_clients),
                (1, self.nothing),
            ],
            "calm": [(3, self.nothing), (1, self.lose_messages), (1, self.break_streams)],
        }

    # --- when ----------------------------------------------------------------------------------

    def begin(self) -> None:
        self.after(3_000_000, self._strike)

    def _strike(self) -> None:
        choices = self._by_flavour[self.cluster.flavour]
        weights = [weight for weight, _ in choices]
        for _, fault in self.chance.choices(choices, weights, k=self.chance.choice((1, 1, 2))):
            if self._may_strike():
                fault()
        low_us, high_us = self.periods_us[self.cluster.flavour]
        self.after(self.chance.randrange(low_us, high_us), self._strike)

    def heal(self) -> None:
        """Ends every fault."""
        self.is_healing = True
        self.say("everything heals")
        self.world.network.calm()
        if self.cluster.twin.is_up:
            self.cluster.twin.crash("drop")
        for host in self.cluster.hosts.values():
            host.clock.set_rate(max(host.clock.rate_ppm, 900_000))
            for disk in (host.disk, host.data_disk):
                disk.heal()
                disk.fail_after(NEVER)
                disk.capacity_bytes = None
            host.disk_slowness = 1
            host.unstick()
            host.release_images()
            if host.paused:
                host.resume()
            if not host.is_up:
                host.start()
        self.cluster.loop.call_after(1_000_000, self._supervise)

    # --- who -----------------------------------------------------------------------------------

    def _machine(self) -> BrokerHost | None:
        return cast(BrokerHost | None, self.one())

    def _leader_of_some(self) -> BrokerHost | None:
        """One that leads a partition, as the newest image has it."""
        steps = self.cluster.steps
        leaders = (
            {each.leader for topic in steps[-1].after.topics.values() for each in topic.partitions.values()}
            if steps
            else set()
        )
        known = [host for host in self.cluster.hosts.values() if host.broker_id in leaders and host.is_up]
        return self.chance.choice(known) if known else None

    def crash_partition_leader(self) -> None:
        host = self._leader_of_some()
        if host is not None:
            self.say("leader crashes", host.node_id)
            self.crash(host)

    def isolate_partition_leader(self) -> None:
        host = self._leader_of_some()
        if host is not None:
            self.isolate(host)

    def pause_partition_leader(self) -> None:
        host = self._leader_of_some()
        if host is not None and not host.paused:
            host.pause()
            self.after(self.duration_us(), lambda: host.resume() if host.paused else None)

    def leader_began(self, host: BrokerHost, partition: Partition) -> None:
        """A broker begins to lead a partition."""

    def committed(self, host: BrokerHost, partition: Partition) -> None:
        """The high watermark of a replica rose."""

    def deleted(self, place: Place) -> None:
        """It was acknowledged that records are deleted."""

    # --- what can be borne only alone ------------------------------------------------------------

    def _may_strike(self) -> bool:
        if self._alone_until_us and self.cluster.now_us > self._alone_until_us and self._is_whole():
            self._alone_until_us = 0
        return not self._alone_until_us

    def _strike_alone(self, duration_us: int) -> bool:
        """Returns whether everybody is well; then nothing else strikes for a while."""
        hosts = self.cluster.hosts.values()
        if not self._is_whole() or not all(host.is_up and not host.paused for host in hosts):
            return False
        self._alone_until_us = self.cluster.now_us + duration_us
        for host in hosts:
            host.data_disk.heal()
            host.data_disk.fail_after(NEVER)
        return True

    def _is_whole(self) -> bool:
        """Whether every replica is in sync, so that one disk may be missed."""
        if not self.cluster.steps:
            return False
        image = self.cluster.steps[-1].after
        return not self._is_disk_missed(image) and all(
            set(each.isr) == set(each.replicas)
            for topic in image.topics.values()
            for each in topic.partitions.values()
        )

    def _is_disk_missed(self, image: MetadataImage) -> bool:
        """Whether a disk that is gone for good, of a twin or replaced, still counts as in sync."""
        twin = self.cluster.twin
        return any(
            broker.epoch in self._epochs_without_disk
            or (not twin.is_up and broker.endpoints[0].host == f"node-{twin.node_id}")
            for broker in image.brokers.values()
        )

    def start_twin(self) -> None:
        """A second process under a broker's id, with a disk of its own, while the first one is paused."""
        twin = self.cluster.twin
        first = self.cluster.hosts[twin.broker_id]
        paused_us, twin_us = self.duration_us() + 3_000_000, 2 * self.duration_us() + 3_000_000
        if twin.is_up or not self._strike_alone(max(paused_us, twin_us) + 2_000_000):
            return
        self.say("twin", twin.broker_id)
        first.pause()
        twin.start()
        # Others may leave the ISR until the twin is registered in the first one's place.
        self.cluster.observer.progress.note_disk_replaced(twin.broker_id)
        self.after(paused_us, lambda: first.resume() if first.paused else None)
        self.after(twin_us, partial(self._end_twin, twin.life))
        self.after(max(paused_us, twin_us) + 1_000_000, lambda: self.restart(first))

    def replace_broker_disk(self) -> None:
        """A broker comes back with an empty disk; only one that can be missed."""
        if self._strike_alone(4_000_000):
            before = {host: host.data_disk for host in self.cluster.hosts.values()}
            super().replace_broker_disk()
            known = self.cluster.steps[-1].after.brokers
            gone = [host.broker_id for host, disk in before.items() if host.data_disk is not disk]
            self._epochs_without_disk.update(known[each].epoch for each in gone if each in known)

    # --- disks ---------------------------------------------------------------------------------

    def cut_power(self) -> None:
        """The machine dies between two steps of a write to its logs."""
        host = self._machine()
        if host is not None:
            steps = self.chance.randrange(12)
            self.say("power cut", (host.node_id, "after", steps, "steps"))
            host.data_disk.fail_after(steps)
            self.after(self.duration_us(), lambda: self._power_on(host))

    def _power_on(self, host: BrokerHost) -> None:
        host.data_disk.fail_after(NEVER)
        self.restart(host)

    def cut_all_power(self) -> None:
        self.say("power cut of all")
        mode = self.chance.choice(CRASH_MODES)
        for host in self.cluster.hosts.values():
            if host.is_up:
                host.crash(mode)
            self._restart_later(host)

    def fail_disk(self) -> None:
        host = self._machine()
        if host is not None:
            operation: Operation = self.chance.choice(("sync", "sync", "write"))
            self.say(f"{operation} fails", host.node_id)
            host.data_disk.inject(operation, after=self.chance.randrange(4))
            self.after(self.duration_us(), lambda: self._mend_data(host))

    def _mend_data(self, host: BrokerHost) -> None:
        host.data_disk.heal()
        self.restart(host)

    def fill_disk(self) -> None:
        host = self._machine()
        if host is not None:
            self.say("disk full", host.node_id)
            host.data_disk.capacity_bytes = host.data_disk.used_bytes + self.chance.randrange(2_000)
            self.after(self.duration_us(), lambda: self._empty_disk(host))

    def _empty_disk(self, host: BrokerHost) -> None:
        host.data_disk.capacity_bytes = None

    # --- the network ---------------------------------------------------------------------------

    def break_streams(self) -> None:
        share = self.chance.choice((0.1, 0.5, 1.0))
        self.say("streams break", self.cluster.streams.break_some(share))

    def cut_off_clients(self) -> None:
        from tests.simulation.brokers.clients import CLIENTS_ID

        host = self.one()
        if host is not None:
            self.say("cut off from clients", host.node_id)
            self.world.network.split([host.node_id], [CLIENTS_ID])
            self._then_reconnect()
