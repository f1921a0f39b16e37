"""The control plane of a whole cluster in virtual time from one seed: nodes, clients, faults and checkers.

`ControlCluster(seed).run(seconds)` either returns what it did or raises `InvariantError`; the trace says the
rest.  Three or five nodes are controllers and brokers, one or two more are only brokers.  Faults strike until
some seconds before the end; then all heals but for one broker that sometimes stays away for good.

The truth is kept here: every entry as the first node applied it, with the image that it leads to.
"""

import random
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from distributedlog.broker.cluster.lease_grant import LEASE_PARTS, SESSION_PARTS
from distributedlog.broker.cluster.lifecycle import LifecycleTimes
from distributedlog.controller.brokers import ELECTION_PARTS
from distributedlog.controller.bundles import decode_bundle
from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.deltas import diff
from distributedlog.controller.features import LEVEL_MAX, LEVEL_MIN, has_eligible_leaders
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.requests import CreateTopicsRequest, NewTopic, Request
from distributedlog.model.cluster_settings import BROKER_SESSION_TIMEOUT
from distributedlog.model.errors import (
    ConsensusError,
    LeadershipLostError,
    LoadInProgressError,
    NotLeaderError,
    OverloadedError,
    RequestTimedOutError,
)
from distributedlog.model.ids import Uuid
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.raft import Entry, Membership, RaftConfig
from tests.simulation.checkers import InvariantError
from tests.simulation.checkers.administration import LinearizableAdministration
from tests.simulation.checkers.clean_leaders import CleanLeaders
from tests.simulation.checkers.control import Administration, ControlChecker, Served, Step
from tests.simulation.checkers.convergence import Convergence
from tests.simulation.checkers.fenced_lead_nothing import FencedLeadNothing
from tests.simulation.checkers.image_prefix import ImagePrefix
from tests.simulation.checkers.isr_by_epoch import IsrByEpoch
from tests.simulation.checkers.isr_within_replicas import IsrWithinReplicas
from tests.simulation.checkers.leases_end import LeasesEnd
from tests.simulation.checkers.one_controller import OneController
from tests.simulation.checkers.one_process import OneProcess
from tests.simulation.checkers.producer_ids import ProducerIds
from tests.simulation.checkers.rising_epochs import RisingEpochs
from tests.simulation.checkers.stale_controller import StaleController
from tests.simulation.checkers.state_machine_safety import StateMachineSafety
from tests.simulation.checkers.topic_ids import TopicIds
from tests.simulation.checkers.visible_after_ack import VisibleAfterAck
from tests.simulation.checkers.whole_changes import WholeChanges
from tests.simulation.control_clients import PAIRS, Client, PartitionLeaders
from tests.simulation.control_host import ControlHost
from tests.simulation.control_network import Wire
from tests.simulation.loop import SimLoop
from tests.simulation.network import SimNetwork
from tests.simulation.raft_process import RaftSetup
from tests.simulation.trace import Trace

if TYPE_CHECKING:
    from tests.simulation.control_faults import ControlFaults

SECOND_US = 1_000_000
HEALED_US = 14 * SECOND_US
"""How long the cluster has to get whole again."""
SESSION_TIMEOUT_MS = 3_000
CLIENTS = 3
OFFSETS_PARTITIONS = 4
LOOK_AT_LEASES_US = 10_000
TWIN_ID = 90

_NOT_THE_CONTROLLERS_WORD = (
    NotLeaderError,
    LeadershipLostError,
    LoadInProgressError,
    OverloadedError,
    RequestTimedOutError,
)


class Report(NamedTuple):
    seed: int
    flavour: str
    nodes: int
    events: int
    messages: int
    decided: int
    operations: int
    terms: int


