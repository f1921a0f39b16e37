"""What crosses between the two loops, seen from the data loop.

Both directions are posted callbacks, and a loop runs what was posted to it in order.  The control loop posts
an image before it posts an answer that depends on it; so when `ask` returns, `MetadataView.image` has the
change.
"""

import asyncio
from collections.abc import Callable

from distributedlog.broker.forwarding import ControllerForwarder
from distributedlog.broker.loops import post
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.requests import Request, Response
from distributedlog.ports.executor import Outcome

ImageChanged = Callable[[MetadataImage, MetadataImage], None]
"""Called with the old image and the new one."""


class MetadataView:
    """The newest image that the data loop was given."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.image = MetadataImage()
        self._loop = loop
        self._listeners: list[ImageChanged] = []
        self._newest = self.image
        self._posted = False

    def publish(self, image: MetadataImage) -> None:
        """From the control loop.  Images that come faster than they are taken are skipped over."""
        self._newest = image
        if not self._posted:
            self._posted = True
            post(self._loop, self._take)

    def on_change(self, listener: ImageChanged) -> None:
        """On the data loop: it is called with every change from now on, and now if there is an image."""
        self._listeners.append(listener)
        if self.image.cluster_id:
            listener(MetadataImage(), self.image)

    def _take(self) -> None:
        self._posted = False
        old, self.image = self.image, self._newest
        if old is not self.image:
            for listener in self._listeners:
                listener(old, self.image)


class ControllerBridge:
    """The controller, for handlers."""

    def __init__(
        self,
        data_loop: asyncio.AbstractEventLoop,
        control_loop: asyncio.AbstractEventLoop,
        forwarder: ControllerForwarder,
    ) -> None:
        self._data_loop = data_loop
        self._control_loop = control_loop
        self._forwarder = forwarder

    async def ask(self, request: Request, timeout_ms: int) -> Response:
        """The active controller's answer, once our own image has what it did; else a DlogError."""
        future: asyncio.Future[Response] = self._data_loop.create_future()

        def arrived(outcome: Outcome[Response]) -> None:
            if future.done():
                return
            if outcome.error is not None:
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome.value())

        def done(outcome: Outcome[Response]) -> None:
            post(self._data_loop, lambda: arrived(outcome))

        post(self._control_loop, lambda: self._forwarder.ask(request, timeout_ms, done))
        return await future
