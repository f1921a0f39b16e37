"""Everything of a node that runs on the control loop, put together.

    voter     Raft driver + controller driver -> replica        gRPC: raft, controller, watch of the metadata
    broker    watcher of a voter's metadata   -> replica        (only if no leader of Raft sends it entries)
    broker    forwarder, lifecycle in the cluster

What it reports to the rest of the node goes through `ControlEvents`, called on this loop; what is asked of it
comes in by `post`.  Stopping in good order: leaderships are handed over first (`shut_down_broker`), then, if
this node is the active controller, leadership of the quorum too, so that nobody has to wait for an election
timeout.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.broker.cluster.control_refusals import ControlRefusals
from distributedlog.broker.cluster.data_loop_lag import LagProbe
from distributedlog.broker.cluster.forwarding import ControllerForwarder
from distributedlog.broker.cluster.leader_watch import LeaderWatch
from distributedlog.broker.cluster.lease_grant import LeaseGrant
from distributedlog.broker.cluster.lifecycle import NO_EPOCH, BrokerLifecycle, LifecycleState, LifecycleTimes
from distributedlog.broker.cluster.metadata import MetadataReplica
from distributedlog.broker.cluster.own_registration import OwnRegistration
from distributedlog.broker.cluster.port_watch import PortWatch, SilentBroker, Tried
from distributedlog.broker.cluster.quorum_addresses import Address, QuorumAddresses
from distributedlog.broker.cluster.raft_driver import RaftDriver
from distributedlog.broker.coordination.controller_driver import ControllerDriver
from distributedlog.broker.loops import LoopScheduler
from distributedlog.broker.observability.metrics import ControlStatus
from distributedlog.control.channels import ControllerChannelPool
from distributedlog.control.contract import Identity as NodeIdentity
from distributedlog.control.credentials import Credentials
from distributedlog.control.server import ControlServer
from distributedlog.control.transport import GrpcTransport
from distributedlog.control.unproven import UnprovenMembers
from distributedlog.controller.cluster_settings import data_loop_lag_ms_max, session_timeout_ms
from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.features import (
    FEATURES,
    GROUP_LEVEL_CONSUMER,
    TRANSACTION_LEVEL_EPOCHS,
)
from distributedlog.controller.image import (
    ControllerRegistration,
    Endpoint,
    MetadataImage,
    SupportedLevels,
)
from distributedlog.controller.replica_faults import ReplicaFault
from distributedlog.controller.requests import RegisterBrokerRequest, Request, Response
from distributedlog.controller.sessions.log_ends import ReplicaLogEnd
from distributedlog.data_directory.identity import Identity, founding_incarnation
from distributedlog.data_directory.raft_storage import LogRaftStorage
from distributedlog.model.cluster_secret import ClusterSecrets
from distributedlog.model.config import SECOND_MS
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import Uuid
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, SystemExecutor
from distributedlog.ports.randomness import Randomness
from distributedlog.raft import Membership, RaftConfig, Role
from distributedlog.settings.node_settings import OPTIONAL, NodeSettings
from distributedlog.storage.files import Files

if TYPE_CHECKING:
    from distributedlog.control.late import LateService
    from distributedlog.control.watcher import MetadataWatcher

SNAPSHOT_INTERVAL_ENTRIES: Final = 20_000
HAND_OVER_SECONDS: Final = 1.0
STOP_GRACE_SECONDS: Final = 0.2
STATUS_INTERVAL_MS: Final = 200
FOLLOW_AFTER_TIMEOUTS: Final = 4
"""A controller that hears no leader for so many election timeouts watches the metadata as brokers do."""
ROLE_WORDS: Final = {
    Role.LEADER: "leader",
    Role.CANDIDATE: "candidate",
    Role.PRE_CANDIDATE: "candidate",
    Role.FOLLOWER: "follower",
}


class ControlEvents(NamedTuple):
    """Called on the control loop."""

    image: Callable[[MetadataImage], None]
    state: Callable[[LifecycleState, int], None]
    """The state of the broker, and its epoch."""
    active: Callable[[bool], None]
    failed: Callable[[BaseException], None]
    """This node cannot go on."""
    status: Callable[[ControlStatus, float], None]
    """How things stand, and the data loop's lag in seconds."""
    faults_taken: Callable[[tuple[ReplicaFault, ...]], None]
    """A controller has acted on these faults of replicas."""
    lease: Callable[[LeaseGrant], None]
    """The lease of the coordinators is another."""
    prepare: Callable[[Callable[[], None]], None]
    """The image has caught up with the cluster: the broker's partitions are to be made ready."""


