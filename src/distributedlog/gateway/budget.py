"""Bytes that many may hold, but not all at once.

Whoever wants some waits until they are free, in the order of asking: a large wish is not passed over by small
ones for ever.  Nobody waits for more while it holds some, so nobody waits for ever.
"""

import asyncio
from collections import deque


class ByteBudget:
    """The bytes that may be in use on one loop."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._free_bytes = total_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def free_bytes(self) -> int:
        return self._free_bytes

    async def take(self, wanted_bytes: int) -> None:
        """Waits for as much; give the same back.  Nobody gets more than all there is."""
        if wanted_bytes > self.total_bytes:
            raise ValueError(f"{wanted_bytes} bytes are more than the {self.total_bytes} there are")
        if not self._waiting and wanted_bytes <= self._free_bytes:
            self._free_bytes -= wanted_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(wanted_bytes)  # its turn had come at the same moment
            else:
                turn.cancel()
                self._let_in()
            raise

    def give_back(self, held_bytes: int) -> None:
        self._free_bytes += held_bytes
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            wanted_bytes, turn = self._waiting[0]
            if not turn.done():
                if wanted_bytes > self._free_bytes:
                    return
                self._free_bytes -= wanted_bytes
                turn.set_result(None)
            self._waiting.popleft()
