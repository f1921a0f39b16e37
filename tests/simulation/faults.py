"""What goes wrong in a run, drawn from its seed.

A *flavour* decides the kind of run: `mixed` draws from everything; `churn` keeps hitting leaders, just when
they have something half done; `duel` gives everyone nearly the same patience, so that candidates meet,
and keeps crashing voters; `lonely` only ever cuts off one follower, under which the leader must stay;
`members` changes the membership all the time; `figure eight` arranges that one misfortune.  Every fault
ends by itself or when everything heals.
"""

import errno
import random
from collections.abc import Callable
from functools import partial

from distributedlog.model.errors import DlogError
from distributedlog.ports.executor import Outcome
from distributedlog.raft import AddObserver, Change, Membership, Promote, Remove
from tests.simulation.disk import Operation
from tests.simulation.figure_eight import FigureEight
from tests.simulation.inodes import CrashMode
from tests.simulation.raft_cluster import SECOND_US, RaftCluster
from tests.simulation.raft_host import Host
from tests.simulation.raft_log_storage import first_batch_of_several
from tests.simulation.raft_storage import first_frame_of_several

FLAVOURS = {"mixed": 6, "churn": 4, "duel": 2, "figure eight": 1, "lonely": 1, "members": 3}
_NEVER = 1 << 60
_RATE_MIN_PPM = 500_000
_CRASH_MODES: tuple[CrashMode, ...] = ("drop", "keep", "random")
_PERIOD_US = {
    "mixed": (800_000, 3_500_000),
    "churn": (200_000, 1_800_000),
    "members": (400_000, 2_000_000),
    "duel": (50_000, 900_000),
}


def _membership(host: Host) -> Membership:
    assert host.driver is not None
    return host.driver.status.membership


