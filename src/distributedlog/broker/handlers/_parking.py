"""The awaitable of a request that is parked.

The server cancels what its client no longer waits for.  The place in `delayed` is then given back at once:
otherwise clients that come, park and go could take all places.
"""

import asyncio
from typing import TYPE_CHECKING

from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.delayed import Delayed, Parked


class ParkedAnswer(asyncio.Future[Message | None]):
    """Has a result once whoever parked it sets one.  To be made on the loop."""

    def __init__(self, delayed: "Delayed") -> None:
        super().__init__()
        self._delayed = delayed
        self.parked: Parked | None = None

    def cancel(self, msg: object = None) -> bool:
        parked, self.parked = self.parked, None
        if parked is not None:
            self._delayed.cancel(parked)
        return super().cancel(msg)
