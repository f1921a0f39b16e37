"""What goes wrong in a run, drawn from its seed.

A *flavour* decides the kind of run: `mixed` draws from everything; `churn` keeps hitting leaders, just when
they have something half done; `duel` gives everyone nearly the same timeout, so that candidates meet,
and keeps crashing voters; `lonely` only ever cuts off one follower, under which the leader must stay;
`members` changes the membership all the time; `figure eight` arranges that one misfortune.  Every fault
ends by itself or when everything heals.
"""

from collections.abc import Callable

from distributedlog.raft import AddObserver, Change, Promote, Remove
from tests.simulation.figure_eight import FigureEight
from tests.simulation.member_faults import MemberFaults, membership_of
from tests.simulation.raft_cluster import SECOND_US, RaftCluster
from tests.simulation.raft_host import Host

FLAVOURS = {"mixed": 6, "churn": 4, "duel": 2, "figure eight": 1, "lonely": 1, "members": 3}
_PERIOD_US = {
    "mixed": (800_000, 3_500_000),
    "churn": (200_000, 1_800_000),
    "members": (400_000, 2_000_000),
    "duel": (50_000, 900_000),
}


class Faults(MemberFaults[Host]):
    def __init__(self, cluster: RaftCluster) -> None:
        super().__init__(cluster)
        self.cluster = cluster
        self._mixed: list[tuple[int, Callable[[], None]]] = [
            (6, self.nothing),
            (3, self.crash_one),
            (1, self.crash_many),
            (3, self.cut_power),
            (3, self.isolate_one),
            (3, self.split_minority),
            (2, self.one_way),
            (2, self.bridge),
            (2, self.flap),
            (3, self.lose_messages),
            (2, self.slow_network),
            (2, self.pause),
            (2, self.fail_disk),
            (1, self.slow_disk),
            (1, self.lose_disk),
            (1, self.amnesia),
            (2, self.transfer),
            (3, self.change_members),
            (1, self.jump_wall_clock),
        ]
        self._churn: list[tuple[int, Callable[[], None]]] = [
            (2, self.isolate_leader),
            (2, self.strand_leader),
            (1, self.isolate_slow_leader),
            (3, self.crash_leader),
            (2, self.lose_many_messages),
            (2, self.cut_power),
            (1, self.isolate_one),
            (1, self.heal_network),
            (1, self.pause_leader),
            (1, self.transfer),
            (1, self.nothing),
        ]

        self._duel: list[tuple[int, Callable[[], None]]] = [
            (2, self.isolate_leader),
            (3, self.stumble),
            (2, self.slow_network),
            (1, self.lose_messages),
            (1, self.nothing),
        ]

    # --- when ----------------------------------------------------------------------------------

    def begin(self) -> None:
        self.after(SECOND_US, self.repair_members)
        if self.cluster.flavour == "lonely":
            self.after(3 * SECOND_US, self._begin_lonely)
        elif self.cluster.flavour == "figure eight":
            self.after(3 * SECOND_US, FigureEight(self).begin)
        else:
            self.after(500_000, self._strike)

    def _strike(self) -> None:
        flavour = self.cluster.flavour
        choices = {"churn": self._churn, "duel": self._duel}.get(flavour, self._mixed)
        if flavour == "members" and self.chance.random() < 0.6:
            self.change_members()
        else:
            weights = [weight for weight, _ in choices]
            for _, fault in self.chance.choices(choices, weights, k=self.chance.choice((1, 1, 2))):
                fault()
        low_us, high_us = _PERIOD_US[flavour]
        self.after(self.chance.randrange(low_us, high_us), self._strike)

    def heal(self) -> None:
        """Ends every fault; from here on only broken members are replaced."""
        self.cluster.stability.end_calm()
        self.cluster.append_share = 0.6
        super().heal()
        self.cluster.loop.call_after(SECOND_US, self.repair_members)

    def repair_members(self) -> None:
        if self.cluster.flavour != "lonely":
            super().repair_members()

    # --- members -------------------------------------------------------------------------------

    def amnesia(self) -> None:
        """A follower falls behind; as it returns, another's disk is replaced and the leader is cut off.

        Whoever trusts the voter that has forgotten loses what was committed while the first was away.
        """
        leader = self.cluster.leader()
        if leader is None or not self._all_sound(leader) or len(membership_of(leader).voters) != 3:
            return
        before = membership_of(leader)
        behind, forgetful = [n for n in before.voters if n != leader.node_id]
        self.say("amnesia", (behind, "behind,", forgetful, "forgets"))
        self.cluster.network.split([behind], [n for n in self.cluster.hosts if n != behind])

        def forget() -> None:
            self.cluster.network.cut.clear()
            if leader.leads and self._all_sound(leader) and membership_of(leader) == before:
                self._replace_disk(self.cluster.hosts[forgetful])
                self.after(20_000, lambda: self.restart(self.cluster.hosts[forgetful]))
                self.isolate(leader)

        self.after(1_500_000, forget)

    def change_members(self) -> None:
        """Every node that believes it leads is asked, also one that leads no more."""
        for leader in [host for host in self.up() if host.leads and self._all_sound(host)]:
            change = self._draw_change(leader)
            if change is not None:
                self._change(leader, change)

    def _draw_change(self, leader: Host) -> Change | None:
        membership = membership_of(leader)
        strangers = [n for n in self.cluster.hosts if n not in membership.members]
        changes: list[Change] = [
            AddObserver(n, self._incarnation(n)) for n in strangers if self._incarnation(n) >= 0
        ]
        changes += [Promote(n) for n in membership.observers] * 2
        changes += [Remove(n) for n in membership.observers]
        if len(membership.voters) > 2:
            changes += [Remove(n) for n in membership.voters]
        return self.chance.choice(changes) if changes else None

    # --- one lonely follower -------------------------------------------------------------------

    def _begin_lonely(self) -> None:
        leader = self.cluster.leader()
        if leader is None or leader.driver is None:
            self.after(SECOND_US, self._begin_lonely)
            return
        self.cluster.stability.begin_calm(leader.driver.status.term)
        self._isolate_follower()

    def _isolate_follower(self) -> None:
        followers = [host for host in self.cluster.hosts.values() if not host.leads]
        lonely = self.chance.choice(followers).node_id
        self.say("isolated", lonely)
        self.cluster.network.split([lonely], [n for n in self.cluster.hosts if n != lonely])
        self.after(int(self.chance.uniform(2, 6) * SECOND_US), self.cluster.network.cut.clear)
        self.after(7 * SECOND_US, self._isolate_follower)
