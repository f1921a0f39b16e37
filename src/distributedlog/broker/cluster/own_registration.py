"""A controller's own registration: where it is reached and what it votes with, made so in the metadata.

    image says otherwise of us, or nothing  ->  ask the active controller to register us  ->  image says so
                                                |-> refused, or no answer: again after a pause

It is compared with every image, so nothing has to be remembered: a node that starts, whose address or storage
is another, or that was forgotten when it was removed from the voters, registers.  A cluster that keeps no
registrations yet is not asked; it will be when its level is raised.
"""

import logging
from typing import Final, Protocol

from distributedlog.controller.features import has_controllers
from distributedlog.controller.image import ControllerRegistration, MetadataImage
from distributedlog.controller.requests import RegisterControllerRequest, Request, Response
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.scheduler import Scheduler

ASK_MS: Final = 5_000
PAUSE_MS: Final = 500
"""The time between two requests: two nodes under one number would register against each other."""

_log = logging.getLogger(__name__)


class AsksController(Protocol):
    def ask(self, request: Request, timeout_ms: int, done: Done[Response]) -> None: ...


class OwnRegistration:
    """Lives on the control loop."""

    def __init__(
        self, own: ControllerRegistration, forwarder: AsksController, *, clock: Clock, scheduler: Scheduler
    ) -> None:
        self._own = own
        self._forwarder = forwarder
        self._clock = clock
        self._scheduler = scheduler
        self._image = MetadataImage()
        self._is_asking = False
        self._stopped = False

    def take_image(self, image: MetadataImage) -> None:
        self._image = image
        self._settle()

    def stop(self) -> None:
        self._stopped = True

    def _settle(self) -> None:
        image, own = self._image, self._own
        is_so = image.controllers.get(own.controller_id) == own
        if self._is_asking or self._stopped or is_so:
            return
        if not image.cluster_id or not has_controllers(image.level):
            return
        self._is_asking = True
        self._forwarder.ask(RegisterControllerRequest(image.cluster_id, own), ASK_MS, self._answered)

    def _answered(self, outcome: Outcome[Response]) -> None:
        if outcome.error is not None and not self._stopped:
            _log.info("this controller is not registered yet: %s", outcome.error)
        self._scheduler.call_at(self._clock.monotonic_ms() + PAUSE_MS, self._again)

    def _again(self) -> None:
        self._is_asking = False
        self._settle()
