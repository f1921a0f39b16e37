"""A machine of the simulated control plane: a broker, with or without a controller, of the real parts.

    voter        Raft driver -> controller driver -> replica; forwarder, lifecycle
    broker only  a watched voter ----------------> replica; forwarder, lifecycle

Its process has another incarnation each time it starts.  A stop in good order hands over first and tells the
next process in which epoch that was.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from distributedlog.broker.cluster.forwarding import ControllerForwarder
from distributedlog.broker.cluster.leader_watch import LeaderWatch
from distributedlog.broker.cluster.lease_grant import LeaseGrant
from distributedlog.broker.cluster.lifecycle import BrokerLifecycle, LifecycleState
from distributedlog.broker.cluster.metadata import MetadataReplica
from distributedlog.broker.cluster.port_watch import PortWatch, SilentBroker, Tried
from distributedlog.broker.coordination.controller_driver import ControllerDriver
from distributedlog.broker.coordination.lease import CoordinatorLease
from distributedlog.control.contract import ControllerReply
from distributedlog.controller.features import LEVEL_MAX, LEVEL_MIN, METADATA_FEATURE
from distributedlog.controller.image import Endpoint, MetadataImage, SupportedLevels
from distributedlog.controller.replica_faults import ReplicaFault
from distributedlog.controller.requests import UNKNOWN_EPOCH, RegisterBrokerRequest, Request
from distributedlog.data_directory.incarnations import encode_incarnations, find_predecessors
from distributedlog.model.errors import DuplicateRegistrationError, LogDirectoryFailedError
from distributedlog.model.ids import Uuid
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.ports.executor import Done, Outcome
from distributedlog.raft import Entry
from tests.simulation.checkers import InvariantError
from tests.simulation.checkers.control import Served
from tests.simulation.checkers.leases_end import PartitionKey
from tests.simulation.clock import SeededRandomness
from tests.simulation.control_network import Watching
from tests.simulation.raft_process import RaftProcess

if TYPE_CHECKING:
    from tests.simulation.control_cluster import ControlCluster

ENDPOINTS = (Endpoint("PLAINTEXT", "localhost", 9092),)
LAG_SHARE = 0.03
"""How often an image is not applied for a while on a node's data loop."""
LAG_US_MAX = 5_000_000
FEATURES = (SupportedLevels(METADATA_FEATURE, LEVEL_MIN, LEVEL_MAX),)