class ControlPlane:
    """Made on any thread; from `start` on everything is called on the control loop."""

    def __init__(
        self,
        settings: NodeSettings,
        identity: Identity,
        files: Files,
        *,
        secrets: Callable[[], ClusterSecrets],
        clock: Clock,
        randomness: Randomness,
        data_loop: asyncio.AbstractEventLoop,
        events: ControlEvents,
    ) -> None:
        self.settings = settings
        self.identity = identity
        self.replica = MetadataReplica()
        self.controller: ControllerDriver | None = None
        self.raft: RaftDriver | None = None
        self.lifecycle: BrokerLifecycle | None = None
        self.probe: LagProbe | None = None
        self.channels: ControllerChannelPool | None = None
        self.server: ControlServer | None = None
        self._forwarder: ControllerForwarder | None = None
        self._files = files
        self._clock = clock
        self._randomness = randomness
        self._data_loop = data_loop
        self._events = events
        self._refusals = ControlRefusals(clock)
        own = NodeIdentity(identity.cluster_id, settings.node_id)
        unproven = UnprovenMembers(
            self._is_member,
            self._refusals.accept_unproven,
            is_optional=settings.control_authentication == OPTIONAL,
        )
        self._credentials = Credentials(own, ",".join(sorted(settings.process_roles)), secrets, unproven)
        self._executor = SystemExecutor(threads=1)
        self._transport: GrpcTransport | None = None
        self._watcher: MetadataWatcher | None = None
        self._addresses: QuorumAddresses | None = None
        self._registration: OwnRegistration | None = None
        self._stopping_watchers: set[asyncio.Task[None]] = set()
        self._ports: PortWatch | None = None
        self._leader_watch: LeaderWatch | None = None
        self._tries: set[asyncio.Task[bool]] = set()
        self._not_leading: asyncio.Event | None = None
        self._leader_id: int | None = None
        self._is_stopping = False
        self._elections = 0
        self._term_campaigned = 0

    def _is_member(self, node_id: int) -> bool:
        voters = (voter.node_id for voter in self.settings.controller_quorum_voters)
        image = self.replica.image
        return node_id in voters or node_id in image.brokers or node_id in image.controllers

    # --- starting ------------------------------------------------------------------------------

    async def start(self) -> str:
        """Recovers, listens and takes part; the address other nodes reach it at."""
        settings, loop = self.settings, asyncio.get_running_loop()
        self._scheduler = LoopScheduler(loop, self._clock)
        self._not_leading = asyncio.Event()
        self.probe = LagProbe(self._data_loop, self._clock, self._scheduler)
        self._addresses = QuorumAddresses(
            settings.node_id,
            settings.controller_quorum_voters,
            self._files,
            settings.metadata_dir,
            self._executor,
            self._take_addresses,
        )
        peers = self._addresses.others
        self.replica.on_publish(self._events.image)
        if settings.is_controller:
            self._start_controller(peers)
        self.channels = ControllerChannelPool(self._credentials, peers, randomness=self._randomness)
        self._forwarder = ControllerForwarder(
            settings.node_id,
            self._controllers_in(peers),
            self.channels,
            self.controller,
            self.replica,
            clock=self._clock,
            scheduler=self._scheduler,
            randomness=self._randomness,
            behind=self._follow_another,
        )
        self.server = ControlServer(
            self._credentials,
            transport=self._transport,
            controller=self.controller,
            metadata=self.replica,
            refused=self._refusals.refuse,
        )
        port = await self.server.start(settings.control_listener.host, settings.control_listener.port)
        own_address = settings.control_listener._replace(port=port)
        if self.raft is not None:
            self._registration = self._make_registration(self.raft, own_address)
            self.replica.on_publish(self._registration.take_image)
        self.replica.on_publish(self._addresses.take_image)
        self.replica.on_publish(self._note_leader_of)
        self._report_status()
        return str(own_address)

    def _make_registration(self, raft: RaftDriver, listening: Address) -> OwnRegistration:
        settings = self.settings
        named = {voter.node_id: (voter.host, voter.port) for voter in settings.controller_quorum_voters}
        host, port = named.get(settings.node_id, listening)
        own = ControllerRegistration(
            settings.node_id,
            self.identity.directory_id,
            raft.node.core.incarnation,
            host,
            port or listening[1],
        )
        return OwnRegistration(own, self.forwarder, clock=self._clock, scheduler=self._scheduler)

    def _controllers_in(self, others: Mapping[int, Address]) -> list[int]:
        """Returns whom to ask for the active controller: all that may be it."""
        return sorted({*others, self.settings.node_id} if self.settings.is_controller else others)

    def _take_addresses(self, others: Mapping[int, Address]) -> None:
        """Reaches the other controllers where they are now."""
        if self._transport is not None:
            _replace(self._transport.peers, others)
        if self.channels is not None:
            _replace(self.channels.peers, others)
        self.forwarder.voters = self._controllers_in(others)

    def _note_leader_of(self, image: MetadataImage) -> None:
        if self._watcher is not None:
            self._leader_is(image.controller_id)

    def _feed(self) -> None:
        """Watches the metadata as long as consensus brings none: on a node that has no part in it, that has
        none yet, or no more, or that does not hear its leader."""
        if self.raft is not None and self._follows_raft(self.raft):
            watcher, self._watcher = self._watcher, None
            if watcher is not None:
                task = asyncio.get_running_loop().create_task(watcher.stop())
                self._stopping_watchers.add(task)
                task.add_done_callback(self._stopping_watchers.discard)
                self._leader_is(self.raft.node.core.leader_id)
        elif self._watcher is None and self.channels is not None and self.channels.peers:
            from distributedlog.control.watcher import MetadataWatcher

            self._watcher = MetadataWatcher(
                self.channels, self.replica, on_batch=self.replica.publish, failed=self._events.failed
            )
            self._watcher.start(self.replica.image.offset + 1)

    def _follows_raft(self, raft: RaftDriver) -> bool:
        core = raft.node.core
        if core.role is Role.LEADER:
            return True
        silence_ms = self._clock.monotonic_ms() - core.leader_heard_ms
        is_heard = (
            core.leader_id is not None or core.is_voter
        )  # a voter that starts waits for its first leader
        return is_heard and silence_ms < FOLLOW_AFTER_TIMEOUTS * self.settings.quorum_election_timeout_ms

    def settle(self) -> None:
        """Imports what the start did not wait for, a piece at a time."""
        late: list[LateService] = [] if self.server is None else [*self.server.services]
        for service in late:
            asyncio.get_running_loop().call_soon(service.load)

    def _start_controller(self, peers: dict[int, tuple[str, int]]) -> None:
        settings = self.settings
        self._transport = GrpcTransport(self._credentials, peers, randomness=self._randomness)
        self.controller = ControllerDriver(
            controller_config(settings, self.identity),
            self._randomness,
            self.replica,
            clock=self._clock,
            scheduler=self._scheduler,
            failed=self._events.failed,
            activity=self._activity,
        )
        self.raft = RaftDriver(
            settings.node_id,
            RaftConfig(
                election_timeout_ms=settings.quorum_election_timeout_ms,
                heartbeat_ms=settings.quorum_heartbeat_ms,
            ),
            Membership.of_voters(*(voter.node_id for voter in settings.controller_quorum_voters)),
            self.controller,
            storage=LogRaftStorage(self._files, settings.metadata_dir, self._clock),
            transport=self._transport,
            executor=self._executor,
            clock=self._clock,
            scheduler=self._scheduler,
            randomness=self._randomness,
            snapshot_interval_entries=SNAPSHOT_INTERVAL_ENTRIES,
            failed=self._events.failed,
            progressed=self._progressed,
            is_known_voter=self._transport.peers.__contains__,
            contents=self.controller,
            refused=self._refusals.refuse_message,
            founding_incarnation=founding_incarnation(self.identity.directory_id),
        )
        self.controller.attach(self.raft)

        self._ports = PortWatch(
            self.controller, self._try_ports_of, clock=self._clock, scheduler=self._scheduler
        )
        self._leader_watch = LeaderWatch(
            self.raft,
            self._try_control_port_of,
            heartbeat_ms=settings.quorum_heartbeat_ms,
            clock=self._clock,
            scheduler=self._scheduler,
        )

    def _activity(self, is_active: bool) -> None:
        self._events.active(is_active)
        if self._ports is not None:
            self._ports.take_activity(is_active)

    def _try_ports_of(self, broker: SilentBroker, tried: Tried) -> None:
        self._try_ports([(each.host, each.port) for each in broker.endpoints], tried)

    def _try_control_port_of(self, node_id: int, tried: Tried) -> None:
        address = None if self._transport is None else self._transport.peers.get(node_id)
        self._try_ports([] if address is None else [address], tried)

    def _try_ports(self, addresses: Sequence[Address], tried: Tried) -> None:
        from distributedlog.control.ports import all_refuse  # a node alone has nobody to try

        task = asyncio.get_running_loop().create_task(all_refuse(addresses))
        self._tries.add(task)
        task.add_done_callback(self._tries.discard)
        task.add_done_callback(lambda done: tried(not done.cancelled() and done.result()))

    def _progressed(self) -> None:
        if self.controller is not None and self.raft is not None:
            self.controller.progressed()
            role, term = self.raft.node.core.role, self.raft.node.core.term
            if role is Role.CANDIDATE and term != self._term_campaigned:
                self._term_campaigned = term
                self._elections += 1
            if self._not_leading is not None and role is not Role.LEADER:
                self._not_leading.set()
            if self._leader_watch is not None:
                self._leader_watch.take_following(self.raft.is_following)
            if self._watcher is None:
                self._leader_is(self.raft.node.core.leader_id)

    def _follow_another(self) -> None:
        """Watches another voter: what is committed does not come here, so this one may be partitioned
        away."""
        if self._watcher is not None:
            self._watcher.switch()

    def _leader_is(self, leader_id: int | None) -> None:
        if leader_id != self._leader_id:
            self._leader_id = leader_id
            if self._forwarder is not None:
                self._forwarder.leader_changed(leader_id)

    def tell_fault(self, fault: ReplicaFault) -> None:
        """Tells the controller what this broker can serve of a replica."""
        if self.lifecycle is not None:
            self.lifecycle.tell_fault(fault)

    def tell_log_ends(self, ends: tuple[ReplicaLogEnd, ...]) -> None:
        """Tells the controller where logs end of partitions that nobody leads."""
        if self.lifecycle is not None:
            self.lifecycle.tell_log_ends(ends)

    def join(
        self,
        endpoints: tuple[Endpoint, ...],
        *,
        was_clean: bool,
        synced_epoch: int,
        incarnation: Uuid,
        predecessors: tuple[Uuid, ...],
    ) -> None:
        """Registers the broker, once it can be reached at these addresses.  `was_clean`: recovery found the
        directory as a clean stop leaves it.  `synced_epoch`: in it nothing was committed here that was not
        synced.  `predecessors` are dead: this process has their lock."""
        settings = self.settings
        assert self.probe is not None
        self.probe.start()
        self.lifecycle = BrokerLifecycle(
            RegisterBrokerRequest(
                cluster_id=self.identity.cluster_id,
                broker_id=settings.node_id,
                incarnation_id=incarnation,
                endpoints=endpoints,
                features=tuple(SupportedLevels(name, *levels) for name, levels in FEATURES.items()),
                rack=settings.rack,
                log_dirs=(self.identity.directory_id,),
                previous_broker_epoch=self.identity.clean_epoch if was_clean else NO_EPOCH,
                predecessors=predecessors,
                synced_broker_epoch=synced_epoch,
                host=settings.host,
            ),
            self.forwarder,
            LifecycleTimes(
                heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
                duplicate_timeout_ms=settings.registration_timeout_ms,
            ),
            clock=self._clock,
            scheduler=self._scheduler,
            randomness=self._randomness,
            data_loop_lag_ms=self.probe.lag_ms,
            changed=self._state_changed,
            failed=self._events.failed,
            prepare=self._events.prepare,
            faults_taken=self._events.faults_taken,
            granted=self._events.lease,
        )
        self.replica.on_publish(self._take_image)
        self.lifecycle.start()

    def _take_image(self, image: MetadataImage) -> None:
        if self.lifecycle is not None:
            self.lifecycle.take_session_timeout(session_timeout_ms(image), data_loop_lag_ms_max(image))
            self.lifecycle.tell_host(image)

    def _state_changed(self, state: LifecycleState) -> None:
        self._events.state(state, self.broker_epoch)

    # --- looking -------------------------------------------------------------------------------

    def ask_controller(self, request: Request, timeout_ms: int, done: Done[Response]) -> None:
        """Asks the active controller; `done` is called once the image here has what it did."""
        self.forwarder.ask(request, timeout_ms, done)

    @property
    def forwarder(self) -> ControllerForwarder:
        assert self._forwarder is not None, "start comes first"
        return self._forwarder

    @property
    def broker_epoch(self) -> int:
        return NO_EPOCH if self.lifecycle is None else self.lifecycle.epoch

    def note_applied(self, offset: int, is_urgent: bool) -> None:
        """Passes on how far the data loop has applied the metadata."""
        if self.lifecycle is not None:
            self.lifecycle.note_applied(offset, is_urgent)

    def await_settled(self, offset: int) -> None:
        """Has the controller asked until every other broker has applied what it lost up to this offset."""
        if self.lifecycle is not None:
            self.lifecycle.await_settled(offset)

    def status(self) -> ControlStatus:
        image = self.replica.image
        own = image.brokers.get(self.settings.node_id)
        raft = None if self.raft is None else self.raft.status
        lifecycle = self.lifecycle
        return ControlStatus(
            role="observer" if raft is None else ROLE_WORDS[raft.role],
            leader_id=image.controller_id if raft is None else raft.leader_id,
            term=image.epoch if raft is None else raft.term,
            commit_index=image.offset + 1 if raft is None else raft.commit_index,
            elections=self._elections,
            is_active_controller=self.controller is not None and self.controller.is_active,
            image_offset=image.offset,
            brokers=len(image.brokers),
            brokers_fenced=sum(broker.fenced for broker in image.brokers.values()),
            is_fenced=own is None or own.fenced,
            heartbeats=0 if lifecycle is None else lifecycle.heartbeats,
            heartbeats_failed=0 if lifecycle is None else lifecycle.heartbeats_failed,
            refused=self._refusals.counts,
            unproven=self._refusals.unproven,
        )

    def _report_status(self) -> None:
        """Reports the status for metrics, now and every `STATUS_INTERVAL_MS`; looks who feeds the replica."""
        if self._is_stopping:
            return
        self._feed()
        status = self.status()
        lag_s = 0.0 if self.probe is None else self.probe.lag_ms() / 1000
        self._events.status(status, lag_s)
        self._scheduler.call_at(self._clock.monotonic_ms() + STATUS_INTERVAL_MS, self._report_status)

    # --- stopping ------------------------------------------------------------------------------

    async def shut_down_broker(self, timeout_s: float) -> bool:
        """Performs the controlled shutdown: hands over what this broker leads.  Returns whether that was done
        within the timeout."""
        if self.lifecycle is None:
            return False
        done = asyncio.Event()
        self.lifecycle.shut_down(done.set)
        try:
            await asyncio.wait_for(done.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Takes part no more.  Safe to call whatever has been started."""
        self._is_stopping = True
        if self._registration is not None:
            self._registration.stop()
        if self.lifecycle is not None:
            self.lifecycle.stop()
        if self.probe is not None:
            self.probe.stop()
        if self._ports is not None:
            self._ports.stop()
        if self._leader_watch is not None:
            self._leader_watch.stop()
        for task in list(self._tries):
            task.cancel()
        await self._hand_over_quorum()
        if self._watcher is not None:
            await self._watcher.stop()
        await asyncio.gather(*self._stopping_watchers, return_exceptions=True)
        if self._forwarder is not None:
            self._forwarder.close()
        if self.raft is not None:
            self.raft.stop()
        if self.server is not None:
            await self.server.stop(STOP_GRACE_SECONDS)
        if self._transport is not None:
            self._transport.close()
            await self._transport.closed()
        if self.channels is not None:
            await self.channels.close()
        self._executor.close()

    async def _hand_over_quorum(self) -> None:
        raft = self.raft
        if raft is None or raft.status.role is not Role.LEADER:
            return
        others = [node_id for node_id in raft.status.membership.voters if node_id != self.settings.node_id]
        assert self._not_leading is not None
        for target in others:
            self._not_leading.clear()
            try:
                raft.transfer_leadership(target)
                await asyncio.wait_for(self._not_leading.wait(), HAND_OVER_SECONDS)
            except (DlogError, TimeoutError):
                continue
            return


def _replace(peers: dict[int, Address], now: Mapping[int, Address]) -> None:
    for gone in peers.keys() - now.keys():
        del peers[gone]
    peers.update(now)


def controller_config(settings: NodeSettings, identity: Identity) -> ControllerConfig:
    return ControllerConfig(
        controller_id=settings.node_id,
        cluster_id=identity.cluster_id,
        bootstrap_group_level=GROUP_LEVEL_CONSUMER,
        bootstrap_transaction_level=TRANSACTION_LEVEL_EPOCHS,
        cluster_settings=settings.cluster_settings,
        # Who stores partitions is not known yet; usually it is the voters, or more than they are.
        brokers_expected=len(settings.controller_quorum_voters),
        refused_timeout_ms=max(settings.broker_refused_timeout_ms, 2 * settings.broker_heartbeat_interval_ms),
        election_timeout_ms=settings.quorum_election_timeout_ms,
        leader_balance_interval_ms=settings.leader_balance_interval_s * SECOND_MS,
    )
