"""Notices that a broker has died, sooner than by the silence of a session (decision 34).

    the active controller: a broker is silent for a short while ──► its ports are tried
        every one refuses       nobody listens there: the machine is told, which fences the broker
        anything else           it is stopped, slow or cut off: its session decides

For a process that has died its machine answers, and refuses.  One that is stopped, or too busy to send
heartbeats, has ports that accept; one that is cut off has ports that say nothing.

A guess that is wrong (a proxy in between that refuses) costs the broker its leaderships until its next
heartbeat.  It makes no answer stale: decision 34 says how the leases of its coordinators are waited for.

What a crash does: nothing is kept here.  All calls come on the control loop.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from distributedlog.control.contract import ControllerReply
from distributedlog.controller.image import Endpoint
from distributedlog.controller.requests import FenceRefusedRequest, Request
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.scheduler import Scheduler

LOOK_MS: Final = 100
FENCE_TIMEOUT_MS: Final = 1_000


class SilentBroker(NamedTuple):
    broker_id: int
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]


Tried = Callable[[bool], None]
"""Called once with whether every port refused."""


class WatchedController(Protocol):
    def find_silent(self) -> Sequence[SilentBroker]:
        """Returns the unfenced brokers that have been silent for a while; none if this node is not active."""
        ...

    def submit(self, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None: ...


class PortWatch:
    """Looks while this node is the active controller."""

    def __init__(
        self,
        controller: WatchedController,
        try_ports: Callable[[SilentBroker, Tried], None],
        *,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self._controller = controller
        self._try_ports = try_ports
        self._clock = clock
        self._scheduler = scheduler
        self._tried: dict[int, SilentBroker] = {}
        """Whose ports are being tried, by broker id."""
        self._is_looking = False
        self._is_due = False
        """The next look is scheduled, also if this node is not the active controller any more."""
        self._is_stopped = False

    def take_activity(self, is_active: bool) -> None:
        """Begins to look when this node becomes the active controller, and ends when it is that no longer."""
        self._is_looking = is_active
        if not self._is_due:
            self._look()

    def stop(self) -> None:
        self._is_stopped = True

    def _look(self) -> None:
        self._is_due = False
        if not self._is_looking or self._is_stopped:
            return
        for broker in self._controller.find_silent():
            if broker.broker_id not in self._tried:
                self._tried[broker.broker_id] = broker
                self._try_ports(broker, lambda refused, tried=broker: self._take(tried, refused))  # type: ignore[misc]
        self._is_due = True
        self._scheduler.call_at(self._clock.monotonic_ms() + LOOK_MS, self._look)

    def _take(self, broker: SilentBroker, refused: bool) -> None:
        if not refused or self._is_stopped:
            self._tried.pop(broker.broker_id, None)
            return

        def fenced(_: Outcome[ControllerReply]) -> None:
            self._tried.pop(broker.broker_id, None)

        request = FenceRefusedRequest(broker.broker_id, broker.broker_epoch)
        self._controller.submit(request, FENCE_TIMEOUT_MS, fenced)
