"""What goes wrong with a simulated control plane, drawn from its seed.

A *flavour* decides the kind of run: `mixed` draws from everything; `churn` keeps hitting controllers, just
when they have something half done; `brokers` keeps hitting brokers: restarts, twins, stuck data loops, lost
disks; `calm` has no faults but lost messages now and then.  Every fault ends by itself or when everything
heals.
"""

from collections.abc import Callable
from functools import partial

from tests.simulation.common_faults import RATE_MIN_PPM, SECOND_US
from tests.simulation.control_cluster import ControlCluster
from tests.simulation.control_host import ControlHost
from tests.simulation.member_faults import MemberFaults

FLAVOURS = {"mixed": 6, "churn": 5, "brokers": 4, "calm": 1}
_PERIOD_US = {
    "mixed": (500_000, 3_000_000),
    "churn": (200_000, 2_000_000),
    "brokers": (300_000, 2_500_000),
    "calm": (2_000_000, 6_000_000),
}


class ControlFaults(MemberFaults[ControlHost]):
    def __init__(self, cluster: ControlCluster) -> None:
        super().__init__(cluster)
        self.cluster = cluster
        self.voters_wanted = len(cluster.voters)
        self.rot_share = 0.5
        self._gone: ControlHost | None = None
        self._by_flavour: dict[str, list[tuple[int, Callable[[], None]]]] = {
            "mixed": [
                (5, self.nothing),
                (3, self.crash_one),
                (1, self.crash_many),
                (2, self.cut_power),
                (3, self.isolate_one),
                (3, self.split_minority),
                (2, self.one_way),
                (1, self.bridge),
                (1, self.flap),
                (3, self.lose_messages),
                (2, self.slow_network),
                (2, self.pause),
                (1, self.fail_disk),
                (1, self.slow_disk),
                (2, self.lose_disk),
                (2, self.transfer),
                (2, self.stick_data_loop),
                (2, self.start_twin),
                (2, self.leave_and_return),
                (1, self.replace_broker_disk),
                (1, self.jump_wall_clock),
            ],
            "churn": [
                (3, self.isolate_leader),
                (2, self.strand_leader),
                (2, self.isolate_slow_leader),
                (3, self.crash_leader),
                (2, self.pause_leader),
                (2, self.lose_many_messages),
                (1, self.slow_network),
                (2, self.transfer),
                (1, self.isolate_one),
                (1, self.heal_network),
                (1, self.nothing),
            ],
            "brokers": [
                (4, self.crash_one),
                (3, self.start_twin),
                (3, self.leave_and_return),
                (2, self.stick_data_loop),
                (2, self.replace_broker_disk),
                (2, self.pause),
                (2, self.isolate_one),
                (1, self.crash_leader),
                (1, self.lose_messages),
                (1, self.nothing),
            ],
            "calm": [(3, self.nothing), (1, self.lose_messages)],
        }

    # --- when ----------------------------------------------------------------------------------

    def begin(self) -> None:
        self.after(SECOND_US, self.repair_members)
        self.after(SECOND_US, self._strike)

    def _strike(self) -> None:
        choices = self._by_flavour[self.cluster.flavour]
        weights = [weight for weight, _ in choices]
        for _, fault in self.chance.choices(choices, weights, k=self.chance.choice((1, 1, 2))):
            fault()
        low_us, high_us = _PERIOD_US[self.cluster.flavour]
        self.after(self.chance.randrange(low_us, high_us), self._strike)

    def heal(self) -> None:
        """Ends every fault, but for one node that sometimes stays away."""
        if self.cluster.twin.is_up:
            self.cluster.twin.crash("drop")
        super().heal()
        for host in self.cluster.hosts.values():
            host.unstick()
        self.cluster.loop.call_after(SECOND_US, self.repair_members)
        self.cluster.loop.call_after(SECOND_US, self._supervise)
        if self.chance.random() < 0.5 and self.cluster.flavour != "calm":
            # Where disks are lost, a voter may already be away until it is added again.
            voters = [] if self.cluster.flavour == "mixed" else self.cluster.voters
            brokers = [node_id for node_id in self.cluster.hosts if node_id not in self.cluster.voters]
            self._gone = self.cluster.hosts[self.chance.choice([*voters, *brokers])]
            self.say("gone for good", self._gone.node_id)
            self._gone.crash("keep")

    def _supervise(self) -> None:
        """A process that ended by itself is started again."""
        for host in self.cluster.hosts.values():
            if not host.is_up and host is not self._gone:
                host.start()
        self.cluster.loop.call_after(SECOND_US, self._supervise)

    # --- controllers ---------------------------------------------------------------------------

    def isolate_slow_leader(self) -> None:
        """Not one that is slow already: what it has planned would come after the end of the run."""
        leader = self.cluster.leader()
        if leader is not None and leader.clock.rate_ppm >= RATE_MIN_PPM:
            super().isolate_slow_leader()

    # --- brokers -------------------------------------------------------------------------------

    def stick_data_loop(self) -> None:
        host = self.one()
        if host is not None:
            self.say("data loop stuck", host.node_id)
            host.stick()
            self.after(2 * self.duration_us(), host.unstick)

    def start_twin(self) -> None:
        twin = self.cluster.twin
        if not twin.is_up:
            self.say("twin", twin.broker_id)
            if twin.life == 0 and self.cluster.seed % 2:
                twin.copy_directory(self.cluster.hosts[twin.broker_id])
                self.cluster.leases_end.is_promised = False  # both have disks of one id
            twin.start()
            self.after(2 * self.duration_us(), partial(self._end_twin, twin.life))

    def _end_twin(self, life: int) -> None:
        if self.cluster.twin.life == life:
            self.cluster.twin.crash("drop")

    def leave_and_return(self) -> None:
        host = self.one()
        if host is not None:
            self.say("leaves", host.node_id)
            host.leave()
            self.after(self.duration_us() + SECOND_US, lambda: self.restart(host))

    def restart(self, host: ControlHost) -> None:
        if host.is_up:
            return
        super().restart(host)

    def replace_broker_disk(self) -> None:
        """The voter's own disk, with its vote and its log, is another."""
        host = self.one()
        if host is not None:
            self.say("broker disk replaced", host.node_id)
            host.crash("drop")
            host.replace_disk()
            self._restart_later(host)
