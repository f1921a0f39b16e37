"""The misfortune of figure 8 of the Raft paper, arranged with the timing of the moment.

Chance alone would hardly ever bring it about:

    (a) a leader stores an entry on itself and too few others, and falls
    (b) another leads, stores the beginning of its own term on itself alone, and falls
    (c) the first, or one that has its entry, leads again and stores that entry on a majority; what it
        stores of its own term gets nowhere near one, and it falls once the answers have reached it
    (d) the second comes back, and may win: its log ends in a later term

Whoever committed the entry in (c), by counting, sees it overwritten in (d).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.raft_host import Host

if TYPE_CHECKING:
    from tests.simulation.faults import Faults

_POLL_US = 100
_TIMEOUT_US = 4_000_000


class FigureEight:
    def __init__(self, faults: "Faults") -> None:
        self._faults = faults
        self._cluster = faults.cluster
        self._holders: list[Host] = []
        """The first leader and those who have its entry."""
        self._rest: list[Host] = []
        self._old = (0, 0)
        self._second: Host | None = None

    def begin(self) -> None:
        """(a) Cuts the leader off, with as many others as are still too few."""
        leader = self._cluster.leader()
        if leader is None:
            self._faults.after(500_000, self.begin)
            return
        voters = [self._cluster.hosts[n] for n in self._cluster.bootstrap.voters]
        others = [host for host in voters if host is not leader]
        companions = len(voters) // 2 - 1
        self._holders, self._rest = [leader, *others[:companions]], others[companions:]
        self._part(self._holders, self._rest)
        self._when(self._has_stranded_entry, self._first_falls)

    def _has_stranded_entry(self) -> bool:
        leader = self._holders[0]
        if leader.driver is None:
            return False
        log = leader.driver.node.core.log
        self._old = (log.last_index, log.last_term)
        stranded = log.last_index > leader.driver.status.commit_index
        return stranded and self._stored_by(self._holders) == len(self._holders)

    def _stored_by(self, hosts: list[Host]) -> int:
        index, term = self._old
        return sum(host.durable.get(index) == term for host in hosts)

    def _first_falls(self) -> None:
        self._faults.say("figure 8 (a)", ("stranded", self._old))
        self._holders[0].crash("drop")
        self._when(lambda: any(host.leads for host in self._rest), self._second_leads)

    def _second_leads(self) -> None:
        """(b) Nothing of its term gets out; what it stores itself stays."""
        second = next(host for host in self._rest if host.leads)
        self._second = second
        self._rest.remove(second)
        self._part([second], self._holders + self._rest)
        self._when(lambda: self._has_stored_its_term(second), self._second_falls)

    @staticmethod
    def _has_stored_its_term(host: Host) -> bool:
        if host.driver is None:
            return False
        log = host.driver.node.core.log
        return log.last_term > 0 and host.durable.get(log.last_index) == host.driver.status.term

    def _second_falls(self) -> None:
        assert self._second is not None
        self._faults.say("figure 8 (b)", ("alone", self._second.node_id))
        self._second.crash("drop")
        self._cluster.network.cut.clear()
        self._faults.restart(self._holders[0])
        self._when(lambda: any(host.leads for host in self._holders), self._third_leads)

    def _third_leads(self) -> None:
        """(c) Silenced as soon as a majority has the old entry; the answers still reach it."""
        third = next(host for host in self._holders if host.leads)
        majority = self._cluster.bootstrap.majority

        def silence() -> None:
            self._faults.say("figure 8 (c)", ("silenced", third.node_id))
            self._cluster.network.mute(third.node_id, self._cluster.hosts)
            self._faults.after(50_000, lambda: self._third_falls(third))

        self._when(lambda: self._stored_by(self._holders + self._rest) >= majority, silence)

    def _third_falls(self, third: Host) -> None:
        """(d) The second comes back to those who do not know the third's term's entries."""
        assert self._second is not None
        self._faults.say("figure 8 (d)", ("returns", self._second.node_id))
        third.crash("drop")
        self._cluster.network.cut.clear()
        self._part(self._holders, [*self._rest, self._second])
        self._faults.restart(self._second)

    def _part(self, one_side: list[Host], other_side: list[Host]) -> None:
        self._cluster.network.split([h.node_id for h in one_side], [h.node_id for h in other_side])

    def _when(self, condition: Callable[[], bool], action: Callable[[], None]) -> None:
        """Looks again and again, in virtual time; gives the whole story up if it does not come to it."""
        self._look(condition, action, self._cluster.loop.now_us + _TIMEOUT_US)

    def _look(self, condition: Callable[[], bool], action: Callable[[], None], until_us: int) -> None:
        if condition():
            action()
        elif self._cluster.loop.now_us < until_us:
            self._faults.after(_POLL_US, lambda: self._look(condition, action, until_us))
        else:
            self._faults.say("figure 8 given up")