class ControlHost(RaftProcess):
    """Is the controller's service, too."""

    def __init__(
        self, cluster: "ControlCluster", node_id: int, seed: int, drift_ppm: int, broker_id: int | None = None
    ) -> None:
        super().__init__(cluster.setup, cluster.loop, cluster.trace, node_id, seed, drift_ppm)
        self.cluster = cluster
        self.broker_id = node_id if broker_id is None else broker_id
        self.is_voter = node_id in cluster.setup.bootstrap.voters
        self.replica = MetadataReplica()
        self.controller: ControllerDriver | None = None
        self.leader_watch: LeaderWatch | None = None
        self._running = False
        self._clean_epoch = UNKNOWN_EPOCH
        self._disk_id = SeededRandomness(self.chance.getrandbits(64)).new_uuid()
        self.process_id: Uuid | None = None
        self._incarnations_file: bytes | None = None
        self._stuck_since_ms: int | None = None
        self.coordinators = Coordinators(self)

    # --- life ----------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self._running

    def start(self) -> None:
        assert not self._running
        self.life += 1
        self._stuck_since_ms = None
        self.leader_watch = None
        self.replica = MetadataReplica(recent_bytes_max=self.cluster.recent_bytes_max)
        self.cluster.image_prefix.restarted(self.node_id)
        self.replica.on_publish(lambda image: self.cluster.published(self, image))
        if not self._start_data_loop():
            return
        if self.is_voter and not self._start_controller():
            return
        self._running = True
        self._start_broker()
        if not self.is_voter:
            self.say("starts", f"as broker {self.broker_id}")
            Watching(self.cluster.wire, self, self.cluster.voters).start()

    def _start_data_loop(self) -> bool:
        """Starts what runs on it; whether the disk could be read."""
        self.coordinators = Coordinators(self)
        self.replica.on_publish(self.coordinators.publish)
        return True

    def _start_controller(self) -> bool:
        self.controller = controller = ControllerDriver(
            self.cluster.controller_config(self.node_id),
            SeededRandomness(self.chance.getrandbits(64)),
            self.replica,
            clock=self.clock,
            scheduler=self,
            failed=self._failed,
            activity=self._activity,
        )
        if not self._start_raft(_Observed(self, controller), controller):
            self.controller = None
            return False
        assert self.driver is not None
        self.ports = PortWatch(controller, self._try_ports_of, clock=self.clock, scheduler=self)
        controller.attach(self.driver)
        self.leader_watch = LeaderWatch(
            self.driver,
            self._try_control_port_of,
            heartbeat_ms=self.setup.config.heartbeat_ms,
            clock=self.clock,
            scheduler=self,
        )
        return True

    def _try_ports_of(self, broker: SilentBroker, tried: Tried) -> None:
        hosts = self.cluster.wire.hosts.values()
        self._try_ports([host for host in hosts if host.broker_id == broker.broker_id], tried)

    def _try_control_port_of(self, node_id: int, tried: Tried) -> None:
        self._try_ports([self.cluster.wire.hosts[node_id]], tried)

    def _try_ports(self, processes: list["ControlHost"], tried: Tried) -> None:
        life = self.life
        self.cluster.wire.try_ports(self, processes, lambda refused: self.run(life, lambda: tried(refused)))

    def _start_broker(self) -> None:
        randomness = SeededRandomness(self.chance.getrandbits(64))
        self.forwarder = ControllerForwarder(
            self.node_id,
            self.cluster.voters,
            _Channels(self),
            None if self.controller is None else self,
            self.replica,
            clock=self.clock,
            scheduler=self,
            randomness=randomness,
        )
        self.lifecycle = BrokerLifecycle(
            self._make_registration(randomness),
            self.forwarder,
            self.cluster.times,
            clock=self.clock,
            scheduler=self,
            randomness=randomness,
            data_loop_lag_ms=self._lag_ms,
            changed=self._state_changed,
            failed=self._failed,
            prepare=self._prepare,
            faults_taken=self._take_faults,
            granted=self._take_lease,
        )
        self.lifecycle.start()

    def _draw_incarnation(self, randomness: SeededRandomness) -> Uuid:
        self.process_id = randomness.new_uuid()
        return self.process_id

    def is_running(self, incarnation: Uuid) -> bool:
        """Returns whether this is the process of that incarnation, and lives, paused or not."""
        return self.is_up and self.process_id == incarnation

    def copy_directory(self, of: "ControlHost") -> None:
        """Starts from a copy of another's directory: all that is in it, but not its lock."""
        self._disk_id, self._incarnations_file = of._disk_id, of._incarnations_file

    def _make_registration(self, randomness: SeededRandomness) -> RegisterBrokerRequest:
        clean_epoch, self._clean_epoch = self._clean_epoch, UNKNOWN_EPOCH
        incarnation, lock_identity = self._draw_incarnation(randomness), f"lock of node {self.node_id}"
        predecessors = find_predecessors(self._incarnations_file, lock_identity)
        self._incarnations_file = encode_incarnations(lock_identity, (*predecessors, incarnation))
        return RegisterBrokerRequest(
            cluster_id=self.cluster.cluster_id,
            broker_id=self.broker_id,
            incarnation_id=incarnation,
            endpoints=ENDPOINTS,
            features=FEATURES,
            rack=f"rack-{self.broker_id % 2}",
            log_dirs=(self._disk_id,),
            previous_broker_epoch=clean_epoch,
            predecessors=predecessors,
        )

    # --- what the lifecycle tells the data loop --------------------------------------------------

    def _state_changed(self, state: LifecycleState) -> None:
        self.say("is", state.value)

    def _prepare(self, ready: Callable[[], None]) -> None:
        self.coordinators.prepare(ready)

    def _take_faults(self, faults: tuple[ReplicaFault, ...]) -> None:
        """Nothing here has any."""

    def _take_lease(self, grant: LeaseGrant) -> None:
        self.coordinators.lease.take(grant)

    def _end(self) -> None:
        self._running = False
        self.controller = None
        super()._end()
        self.cluster.wire.ended(self.node_id)

    def _failed(self, error: BaseException) -> None:
        """A process that cannot go on ends; but for the disk and a twin there is no reason why it should."""
        if isinstance(error, (OSError, LogDirectoryFailedError, DuplicateRegistrationError)):
            self.say("fails:", str(error))
            self.loop.call_after(0, self._crash_if, self.life, "random")
        elif isinstance(error, InvariantError):
            raise error
        else:
            raise InvariantError("sound log", f"node {self.node_id} cannot go on: {error}") from error

    def leave(self) -> None:
        """Stops in good order; what the next process is told of it is that it was one."""
        life, epoch = self.life, self.lifecycle.epoch

        def left() -> None:
            self._clean_epoch = epoch
            self.loop.call_after(0, self._crash_if, life, "keep")

        if (
            self.lifecycle.state is not LifecycleState.SHUTTING_DOWN
            and self.lifecycle.state is not LifecycleState.PENDING_CONTROLLED_SHUTDOWN
        ):
            self.lifecycle.shut_down(left)

    def replace_disk(self) -> None:
        """What stood on the broker's own disk is gone."""
        self._disk_id = SeededRandomness(self.chance.getrandbits(64)).new_uuid()
        self._incarnations_file = None

    # --- the data loop -------------------------------------------------------------------------

    def _lag_ms(self) -> int:
        if self._stuck_since_ms is None:
            return 0
        return self.clock.monotonic_ms() - self._stuck_since_ms

    def stick(self) -> None:
        self._stuck_since_ms = self.clock.monotonic_ms()

    def unstick(self) -> None:
        self._stuck_since_ms = None

    # --- the controller, as others see it --------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self.controller is not None and self.controller.is_active

    def submit(self, request: Request, timeout_ms: int, reply: Done[ControllerReply]) -> None:
        """A request of another node, or of the forwarder here."""
        assert self.controller is not None
        life, was_active, term = self.life, self.is_active, self.controller.term or 0
        asked_us, asked_ms = self.loop.now_us, self.clock.monotonic_ms()

        def done(outcome: Outcome[ControllerReply]) -> None:
            if life != self.life:
                return
            if was_active and self.cluster.is_word_of_controller(outcome.error):
                response = outcome.value().response if outcome.error is None else None
                self.cluster.served(
                    Served(self.node_id, term, asked_us, asked_ms, request, response, outcome.error)
                )
            reply(outcome)

        self.controller.submit(request, timeout_ms, done)

    def _activity(self, is_active: bool) -> None:
        if is_active:
            assert self.driver is not None
            self.cluster.activated(self, self.driver.status.term)
        if self.cluster.tries_ports:
            self.ports.take_activity(is_active)
        self.say("takes charge" if is_active else "is not in charge any more")

    # --- Raft ----------------------------------------------------------------------------------

    def _send(self, node_id: int, message: bytes) -> None:
        self.cluster.sent(self, node_id, message)

    def _progressed(self) -> None:
        if self.controller is not None and self.driver is not None:
            self.controller.progressed()
            if self.leader_watch is not None:
                self.leader_watch.take_following(self.driver.is_following)

    def _restored_to(self, index: int) -> None:
        self.cluster.state_machine_safety.on_restore(self.node_id, index)


