"""What crosses between the two loops, seen from the data loop.

Both directions are posted callbacks, and a loop runs what was posted to it in order.  The control loop posts
an image before it posts a reply that depends on it; so when `ask` returns, `MetadataView.image` has the
change.
"""

import asyncio
import threading
from collections.abc import Callable

from distributedlog.broker.loops import post
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.requests import Request, Response
from distributedlog.ports.executor import Done, Outcome

ImageChanged = Callable[[MetadataImage, MetadataImage], None]
"""Called with the old image and the new one."""


class ImagePublisher:
    """The way of images from the control loop to the data loop: the one object that both touch, under a lock.

    Images that come faster than they are taken are skipped over, which posting each of them would not do.
    """

    def __init__(self, data_loop: asyncio.AbstractEventLoop, take: Callable[[MetadataImage], None]) -> None:
        """`take` is called on the data loop."""
        self._data_loop = data_loop
        self._take = take
        self._lock = threading.Lock()
        self._newest: MetadataImage | None = None

    def publish(self, image: MetadataImage) -> None:
        """Publishes an image; called on the control loop."""
        with self._lock:
            is_posted, self._newest = self._newest is not None, image
        if not is_posted:
            post(self._data_loop, self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            image, self._newest = self._newest, None
        assert image is not None, "one delivery is posted for each that is taken"
        self._take(image)


class MetadataView:
    """The newest image that the data loop was given.  Lives on the data loop."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._listeners: list[ImageChanged] = []

    def on_change(self, listener: ImageChanged) -> None:
        """Registers a callback on the data loop: it is called with every change from now on, and now if there
        is an image."""
        self._listeners.append(listener)
        if self.image.cluster_id:
            listener(MetadataImage(), self.image)

    def take(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        if old is not self.image:
            for listener in self._listeners:
                listener(old, self.image)


class ControllerBridge:
    """The controller, for handlers."""

    def __init__(
        self,
        data_loop: asyncio.AbstractEventLoop,
        control_loop: asyncio.AbstractEventLoop,
        ask_controller: Callable[[Request, int, Done[Response]], None],
    ) -> None:
        """`ask_controller` is called on the control loop, and calls back there."""
        self._data_loop = data_loop
        self._control_loop = control_loop
        self._ask_controller = ask_controller

    async def ask(self, request: Request, timeout_ms: int) -> Response:
        """Returns the active controller's reply, once our own image has what it did; else a DlogError."""
        future: asyncio.Future[Response] = self._data_loop.create_future()

        def arrived(outcome: Outcome[Response]) -> None:
            if future.done():
                return
            if outcome.error is not None:
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome.value())

        self.submit(request, timeout_ms, arrived)
        return await future

    def submit(self, request: Request, timeout_ms: int, done: Done[Response]) -> None:
        """Does the same, and calls `done` on the data loop."""

        def arrived(outcome: Outcome[Response]) -> None:
            post(self._data_loop, lambda: done(outcome))

        post(self._control_loop, lambda: self._ask_controller(request, timeout_ms, arrived))
