"""One node, put together: the composition root.

    1  the directory: whose it is, locked, its logs recovered
    2  listeners are bound, so that their ports are known; nobody is served yet
    3  the control loop starts: consensus, and the metadata is followed
    4  the broker registers; once its image has caught up, its partitions are made what the image says
    5  it is unfenced: clients are served, and whoever started the node learns that it is ready

Stopping (SIGTERM, SIGINT): leaderships are handed over, clients drained, logs closed so that nothing has to
be recovered.  A second signal hurries: it ends as a crash would.  When a disk fails, or consensus cannot go
on, the node says why and ends with exit code 3; nothing is closed as if it were sound.  So it does when its
directory is removed under it, which the open files alone would not tell for a long time.  Before it ends it
has itself fenced, if there is another broker: that leads at once what would have no leader for a session.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from distributedlog.broker.bridge import ControllerBridge, ImagePublisher, MetadataView
from distributedlog.broker.cluster.lease_grant import LeaseGrant
from distributedlog.broker.cluster.lifecycle import NO_EPOCH, LifecycleState
from distributedlog.broker.control_plane import ControlEvents, ControlPlane
from distributedlog.broker.loops import ControlThread, post
from distributedlog.broker.observability.metrics import BrokerMetrics, ControlStatus
from distributedlog.broker.ready import ReadyReport
from distributedlog.controller.replica_faults import ReplicaFault
from distributedlog.data_directory.identity import check_still_there, load_identity
from distributedlog.data_directory.incarnations import note_incarnation
from distributedlog.model.errors import DlogError
from distributedlog.ports.clock import Clock, SystemClock
from distributedlog.ports.disk import DIRECTORY_MODE, Disk, Lock, SystemDisk
from distributedlog.ports.executor import SystemExecutor
from distributedlog.ports.randomness import SystemRandomness
from distributedlog.ports.round_executor import ROUND_THREADS
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.settings.secret_file import SecretFile
from distributedlog.storage.checkpoints import LOCK_FILE
from distributedlog.storage.files import Files

if TYPE_CHECKING:
    from distributedlog.broker.data_plane import DataPlane
    from distributedlog.broker.observability.operations import OperationsServer

logger = logging.getLogger(__name__)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 3
EXIT_HURRIED: Final = 130
METADATA_FILES_MAX: Final = 64
FENCE_SECONDS_MAX: Final = 15.0
"""How long a node whose disk failed waits for the controller to fence it; then it ends all the same."""
DIRECTORY_CHECK_SECONDS: Final = 2.0
"""The interval between two looks at whether the node's directory is still there."""