class Coordinators:
    """The data loop of a node, as far as leases matter: it applies images some time after they are published,
    now and then much later, and knows which partitions it might answer for."""

    lease: CoordinatorLease

    def __init__(self, host: ControlHost) -> None:
        self._host = host
        # Of its own: what else happens does not depend on it.
        self._chance = random.Random(f"{host.cluster.seed} {host.node_id} {host.life}")
        self._image = MetadataImage()
        self._newest = self._image
        self._is_prepared = False
        self._lags_until_us = 0
        self._epochs: dict[PartitionKey, int] = {}
        """The epochs in which this broker leads."""
        self._taken_over: set[PartitionKey] = set()
        self.lease = CoordinatorLease(
            lambda: self._image,
            clock=host.clock,
            scheduler=host,
            tell_applied=lambda *told: host.lifecycle.note_applied(*told),
            await_settled=lambda offset: host.lifecycle.await_settled(offset),
        )

    def prepare(self, ready: Callable[[], None]) -> None:
        self._is_prepared = True
        self._apply()
        ready()

    def publish(self, image: MetadataImage) -> None:
        self._newest = image
        host, now_us = self._host, self._host.loop.now_us
        if self._chance.random() < LAG_SHARE:
            self._lags_until_us = now_us + self._chance.randrange(LAG_US_MAX)
        delay_us = max(self._chance.randrange(100, 5_000), self._lags_until_us - now_us)
        host.loop.call_after(delay_us, host.run, host.life, self._apply_unless_lagging)

    def _apply_unless_lagging(self) -> None:
        if self._is_prepared and self._host.loop.now_us >= self._lags_until_us:
            self._apply()

    def _apply(self) -> None:
        if self._newest.offset <= self._image.offset:
            return
        self._image = self._newest
        led = {}
        topic = self._image.topic_named(OFFSETS_TOPIC)
        for partition_id, partition in topic.partitions.items() if topic is not None else ():
            if topic is not None and partition.leader == self._host.broker_id:
                led[topic.topic_id, partition_id] = partition.leader_epoch
        for key in [key for key, epoch in self._epochs.items() if led.get(key) != epoch]:
            del self._epochs[key]
            self._taken_over.discard(key)
            self.lease.note_lost()
        for key, epoch in led.items():
            if key not in self._epochs:
                self._epochs[key] = epoch
                self.lease.begin_takeover(epoch).when_settled(partial(self._take_over, key, epoch))
        self.lease.note_applied(self._image.offset)

    def _take_over(self, key: PartitionKey, epoch: int) -> None:
        if self._epochs.get(key) == epoch:
            self._taken_over.add(key)

    def answering(self) -> list[tuple[PartitionKey, int]]:
        """Returns for which partitions, and in which epochs, it would answer reads now."""
        host = self._host
        if not host.is_up or host.paused or not self.lease.is_valid():
            return []
        return [(key, self._epochs[key]) for key in sorted(self._taken_over)]


class _Observed:
    """The controller driver, and before it the truth."""

    def __init__(self, host: ControlHost, controller: ControllerDriver) -> None:
        self._host = host
        self._controller = controller

    def apply(self, entry: Entry) -> object:
        self._host.cluster.applied(self._host, entry)
        return self._controller.apply(entry)

    def snapshot(self) -> bytes | None:
        return self._controller.snapshot()

    def restore(self, data: bytes) -> None:
        self._controller.restore(data)
        self._host._snapshot_restored()


class _Channels:
    """The forwarder's way to other nodes."""

    def __init__(self, host: ControlHost) -> None:
        self._host = host

    def call(self, node_id: int, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        self._host.cluster.wire.call(self._host, node_id, request, timeout_ms, done)
