"""A machine with a whole broker: the control side as `control_host` has it, and the real data plane beside
it.

    control side   Raft, controller, forwarder, lifecycle      on the machine's first disk
    data side      `DataPlane` on a loop of its own            on the other disk, with streams to the others

`DataSide` is what the composition root (`broker/node`) is for a process: it passes on what each side tells
the other.  Nothing but posted callbacks crosses.
"""

import contextlib
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from distributedlog.broker.bridge import ControllerBridge, ImagePublisher, MetadataView
from distributedlog.broker.cluster.lease_grant import LeaseGrant
from distributedlog.broker.cluster.lifecycle import NO_EPOCH, LifecycleState
from distributedlog.broker.data_plane import DataPlane
from distributedlog.broker.net.descriptors import DescriptorBudget
from distributedlog.broker.observability.metrics import BrokerMetrics
from distributedlog.controller.features import FEATURES
from distributedlog.controller.image import MetadataImage, SupportedLevels
from distributedlog.controller.replica_faults import ReplicaFault
from distributedlog.controller.requests import (
    AlterPartitionsRequest,
    RegisterBrokerRequest,
    Request,
    Response,
)
from distributedlog.data_directory.identity import load_identity
from distributedlog.data_directory.incarnations import note_incarnation
from distributedlog.model.cluster_secret import ClusterSecrets
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import Uuid
from distributedlog.ports.executor import Done, Outcome
from distributedlog.replication.partition import Partition
from distributedlog.settings.addresses import Endpoint
from distributedlog.settings.loading import load_settings
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.storage.files import Files
from tests.simulation.brokers.process_loop import ProcessLoop
from tests.simulation.brokers.streams import SimAcceptor
from tests.simulation.clock import SeededRandomness
from tests.simulation.control_host import ControlHost
from tests.simulation.disk import PowerCut, SimDisk
from tests.simulation.inodes import CrashMode

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster

T = TypeVar("T")

PORT = 9092
DRAIN_MS = 1_000
SECRETS = ClusterSecrets((bytes(range(32)),))
BUDGET = DescriptorBudget(open_files_max=100, connections_max=100)