class Node:
    """Lives on the data loop."""

    def __init__(
        self,
        settings: NodeSettings,
        loop: asyncio.AbstractEventLoop,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        is_new_cluster: bool = False,
    ) -> None:
        self.settings = settings
        self._loop = loop
        self._clock: Clock = clock or SystemClock()
        self._disk: Disk = disk or SystemDisk()
        self._randomness = SystemRandomness()
        self._files = Files(self._disk, open_files_max=METADATA_FILES_MAX)
        self._identity = load_identity(
            self._files,
            settings,
            clock=self._clock,
            randomness=self._randomness,
            is_new_cluster=is_new_cluster,
        )
        _make_private(settings.data_dir)
        self._metrics = BrokerMetrics()
        self._view = MetadataView()
        publisher = ImagePublisher(loop, self._view.take)
        self._thread = ControlThread()
        self._stopping = asyncio.Event()
        self._serving = asyncio.Event()
        self._error: BaseException | None = None
        self._state = LifecycleState.UNREGISTERED
        self._epoch = NO_EPOCH
        """The broker epoch, as the control loop posted it last."""
        self._lock: Lock | None = None
        self._control = ControlPlane(
            settings,
            self._identity,
            self._files,
            secrets=SecretFile(settings.secret_path).current,  # each loop has one of its own
            clock=self._clock,
            randomness=self._randomness,
            data_loop=loop,
            events=ControlEvents(
                image=publisher.publish,
                state=lambda state, epoch: post(loop, partial(self._lifecycle_changed, state, epoch)),
                active=_log_activity,
                failed=lambda error: post(loop, partial(self.fail, error)),
                status=lambda status, lag_s: post(loop, partial(self._take_status, status, lag_s)),
                faults_taken=lambda faults: post(loop, partial(self._take_faults, faults)),
                lease=lambda grant: post(loop, partial(self._take_lease, grant)),
                prepare=lambda ready: post(loop, partial(self._prepare, ready)),
            ),
        )
        self._data: DataPlane | None = None
        self._ops: OperationsServer | None = None

    # --- the whole life ------------------------------------------------------------------------

    async def run(self, on_ready: Callable[[ReadyReport], None]) -> int:
        try:
            report = await self._start()
            await self._until_serving()
            if self._error is None and not self._stopping.is_set():
                on_ready(report)
                logger.info("ready: %s", report.to_json())
                self._warn_of_settings()
                await self._settle()
            gc.enable()
            await self._until_stopping()
        finally:
            await self._stop()
        if self._error is not None:
            logger.error("the node stops: %s", self._error)
            return EXIT_FAILED
        return EXIT_OK

    def _warn_of_settings(self) -> None:
        from distributedlog.settings.config_layers import find_without_effect

        for warning in find_without_effect(self.settings, self._view.image):
            logger.warning("%s", warning)

    async def _until_stopping(self) -> None:
        """Looks after the directory meanwhile, beside the loop: a disk may take its time."""
        files = Files(self._disk)
        while not self._stopping.is_set():
            try:
                look = partial(check_still_there, files, self.settings, self._identity)
                await self._loop.run_in_executor(None, look)
            except DlogError as error:
                self.fail(error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), DIRECTORY_CHECK_SECONDS)

    def stop(self) -> None:
        self._stopping.set()

    def fail(self, error: BaseException) -> None:
        """Ends the node, which cannot go on; the first reason counts."""
        if self._error is None:
            self._error = error
        self._stopping.set()

    # --- starting ------------------------------------------------------------------------------

    async def _start(self) -> ReadyReport:
        settings = self.settings
        if settings.is_broker:
            from distributedlog.broker.data_plane import BLOCKING_THREADS, DataPlane
            from distributedlog.broker.net.acceptor import SocketAcceptor
            from distributedlog.broker.net.descriptors import raise_limit, share

            self._data = DataPlane(
                settings,
                self._loop,
                disk=self._disk,
                clock=self._clock,
                randomness=self._randomness,
                metrics=self._metrics,
                secrets=SecretFile(settings.secret_path).current,
                failed=self.fail,
                executor=SystemExecutor(threads=BLOCKING_THREADS),
                sync_threads=ROUND_THREADS,
                acceptor=SocketAcceptor(settings.listeners, self._loop, self._clock),
                descriptors=share(raise_limit(), settings.connections_max),
                draw=os.urandom,
            )
        else:
            self._lock = self._files.lock(f"{settings.data_dir}/{LOCK_FILE}")
        self._thread.start()
        control = await asyncio.wrap_future(self._thread.submit(self._control.start()))
        ops = await self._start_ops()
        client = self._start_serving()
        return ReadyReport(settings.node_id, os.getpid(), client, control, ops, settings.data_dir)

    def _start_serving(self) -> str | None:
        """Listens for clients and registers where; the address, None for a node that is no broker."""
        data = self._data
        if data is None:
            return None
        control_loop = self._thread.loop
        bridge = ControllerBridge(self._loop, control_loop, self._control.ask_controller)
        endpoints = data.start(
            self._view,
            bridge,
            self._identity.cluster_id,
            lambda: self._epoch,
            tell_applied=lambda *told: post(control_loop, partial(self._control.note_applied, *told)),
            await_settled=lambda offset: post(control_loop, partial(self._control.await_settled, offset)),
        )
        self._view.on_change(lambda _old, _new: self._serve_if_unfenced())
        store, incarnation = data.partitions.store, self._randomness.new_uuid()
        join = partial(
            self._control.join,
            endpoints,
            was_clean=store.was_clean,
            synced_epoch=data.synced_epoch,
            incarnation=incarnation,
            predecessors=note_incarnation(store.files, store.directory, store.lock_identity, incarnation),
        )
        post(control_loop, join)
        data.partitions.faults.on_fault(
            lambda fault: post(control_loop, partial(self._control.tell_fault, fault))
        )
        data.leaderless.on_change(lambda ends: post(control_loop, partial(self._control.tell_log_ends, ends)))
        return data.client_address

    async def _start_ops(self) -> str | None:
        if self.settings.ops_listener is None:
            return None
        from distributedlog.broker.observability.operations import OperationsServer

        self._ops = OperationsServer(self._metrics, self._why_not_ready)
        return str(await self._ops.start(self.settings.ops_listener))

    async def _until_serving(self) -> None:
        if not self.settings.is_broker:
            self._view.on_change(lambda _old, _new: self._serving.set())
        waits = [asyncio.ensure_future(self._serving.wait()), asyncio.ensure_future(self._stopping.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _settle(self) -> None:
        """Imports what the start did not wait for, a piece at a time: clients are served meanwhile."""
        if self._data is not None:
            for _ in self._data.settle():
                await asyncio.sleep(0)
        if self._thread.is_running:
            post(self._thread.loop, self._control.settle)
        # What is here now stays for good: the collector need not go through it again and again.
        gc.freeze()

    # --- what the control loop tells -----------------------------------------------------------

    def _prepare(self, ready: Callable[[], None]) -> None:
        assert self._data is not None
        self._data.follow(self._view, lambda: post(self._thread.loop, ready))

    def _take_faults(self, faults: tuple[ReplicaFault, ...]) -> None:
        if self._data is not None:
            self._data.partitions.take_faults(faults)

    def _take_lease(self, grant: LeaseGrant) -> None:
        if self._data is not None:
            self._data.take_lease(grant)

    def _lifecycle_changed(self, state: LifecycleState, epoch: int) -> None:
        logger.info("the broker is %s", state.value)
        is_another, self._state, self._epoch = epoch != self._epoch, state, epoch
        if is_another and self._data is not None:
            self._data.take_broker_epoch(self._epoch)
        self._serve_if_unfenced()

    def _serve_if_unfenced(self) -> None:
        """Serves clients once the cluster has unfenced this broker, and our own image shows it."""
        own = self._view.image.brokers.get(self.settings.node_id)
        is_shown = own is not None and not own.fenced and own.epoch == self._epoch
        if self._data is not None and self._state is LifecycleState.RUNNING and is_shown:
            self._data.serve()
            self._serving.set()

    def _take_status(self, status: ControlStatus, lag_s: float) -> None:
        self._metrics.control = status
        self._metrics.data_loop_lagged(lag_s)

    def _why_not_ready(self) -> str | None:
        if self._stopping.is_set():
            return "stopping"
        if self.settings.is_broker and self._state is not LifecycleState.RUNNING:
            return str(self._state.value)
        return None if self._serving.is_set() else "starting"

    # --- stopping ------------------------------------------------------------------------------

    async def _stop(self) -> None:
        drain_s = self.settings.drain_timeout_ms / 1000
        if self._thread.is_running:
            if self._error is None:
                await asyncio.wrap_future(self._thread.submit(self._control.shut_down_broker(drain_s)))
            else:
                await self._fence_failed(min(drain_s, FENCE_SECONDS_MAX))
            if self._data is not None:
                await self._data.drain(0 if self._error else self.settings.drain_timeout_ms)
            await asyncio.wrap_future(self._thread.submit(self._control.stop()))
            self._thread.stop()
        if self._ops is not None:
            await self._ops.stop()
        if self._data is not None:
            self._data.close(broker_epoch=self._epoch, cleanly=self._error is None)
        if self._lock is not None:
            self._lock.release()

    async def _fence_failed(self, timeout_s: float) -> None:
        """Hands over what a node that cannot go on leads, if it serves and somebody could take it."""
        image, own = self._view.image, self.settings.node_id
        others = [each for each in image.brokers if each != own and image.is_active(each)]
        if not others or self._state is not LifecycleState.RUNNING:
            return
        logger.error("the node cannot go on, and hands over what it leads: %s", self._error)
        shut_down = self._thread.submit(self._control.shut_down_broker(timeout_s))
        if await asyncio.wrap_future(shut_down):
            logger.info("the broker is fenced, and others lead")
        else:
            logger.warning("no controller has fenced this broker within %.1f s", timeout_s)


def _make_private(directory: str) -> None:
    """A directory of an earlier version may be one that others can read: what it holds is nobody else's."""
    if os.stat(directory).st_mode & 0o077:
        try:
            os.chmod(directory, DIRECTORY_MODE)
        except OSError as error:
            logger.warning("%s can be read by others, and stays so: %s", directory, error.strerror)


def _log_activity(is_active: bool) -> None:
    logger.info(
        "this node is the active controller" if is_active else "this node is no longer the controller"
    )


def run_node(
    settings: NodeSettings,
    *,
    on_ready: Callable[[ReadyReport], None],
    disk: Disk | None = None,
    clock: Clock | None = None,
    is_new_cluster: bool = False,
) -> int:
    """Runs a node until it is told to stop; its exit code.  What is wrong before it serves is raised.

    The disk and the clock are the operating system's unless others are given.  `is_new_cluster`: the node may
    found the cluster that its settings name.
    """

    async def main() -> int:
        loop = asyncio.get_running_loop()
        node = Node(settings, loop, disk=disk, clock=clock, is_new_cluster=is_new_cluster)
        signals = 0

        def stop_requested() -> None:
            nonlocal signals
            signals += 1
            if signals > 1:
                os._exit(EXIT_HURRIED)
            node.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop_requested)
        return await node.run(on_ready)

    return asyncio.run(main())