class Faults:
    def __init__(self, cluster: RaftCluster) -> None:
        self.cluster = cluster
        self.chance = random.Random(cluster.chance.getrandbits(64))
        self._healing = False
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

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        self.cluster.loop.call_after(delay_us, self._do, action)

    def _do(self, action: Callable[[], None]) -> None:
        if not self._healing:
            action()

    def heal(self) -> None:
        """Ends every fault; from here on only broken members are replaced."""
        self._healing = True
        self.say("everything heals")
        self.cluster.stability.end_calm()
        self.cluster.network.calm()
        self.cluster.append_share = 0.6
        for host in self.cluster.hosts.values():
            host.clock.set_rate(max(host.clock.rate_ppm, _RATE_MIN_PPM))
            host.disk.heal()
            host.disk.fail_after(_NEVER)
            host.disk_slowness = 1
            if host.paused:
                host.resume()
            if host.driver is None:
                host.start()
        self.cluster.loop.call_after(SECOND_US, self.repair_members)

    def say(self, what: str, details: object = "") -> None:
        self.cluster.trace.add(self.cluster.loop.now_us, what, "fault", details)

    # --- who -----------------------------------------------------------------------------------

    def up(self) -> list[Host]:
        return [host for host in self.cluster.hosts.values() if host.driver is not None and not host.paused]

    def one(self) -> Host | None:
        return self.chance.choice(self.up()) if self.up() else None

    def duration_us(self) -> int:
        return int(self.chance.uniform(0.2, 4.0) * SECOND_US)

    # --- processes -----------------------------------------------------------------------------

    def nothing(self) -> None:
        self.say("nothing")

    def crash(self, host: Host) -> None:
        host.crash(self.chance.choice(_CRASH_MODES))
        self._restart_later(host)

    def _restart_later(self, host: Host) -> None:
        """Often at once, so that what it was asked before it fell reaches it again."""
        soon = self.chance.random() < 0.4
        delay_us = self.chance.randrange(1_000, 100_000) if soon else self.duration_us()
        self.after(delay_us, lambda: self.restart(host))

    def restart(self, host: Host) -> None:
        if host.driver is None:
            host.start()
        if host.driver is None:
            self._restart_later(host)

    def crash_one(self) -> None:
        host = self.one()
        if host is not None:
            self.crash(host)

    def stumble(self) -> None:
        """Some fall and are up again in a moment, in the middle of what they were asked."""
        for host in self.up():
            if self.chance.random() < 0.5:
                host.crash(self.chance.choice(_CRASH_MODES))
                self.after(self.chance.randrange(1_000, 20_000), partial(self.restart, host))

    def crash_leader(self) -> None:
        leader = self.cluster.leader()
        if leader is not None:
            self.crash(leader)

    def crash_many(self) -> None:
        count = self.chance.randrange(2, len(self.cluster.hosts) + 1)
        for host in self.chance.sample(self.up(), min(count, len(self.up()))):
            self.crash(host)

    def pause(self) -> None:
        host = self.one()
        if host is not None:
            host.pause()
            self.after(self.duration_us(), lambda: host.resume() if host.paused else None)

    def pause_leader(self) -> None:
        leader = self.cluster.leader()
        if leader is not None:
            leader.pause()
            self.after(self.duration_us(), lambda: leader.resume() if leader.paused else None)

    def jump_wall_clock(self) -> None:
        for host in self.cluster.hosts.values():
            host.clock.wall_jump_ms = self.chance.randrange(-3_600_000, 3_600_000)

    # --- disks ---------------------------------------------------------------------------------

    def cut_power(self) -> None:
        """The machine dies between two steps of a write."""
        host = self.one()
        if host is not None:
            steps = self.chance.randrange(6)
            self.say("power cut", (host.node_id, "after", steps, "steps"))
            host.disk.fail_after(steps)
            self.after(self.duration_us(), lambda: self.restart(host))

    def fail_disk(self) -> None:
        """The node must stop: nobody knows what a failed sync or write has left."""
        host = self.one()
        if host is not None:
            operation: Operation = self.chance.choice(("sync", "sync", "write"))
            self.say(f"{operation} fails", host.node_id)
            host.disk.inject(operation, error=errno.EIO, after=self.chance.randrange(4))
            self.after(self.duration_us(), lambda: self._mend(host))

    def _mend(self, host: Host) -> None:
        host.disk.heal()
        self.restart(host)

    def slow_disk(self) -> None:
        host = self.one()
        if host is not None:
            self.say("slow disk", host.node_id)
            host.disk_slowness = self.chance.choice((10, 100, 400))

            def quicken() -> None:
                host.disk_slowness = 1

            self.after(self.duration_us(), quicken)

    def amnesia(self) -> None:
        """A follower falls behind; as it returns, another's disk is replaced and the leader is cut off.

        Whoever trusts the voter that has forgotten loses what was committed while the first was away.
        """
        leader = self.cluster.leader()
        if leader is None or not self._all_sound(leader) or len(_membership(leader).voters) != 3:
            return
        before = _membership(leader)
        behind, forgetful = [n for n in before.voters if n != leader.node_id]
        self.say("amnesia", (behind, "behind,", forgetful, "forgets"))
        self.cluster.network.split([behind], [n for n in self.cluster.hosts if n != behind])

        def forget() -> None:
            self.cluster.network.cut.clear()
            if leader.leads and self._all_sound(leader) and _membership(leader) == before:
                self._replace_disk(self.cluster.hosts[forgetful])
                self.after(20_000, lambda: self.restart(self.cluster.hosts[forgetful]))
                self.isolate(leader)

        self.after(1_500_000, forget)

    def _replace_disk(self, host: Host) -> None:
        self.say("disk replaced", host.node_id)
        if host.driver is not None:
            host.crash("drop")
        host.wipe()
        host.forget()

    def lose_disk(self) -> None:
        """One voter at a time, of at least three, loses what it had synced: all, or the middle of its log."""
        leader = self.cluster.leader()
        if leader is None or not self._all_sound(leader) or len(_membership(leader).voters) < 3:
            return
        host = self.cluster.hosts[self.chance.choice(list(_membership(leader).voters))]
        place = first_batch_of_several(host.disk) if host.on_log_engine else first_frame_of_several(host.disk)
        if place is not None and self.chance.random() < 0.7:
            self.say("bit rot", host.node_id)
            if host.driver is not None:
                host.crash("drop")
            path, start, end = place
            host.disk.flip_bit(path, self.chance.randrange(start, end), self.chance.randrange(8))
            host.forget()
        else:
            self._replace_disk(host)
        self._restart_later(host)

    # --- the network ---------------------------------------------------------------------------

    def _then_reconnect(self) -> None:
        self.after(self.duration_us(), self.cluster.network.cut.clear)

    def heal_network(self) -> None:
        self.cluster.network.calm()

    def isolate(self, host: Host) -> None:
        self.say("isolated", host.node_id)
        self.cluster.network.split([host.node_id], [n for n in self.cluster.hosts if n != host.node_id])
        self._then_reconnect()

    def isolate_one(self) -> None:
        self.isolate(self.chance.choice(list(self.cluster.hosts.values())))

    def isolate_leader(self) -> None:
        leader = self.cluster.leader()
        if leader is not None:
            self.isolate(leader)

    def strand_leader(self) -> None:
        """What the leader stores now, one other has at most."""
        leader = self.cluster.leader()
        if leader is None:
            return
        others = [node_id for node_id in self.cluster.hosts if node_id != leader.node_id]
        companion = self.chance.choice(others)
        self.say("stranded", (leader.node_id, "with", companion))
        self.cluster.network.split([leader.node_id, companion], [n for n in others if n != companion])
        self._then_reconnect()

    def isolate_slow_leader(self) -> None:
        """A leader that is cut off and, by its own slow clock, has not been for long."""
        leader = self.cluster.leader()
        if leader is None:
            return
        rate_ppm = leader.clock.rate_ppm
        leader.clock.set_rate(rate_ppm // 4)
        self.after(4 * SECOND_US, lambda: leader.clock.set_rate(rate_ppm))
        self.isolate(leader)

    def _sides(self) -> tuple[list[int], list[int]]:
        nodes = list(self.cluster.hosts)
        self.chance.shuffle(nodes)
        cut = self.chance.randrange(1, len(nodes))
        return nodes[:cut], nodes[cut:]

    def split_minority(self) -> None:
        sides = self._sides()
        self.say("split", sides)
        self.cluster.network.split(*sides)
        self._then_reconnect()

    def one_way(self) -> None:
        node = self.chance.choice(list(self.cluster.hosts))
        way = self.chance.choice((self.cluster.network.mute, self.cluster.network.deafen))
        self.say("one way", (way.__name__, node))
        way(node, self.cluster.hosts)
        self._then_reconnect()

    def bridge(self) -> None:
        one_side, other_side = self._sides()
        self.say("bridge", (one_side, other_side, "over", one_side[0]))
        self.cluster.network.bridge(one_side[0], one_side, other_side)
        self._then_reconnect()

    def flap(self) -> None:
        self.say("flapping")
        for step in range(self.chance.randrange(2, 8)):
            self.after(step * 300_000, self.split_minority)
            self.after(step * 300_000 + 150_000, self.cluster.network.cut.clear)

    def lose_messages(self) -> None:
        network = self.cluster.network
        network.loss = self.chance.uniform(0.01, 0.3)
        network.duplication = self.chance.uniform(0, 0.2)
        self.say("lossy", f"{network.loss:.2f}")
        self.after(self.duration_us(), self.heal_network)

    def lose_many_messages(self) -> None:
        network = self.cluster.network
        network.loss = self.chance.uniform(0.2, 0.6)
        self.say("very lossy", f"{network.loss:.2f}")
        self.after(self.duration_us(), self.heal_network)

    def slow_network(self) -> None:
        network = self.cluster.network
        network.delay_max_us = self.chance.choice((50_000, 300_000, 1_500_000))
        network.duplication = self.chance.uniform(0, 0.2)
        self.say("slow", network.delay_max_us)
        self.after(self.duration_us(), self.heal_network)

    # --- leadership and membership -------------------------------------------------------------

    def transfer(self) -> None:
        leader = self.cluster.leader()
        if leader is None:
            return
        target = self.chance.choice(list(self.cluster.hosts))
        self.say("transfer", (leader.node_id, "to", target))

        def ask() -> None:
            if leader.driver is not None:
                leader.driver.transfer_leadership(target)

        self._try(leader, ask)

    def _all_sound(self, leader: Host) -> bool:
        """Whether every member is the one it was when it was added, and no change is under way."""
        assert leader.driver is not None
        core = leader.driver.node.core
        members = core.membership.members.items()
        settled = core.memberships.index <= core.commit_index
        return settled and all(self._incarnation(node_id) == number for node_id, number in members)

    def change_members(self) -> None:
        """Every node that believes it leads is asked, also one that leads no more."""
        for leader in [host for host in self.up() if host.leads and self._all_sound(host)]:
            change = self._draw_change(leader)
            if change is not None:
                self._change(leader, change)

    def _draw_change(self, leader: Host) -> Change | None:
        membership = _membership(leader)
        strangers = [n for n in self.cluster.hosts if n not in membership.members]
        changes: list[Change] = [
            AddObserver(n, self._incarnation(n)) for n in strangers if self._incarnation(n) >= 0
        ]
        changes += [Promote(n) for n in membership.observers] * 2
        changes += [Remove(n) for n in membership.observers]
        if len(membership.voters) > 2:
            changes += [Remove(n) for n in membership.voters]
        return self.chance.choice(changes) if changes else None

    def _incarnation(self, node_id: int) -> int:
        """-1 for a disk that lost something and that no process has opened since."""
        incarnation = self.cluster.hosts[node_id].incarnation
        return -1 if incarnation is None else incarnation

    def _change(self, leader: Host, change: Change) -> None:
        self.say("change", (leader.node_id, repr(change)))

        def ask() -> None:
            if leader.driver is not None:
                leader.driver.change_membership(change, self._changed)

        self._try(leader, ask)

    def _changed(self, outcome: Outcome[object]) -> None:
        self.say("changed", "unknown" if outcome.error else "ok")

    def _try(self, host: Host, ask: Callable[[], None]) -> None:
        def attempt() -> None:
            try:
                ask()
            except DlogError as error:
                self.say("refused", str(error))

        host.call(attempt)

    def repair_members(self) -> None:
        """What an operator does: a voter that lost its disk is removed, added and promoted again."""
        self.cluster.loop.call_after(SECOND_US, self.repair_members)
        leader = self.cluster.leader()
        if leader is None or self.cluster.flavour == "lonely":
            return
        membership = _membership(leader)
        for node_id, incarnation in membership.members.items():
            if self._incarnation(node_id) not in (-1, incarnation):
                self._change(leader, Remove(node_id))
                return
        if len(membership.voters) < 3:
            observers, members = list(membership.observers), membership.members
            strangers = [n for n in self.cluster.hosts if n not in members and self._incarnation(n) >= 0]
            if observers:
                self._change(leader, Promote(observers[0]))
            elif strangers:
                self._change(leader, AddObserver(strangers[0], self._incarnation(strangers[0])))

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