class BrokerHost(ControlHost):
    cluster: "BrokersCluster"

    def __init__(
        self, cluster: "BrokersCluster", node_id: int, seed: int, drift_ppm: int, broker_id: int | None = None
    ) -> None:
        super().__init__(cluster, node_id, seed, drift_ppm, broker_id)
        self.data_disk = SimDisk(self.chance.getrandbits(64), wall_ms=self.clock.wall_ms)
        self.data: DataSide | None = None
        self.settings = load_settings(None, self._spell_settings(), {})
        self._are_images_held = False
        self._held_image: MetadataImage | None = None

    @property
    def name(self) -> str:
        return f"node-{self.node_id}"

    def _spell_settings(self) -> dict[str, str]:
        """Spells those of the data side, which does not care who votes."""
        return {
            "node.id": str(self.broker_id),
            "process.roles": "broker",
            "cluster.id": self.cluster.cluster_id,
            "controller.quorum.voters": "99@voter:9093",
            "log.dirs": "/data",
            "cluster.secret.file": "/secret",
            "listeners": f"PLAINTEXT://127.0.0.1:{PORT}",
            "advertised.listeners": f"PLAINTEXT://{self.name}:{PORT}",
            **self.cluster.node_settings,
        }

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        super().start()
        if not self._running and self.data is not None:
            self._abandon_data()
            self.data_disk.crash("drop")

    def _start_data_loop(self) -> bool:
        try:
            self.data = DataSide(self)
        except (OSError, PowerCut, DlogError) as error:
            self.say("cannot open its logs:", str(error))
            self.data_disk.crash("drop")
            return False
        self._are_images_held, self._held_image = False, None
        self.replica.on_publish(self._publish)
        return True

    def _start_broker(self) -> None:
        assert self.data is not None
        self.data.start()
        super()._start_broker()

    def _make_registration(self, randomness: SeededRandomness) -> RegisterBrokerRequest:
        assert self.data is not None
        identity, store = self.data.identity, self.data.plane.partitions.store
        incarnation = self._draw_incarnation(randomness)
        predecessors: tuple[Uuid, ...] = ()
        with contextlib.suppress(PowerCut):  # which the loop notices
            predecessors = note_incarnation(store.files, store.directory, store.lock_identity, incarnation)
        return RegisterBrokerRequest(
            cluster_id=self.cluster.cluster_id,
            broker_id=self.broker_id,
            incarnation_id=incarnation,
            endpoints=self.data.endpoints,
            features=tuple(SupportedLevels(name, *levels) for name, levels in FEATURES.items()),
            rack=f"rack-{self.broker_id % 2}",
            log_dirs=(identity.directory_id,),
            previous_broker_epoch=identity.clean_epoch if store.was_clean else NO_EPOCH,
            predecessors=predecessors,
            synced_broker_epoch=self.data.plane.synced_epoch,
        )

    def crash(self, mode: CrashMode) -> None:
        self.cluster.observer.before_crash(self)
        super().crash(mode)
        self.data_disk.crash(mode)
        self.cluster.streams.process_ended(self, is_killed=mode == "keep")

    def _end(self) -> None:
        super()._end()
        self._abandon_data()

    def _abandon_data(self) -> None:
        data, self.data = self.data, None
        if data is not None:
            self.cluster.ended_loops.append(data.loop)

    def _work(self, life: int, work: Callable[[], T], then: Callable[[Outcome[T]], None]) -> None:
        """Whoever asked for the work hears of every error, as with real threads."""
        if life != self.life:
            return
        outcome = Outcome.of(work)
        if isinstance(outcome.error, PowerCut):
            self.crash("random")
        else:
            then(outcome)

    def _stepped(self) -> None:
        if not self.data_disk.is_powered:
            self.power_lost()

    def power_lost(self) -> None:
        self.crash("random")

    def leave(self) -> None:
        """Stops in good order: hands over, answers what was begun, closes the logs."""
        data = self.data
        if data is None or self.lifecycle.state in (
            LifecycleState.SHUTTING_DOWN,
            LifecycleState.PENDING_CONTROLLED_SHUTDOWN,
        ):
            return
        self.lifecycle.shut_down(data.close_later)

    def replace_disk(self) -> None:
        """What stood on the broker's own disk is gone."""
        self.cluster.observer.progress.note_disk_replaced(self.broker_id)
        self.data_disk = SimDisk(self.chance.getrandbits(64), wall_ms=self.clock.wall_ms)

    def stick(self) -> None:
        super().stick()
        if self.data is not None:
            self.data.loop.stick()

    def unstick(self) -> None:
        super().unstick()
        if self.data is not None:
            self.data.loop.unstick()

    def hold_images(self) -> None:
        """The data loop hears of no new image until `release_images`."""
        self._are_images_held = True

    def release_images(self) -> None:
        self._are_images_held = False
        image, self._held_image = self._held_image, None
        if image is not None:
            self._publish(image)

    def _publish(self, image: MetadataImage) -> None:
        if self._are_images_held:
            self._held_image = image
        elif self.data is not None:
            self.data.publisher.publish(image)

    # --- what the lifecycle tells the data loop --------------------------------------------------

    def _state_changed(self, state: LifecycleState) -> None:
        super()._state_changed(state)
        if self.data is not None:
            self.data.loop.call_soon(self.data.lifecycle_changed, state, self.lifecycle.epoch)

    def _prepare(self, ready: Callable[[], None]) -> None:
        self.release_images()  # which came before this: a loop has its calls in order
        if self.data is not None:
            self.data.loop.call_soon(self.data.prepare, ready)

    def _take_faults(self, faults: tuple[ReplicaFault, ...]) -> None:
        if self.data is not None:
            self.data.loop.call_soon(self.data.plane.partitions.take_faults, faults)

    def _take_lease(self, grant: LeaseGrant) -> None:
        if self.data is not None:
            self.data.loop.call_soon(self.data.plane.take_lease, grant)

    # --- what the checkers see -----------------------------------------------------------------

    def partitions(self) -> list[Partition]:
        return [] if self.data is None else list(self.data.plane.partitions)


