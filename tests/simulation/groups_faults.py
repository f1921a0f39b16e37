"""What goes wrong with simulated coordinators and their members, drawn from the seed.

A *flavour* decides the kind of run: `mixed` draws from everything; `coordinators` keeps hitting the broker
that coordinates, just when it has something half done; `members` keeps members coming, going, dying and
sleeping; `calm` has no faults but lost messages now and then.  Every fault ends by itself or when all heals.
"""

from collections.abc import Callable
from functools import partial

from tests.simulation.groups_cluster import NEW_PROTOCOL, SECOND_US, GroupsCluster
from tests.simulation.groups_consumers import BEAT_US, SimConsumer
from tests.simulation.groups_host import GroupsHost
from tests.simulation.groups_process import SimProcess

PARTITIONS_MAX = 6
FLAVOURS = {"mixed": 5, "coordinators": 5, "members": 4, "calm": 1}
_PERIOD_US = {
    "mixed": (300_000, 2_500_000),
    "coordinators": (200_000, 2_500_000),
    "members": (100_000, 1_500_000),
    "calm": (2_000_000, 5_000_000),
}


class GroupsFaults:
    def __init__(self, cluster: GroupsCluster) -> None:
        self.cluster = cluster
        self.chance = cluster.chance
        self._is_over = False
        coordinators: list[tuple[int, Callable[[], None]]] = [
            (4, self.crash_leader),
            (3, self.transfer),
            (3, self.transfer_from_lagging),
            (3, self.cut_leader),
            (3, self.pause_leader),
            (2, self.crash_one),
            (1, self.crash_two),
            (2, self.slow_copying),
            (1, self.slow_reading),
        ]
        members: list[tuple[int, Callable[[], None]]] = [
            (4, self.member_comes),
            (3, self.member_crashes),
            (2, self.member_leaves),
            (4, self.member_sleeps),
            (2, self.member_dozes),
            (3, self.static_restart),
            (3, self.static_misses_one),
            (2, self.twin),
        ]
        if set(cluster.groups) & set(NEW_PROTOCOL):
            members += [
                (4, self.member_changes_its_mind),
                (2, self.member_moves),
                (2, self.topic_grows),
                (2, self.member_beats_slowly),
                (3, self.member_commits_late),
                (3, self.member_turns_deaf),
            ]
        network: list[tuple[int, Callable[[], None]]] = [(2, self.lose_messages), (1, self.slow_network)]
        self._by_flavour = {
            "mixed": [*coordinators, *members, *network, (4, self.nothing)],
            "coordinators": [*coordinators, (2, self.member_comes), (2, self.member_crashes), *network],
            "members": [*members, *network, (1, self.transfer)],
            "calm": [(2, self.nothing), (1, self.lose_messages), (1, self.member_comes)],
        }

    # --- when ----------------------------------------------------------------------------------

    def begin(self) -> None:
        self._later(SECOND_US, self._strike)

    def _strike(self) -> None:
        choices = self._by_flavour[self.cluster.flavour]
        weights = [weight for weight, _ in choices]
        for _, fault in self.chance.choices(choices, weights, k=self.chance.choice((1, 1, 2))):
            fault()
        self._later(self.chance.randrange(*_PERIOD_US[self.cluster.flavour]), self._strike)

    def _later(self, delay_us: int, callback: Callable[[], None]) -> None:
        self.cluster.loop.call_after(delay_us, self._unless_over, callback)

    def _unless_over(self, callback: Callable[[], None]) -> None:
        if not self._is_over:
            callback()

    def heal(self) -> None:
        self._is_over = True
        self.say("all heals")
        self._calm_network()
        for host in self.cluster.hosts.values():
            self._restore(host)
        for member in self.cluster.processes:
            member.resume()
        for consumer in self.cluster.consumers:
            consumer.heals()
        self._people()
        # Whoever was replaced while it slept hears of it only now, and ends.
        self.cluster.loop.call_after(3 * SECOND_US, self._people)

    def _people(self) -> None:
        """No group is left without members."""
        for group in self.cluster.groups:
            if not any(
                each.is_alive and not each.leaves and each.group == group for each in self.cluster.processes
            ):
                self.cluster.add_member(group)

    def say(self, what: str, about: object = "") -> None:
        self.cluster.trace.add(self.cluster.loop.now_us, what, "fault", about)

    def _duration_us(self) -> int:
        return self.chance.randrange(100_000, 4 * SECOND_US)

    def nothing(self) -> None:
        return None

    # --- brokers -------------------------------------------------------------------------------

    def _leader(self) -> GroupsHost | None:
        leader = self.cluster.hosts.get(self.cluster.leader_id)
        return leader if leader is not None and leader.is_up else None

    def _restore(self, host: GroupsHost) -> None:
        host.is_cut = host.is_lagging = False
        host.read_delay_us_max = 20_000
        if host.paused:
            host.resume()
        if not host.is_up:
            host.start()

    def _crash(self, host: GroupsHost | None, what: str) -> None:
        if host is not None and host.is_up:
            self.say(what, host.broker_id)
            host.crash()
            self._later(self._duration_us() // 2, partial(self._restore, host))

    def crash_leader(self) -> None:
        self._crash(self._leader(), "coordinator killed")

    def crash_one(self) -> None:
        self._crash(self.chance.choice(list(self.cluster.hosts.values())), "broker killed")

    def crash_two(self) -> None:
        """All but the leader: too few are in sync for anything to be written."""
        for host in self.cluster.hosts.values():
            if host.broker_id != self.cluster.leader_id:
                self._crash(host, "others killed")

    def transfer(self) -> None:
        self.say("handed over")
        self.cluster.elect(besides=self.cluster.leader_id)

    def transfer_from_lagging(self) -> None:
        """Its image stands still for a while, and it goes on as if it led."""
        leader = self._leader()
        if leader is not None and not leader.paused:
            self.say("handed over unnoticed", leader.broker_id)
            leader.is_lagging = True
            self.cluster.elect(besides=leader.broker_id)
            self._later(self._duration_us(), partial(self._restore, leader))

    def cut_leader(self) -> None:
        leader = self._leader()
        if leader is not None:
            self.say("cut off", leader.broker_id)
            leader.is_cut = True
            self._later(self._duration_us(), partial(self._restore, leader))

    def pause_leader(self) -> None:
        leader = self._leader()
        if leader is not None:
            self.say("stands still", leader.broker_id)
            leader.pause()
            self._later(self._duration_us(), partial(self._restore, leader))

    def slow_copying(self) -> None:
        self.say("slow copies")
        self.cluster.copying_us_max = self.chance.choice((50_000, 400_000))
        self._later(self._duration_us(), self._calm_network)

    def slow_reading(self) -> None:
        self.say("slow disks")
        for host in self.cluster.hosts.values():
            host.read_delay_us_max = 1_500_000

    # --- the network ---------------------------------------------------------------------------

    def lose_messages(self) -> None:
        self.say("lossy")
        self.cluster.loss = self.chance.choice((0.02, 0.2))
        self._later(self._duration_us(), self._calm_network)

    def slow_network(self) -> None:
        self.say("slow")
        self.cluster.delay_us_max = self.chance.choice((100_000, 900_000))
        self._later(self._duration_us(), self._calm_network)

    def _calm_network(self) -> None:
        self.cluster.loss = 0.0
        self.cluster.delay_us_max = self.cluster.copying_us_max = 3_000

    # --- members -------------------------------------------------------------------------------

    def _member(self, group: str | None = None) -> SimProcess | None:
        living = [each for each in self.cluster.processes if each.is_alive and group in (None, each.group)]
        return self.chance.choice(living) if living else None

    def member_comes(self) -> None:
        if self.cluster.add_member(self.chance.choice(self.cluster.groups)) is not None:
            self.say("member comes")

    def member_crashes(self) -> None:
        member = self._member()
        if member is not None:
            self.say("member killed", member.name)
            member.crash()

    def member_leaves(self) -> None:
        member = self._member()
        if member is not None:
            self.say("member leaves", member.name)
            member.leaves = True

    def member_sleeps(self) -> None:
        """Lets a member sleep beyond its session: it is out when it wakes, and does not know."""
        session_us = self.cluster.session_ms * 1_000
        self._pause(session_us, 3 * session_us, "member sleeps")

    def member_dozes(self) -> None:
        """Within its session, but perhaps longer than the others wait for it."""
        self._pause(100_000, self.cluster.session_ms * 1_000, "member dozes")

    def _pause(self, low_us: int, high_us: int, what: str) -> None:
        member = self._member()
        if member is not None and not member.paused:
            self.say(what, member.name)
            member.pause()
            self._later(self.chance.randrange(low_us, high_us), member.resume)

    @property
    def _static(self) -> str:
        return self.cluster.groups[1]

    def static_restart(self) -> None:
        member = self._member(self._static)
        if member is not None:
            self.say("static member restarts", member.instance)
            if isinstance(member, SimConsumer) and self.chance.random() < 0.7:
                member.is_coming_back = member.leaves = True
            else:
                member.crash()
            self._later(
                self.chance.randrange(10_000, self.cluster.session_ms * 900),
                lambda: self._add(member.instance),
            )

    def static_misses_one(self) -> None:
        """It sleeps through a rebalance, is still a member, and wakes in a generation that has passed."""
        member = self._member(self._static)
        if member is not None and not member.paused:
            self.say("static member sleeps through", member.name)
            member.pause()
            self._later(self.cluster.rebalance_ms * 1_100, member.resume)
            other = self._member(self._static)
            if other is not member and other is not None:
                other.crash()
            self._add(None)

    def twin(self) -> None:
        """A second process under the instance id of one that lives."""
        member = self._member(self._static)
        if member is not None:
            self.say("twin", member.instance)
            self._add(member.instance)

    def _add(self, instance: str | None) -> None:
        self.cluster.add_member(self._static, instance)

    # --- members of the new protocol -----------------------------------------------------------

    def _consumer(self) -> SimConsumer | None:
        living = [each for each in self.cluster.consumers if each.is_alive]
        return self.chance.choice(living) if living else None

    def member_changes_its_mind(self) -> None:
        consumer = self._consumer()
        if consumer is not None:
            self.say("member changes its mind", consumer.name)
            consumer.changes_its_mind()

    def member_moves(self) -> None:
        """Moves a member to another address: the coordinator writes that down, and nothing else."""
        consumer = self._consumer()
        if consumer is not None:
            self.say("member moves", consumer.name)
            consumer.changes_its_address()

    def member_beats_slowly(self) -> None:
        """Others wait long for what it has to give up, and it misses what comes and goes meanwhile."""
        consumer = self._consumer()
        if consumer is not None:
            self.say("member beats slowly", consumer.name)
            consumer.beat_us = self.chance.randrange(BEAT_US, self.cluster.session_ms * 800)

    def member_commits_late(self) -> None:
        """Others come, so it may have given up what its commits are about, and another may have taken it."""
        consumer = self._consumer()
        if consumer is not None:
            self.say("member commits late", consumer.name)
            consumer.commits_late(self.chance.randrange(SECOND_US // 2, 4 * SECOND_US))
            self._later(2 * self._duration_us(), partial(consumer.commits_late, 0))
            self._later(SECOND_US // 2, lambda: self._stir(consumer.group))

    def member_turns_deaf(self) -> None:
        """It is heard, and hears nothing, while the group goes through epochs without its knowing."""
        consumer = self._consumer()
        if consumer is not None:
            self.say("member turns deaf", consumer.name)
            consumer.turns_deaf(self.chance.randrange(SECOND_US // 2, 3 * SECOND_US))
            for delay_us in (SECOND_US // 5, SECOND_US // 2, SECOND_US):
                self._later(delay_us, lambda: self._stir(consumer.group))

    def _stir(self, group: str) -> None:
        if self.cluster.add_member(group) is None:
            self.member_changes_its_mind()

    def topic_grows(self) -> None:
        topic_id = max(self.cluster.topic_names)
        if self.cluster.partition_count(topic_id) < PARTITIONS_MAX:
            self.say("topic grows")
            self.cluster.grow(topic_id)
