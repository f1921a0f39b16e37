"""What can go wrong with machines and networks of any simulated cluster, drawn from its seed.

Each method is one fault; every fault ends by itself or when everything heals.  When they strike, and which,
is the subclass's business.
"""

import errno
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, Protocol, TypeVar

from tests.simulation.disk import Operation
from tests.simulation.inodes import CrashMode
from tests.simulation.loop import SimLoop
from tests.simulation.network import SimNetwork
from tests.simulation.process import SimProcess
from tests.simulation.trace import Trace

SECOND_US = 1_000_000
NEVER = 1 << 60
CRASH_MODES: tuple[CrashMode, ...] = ("drop", "keep", "random")
RATE_MIN_PPM = 500_000

HostT = TypeVar("HostT", bound=SimProcess)
HostT_co = TypeVar("HostT_co", bound=SimProcess, covariant=True)


class World(Protocol[HostT_co]):
    """What faults may touch of a cluster."""

    @property
    def chance(self) -> random.Random: ...

    @property
    def loop(self) -> SimLoop: ...

    @property
    def trace(self) -> Trace: ...

    @property
    def network(self) -> SimNetwork: ...

    @property
    def hosts(self) -> Mapping[int, HostT_co]: ...

    def leader(self) -> HostT_co | None: ...


