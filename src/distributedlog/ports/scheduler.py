"""A loop, as far as drivers know it: callbacks at a time, and callbacks posted from other threads."""

from collections.abc import Callable
from typing import Protocol


class Scheduler(Protocol):
    """The one thread that a driver runs on."""

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> None: ...

    def post(self, callback: Callable[[], None]) -> None:
        """Runs `callback` on that thread; may be called from any."""
        ...
