"""One node, put together: the composition root.

    1  the directory: whose it is, locked, its logs recovered
    2  listeners are bound, so that their ports are known; nobody is served yet
    3  the control loop starts: consensus, and the metadata is followed
    4  the broker registers; once its image has caught up, its partitions are made what the image says
    5  it is let in: clients are served, and whoever started the node is told that it is ready

Stopping (SIGTERM, SIGINT): leaderships are handed over, clients drained, logs closed so that nothing has to
be recovered.  A second signal hurries: it ends as a crash would.  When a disk fails, or consensus cannot go
on, the node says why and ends with exit code 3; nothing is closed as if it were sound.
"""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from distributedlog.broker.bridge import ControllerBridge, MetadataView
from distributedlog.broker.control_plane import ControlEvents, ControlPlane
from distributedlog.broker.directory import load_identity
from distributedlog.broker.lifecycle import LifeState
from distributedlog.broker.loops import ControlThread, post
from distributedlog.broker.metrics import BrokerMetrics, ControlStatus
from distributedlog.broker.ready import ReadyReport
from distributedlog.broker.settings import NodeSettings
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import Lock, SystemDisk
from distributedlog.ports.randomness import SystemRandomness
from distributedlog.storage.checkpoints import LOCK_FILE
from distributedlog.storage.files import Files

if TYPE_CHECKING:
    from distributedlog.broker.data_plane import DataPlane
    from distributedlog.broker.ops import OpsServer

logger = logging.getLogger(__name__)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 3
EXIT_HURRIED: Final = 130
METADATA_FILES_MAX: Final = 64


