"""A quorum in one place: real Raft drivers and their controllers, with a network and a clock worked by hand.

Nothing happens by itself.  `settle` lets messages and disks run until all is quiet; time stands still until a
test moves it.  A node that is cut off sends and hears nothing.  A node that is not `wired` is not told of
progress: its controller looks when the test says so.
"""

from collections import deque
from collections.abc import Callable

from distributedlog.broker.cluster.metadata import MetadataReplica
from distributedlog.broker.cluster.raft_driver import RaftDriver
from distributedlog.broker.coordination.controller_driver import ControllerDriver
from distributedlog.control.contract import ControllerReply
from distributedlog.controller.configs import ConfigEdit, ControllerConfig
from distributedlog.controller.features import LEVEL_MAX, LEVEL_MIN, METADATA_FEATURE
from distributedlog.controller.image import (
    CLUSTER_DEFAULT,
    ConfigResource,
    Endpoint,
    MetadataImage,
    ResourceType,
    SupportedLevels,
)
from distributedlog.controller.requests import (
    IncrementalAlterConfigsRequest,
    RegisterBrokerRequest,
    Request,
)
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.ids import Uuid
from distributedlog.ports.executor import Outcome
from distributedlog.ports.transport import Receive
from distributedlog.raft import Membership, RaftConfig, Role, codec
from distributedlog.raft.messages import TimeoutNow
from distributedlog.statemachine.runtime import RuntimeLimits
from tests.simulation.clock import ManualClock, SeededRandomness
from tests.simulation.disk import SimDisk
from tests.simulation.executor import StepExecutor
from tests.simulation.raft_storage import DiskRaftStorage

CLUSTER = "cluster-1"
SESSION_MS = 6_000
CONFIG = RaftConfig()
DEFAULTS = ConfigResource(ResourceType.BROKER, CLUSTER_DEFAULT)