class DataSide:
    """The data plane of one process, and its ways to the control side."""

    def __init__(self, host: BrokerHost) -> None:
        cluster = host.cluster
        self.host = host
        self.life = host.life
        self.loop = ProcessLoop(host, cluster.streams)  # type: ignore[abstract]
        self.view = MetadataView()
        self.publisher = ImagePublisher(self.loop, self.view.take)
        self._control = _ControlLoop(host)
        self._state, self._epoch = LifecycleState.UNREGISTERED, NO_EPOCH
        settings: NodeSettings = host.settings
        randomness = SeededRandomness(host.chance.getrandbits(64))
        files = Files(host.data_disk, open_files_max=BUDGET.open_files_max)
        self.identity = load_identity(
            files, settings, clock=host.clock, randomness=randomness, needs_secret=False
        )
        self.plane = DataPlane(
            settings,
            self.loop,
            disk=host.data_disk,
            clock=host.clock,
            randomness=randomness,
            metrics=BrokerMetrics(),
            secrets=lambda: SECRETS,
            failed=host._failed,
            executor=host,
            acceptor=SimAcceptor(cluster.streams, host, self.loop, Endpoint(host.name, PORT)),
            descriptors=BUDGET,
            draw=random.Random(host.chance.getrandbits(64)).randbytes,
        )
        cluster.observer.opened(host, self.plane)

    def start(self) -> None:
        host = self.host
        control = cast(Any, self._control)
        bridge = ControllerBridge(self.loop, control, self._ask_controller)
        self.endpoints = self.plane.start(
            self.view,
            bridge,
            self.identity.cluster_id,
            lambda: self._epoch,
            tell_applied=lambda *told: self._control.post(lambda: host.lifecycle.note_applied(*told)),
            await_settled=lambda offset: self._control.post(lambda: host.lifecycle.await_settled(offset)),
        )
        self.view.on_change(lambda _old, _new: self._serve_if_unfenced())
        self.plane.partitions.faults.on_fault(
            lambda fault: self._control.post(partial(host.lifecycle.tell_fault, fault))
        )

    def _ask_controller(self, request: Request, timeout_ms: int, done: Done[Response]) -> None:
        if isinstance(request, AlterPartitionsRequest):
            self.host.cluster.proposed(request)
        self.host.forwarder.ask(request, timeout_ms, done)

    def prepare(self, ready: Callable[[], None]) -> None:
        self.plane.follow(self.view, lambda: self._control.post(ready))

    def lifecycle_changed(self, state: LifecycleState, epoch: int) -> None:
        is_another, self._state, self._epoch = epoch != self._epoch, state, epoch
        if is_another:
            self.plane.take_broker_epoch(epoch)
        self._serve_if_unfenced()

    def _serve_if_unfenced(self) -> None:
        own = self.view.image.brokers.get(self.host.broker_id)
        is_shown = own is not None and not own.fenced and own.epoch == self._epoch
        if self._state is LifecycleState.RUNNING and is_shown:
            self.plane.serve()

    def close_later(self) -> None:
        self.loop.call_soon(lambda: self.loop.create_task(self._close()))

    async def _close(self) -> None:
        await self.plane.drain(DRAIN_MS)
        try:
            self.plane.close(broker_epoch=self._epoch, cleanly=True)
        except DlogError as error:  # a full disk, or one that fails: the next start recovers
            self.host.say("cannot close its logs:", str(error))
        self.host.loop.call_after(0, self.host._crash_if, self.life, "keep")


class _ControlLoop:
    """The control side of a process, for who posts to it."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host
        self._life = host.life

    def post(self, callback: Callable[[], None]) -> None:
        self._host.loop.call_after(0, self._host.run, self._life, callback)

    call_soon_threadsafe = post

    def is_closed(self) -> bool:
        return self._host.life != self._life
