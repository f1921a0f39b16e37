"""A whole cluster in virtual time from one seed: hosts, network, clients, faults and checkers.

`RaftCluster(seed).run(seconds)` either returns what it did or raises `InvariantError`; the trace says the
rest.  Faults strike until ten seconds before the end; then all heals, and the cluster must get going.
"""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distributedlog.model.errors import DlogError, LeadershipLostError, NotLeaderError
from distributedlog.ports.executor import Outcome
from distributedlog.raft import Entry, Membership, RaftConfig, codec
from tests.simulation.checkers import Checker, Operation
from tests.simulation.checkers.durable_commit import DurableCommit
from tests.simulation.checkers.durable_vote import DurableVote
from tests.simulation.checkers.election_safety import ElectionSafety
from tests.simulation.checkers.leader_append_only import LeaderAppendOnly
from tests.simulation.checkers.leader_completeness import LeaderCompleteness
from tests.simulation.checkers.linearizability import Linearizability
from tests.simulation.checkers.log_matching import LogMatching
from tests.simulation.checkers.one_change import OneChange
from tests.simulation.checkers.one_vote import OneVote
from tests.simulation.checkers.progress import PROGRESS_US_MAX, Progress
from tests.simulation.checkers.stability import Stability
from tests.simulation.checkers.state_machine_safety import StateMachineSafety
from tests.simulation.loop import SimLoop
from tests.simulation.network import SimNetwork
from tests.simulation.raft_host import VALUE, Host
from tests.simulation.trace import Trace