class Node:
    """Lives on the data loop."""

    def __init__(self, settings: NodeSettings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self._loop = loop
        self._clock = SystemClock()
        self._disk = SystemDisk()
        self._randomness = SystemRandomness()
        self._files = Files(self._disk, open_files_max=METADATA_FILES_MAX)
        self._identity = load_identity(self._files, settings, clock=self._clock, randomness=self._randomness)
        self._metrics = BrokerMetrics()
        self._view = MetadataView(loop)
        self._thread = ControlThread()
        self._stopping = asyncio.Event()
        self._serving = asyncio.Event()
        self._error: BaseException | None = None
        self._state = LifeState.OUTSIDE
        self._lock: Lock | None = None
        self._control = ControlPlane(
            settings,
            self._identity,
            self._files,
            clock=self._clock,
            randomness=self._randomness,
            data_loop=loop,
            events=ControlEvents(
                image=self._view.publish,
                state=lambda state: post(loop, partial(self._life_changed, state)),
                active=_tell_office,
                failed=lambda error: post(loop, partial(self.fail, error)),
                status=lambda status, lag_s: post(loop, partial(self._take_status, status, lag_s)),
                prepare=lambda ready: post(loop, partial(self._prepare, ready)),
            ),
        )
        self._data: DataPlane | None = None
        self._ops: OpsServer | None = None

    # --- the whole life ------------------------------------------------------------------------

    async def run(self, on_ready: Callable[[ReadyReport], None]) -> int:
        try:
            report = await self._start()
            await self._until_serving()
            if self._error is None and not self._stopping.is_set():
                on_ready(report)
                logger.info("ready: %s", report.to_json())
                await self._settle()
            gc.enable()
            await self._stopping.wait()
        finally:
            await self._stop()
        if self._error is not None:
            logger.error("the node stops: %s", self._error)
            return EXIT_FAILED
        return EXIT_OK

    def stop(self) -> None:
        self._stopping.set()

    def fail(self, error: BaseException) -> None:
        """Cannot go on; the first reason counts."""
        if self._error is None:
            self._error = error
        self._stopping.set()

    # --- starting ------------------------------------------------------------------------------

    async def _start(self) -> ReadyReport:
        settings = self.settings
        if settings.is_broker:
            from distributedlog.broker.data_plane import DataPlane

            self._data = DataPlane(
                settings,
                self._loop,
                disk=self._disk,
                clock=self._clock,
                randomness=self._randomness,
                metrics=self._metrics,
                failed=self.fail,
            )
        else:
            self._lock = self._files.lock(f"{settings.data_dir}/{LOCK_FILE}")
        self._thread.start()
        control = await asyncio.wrap_future(self._thread.submit(self._control.start()))
        ops = await self._start_ops()
        client, gateway = await self._start_serving()
        return ReadyReport(settings.node_id, os.getpid(), client, control, gateway, ops, settings.data_dir)

    async def _start_serving(self) -> tuple[str | None, str | None]:
        """Listens for clients and for the gateway's callers, and registers where; both addresses."""
        data = self._data
        if data is None:
            gateway = await asyncio.wrap_future(self._thread.submit(self._control.start_gateway(None)))
            return None, None if gateway is None else str(gateway)
        from distributedlog.broker.data_plane import advertised_gateway

        bridge = ControllerBridge(self._loop, self._thread.loop, self._control.forwarder)
        endpoints = data.start(
            self._view,
            bridge,
            lambda: self._control.broker_epoch,
            lambda: self._control.lease_end_ms,
        )
        self._view.on_change(lambda _old, _new: self._serve_if_let_in())
        service = data.gateway_service(self._why_not_ready)
        gateway = await asyncio.wrap_future(self._thread.submit(self._control.start_gateway(service)))
        if gateway is not None:
            endpoints = (*endpoints, advertised_gateway(self.settings, gateway))
        post(self._thread.loop, lambda: self._control.join(endpoints))
        return data.client_address, None if gateway is None else str(gateway)

    async def _start_ops(self) -> str | None:
        if self.settings.ops_listener is None:
            return None
        from distributedlog.broker.ops import OpsServer

        self._ops = OpsServer(self._metrics, self._why_not_ready)
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

    def _life_changed(self, state: LifeState) -> None:
        logger.info("the broker is %s", state.value)
        self._state = state
        self._serve_if_let_in()
        if self._thread.is_running:
            self._thread.submit(self._control.set_ready(state is LifeState.SERVING))

    def _serve_if_let_in(self) -> None:
        """Once the cluster has let this broker in, and our own image shows it."""
        own = self._view.image.brokers.get(self.settings.node_id)
        is_shown = own is not None and not own.fenced and own.epoch == self._control.broker_epoch
        if self._data is not None and self._state is LifeState.SERVING and is_shown:
            self._data.serve()
            self._serving.set()

    def _take_status(self, status: ControlStatus, lag_s: float) -> None:
        self._metrics.control = status
        self._metrics.data_loop_lagged(lag_s)

    def _why_not_ready(self) -> str | None:
        if self._stopping.is_set():
            return "stopping"
        if self.settings.is_broker and self._state is not LifeState.SERVING:
            return str(self._state.value)
        return None if self._serving.is_set() else "starting"

    # --- stopping ------------------------------------------------------------------------------

    async def _stop(self) -> None:
        drain_s = self.settings.drain_timeout_ms / 1000
        if self._thread.is_running:
            if self._error is None:
                await asyncio.wrap_future(self._thread.submit(self._control.leave(drain_s)))
            if self._data is not None:
                await self._data.drain(0 if self._error else self.settings.drain_timeout_ms)
            epoch = self._control.broker_epoch
            await asyncio.wrap_future(self._thread.submit(self._control.stop()))
            self._thread.stop()
        else:
            epoch = -1
        if self._ops is not None:
            await self._ops.stop()
        if self._data is not None:
            self._data.close(broker_epoch=epoch, cleanly=self._error is None)
        if self._lock is not None:
            self._lock.release()


def _tell_office(is_active: bool) -> None:
    logger.info(
        "this node is the active controller" if is_active else "this node is no longer the controller"
    )


def run_node(settings: NodeSettings, *, on_ready: Callable[[ReadyReport], None]) -> int:
    """Runs a node until it is told to stop; its exit code.  What is wrong before it serves is raised."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        node = Node(settings, loop)
        signals = 0

        def told_to_stop() -> None:
            nonlocal signals
            signals += 1
            if signals > 1:
                os._exit(EXIT_HURRIED)
            node.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told_to_stop)
        return await node.run(on_ready)

    return asyncio.run(main())