class ControlCluster:
    def __init__(self, seed: int, nodes: int | None = None, flavour: str | None = None) -> None:
        flavours, faults = self._find_faults()
        self.seed = seed
        self.chance = chance = random.Random(seed)
        self.trace = Trace()
        self.loop = SimLoop()
        self.network = SimNetwork(self.loop, random.Random(chance.getrandbits(64)), self._deliver)
        self.wire = Wire(self.loop, self.network, random.Random(chance.getrandbits(64)))
        drawn = chance.choices(list(flavours), list(flavours.values()))[0], chance.choice((3, 3, 3, 5))
        self.flavour, voters = flavour or drawn[0], nodes or drawn[1]
        self.voters = list(range(1, voters + 1))
        self.setup = RaftSetup(
            RaftConfig(
                append_entries_max=chance.choice((1, 8, 64)),
                heartbeat_ms=400,
                inflight_appends_max=4,
                snapshot_chunk_bytes=chance.choice((256, 4096)),
                entries_kept_behind_snapshot=chance.choice((0, 5, 50)),
            ),
            Membership.of_voters(*self.voters),
            chance.choice((15, 60, 1_000_000)),
            on_log_engine=seed % 5 == 0,
        )
        self.cluster_id = "simulated"
        self.tries_ports = seed % 3 == 0
        self.wire.cut_refuses = seed % 2 == 0
        self.recent_bytes_max = chance.choice((500, 5_000, 1_000_000))
        self.level = chance.choice((LEVEL_MIN, LEVEL_MAX, LEVEL_MAX, LEVEL_MAX))
        self.times = LifecycleTimes(
            heartbeat_interval_ms=700,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            registration_timeout_ms=2_000,
            data_loop_lag_ms_max=2_000,
        )
        self.steps: list[Step] = []
        self._step_at: dict[int, Step] = {}
        self.operations: list[Administration] = []
        self._make_checkers()
        self._make_hosts(voters + chance.choice((1, 2)))
        self._next_mark = 1_000_000
        self.faults = faults(self)
        self._make_clients()

    def _find_faults(self) -> "tuple[Mapping[str, int], type[ControlFaults]]":
        """Returns the flavours, and what draws faults of them."""
        from tests.simulation.control_faults import FLAVOURS, ControlFaults

        return FLAVOURS, ControlFaults

    def _make_clients(self) -> None:
        self.clients = [Client(self, number) for number in range(CLIENTS)]
        self.leaders = [PartitionLeaders(self, host) for host in self.hosts.values()]

    def _make_checkers(self) -> None:
        self.state_machine_safety = StateMachineSafety(self)
        self.image_prefix = ImagePrefix(self)
        self.clean_leaders = CleanLeaders(self)
        self.convergence = Convergence(self)
        self.leases_end = LeasesEnd(self)
        self.leases_end.is_promised = has_eligible_leaders(self.level)
        self.checkers: list[ControlChecker] = [
            self.image_prefix,
            self.clean_leaders,
            IsrWithinReplicas(self),
            FencedLeadNothing(self),
            RisingEpochs(self),
            TopicIds(self),
            ProducerIds(self),
            OneController(self),
            StaleController(self),
            WholeChanges(self, PAIRS),
            IsrByEpoch(self),
            OneProcess(self, SESSION_TIMEOUT_MS, self._is_running),
            VisibleAfterAck(self),
            LinearizableAdministration(self),
            self.convergence,
            self.leases_end,
        ]

    def _make_hosts(self, brokers: int) -> None:
        self.hosts = {node_id: self._make_host(node_id) for node_id in range(1, brokers + 1)}
        self.twin = self._make_host(TWIN_ID, broker_id=self.chance.randrange(1, brokers + 1))
        """A second process under a broker's id, which somebody may start by mistake."""
        self.wire.hosts = {**self.hosts, TWIN_ID: self.twin}

    def _make_host(self, node_id: int, broker_id: int | None = None) -> ControlHost:
        drift_ppm = self._draw_drift_ppm()
        return ControlHost(self, node_id, self.chance.getrandbits(64), drift_ppm, broker_id)

    def _draw_drift_ppm(self) -> int:
        wild = self.chance.random() < 0.2
        return self.chance.randrange(-300_000, 300_000) if wild else self.chance.randrange(-5_000, 5_000)

    def controller_config(self, node_id: int) -> ControllerConfig:
        return ControllerConfig(
            controller_id=node_id,
            cluster_id=self.cluster_id,
            bootstrap_level=self.level,
            cluster_settings={BROKER_SESSION_TIMEOUT: str(SESSION_TIMEOUT_MS)},
            leader_balance_interval_ms=5_000,
        )

    # --- a run ---------------------------------------------------------------------------------

    def run(self, seconds: int) -> Report:
        end_us = seconds * SECOND_US
        for host in self.hosts.values():
            host.start()
        for client in self.clients:
            client.think()
        for leaders in self.leaders:
            leaders.look_later()
        self._make_offsets_topic()
        self._look_at_leases()
        self.faults.begin()
        events = self.loop.run_until(max(end_us - HEALED_US, 0))
        self.faults.heal()
        self.convergence.healed()
        events += self.loop.run_until(end_us - SECOND_US)
        for client in self.clients:
            client.stop()
        events += self.loop.run_until(end_us)
        self._finish()
        return Report(
            self.seed,
            self.flavour,
            len(self.voters),
            events,
            self.network.sent + 2 * self.wire.calls,
            len(self.steps),
            len(self.operations),
            self.steps[-1].term if self.steps else 0,
        )

    def _make_offsets_topic(self) -> None:
        """Asks for it until it is there."""
        image = self.steps[-1].after if self.steps else MetadataImage()
        if image.topic_named(OFFSETS_TOPIC) is None:
            topic = NewTopic(OFFSETS_TOPIC, OFFSETS_PARTITIONS, len(self.voters))
            for host in self.hosts.values():
                if host.is_up and host.is_active:
                    host.forwarder.ask(CreateTopicsRequest((topic,)), 1_000, lambda outcome: None)
            self.loop.call_after(SECOND_US // 4, self._make_offsets_topic)

    def _look_at_leases(self) -> None:
        rates = [host.clock.rate_ppm for host in self.wire.hosts.values()]
        rest = Fraction(ELECTION_PARTS - 1, ELECTION_PARTS)  # of a session, after an election
        if max(rates) * Fraction(LEASE_PARTS, SESSION_PARTS) > min(rates) * rest:
            self.leases_end.is_promised = False
        for host in self.wire.hosts.values():
            for partition, epoch in host.coordinators.answering():
                self.leases_end.on_may_answer(host.node_id, partition, epoch)
        self.loop.call_after(LOOK_AT_LEASES_US, self._look_at_leases)

    def _finish(self) -> None:
        living = [host for host in self.hosts.values() if host.is_up]
        self.convergence.active = [host.node_id for host in living if host.is_active]
        self.convergence.images = {host.node_id: host.replica.image for host in living}
        self.convergence.living = {
            host.broker_id: host.lifecycle.state if host.is_up else None for host in self.hosts.values()
        }
        for checker in self.checkers:
            checker.finish(self.operations)

    def leader(self) -> ControlHost | None:
        """The active controller, or else who leads in the latest term."""
        leaders = [host for host in self.raft_hosts.values() if host.leads and not host.paused]
        return max(leaders, key=lambda host: host.driver.status.term if host.driver else 0, default=None)

    @property
    def raft_hosts(self) -> Mapping[int, ControlHost]:
        return {node_id: self.hosts[node_id] for node_id in self.voters}

    def _is_running(self, incarnation: Uuid) -> bool:
        return any(host.is_running(incarnation) for host in self.wire.hosts.values())

    def next_mark(self) -> str:
        self._next_mark += 1
        return str(self._next_mark)

    # --- what happens --------------------------------------------------------------------------

    def sent(self, host: ControlHost, node_id: int, message: bytes) -> None:
        self.network.send(host.node_id, node_id, message)

    def _deliver(self, sender: int, receiver: int, message: bytes) -> None:
        self.hosts[receiver].deliver(sender, message)

    def applied(self, host: ControlHost, entry: Entry) -> None:
        known = len(self.state_machine_safety.decided)
        self.state_machine_safety.on_apply(host.node_id, entry)
        if len(self.state_machine_safety.decided) == known:
            return
        records, offset = decode_bundle(entry.payload), entry.index - 1
        messages = tuple(message for message, _ in records)
        before = self.steps[-1].after if self.steps else MetadataImage()
        try:
            after = before.apply(messages, offset)
        except ConsensusError as error:
            raise InvariantError("sound log", f"the entry {offset} cannot follow: {error}") from error
        step = Step(offset, entry.term, self.loop.now_us, records, before, after, diff(before, after))
        self.trace.add(self.loop.now_us, f"committed {offset} of term {entry.term}:", host.node_id, messages)
        self.steps.append(step)
        self._step_at[offset] = step
        for checker in self.checkers:
            checker.on_commit(step)

    def published(self, host: ControlHost, image: MetadataImage) -> None:
        for checker in self.checkers:
            checker.on_publish(host.node_id, image)

    def activated(self, host: ControlHost, term: int) -> None:
        for checker in self.checkers:
            checker.on_active(host.node_id, term)

    def served(self, served: Served) -> None:
        for checker in self.checkers:
            checker.on_served(served)

    def proposed(self, request: Request) -> None:
        for checker in self.checkers:
            checker.on_proposed(request)

    def answered(self, operation: Administration) -> None:
        for checker in self.checkers:
            checker.on_answer(operation)

    def is_word_of_controller(self, error: BaseException | None) -> bool:
        """An answer that it made as the controller: a response, or a refusal."""
        return not isinstance(error, _NOT_THE_CONTROLLERS_WORD)

    # --- what the checkers see -----------------------------------------------------------------

    @property
    def now_us(self) -> int:
        return self.loop.now_us

    def step_at(self, offset: int) -> Step | None:
        return self._step_at.get(offset)

    def durable_term(self, node_id: int, incarnation: int, index: int) -> int | None:
        return self.hosts[node_id].durable_term(incarnation, index)

    def durable_vote(self, node_id: int) -> tuple[int, int | None]:
        return self.hosts[node_id].durable_vote