class CommonFaults(Generic[HostT]):
    def __init__(self, world: World[HostT]) -> None:
        self.world = world
        self.chance = random.Random(world.chance.getrandbits(64))
        self.is_healing = False

    # --- when ----------------------------------------------------------------------------------

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        self.world.loop.call_after(delay_us, self._do, action)

    def _do(self, action: Callable[[], None]) -> None:
        if not self.is_healing:
            action()

    def heal(self) -> None:
        """Ends every fault."""
        self.is_healing = True
        self.say("everything heals")
        self.world.network.calm()
        for host in self.world.hosts.values():
            host.clock.set_rate(max(host.clock.rate_ppm, RATE_MIN_PPM))
            host.disk.heal()
            host.disk.fail_after(NEVER)
            host.disk_slowness = 1
            if host.paused:
                host.resume()
            if not host.is_up:
                host.start()

    def say(self, what: str, details: object = "") -> None:
        self.world.trace.add(self.world.loop.now_us, what, "fault", details)

    # --- who -----------------------------------------------------------------------------------

    def up(self) -> list[HostT]:
        return [host for host in self.world.hosts.values() if host.is_up and not host.paused]

    def one(self) -> HostT | None:
        return self.chance.choice(self.up()) if self.up() else None

    def duration_us(self) -> int:
        return int(self.chance.uniform(0.2, 4.0) * SECOND_US)

    # --- processes -----------------------------------------------------------------------------

    def nothing(self) -> None:
        self.say("nothing")

    def crash(self, host: HostT) -> None:
        host.crash(self.chance.choice(CRASH_MODES))
        self._restart_later(host)

    def _restart_later(self, host: HostT) -> None:
        """Often at once, so that what it was asked before it fell reaches it again."""
        soon = self.chance.random() < 0.4
        delay_us = self.chance.randrange(1_000, 100_000) if soon else self.duration_us()
        self.after(delay_us, lambda: self.restart(host))

    def restart(self, host: HostT) -> None:
        if not host.is_up:
            host.start()
        if not host.is_up:
            self._restart_later(host)

    def crash_one(self) -> None:
        host = self.one()
        if host is not None:
            self.crash(host)

    def stumble(self) -> None:
        """Some fall and are up again in a moment, in the middle of what they were asked."""
        for host in self.up():
            if self.chance.random() < 0.5:
                host.crash(self.chance.choice(CRASH_MODES))
                self.after(self.chance.randrange(1_000, 20_000), partial(self.restart, host))

    def crash_leader(self) -> None:
        leader = self.world.leader()
        if leader is not None:
            self.crash(leader)

    def crash_many(self) -> None:
        count = self.chance.randrange(2, len(self.world.hosts) + 1)
        for host in self.chance.sample(self.up(), min(count, len(self.up()))):
            self.crash(host)

    def pause(self) -> None:
        host = self.one()
        if host is not None:
            host.pause()
            self.after(self.duration_us(), lambda: host.resume() if host.paused else None)

    def pause_leader(self) -> None:
        leader = self.world.leader()
        if leader is not None:
            leader.pause()
            self.after(self.duration_us(), lambda: leader.resume() if leader.paused else None)

    def jump_wall_clock(self) -> None:
        for host in self.world.hosts.values():
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

    def _mend(self, host: HostT) -> None:
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

    # --- the network ---------------------------------------------------------------------------

    def _then_reconnect(self) -> None:
        self.after(self.duration_us(), self.world.network.cut.clear)

    def heal_network(self) -> None:
        self.world.network.calm()

    def isolate(self, host: HostT) -> None:
        self.say("isolated", host.node_id)
        self.world.network.split([host.node_id], [n for n in self.world.hosts if n != host.node_id])
        self._then_reconnect()

    def isolate_one(self) -> None:
        self.isolate(self.chance.choice(list(self.world.hosts.values())))

    def isolate_leader(self) -> None:
        leader = self.world.leader()
        if leader is not None:
            self.isolate(leader)

    def strand_leader(self) -> None:
        """What the leader stores now, one other has at most."""
        leader = self.world.leader()
        if leader is None:
            return
        others = [node_id for node_id in self.world.hosts if node_id != leader.node_id]
        companion = self.chance.choice(others)
        self.say("stranded", (leader.node_id, "with", companion))
        self.world.network.split([leader.node_id, companion], [n for n in others if n != companion])
        self._then_reconnect()

    def isolate_slow_leader(self) -> None:
        """A leader that is cut off and, by its own slow clock, has not been for long."""
        leader = self.world.leader()
        if leader is None:
            return
        rate_ppm = leader.clock.rate_ppm
        leader.clock.set_rate(rate_ppm // 4)
        self.after(4 * SECOND_US, lambda: leader.clock.set_rate(rate_ppm))
        self.isolate(leader)

    def _sides(self) -> tuple[list[int], list[int]]:
        nodes = list(self.world.hosts)
        self.chance.shuffle(nodes)
        cut = self.chance.randrange(1, len(nodes))
        return nodes[:cut], nodes[cut:]

    def split_minority(self) -> None:
        sides = self._sides()
        self.say("split", sides)
        self.world.network.split(*sides)
        self._then_reconnect()

    def one_way(self) -> None:
        node = self.chance.choice(list(self.world.hosts))
        way = self.chance.choice((self.world.network.mute, self.world.network.deafen))
        self.say("one way", (way.__name__, node))
        way(node, self.world.hosts)
        self._then_reconnect()

    def bridge(self) -> None:
        one_side, other_side = self._sides()
        self.say("bridge", (one_side, other_side, "over", one_side[0]))
        self.world.network.bridge(one_side[0], one_side, other_side)
        self._then_reconnect()

    def flap(self) -> None:
        self.say("flapping")
        for step in range(self.chance.randrange(2, 8)):
            self.after(step * 300_000, self.split_minority)
            self.after(step * 300_000 + 150_000, self.world.network.cut.clear)

    def lose_messages(self) -> None:
        network = self.world.network
        network.loss = self.chance.uniform(0.01, 0.3)
        network.duplication = self.chance.uniform(0, 0.2)
        self.say("lossy", f"{network.loss:.2f}")
        self.after(self.duration_us(), self.heal_network)

    def lose_many_messages(self) -> None:
        network = self.world.network
        network.loss = self.chance.uniform(0.2, 0.6)
        self.say("very lossy", f"{network.loss:.2f}")
        self.after(self.duration_us(), self.heal_network)

    def slow_network(self) -> None:
        network = self.world.network
        network.delay_max_us = self.chance.choice((50_000, 300_000, 1_500_000))
        network.duplication = self.chance.uniform(0, 0.2)
        self.say("slow", network.delay_max_us)
        self.after(self.duration_us(), self.heal_network)
