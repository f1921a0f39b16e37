"""What goes wrong just when it hurts replication most, beside all that `faults` draws.

A leader dies when it has committed something that its followers do not know to be committed; the next one
dies as soon as it has begun; a broker goes on by metadata that is old; a follower comes back without its log,
and its leader does not see it for a while; a leader dies when it has acknowledged that records are deleted
and a follower cannot have heard of it.
"""

from collections.abc import Mapping
from functools import partial

from distributedlog.replication.partition import Partition
from tests.reliability.history import Place
from tests.simulation.brokers import faults
from tests.simulation.brokers.checkers import PartitionKey, key_of
from tests.simulation.brokers.clients import TRIMMED
from tests.simulation.brokers.cluster import BrokersCluster
from tests.simulation.brokers.faults import BrokersFaults
from tests.simulation.brokers.host import BrokerHost
from tests.simulation.brokers.movers import MOVES
from tests.simulation.common_faults import CRASH_MODES

FLAVOURS = {**faults.FLAVOURS, "twins": 0, "deletions": 0, MOVES: 0}
"""Those that are never drawn: `twins` runs one broker twice as often as it can be borne, in `deletions`
records are deleted while a follower does not hear of it, in `moves` partitions are moved meanwhile."""


class ReplicationFaults(BrokersFaults):
    periods_us: Mapping[str, tuple[int, int]] = {
        **BrokersFaults.periods_us,
        "twins": (500_000, 2_000_000),
        "deletions": (1_000_000, 3_000_000),
        MOVES: (1_000_000, 4_000_000),
    }

    def __init__(self, cluster: BrokersCluster) -> None:
        super().__init__(cluster)
        self._next_to_fall: PartitionKey | None = None
        """The partition whose next leader falls soon after it has begun."""
        self._falls_at_commit: PartitionKey | None = None
        """The partition whose leader falls when it has next committed something."""
        self._by_flavour["mixed"] += [
            (2, self.hold_images), (2, self.fail_over_twice), (2, self.crash_at_commit),
        ]  # fmt: skip
        self._by_flavour["leaders"] += [
            (3, self.hold_images), (3, self.fail_over_twice), (4, self.crash_at_commit),
        ]  # fmt: skip
        self._by_flavour["disks"].append((3, self.return_unseen))
        self._by_flavour["twins"] = [(1, self.start_twin)]
        self._by_flavour[MOVES] = [
            each
            for each in self._by_flavour["mixed"]
            if each[1] not in (self.replace_broker_disk, self.start_twin)
        ]
        self._by_flavour["deletions"] = [(1, self.part_from_follower)]

    def _strike_alone(self, duration_us: int) -> bool:
        return all(map(self._is_settled, self.cluster.hosts.values())) and super()._strike_alone(duration_us)

    def _is_settled(self, host: BrokerHost) -> bool:
        """Whether the controller knows this very process: of one that has restarted it has yet to hear."""
        broker = self.cluster.steps[-1].after.brokers.get(host.broker_id)
        is_known = broker is not None and host.is_up and broker.epoch == host.lifecycle.epoch
        return is_known and not host.paused

    def fail_over_twice(self) -> None:
        """A leader crashes, and soon after it has begun the next one, too."""
        host = self._leader_of_some()
        led = [] if host is None else [each for each in host.partitions() if each.is_leader]
        if host is not None and led:
            chosen = self.chance.choice(led)
            self.say("two leaders are to fall", chosen.key)
            self._next_to_fall = key_of(chosen)
            host.crash(self.chance.choice(CRASH_MODES))
            self.after(self.chance.randrange(50_000, 400_000), lambda: self.restart(host))

    def leader_began(self, host: BrokerHost, partition: Partition) -> None:
        if self._next_to_fall == key_of(partition) and not self.is_healing:
            self._next_to_fall = None
            self.after(self.chance.randrange(60_000), partial(self._fall, host, host.life))

    def crash_at_commit(self) -> None:
        """A leader crashes when it has just committed something, of which its followers know nothing yet."""
        host = self._leader_of_some()
        led = [] if host is None else [each for each in host.partitions() if each.is_leader]
        if host is not None and led:
            self._falls_at_commit = key_of(self.chance.choice(led))

    def committed(self, host: BrokerHost, partition: Partition) -> None:
        if self._falls_at_commit == key_of(partition) and partition.is_leader and not self.is_healing:
            self._falls_at_commit = None
            self.after(self.chance.randrange(2_000), partial(self._fall, host, host.life))

    def _fall(self, host: BrokerHost, life: int) -> None:
        if host.is_up and host.life == life:
            self.say("leader falls", host.node_id)
            self.crash(host)

    def hold_images(self) -> None:
        """A broker learns late what the controller decided, and goes on with what it knows."""
        host = self._leader_of_some() if self.chance.random() < 0.7 else self._machine()
        if host is not None:
            self.say("no news for", host.node_id)
            host.hold_images()
            self.after(self.duration_us(), partial(self._release_images, host, host.life))

    def _release_images(self, host: BrokerHost, life: int) -> None:
        if host.life == life:
            host.release_images()

    def part_from_follower(self) -> None:
        """The leader of the partition whose records are deleted and a follower in sync do not reach each
        other, for not much longer than that stays in sync."""
        leader, followers = self._find_replicas(Place(TRIMMED, 0))
        if leader is not None and followers:
            follower = self.chance.choice(followers)
            self.say("are parted", (leader.node_id, follower.node_id))
            self.cluster.network.split([leader.node_id], [follower.node_id])
            self.after(self.chance.randrange(500_000, 2_500_000), self.cluster.network.cut.clear)

    def deleted(self, place: Place) -> None:
        leader, _ = self._find_replicas(place)
        if self.cluster.flavour == "deletions" and self.cluster.network.cut and leader is not None:
            self.say("leader falls", leader.node_id)
            self.cluster.network.cut.clear()
            self.crash(leader)

    def _find_replicas(self, place: Place) -> tuple[BrokerHost | None, list[BrokerHost]]:
        """Finds the leader and the followers in sync, of those that are up."""
        topic = self.cluster.steps[-1].after.topic_named(place.topic)
        partition = None if topic is None else topic.partitions.get(place.partition)
        if partition is None:
            return None, []
        living = {host.broker_id: host for host in self.cluster.hosts.values() if host.is_up}
        followers = [living[each] for each in partition.isr if each in living and each != partition.leader]
        return living.get(partition.leader), followers

    def return_unseen(self) -> None:
        """A follower comes back with an empty disk, and for a while does not reach a leader that knows it."""
        leader = self._leader_of_some()
        others = [host for host in self.cluster.hosts.values() if host is not leader]
        if leader is None or not self._strike_alone(8_000_000):
            return
        host = self.chance.choice(others)
        self.say("returns unseen", (host.node_id, "by", leader.node_id))
        host.crash("drop")
        host.replace_disk()
        self.cluster.network.split([host.node_id], [leader.node_id])
        self.after(self.chance.randrange(1_000, 300_000), lambda: self.restart(host))
        self.after(self.duration_us() + 2_000_000, self.cluster.network.cut.clear)