SECOND_US = 1_000_000
CLIENT_TIMEOUTS_US = (SECOND_US // 3, SECOND_US, 3 * SECOND_US)
_VOTE_TYPES = (1, 2)


class Report(NamedTuple):
    seed: int
    flavour: str
    nodes: int
    events: int
    messages: int
    decided: int
    operations: int
    terms: int


class RaftCluster:
    def __init__(self, seed: int, nodes: int | None = None, flavour: str | None = None) -> None:
        from tests.simulation.faults import FLAVOURS, Faults

        self.seed = seed
        self.chance = chance = random.Random(seed)
        self.trace = Trace()
        self.loop = SimLoop()
        self.network = SimNetwork(self.loop, random.Random(chance.getrandbits(64)), self._deliver)
        drawn = chance.choices(list(FLAVOURS), list(FLAVOURS.values()))[0], chance.choice((3, 5))
        self.flavour, self.voters = flavour or drawn[0], nodes or drawn[1]
        entries_max = chance.choice((1, 2, 8))
        self.config = RaftConfig(
            append_entries_max=1 if self.flavour == "figure eight" else entries_max,
            append_bytes_max=64,
            inflight_appends_max=4,
            snapshot_chunk_bytes=256,
            entries_kept_behind_snapshot=chance.choice((0, 3, 10)),
            promote_lag_entries_max=10,
        )
        self.on_log_engine = seed % 3 != 1
        """Whether it runs on the real log engine, or on a simple storage that is quicker."""
        self.snapshot_interval_entries = chance.choice((15, 40, 1_000_000))
        self.bootstrap = Membership.of_voters(*range(1, self.voters + 1))
        self._make_checkers()
        self.hosts = {node_id: self._make_host(node_id) for node_id in range(1, self.voters + 2)}
        self.append_share = 0.0 if self.flavour == "lonely" and chance.random() < 0.7 else 0.6
        self.operations: list[Operation] = []
        self._next_value = 0
        self.faults = Faults(self)
        self.clients = [Client(self, number) for number in range(3)]

    def _make_checkers(self) -> None:
        self.state_machine_safety = StateMachineSafety(self)
        self.linearizability = Linearizability(self)
        self.progress = Progress(self)
        self.stability = Stability(self)
        self.log_checkers: list[Checker] = [
            LeaderAppendOnly(self),
            LogMatching(self),
            OneChange(self),
            self.stability,
        ]
        self.leader_checkers: list[Checker] = [ElectionSafety(self), LeaderCompleteness(self)]
        self.commit_checkers: list[Checker] = [
            DurableCommit(self),
            self.leader_checkers[1],
            self.log_checkers[2],
        ]
        self.one_vote = OneVote(self)
        self.durable_vote_checker = DurableVote(self)

    def _make_host(self, node_id: int) -> Host:
        wild = self.chance.random() < (0.6 if self.flavour == "churn" else 0.3)
        drift_ppm = self.chance.randrange(-500_000, 800_000) if wild else self.chance.randrange(-5_000, 5_000)
        if self.flavour in ("figure eight", "lonely"):
            drift_ppm = 0
        return Host(self, node_id, self.chance.getrandbits(64), drift_ppm)

    # --- a run ---------------------------------------------------------------------------------

    def run(self, seconds: int) -> Report:
        end_us = seconds * SECOND_US
        heal_us = max(end_us - PROGRESS_US_MAX, 0)
        for host in self.hosts.values():
            host.start()
        for client in self.clients:
            client.think()
        self.faults.begin()
        events = self.loop.run_until(heal_us)
        self.faults.heal()
        self.progress.healed()
        events += self.loop.run_until(end_us)
        self._finish()
        return Report(
            self.seed,
            self.flavour,
            self.voters,
            events,
            self.network.sent,
            len(self.state_machine_safety.decided),
            len(self.operations),
            max((h.driver.status.term for h in self.hosts.values() if h.driver is not None), default=0),
        )

    def _finish(self) -> None:
        decided = self.state_machine_safety.decided
        self.linearizability.order = [VALUE.unpack(entry.payload)[0] for entry in decided]
        leader = self.leader()
        if leader is not None and leader.driver is not None:
            self.progress.members = leader.driver.status.membership
        else:
            self.progress.members = self.bootstrap
        self.progress.finish(self.operations)
        self.linearizability.finish(self.operations)

    def leader(self) -> Host | None:
        """The leader of the latest term."""
        leaders = [host for host in self.hosts.values() if host.leads and not host.paused]
        return max(leaders, key=lambda host: host.driver.status.term if host.driver else 0, default=None)

    @property
    def raft_hosts(self) -> Mapping[int, Host]:
        return self.hosts

    def next_value(self) -> int:
        self._next_value += 1
        return self._next_value

    # --- what happens --------------------------------------------------------------------------

    def sent(self, host: Host, node_id: int, message: bytes) -> None:
        self.trace.add(self.loop.now_us, f"-> {node_id}", host.node_id, message)
        if message[1] in _VOTE_TYPES and host.incarnation is not None:
            vote = codec.decode(message, self.config)
            self.one_vote.on_send(host.node_id, host.incarnation, vote)
            self.durable_vote_checker.on_send(host.node_id, host.incarnation, vote)
        self.network.send(host.node_id, node_id, message)

    def _deliver(self, sender: int, receiver: int, message: bytes) -> None:
        self.hosts[receiver].deliver(sender, message)

    def observe(self, host: Host) -> None:
        """Tells the checkers what has changed in a node since it was last looked at."""
        if host.driver is None:
            return
        core = host.driver.node.core
        log = core.log
        now = (core.role, core.term, log.last_index, log.last_term, core.commit_index, core.memberships.index)
        before, host.seen = host.seen, now
        if before == now:
            return
        node = host.driver.node
        if before[:2] != now[:2]:
            self.trace.add(self.loop.now_us, f"is {core.role.value}", host.node_id, f"of term {core.term}")
            if host.leads:
                for checker in self.leader_checkers:
                    checker.on_leader(node, core.term)
        for checker in self.log_checkers:
            checker.on_log(node)
        committed = before[4] if len(before) > 4 else 0
        if isinstance(committed, int) and core.commit_index > committed:
            for checker in self.commit_checkers:
                checker.on_commit(node, committed, core.commit_index)

    def stored(self, host: Host, entries: Sequence[Entry]) -> None:
        self.log_checkers[1].on_stored(host.node_id, entries)

    def applied(self, host: Host, entry: Entry) -> None:
        self.state_machine_safety.on_apply(host.node_id, entry)
        self.progress.on_apply(host.node_id, entry)

    def restored(self, host: Host, index: int) -> None:
        self.state_machine_safety.on_restore(host.node_id, index)
        self.progress.on_restore(host.node_id, index)

    # --- what the checkers see -----------------------------------------------------------------

    @property
    def now_us(self) -> int:
        return self.loop.now_us

    def durable_term(self, node_id: int, incarnation: int, index: int) -> int | None:
        return self.hosts[node_id].durable_term(incarnation, index)

    def durable_vote(self, node_id: int) -> tuple[int, int | None]:
        return self.hosts[node_id].durable_vote


class Client:
    """Asks whoever it believes to lead, waits for an answer or a timeout, thinks, and asks again."""

    def __init__(self, cluster: RaftCluster, number: int) -> None:
        self.cluster = cluster
        self.name = f"c{number}"
        self._chance = random.Random(cluster.chance.getrandbits(64))
        self._target = self._chance.randrange(1, cluster.voters + 1)
        self._sequence = 0

    def think(self) -> None:
        self._sequence += 1
        delay_us = 20_000 + int(self._chance.expovariate(1 / 400_000))
        self.cluster.loop.call_after(delay_us, self._ask, self._sequence)

    def _ask(self, sequence: int) -> None:
        if sequence != self._sequence:
            return
        host = self.cluster.hosts[self._target]
        if host.driver is None:
            self._look_elsewhere(None)
            self.think()
            return
        kind = "append" if self._chance.random() < self.cluster.append_share else "read"
        value = self.cluster.next_value() if kind == "append" else 0
        operation = Operation(kind, value, self.cluster.loop.now_us)
        self.cluster.operations.append(operation)
        timeout_us = self._chance.choice(CLIENT_TIMEOUTS_US)
        self.cluster.loop.call_after(timeout_us, self._time_out, sequence)
        host.call(lambda: self._request(host, operation, sequence))

    def _request(self, host: Host, operation: Operation, sequence: int) -> None:
        assert host.driver is not None
        self.cluster.trace.add(self.cluster.loop.now_us, repr(operation), self.name, ("at", host.node_id))
        try:
            if operation.kind == "append":
                payload = VALUE.pack(operation.value)
                host.driver.propose(payload, lambda out: self._appended(host, operation, sequence, out))
            else:
                host.driver.read(lambda out: self._read(host, operation, sequence, out))
        except DlogError as error:
            operation.outcome = "failed"
            self._look_elsewhere(error)
            if sequence == self._sequence:
                self.think()

    def _appended(self, host: Host, operation: Operation, sequence: int, outcome: Outcome[object]) -> None:
        if outcome.error is None:
            position = outcome.value()
            assert isinstance(position, int)
            operation.result = (position, operation.value)
            if host.driver is not None:
                self.cluster.progress.decided(host.driver.status.applied_index)
        self._answered(operation, sequence, outcome.error)

    def _read(self, host: Host, operation: Operation, sequence: int, outcome: Outcome[None]) -> None:
        values = host.machine.values
        operation.result = (len(values), values[-1] if values else 0)
        self._answered(operation, sequence, outcome.error)

    def _answered(self, operation: Operation, sequence: int, error: BaseException | None) -> None:
        operation.completed_us = self.cluster.loop.now_us
        operation.outcome = "ok" if error is None else "unknown"
        told = "unknown" if error else f"ok {operation.result[0]}"
        self.cluster.trace.add(self.cluster.loop.now_us, repr(operation), self.name, told)
        if error is not None:
            assert isinstance(error, LeadershipLostError), error
            self._look_elsewhere(error)
        if sequence == self._sequence:
            self.think()

    def _time_out(self, sequence: int) -> None:
        if sequence == self._sequence:
            self._look_elsewhere(None)
            self.think()

    def _look_elsewhere(self, error: Exception | None) -> None:
        hint = error.leader_id if isinstance(error, NotLeaderError) else None
        self._target = hint or self._chance.choice(list(self.cluster.hosts))
