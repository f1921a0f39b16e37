"""Everything of a node that runs on the control loop, put together.

    voter     Raft driver + controller driver -> replica        gRPC: raft, controller, watch of the metadata
    broker    watcher of a voter's metadata   -> replica        (only if it is no voter itself)
    broker    forwarder, life in the cluster

What it tells the rest of the node goes through `ControlEvents`, called on this loop; what is asked of it
comes in by `post`.  Stopping in good order: leaderships are handed over first (`leave`), then, if this node
is the active controller, that office too, so that nobody has to wait for an election timeout.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.broker.addresses import Endpoint as Address
from distributedlog.broker.controller_driver import ControllerDriver
from distributedlog.broker.directory import Identity
from distributedlog.broker.forwarding import ControllerForwarder
from distributedlog.broker.lag import LagProbe
from distributedlog.broker.lifecycle import NO_EPOCH, BrokerLife, LifeState, LifeTimes
from distributedlog.broker.loops import LoopScheduler
from distributedlog.broker.metadata import MetadataReplica
from distributedlog.broker.metrics import ControlStatus
from distributedlog.broker.raft_driver import RaftDriver
from distributedlog.broker.raft_storage import LogRaftStorage
from distributedlog.broker.settings import NodeSettings
from distributedlog.control.channels import ControllerChannelPool
from distributedlog.control.server import ControlServer
from distributedlog.control.transport import GrpcTransport
from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.features import FEATURES, GROUP_LEVEL_CONSUMER
from distributedlog.controller.image import Endpoint, MetadataImage, SupportedLevels
from distributedlog.controller.requests import RegisterBrokerRequest
from distributedlog.model.config import SECOND_MS
from distributedlog.model.errors import DlogError
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import SystemExecutor
from distributedlog.ports.randomness import Randomness
from distributedlog.raft import Membership, RaftConfig, Role
from distributedlog.storage.files import Files

if TYPE_CHECKING:
    from distributedlog.broker.gateway.late import LateBrokerService
    from distributedlog.control.gateway import GatewayServer
    from distributedlog.control.late import LateService
    from distributedlog.control.watcher import MetadataWatcher

SNAPSHOT_INTERVAL_ENTRIES: Final = 20_000
HAND_OVER_SECONDS: Final = 1.0
STOP_GRACE_SECONDS: Final = 0.2
STATUS_INTERVAL_MS: Final = 200
ROLE_WORDS: Final = {
    Role.LEADER: "leader",
    Role.CANDIDATE: "candidate",
    Role.PRE_CANDIDATE: "candidate",
    Role.FOLLOWER: "follower",
}


class ControlEvents(NamedTuple):
    """Called on the control loop."""

    image: Callable[[MetadataImage], None]
    state: Callable[[LifeState], None]
    active: Callable[[bool], None]
    failed: Callable[[BaseException], None]
    """This node cannot go on."""
    status: Callable[[ControlStatus, float], None]
    """How things stand, and the data loop's lag in seconds."""
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
        self.life: BrokerLife | None = None
        self.probe: LagProbe | None = None
        self.gateway: GatewayServer | None = None
        self.broker_service: LateBrokerService | None = None
        self.channels: ControllerChannelPool | None = None
        self.server: ControlServer | None = None
        self._forwarder: ControllerForwarder | None = None
        self._files = files
        self._clock = clock
        self._randomness = randomness
        self._data_loop = data_loop
        self._events = events
        self._executor = SystemExecutor(threads=1)
        self._transport: GrpcTransport | None = None
        self._watcher: MetadataWatcher | None = None
        self._not_leading: asyncio.Event | None = None
        self._leader_id: int | None = None
        self._elections = 0
        self._term_campaigned = 0

    # --- starting ------------------------------------------------------------------------------

    async def start(self) -> str:
        """Recovers, listens and takes part; the address other nodes reach it at."""
        settings, loop = self.settings, asyncio.get_running_loop()
        self._scheduler = LoopScheduler(loop, self._clock)
        self._not_leading = asyncio.Event()
        self.probe = LagProbe(self._data_loop, self._clock, self._scheduler)
        peers = {
            voter.node_id: (voter.host, voter.port)
            for voter in settings.controller_quorum_voters
            if voter.node_id != settings.node_id
        }
        self.replica.on_publish(self._events.image)
        if settings.is_controller:
            self._start_controller(peers)
        self.channels = ControllerChannelPool(
            settings.node_id, self.identity.cluster_id, peers, randomness=self._randomness
        )
        self._forwarder = ControllerForwarder(
            settings.node_id,
            [voter.node_id for voter in settings.controller_quorum_voters],
            self.channels,
            self.controller,
            self.replica,
            clock=self._clock,
            scheduler=self._scheduler,
            randomness=self._randomness,
            behind=self._follow_another,
        )
        self.server = ControlServer(
            settings.node_id,
            self.identity.cluster_id,
            transport=self._transport,
            controller=self.controller,
            metadata=self.replica,
        )
        port = await self.server.start(settings.control_listener.host, settings.control_listener.port)
        if not settings.is_controller:
            from distributedlog.control.watcher import MetadataWatcher

            self.replica.on_publish(lambda image: self._leader_is(image.controller_id))
            self._watcher = MetadataWatcher(
                self.channels, self.replica, on_batch=self.replica.publish, failed=self._events.failed
            )
            self._watcher.start()
        self._tell_status()
        return str(settings.control_listener._replace(port=port))

    async def start_gateway(self, service: "LateBrokerService | None") -> Address | None:
        """Listens for programs that speak gRPC; where, or None if that is turned off.  A node that is no
        broker serves them nothing but its health."""
        endpoint = self.settings.gateway_listener
        if endpoint is None:
            return None
        from distributedlog.control.gateway import BROKER_SERVICE, GatewayServer

        self.gateway, self.broker_service = GatewayServer(), service
        if service is not None:
            self.gateway.add(BROKER_SERVICE, service)
        return endpoint._replace(port=await self.gateway.start(endpoint.host, endpoint.port))

    async def set_ready(self, ready: bool) -> None:
        """What the gateway's health service says.  Once ready, the gateway takes calls until it stops."""
        if ready and self.broker_service is not None:
            self.broker_service.open()
        if self.gateway is not None:
            await self.gateway.set_ready(ready)

    def settle(self) -> None:
        """Imports what the start did not wait for, a piece at a time."""
        late: list[LateService] = [] if self.server is None else [*self.server.services]
        if self.gateway is not None:
            late.extend(self.gateway.standard)
            if self.broker_service is not None:
                late.append(self.broker_service)
        for service in late:
            asyncio.get_running_loop().call_soon(service.load)

    def _start_controller(self, peers: dict[int, tuple[str, int]]) -> None:
        settings = self.settings
        self._transport = GrpcTransport(
            settings.node_id, self.identity.cluster_id, peers, randomness=self._randomness
        )
        self.controller = ControllerDriver(
            controller_config(settings, self.identity),
            self._randomness,
            self.replica,
            clock=self._clock,
            scheduler=self._scheduler,
            failed=self._events.failed,
            activity=self._events.active,
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
        )
        self.controller.attach(self.raft)

    def _progressed(self) -> None:
        if self.controller is not None and self.raft is not None:
            self.controller.progressed()
            role, term = self.raft.node.core.role, self.raft.node.core.term
            if role is Role.CANDIDATE and term != self._term_campaigned:
                self._term_campaigned = term
                self._elections += 1
            if self._not_leading is not None and role is not Role.LEADER:
                self._not_leading.set()
            self._leader_is(self.raft.node.core.leader_id)

    def _follow_another(self) -> None:
        """What is committed does not come here: the voter that we watch may be cut off from the others."""
        if self._watcher is not None:
            self._watcher.switch()

    def _leader_is(self, leader_id: int | None) -> None:
        if leader_id != self._leader_id:
            self._leader_id = leader_id
            if self._forwarder is not None:
                self._forwarder.leader_changed(leader_id)

    def join(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Registers the broker, once it can be reached at these addresses."""
        settings = self.settings
        assert self.probe is not None
        self.probe.start()
        self.life = BrokerLife(
            RegisterBrokerRequest(
                cluster_id=self.identity.cluster_id,
                broker_id=settings.node_id,
                incarnation_id=self._randomness.new_uuid(),
                endpoints=endpoints,
                features=tuple(SupportedLevels(name, *levels) for name, levels in FEATURES.items()),
                rack=settings.rack,
                log_dirs=(self.identity.directory_id,),
                previous_broker_epoch=self.identity.clean_epoch,
            ),
            self.forwarder,
            LifeTimes(
                heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
                session_timeout_ms=settings.broker_session_timeout_ms,
                data_loop_lag_ms_max=settings.broker_session_timeout_ms * 2 // 3,
                duplicate_patience_ms=settings.registration_timeout_ms,
            ),
            clock=self._clock,
            scheduler=self._scheduler,
            randomness=self._randomness,
            data_loop_lag_ms=self.probe.lag_ms,
            changed=self._events.state,
            failed=self._events.failed,
            prepare=self._events.prepare,
        )
        self.life.start()

    # --- looking -------------------------------------------------------------------------------

    @property
    def forwarder(self) -> ControllerForwarder:
        assert self._forwarder is not None, "start comes first"
        return self._forwarder

    @property
    def broker_epoch(self) -> int:
        return NO_EPOCH if self.life is None else self.life.epoch

    @property
    def lease_end_ms(self) -> int:
        """Until then this broker has surely not been fenced for its silence."""
        return 0 if self.life is None else self.life.lease_end_ms

    def status(self) -> ControlStatus:
        image = self.replica.image
        own = image.brokers.get(self.settings.node_id)
        raft = None if self.raft is None else self.raft.status
        life = self.life
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
            heartbeats=0 if life is None else life.heartbeats,
            heartbeats_failed=0 if life is None else life.heartbeats_failed,
        )

    def _tell_status(self) -> None:
        """Every now and then, for whoever looks at metrics."""
        status = self.status()
        lag_s = 0.0 if self.probe is None else self.probe.lag_ms() / 1000
        self._events.status(status, lag_s)
        self._scheduler.call_at(self._clock.monotonic_ms() + STATUS_INTERVAL_MS, self._tell_status)

    # --- stopping ------------------------------------------------------------------------------

    async def leave(self, timeout_s: float) -> None:
        """Hands over what this broker leads, for as long as that may take."""
        if self.life is None:
            return
        left = asyncio.Event()
        self.life.leave(left.set)
        try:
            await asyncio.wait_for(left.wait(), timeout_s)
        except TimeoutError:
            return

    async def stop(self) -> None:
        """Takes part no more.  Safe to call whatever has been started."""
        if self.life is not None:
            self.life.stop()
        if self.probe is not None:
            self.probe.stop()
        await self._hand_over_office()
        if self._watcher is not None:
            await self._watcher.stop()
        if self._forwarder is not None:
            self._forwarder.close()
        if self.raft is not None:
            self.raft.stop()
        if self.broker_service is not None:
            self.broker_service.close()
        if self.gateway is not None:
            await self.gateway.stop(STOP_GRACE_SECONDS)
        if self.server is not None:
            await self.server.stop(STOP_GRACE_SECONDS)
        if self._transport is not None:
            self._transport.close()
            await self._transport.closed()
        if self.channels is not None:
            await self.channels.close()
        self._executor.close()

    async def _hand_over_office(self) -> None:
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


def controller_config(settings: NodeSettings, identity: Identity) -> ControllerConfig:
    return ControllerConfig(
        controller_id=settings.node_id,
        cluster_id=identity.cluster_id,
        bootstrap_group_level=GROUP_LEVEL_CONSUMER,
        session_timeout_ms=settings.broker_session_timeout_ms,
        data_loop_lag_ms_max=settings.broker_session_timeout_ms * 2 // 3,
        num_partitions=settings.num_partitions,
        default_replication_factor=settings.default_replication_factor,
        min_insync_replicas=settings.min_insync_replicas,
        unclean_leader_election=settings.unclean_leader_election,
        leader_balance_interval_ms=settings.leader_balance_interval_s * SECOND_MS,
    )