class Timers:
    """A scheduler that a test turns."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._alarms: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> None:
        self._sequence += 1
        self._alarms.append((monotonic_ms, self._sequence, callback))

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    @property
    def planned(self) -> int:
        return len(self._alarms)

    def advance(self, duration_ms: int) -> None:
        """Time passes; what comes due runs at its time, also what is planned meanwhile."""
        end_ms = self.clock.monotonic_ms() + duration_ms
        while self._alarms:
            due_ms, sequence, callback = min(self._alarms)
            if due_ms > end_ms:
                break
            self._alarms.remove((due_ms, sequence, callback))
            self.clock.advance(max(0, due_ms - self.clock.monotonic_ms()))
            callback()
        self.clock.advance(end_ms - self.clock.monotonic_ms())


class Node:
    """Is its own transport."""

    def __init__(self, quorum: "Quorum", node_id: int, disk: SimDisk, *, wired: bool, cluster: str) -> None:
        self.node_id = node_id
        self.disk = disk
        self.executor = StepExecutor()
        self.replica = MetadataReplica()
        self.failures: list[BaseException] = []
        self.charges: list[bool] = []
        self._quorum = quorum
        self._wired = wired
        self.controller = ControllerDriver(
            ControllerConfig(controller_id=node_id, cluster_id=cluster),
            SeededRandomness(node_id),
            self.replica,
            clock=quorum.timers.clock,
            scheduler=quorum.timers,
            failed=self.failures.append,
            limits=quorum.limits,
            activity=self.charges.append,
        )
        self.driver = RaftDriver(
            node_id,
            CONFIG,
            Membership.of_voters(*quorum.voters),
            self.controller,
            storage=DiskRaftStorage(disk, lambda what, value: None),
            transport=self,
            executor=self.executor,
            clock=quorum.timers.clock,
            scheduler=quorum.timers,
            randomness=SeededRandomness(node_id),
            snapshot_interval_entries=quorum.snapshot_interval_entries,
            failed=self.failures.append,
            progressed=self._progressed,
        )
        self.controller.attach(self.driver)

    def _progressed(self) -> None:
        if self._wired:
            self.controller.progressed()

    def send(self, node_id: int, message: bytes) -> None:
        self._quorum.sent(self.node_id, node_id, message)

    def on_receive(self, receive: Receive) -> None:
        self.receive = receive

    def close(self) -> None:
        return None

    @property
    def leads(self) -> bool:
        return self.driver.status.role is Role.LEADER

    def ask(self, request: Request, timeout_ms: int = 5_000) -> "Asked":
        asked = Asked()
        self.controller.submit(request, timeout_ms, asked.answers.append)
        return asked


class Asked:
    """A request, and what came back."""

    def __init__(self) -> None:
        self.answers: list[Outcome[ControllerReply]] = []

    @property
    def is_open(self) -> bool:
        return not self.answers

    @property
    def error(self) -> BaseException | None:
        (answer,) = self.answers
        return answer.error

    @property
    def reply(self) -> ControllerReply:
        (answer,) = self.answers
        return answer.value()


class Quorum:
    def __init__(
        self,
        *voters: int,
        unwired: int | None = None,
        limits: RuntimeLimits | None = None,
        snapshot_interval_entries: int = 1_000,
    ) -> None:
        self.voters = voters or (1, 2, 3)
        self.timers = Timers()
        self.limits = limits
        self.snapshot_interval_entries = snapshot_interval_entries
        self.cut: set[int] = set()
        self.lost: set[tuple[int, int]] = set()
        """From whom to whom nothing gets through."""
        self._messages: deque[tuple[int, int, bytes]] = deque()
        self.nodes: dict[int, Node] = {}
        for node_id in self.voters:
            disk = SimDisk(node_id)
            DiskRaftStorage(disk, lambda what, value: None).format()
            self.nodes[node_id] = Node(self, node_id, disk, wired=node_id != unwired, cluster=CLUSTER)

    def join(self, node_id: int) -> Node:
        """A standby: its storage was never formatted, so it votes with an incarnation of its own."""
        self.nodes[node_id] = node = Node(self, node_id, SimDisk(node_id), wired=True, cluster=CLUSTER)
        return node

    def sent(self, sender: int, to: int, message: bytes) -> None:
        self._messages.append((sender, to, message))

    def settle(self) -> None:
        """Messages and disks run until all is quiet."""
        while self._step():
            pass

    def _step(self) -> bool:
        """One piece of work of a disk, or one message; False if there is none."""
        if any(node.executor.run_one() for node in self.nodes.values()):
            return True
        if not self._messages:
            return False
        sender, to, message = self._messages.popleft()
        lost = (sender, to) in self.lost or self.cut & {sender, to}
        if to in self.nodes and not lost:
            self.nodes[to].receive(sender, message)
        return True

    def elect(self, node_id: int, *, and_settle: bool = True) -> Node:
        """The node campaigns, as if the one before had handed over."""
        node = self.nodes[node_id]
        other = next(each for each in self.voters if each != node_id)
        term = max(each.driver.status.term for each in self.nodes.values() if each.node_id not in self.cut)
        node.receive(other, codec.encode(TimeoutNow(other, node_id, term)))
        while not node.leads:
            assert self._step(), "it was not elected"
        if and_settle:
            self.settle()
        return node

    def beat(self) -> None:
        """Leaders are heard: they tell how far all is committed, and send what was lost."""
        for _ in range(2):
            self.timers.advance(CONFIG.heartbeat_ms)
            self.settle()

    def restart(self, node_id: int, *, cluster: str = CLUSTER) -> Node:
        """A new process on the same disk."""
        old = self.nodes[node_id]
        old.driver.stop()
        old.disk.crash("keep")
        self.nodes[node_id] = node = Node(self, node_id, old.disk, wired=True, cluster=cluster)
        return node


def setting(value: str, name: str = "colour") -> Request:
    """A change that is always allowed."""
    return IncrementalAlterConfigsRequest(((DEFAULTS, (ConfigEdit(name, ConfigOp.SET, value),)),))


def value_in(image: MetadataImage, name: str = "colour") -> str | None:
    return image.settings_of(*DEFAULTS).get(name)


def registration(broker_id: int, incarnation: int = 1, cluster: str = CLUSTER) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(
        cluster_id=cluster,
        broker_id=broker_id,
        incarnation_id=Uuid(incarnation.to_bytes(16, "big")),
        endpoints=(Endpoint("PLAINTEXT", "localhost", 9092),),
        features=(SupportedLevels(METADATA_FEATURE, LEVEL_MIN, LEVEL_MAX),),
    )
