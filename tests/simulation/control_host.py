"""A machine of the simulated control plane: a broker, with or without a controller, of the real parts.

    voter        Raft driver -> controller driver -> replica; forwarder, life
    broker only  a watched voter ----------------> replica; forwarder, life

Its process has another incarnation each time it starts.  A stop in good order hands over first and tells the
next process in which epoch that was.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.controller_driver import ControllerDriver
from distributedlog.broker.forwarding import ControllerForwarder
from distributedlog.broker.lifecycle import BrokerLife, LifeState
from distributedlog.broker.metadata import MetadataReplica
from distributedlog.control.contract import ControllerReply
from distributedlog.controller.features import LEVEL_MAX, LEVEL_MIN, METADATA_FEATURE
from distributedlog.controller.image import Endpoint, SupportedLevels
from distributedlog.controller.requests import UNKNOWN_EPOCH, RegisterBrokerRequest, Request
from distributedlog.model.errors import DuplicateRegistrationError, LogDirectoryFailedError
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.randomness import SeededRandomness
from distributedlog.raft import Entry
from tests.simulation.checkers import InvariantError
from tests.simulation.checkers.control import Served
from tests.simulation.control_network import Watching
from tests.simulation.raft_process import RaftProcess

if TYPE_CHECKING:
    from tests.simulation.control_cluster import ControlCluster

ENDPOINTS = (Endpoint("PLAINTEXT", "localhost", 9092),)
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
        self._running = False
        self._clean_epoch = UNKNOWN_EPOCH
        self._disk_id = SeededRandomness(self.chance.getrandbits(64)).new_uuid()
        self._stuck_since_ms: int | None = None

    # --- life ----------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self._running

    def start(self) -> None:
        assert not self._running
        self.life += 1
        self._stuck_since_ms = None
        self.replica = MetadataReplica(recent_bytes_max=self.cluster.recent_bytes_max)
        self.cluster.image_prefix.restarted(self.node_id)
        self.replica.on_publish(lambda image: self.cluster.published(self, image))
        if self.is_voter and not self._start_controller():
            return
        self._running = True
        self._start_broker()
        if not self.is_voter:
            self.say("starts", f"as broker {self.broker_id}")
            Watching(self.cluster.wire, self, self.cluster.voters).start()

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
        if not self._start_raft(_Observed(self, controller)):
            self.controller = None
            return False
        assert self.driver is not None
        controller.attach(self.driver)
        return True

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
        registration = RegisterBrokerRequest(
            cluster_id=self.cluster.cluster_id,
            broker_id=self.broker_id,
            incarnation_id=randomness.new_uuid(),
            endpoints=ENDPOINTS,
            features=FEATURES,
            rack=f"rack-{self.broker_id % 2}",
            log_dirs=(self._disk_id,),
            previous_broker_epoch=self._clean_epoch,
        )
        self._clean_epoch = UNKNOWN_EPOCH
        self.membership = BrokerLife(
            registration,
            self.forwarder,
            self.cluster.times,
            clock=self.clock,
            scheduler=self,
            randomness=randomness,
            data_loop_lag_ms=self._lag_ms,
            changed=lambda state: self.say("is", state.value),
            failed=self._failed,
        )
        self.membership.start()

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
        life, epoch = self.life, self.membership.epoch

        def left() -> None:
            self._clean_epoch = epoch
            self.loop.call_after(0, self._crash_if, life, "keep")

        if self.membership.state is not LifeState.LEFT and self.membership.state is not LifeState.LEAVING:
            self.membership.leave(left)

    def replace_disk(self) -> None:
        """What stood on the broker's own disk is gone."""
        self._disk_id = SeededRandomness(self.chance.getrandbits(64)).new_uuid()

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
        life, was_active, term = self.life, self.is_active, self.controller._term
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
        self.say("takes charge" if is_active else "is not in charge any more")

    # --- Raft ----------------------------------------------------------------------------------

    def _send(self, node_id: int, message: bytes) -> None:
        self.cluster.sent(self, node_id, message)

    def _progressed(self) -> None:
        if self.controller is not None and self.driver is not None:
            self.controller.progressed()

    def _restored_to(self, index: int) -> None:
        self.cluster.state_machine_safety.on_restore(self.node_id, index)


class _Observed:
    """The controller driver, and before it the truth."""

    def __init__(self, host: ControlHost, controller: ControllerDriver) -> None:
        self._host = host
        self._controller = controller

    def apply(self, entry: Entry) -> object:
        self._host.cluster.applied(self._host, entry)
        return self._controller.apply(entry)

    def snapshot(self) -> bytes:
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
